"""Graphs in, when each node runs out: as measured, or with durations changed.

`replay` takes one graph, `replay_ranks` those of a job."""

from .critical_path import KINDS, WAITS, Pieces, critical_path, pieces_of, time_by_kind
from .execution import Replay, replay, replay_ranks, replays, topological_order
from .node_class import COMMUNICATION_TYPES, Classes, NodeClass, moves_memory, node_classes
from .one_job import why_not_one_job
from .roofline import Bound, Kernels, LeastTime, bound_by, device_peaks, least_time, roofs
from .scaling import SCALABLE, Scale, check_names, parse_scale
from .simulator_rules import Simulated, SimulatedRank, describe_simulated, simulated, simulated_ends
from .summary import describe, explained_pct, summarise, trust
from .timeline import write_timeline
from .what_if import WhatIf, what_if
from .workload import Lane, Workload, gather, number_text

__all__ = [
    "COMMUNICATION_TYPES",
    "KINDS",
    "SCALABLE",
    "WAITS",
    "Bound",
    "Classes",
    "Kernels",
    "Lane",
    "LeastTime",
    "NodeClass",
    "Pieces",
    "Replay",
    "Scale",
    "Simulated",
    "SimulatedRank",
    "WhatIf",
    "Workload",
    "bound_by",
    "check_names",
    "critical_path",
    "describe",
    "describe_simulated",
    "device_peaks",
    "explained_pct",
    "gather",
    "least_time",
    "moves_memory",
    "node_classes",
    "number_text",
    "parse_scale",
    "pieces_of",
    "replay",
    "replay_ranks",
    "replays",
    "roofs",
    "simulated",
    "simulated_ends",
    "summarise",
    "time_by_kind",
    "topological_order",
    "trust",
    "what_if",
    "why_not_one_job",
    "write_timeline",
]
