"""Graphs in, when each node runs out: as measured, or with durations changed; and as ASTRA-sim would run a job."""

from .calls import LOADER, OPTIMIZER, UNRECORDED, Calls, HostOps, Phase, calls_of, phase_intervals, phases_of, within
from .changed_graphs import changed_graphs
from .changes import (
    SCALABLE, UNDER, Bound, Changes, Kernels, Roofline, Scale, device_peaks, given_changes, kernels_of, matched, parse_scale,
    recorded_peaks, roofline, scale_nodes, scale_workload,
)  # fmt: skip
from .critical_path import (
    DATA_WAIT, HOST_DELAY, KINDS, UNEXPLAINED, WAITS, Pieces, critical_path, crossings, edge_weights, pieces_of,
    time_by_kind,
)  # fmt: skip
from .data_loading import of_loader_threads, waits_of, with_waits
from .execution import (
    CLEAR_PCT, MakespanRange, Replay, changed_job, ends_ns, fixed_in_words, makespan_ns, noise_around, replay, replay_job,
    replay_ranks,
)  # fmt: skip
from .job_graphs import BUILT, Graphs, given_graphs, graph_files, graph_paths, losses, read_graph_file, why_not_one_job
from .recording import Cause, Recording, Run, noise_of, recording, run_of, with_loaders_us
from .simulator import Simulated, configuration_of, describe_simulated, simulate_ranks
from .summary import (
    MOST_UNEXPLAINED_PCT, RELIABLE_MODEL_PCT, RELIABLE_PCT, ReplaySummary, busy_ns, describe, explained_pct,
    off_by_target, summarise, trust,
)  # fmt: skip
from .workload import (
    COMMUNICATION_TYPES, Classes, NodeClass, Workload, gather, gather_job, moves_memory, node_classes, shortest_members,
    with_causes,
)  # fmt: skip
