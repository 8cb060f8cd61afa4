"""Turns waiting before nodes whose duration the simulator computes into nodes of its own.

These are communication and, in roofline mode, kernels of known work.
"""

import numpy as np

from ...schema.columns import ABSENT, Bool, NodeNumbers
from ...schema.graph import DependencyKind, ExecutionGraph
from ..added_nodes import set_rows, with_added_nodes
from ..context import Edges
from ..device_only import COMMUNICATION
from ..rewiring import NO_EDGES, data_edges, edited_graph
from .roofline import has_work

NAME = "host delay"


def delays_before_communication(graph: ExecutionGraph) -> tuple[ExecutionGraph, int]:
    """Returns the graph without `host_delay_ns` on communication, and the number of nodes of no length that have it
    instead.

    Each of these stands between a communication and its dependencies. Control dependencies are lost if there is one.
    """
    return _waiting_before(graph, np.isin(graph.type, COMMUNICATION), ("host_delay_ns",))


def waits_before_known_work(graph: ExecutionGraph) -> tuple[ExecutionGraph, int]:
    """Returns the same for computation of known work, which loses its gaps, too."""
    return _waiting_before(graph, has_work(graph), ("host_delay_ns", "gap_ns"))


def _waiting_before(graph: ExecutionGraph, before: Bool, parts: tuple[str, ...]) -> tuple[ExecutionGraph, int]:
    """Returns the graph in which the attributes `parts` of these nodes became nodes of their own, and the number of
    these.
    """
    wait = np.sum([graph.integers(name, 0) for name in parts], axis=0)
    late = NodeNumbers(np.flatnonzero(before & (wait > 0)))
    if not len(late):
        return graph, 0
    count, added = len(graph), NodeNumbers(len(graph) + np.arange(len(late)))
    data = data_edges(graph)
    stand_in = np.arange(count)
    stand_in[late] = added
    moved = data._replace(target=NodeNumbers(stand_in[data.target]))
    launches = Edges.of(added, late, DependencyKind.LAUNCH)
    gap_before = 0 if "gap_ns" in parts else graph.integers("gap_ns", 0)[late]
    start, on_device = graph.start_ns[late] - gap_before, np.zeros(len(late), np.int64)
    values = {"is_cpu_op": on_device, "start_time_ns": start, "host_delay_ns": wait[late]}
    widened = with_added_nodes(graph, late, NAME, values)
    for name in parts:
        widened.attributes[name] = set_rows(widened.integers(name), late, ABSENT)
    rows = NodeNumbers(np.arange(count + len(late)))
    return edited_graph(widened, rows, Edges.joined([moved, launches]), NO_EDGES), len(late)
