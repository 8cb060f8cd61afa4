"""A host node after the last messages of a rank, for a simulator that must not end with one.

ASTRA-sim v3 stops where the last event of a rank with host nodes is a send or receive: it reports the end of the rank
from within the network, where nothing catches what it throws.
"""

import numpy as np

from ...schema.columns import NodeNumbers
from ...schema.graph import DependencyKind, ExecutionGraph, NodeType
from ..added_nodes import with_added_nodes
from ..context import Edges
from ..rewiring import control_edges, data_edges, edited_graph

AFTER_MESSAGES = "after the last messages"
"""The name of the node."""


def with_node_after_messages(graph: ExecutionGraph) -> ExecutionGraph:
    """Returns the graph with a host node of 1 µs after all messages on which nothing depends; the same graph if it has
    none of these or no host node.

    The node takes time in the simulator only: it has no measured length. v1 has no event for a node of 0 µs.
    """
    data, count = data_edges(graph), len(graph)
    is_message = np.isin(graph.type, (NodeType.COMM_SEND, NodeType.COMM_RECV))
    last_messages = np.setdiff1d(np.flatnonzero(is_message), data.source)
    end = graph.host_clock_start_ns + graph.duration_ns
    host = np.flatnonzero(graph.integers("is_cpu_op", 0) > 0)
    if not len(last_messages) or not len(host):
        return graph
    like = NodeNumbers(host[[end[host].argmax()]])
    start = end[last_messages].max(keepdims=True)
    ended = with_added_nodes(graph, like, AFTER_MESSAGES, {"is_cpu_op": np.ones_like(start), "start_time_ns": start})
    ended.duration_micros[count] = 1
    awaited = Edges.of(
        NodeNumbers(last_messages), NodeNumbers(np.full(len(last_messages), count)), DependencyKind.HOST_SYNC
    )
    return edited_graph(ended, NodeNumbers(np.arange(count + 1)), Edges.joined([data, awaited]), control_edges(graph))
