"""Changes to a graph's nodes and edges: order, lanes, nodes taken out with what depended on them kept in order."""

from .circles import order_through_circles
from .device_only import COMMUNICATION, SILENT, without_host
from .lane_clocks import known_after
from .lanes import lanes_of, whole_microseconds
from .order import check, deduplicated, topological_order
from .rewiring import (
    NO_EDGES,
    control_edges,
    data_edges,
    edited_graph,
    recorded_edges,
    rows_of_graph,
    spliced,
    take_rows,
    used,
)
from .uncovered_time import alone, covered_until

__all__ = [
    "COMMUNICATION",
    "NO_EDGES",
    "SILENT",
    "alone",
    "check",
    "control_edges",
    "covered_until",
    "data_edges",
    "deduplicated",
    "edited_graph",
    "known_after",
    "lanes_of",
    "order_through_circles",
    "recorded_edges",
    "rows_of_graph",
    "spliced",
    "take_rows",
    "topological_order",
    "used",
    "whole_microseconds",
    "without_host",
]
