"""Graphs in, when each node runs out: as measured, or with durations changed.

`replay` takes one graph, `replay_ranks` those of a job.

When ASTRA-sim finishes each rank of a job, without the simulator: graphs and its configuration in, times out.
"""

from .critical_path import (
    KINDS as KINDS,
    UNEXPLAINED as UNEXPLAINED,
    WAITS as WAITS,
    Pieces as Pieces,
    critical_path as critical_path,
    edge_weights as edge_weights,
    pieces_of as pieces_of,
    time_by_kind as time_by_kind,
)
from .execution import (
    Replay as Replay,
    makespan_ns as makespan_ns,
    replay as replay,
    replay_job as replay_job,
    replay_ranks as replay_ranks,
    topological_order as topological_order,
)
from .node_class import (
    COMMUNICATION_TYPES as COMMUNICATION_TYPES,
    Classes as Classes,
    NodeClass as NodeClass,
    moves_memory as moves_memory,
    node_classes as node_classes,
)
from .one_job import graphs_of_one_job as graphs_of_one_job, why_not_one_job as why_not_one_job
from .path_crossings import (
    Crossings as Crossings,
    crossing_names as crossing_names,
    crossings as crossings,
    path_nodes as path_nodes,
)
from .rank_clocks import GatheredJob as GatheredJob, StartOffset as StartOffset, gather_job as gather_job
from .recording import (
    Cause as Cause,
    Recording as Recording,
    recording as recording,
    recording_of as recording_of,
    without_profiler as without_profiler,
)
from .roofline import (
    Bound as Bound,
    Kernels as Kernels,
    device_peaks as device_peaks,
    least_time as least_time,
    roofs as roofs,
)
from .scaling import (
    SCALABLE as SCALABLE,
    Changes as Changes,
    Matched as Matched,
    Scale as Scale,
    given_changes as given_changes,
    matched as matched,
    parse_scale as parse_scale,
    scale_nodes as scale_nodes,
    scale_workload as scale_workload,
)
from .simulated_ranks import (
    Simulated as Simulated,
    describe_simulated as describe_simulated,
    simulate_ranks as simulate_ranks,
)
from .simulator_configuration import (
    Configuration as Configuration,
    configuration_of as configuration_of,
    read_configuration as read_configuration,
)
from .simulator_rules import simulated_ends as simulated_ends
from .summary import (
    ReplaySummary as ReplaySummary,
    busy_ns as busy_ns,
    describe as describe,
    explained_pct as explained_pct,
    off_by_target as off_by_target,
    start_error as start_error,
    summarise as summarise,
    trust as trust,
)
from .uncertain_waits import MakespanRange as MakespanRange
from .workload import Workload as Workload, gather as gather
