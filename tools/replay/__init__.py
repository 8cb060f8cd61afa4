"""Graphs in, when each node runs out: as measured, or with durations changed.

`replay` takes one graph, `replay_ranks` those of a job.

When ASTRA-sim finishes each rank of a job, without the simulator: graphs and its configuration in, times out.
"""

from .changes import (
    SCALABLE as SCALABLE,
    Bound as Bound,
    Changes as Changes,
    Kernels as Kernels,
    Scale as Scale,
    device_peaks as device_peaks,
    given_changes as given_changes,
    least_time as least_time,
    matched as matched,
    parse_scale as parse_scale,
    recorded_peaks as recorded_peaks,
    roofs as roofs,
    scale_nodes as scale_nodes,
    scale_workload as scale_workload,
)
from .critical_path import (
    KINDS as KINDS,
    UNEXPLAINED as UNEXPLAINED,
    WAITS as WAITS,
    Pieces as Pieces,
    critical_path as critical_path,
    crossings as crossings,
    edge_weights as edge_weights,
    pieces_of as pieces_of,
    time_by_kind as time_by_kind,
)
from .execution import (
    MakespanRange as MakespanRange,
    Replay as Replay,
    makespan_ns as makespan_ns,
    replay as replay,
    replay_job as replay_job,
    replay_ranks as replay_ranks,
)
from .gathered_job import (
    GatheredJob as GatheredJob,
    gather_job as gather_job,
    graphs_of_one_job as graphs_of_one_job,
    why_not_one_job as why_not_one_job,
)
from .player import simulated_ends as simulated_ends
from .recording import (
    Cause as Cause,
    Recording as Recording,
    recording as recording,
    recording_of as recording_of,
    without_profiler as without_profiler,
)
from .simulator import (
    Configuration as Configuration,
    Simulated as Simulated,
    configuration_of as configuration_of,
    describe_simulated as describe_simulated,
    read_configuration as read_configuration,
    simulate_ranks as simulate_ranks,
)
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
from .workload import (
    COMMUNICATION_TYPES as COMMUNICATION_TYPES,
    Classes as Classes,
    NodeClass as NodeClass,
    Workload as Workload,
    gather as gather,
    graph_files as graph_files,
    moves_memory as moves_memory,
    node_classes as node_classes,
)
