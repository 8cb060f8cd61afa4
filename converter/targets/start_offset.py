"""The start offset of a rank as a node, for a simulator that starts all ranks at once."""

import numpy as np

from ...schema.columns import NodeNumbers
from ...schema.graph import DependencyKind, ExecutionGraph
from ..added_nodes import with_added_nodes
from ..context import Edges
from ..ranks import measured_times
from ..rewiring import control_edges, data_edges, edited_graph

START_OFFSET = "start offset"
"""The name of the node."""


def with_start_offset(graph: ExecutionGraph, offset_ns: int) -> ExecutionGraph:
    """Returns the graph with a node of `offset_ns` before all others, of whole µs; the same graph for less than half
    a µs.

    The node takes time in the simulator only: it has no measured length, and starts with the recording of the rank.
    """
    whole_us = (offset_ns + 500) // 1000
    if not whole_us:
        return graph
    data, count = data_edges(graph), len(graph)
    roots, on_host = np.setdiff1d(np.arange(count), data.target), graph.integers("is_cpu_op", 0)
    # on the host, as the rank itself was, unless the graph has none
    first = NodeNumbers(roots[np.lexsort((graph.host_clock_start_ns[roots], -on_host[roots]))[:1]])
    shift = np.where(on_host[first], 0, graph.number("clock_offset_ns", 0))
    start = measured_times(graph).begin_ns - shift
    values = {"is_cpu_op": on_host[first], "start_time_ns": start, "start_offset_ns": np.array([offset_ns])}
    delayed = with_added_nodes(graph, first, START_OFFSET, values)
    delayed.duration_micros[count] = whole_us
    before_all = Edges.of(NodeNumbers(np.full(len(roots), count)), NodeNumbers(roots), DependencyKind.PROGRAM_ORDER)
    order = NodeNumbers(np.roll(np.arange(count + 1), 1))
    return edited_graph(delayed, order, Edges.joined([before_all, data]), control_edges(graph))
