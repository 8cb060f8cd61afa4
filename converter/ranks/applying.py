"""Applies the agreement of a job to one rank's graph: order of communication, sizes, missing partners.

Nodes are identified by id. The functions do not change the graphs that they take.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from ...schema.columns import NodeIds, NodeNumbers
from ...schema.graph import CollectiveType, DependencyKind, ExecutionGraph, NodeType
from ..context import Edges
from ..order import deduplicated
from ..rewiring import control_edges, data_edges, edited_graph
from .ready_messages import SimulatedOrder


def order_collectives(graph: ExecutionGraph, order: Sequence[int]) -> ExecutionGraph:
    """Returns the graph with a dependency of kind collective between each two consecutive nodes of `order`.

    Its ids change where they contradict the order. Raises DataError if the order contradicts the graph's dependencies.
    """
    rows = graph.rows_of(NodeIds(np.array(order, np.int64)))
    chain = Edges.of(NodeNumbers(rows[:-1]), NodeNumbers(rows[1:]), DependencyKind.COLLECTIVE)
    data = deduplicated(Edges.joined([data_edges(graph), chain]), len(graph))
    return edited_graph(graph, NodeNumbers(np.arange(len(graph))), data, control_edges(graph))


def resize_communication(graph: ExecutionGraph, sizes: Mapping[int, int]) -> ExecutionGraph:
    """Returns the graph with these sizes, in bytes, by node id."""
    return _with_values(graph, "comm_size", sizes)


def add_excess_time(graph: ExecutionGraph, excess_ns: Mapping[int, int]) -> ExecutionGraph:
    """Returns the graph with how much longer than in the fitted network each collective took, by node id."""
    return _with_values(graph, "excess_ns", excess_ns)


def replay_collectives(graph: ExecutionGraph, nodes: Sequence[int]) -> ExecutionGraph:
    """Returns the graph with these collectives, by node id, as broadcasts, which ASTRA-sim runs for their time."""
    return _with_values(graph, "comm_type", dict.fromkeys(nodes, int(CollectiveType.BROADCAST)))


def add_simulated_order(graph: ExecutionGraph, order: SimulatedOrder) -> ExecutionGraph:
    """Returns the graph with the positions of its communication and the tags of ready messages."""
    return _with_values(_with_values(graph, "comm_order", order.positions), "ready_tag", order.ready)


def _with_values(graph: ExecutionGraph, attribute: str, values: Mapping[int, int]) -> ExecutionGraph:
    if not values:
        return graph
    column = graph.integers(attribute)
    column[graph.rows_of(NodeIds(np.fromiter(values, np.int64, len(values))))] = list(values.values())
    return dataclasses.replace(graph, attributes={**graph.attributes, attribute: column})


def compute_instead(graph: ExecutionGraph, nodes: Sequence[int]) -> ExecutionGraph:
    """Returns the graph with these nodes as computation of their measured duration."""
    types = graph.type.copy()
    types[graph.rows_of(NodeIds(np.array(nodes, np.int64)))] = NodeType.COMP
    return dataclasses.replace(graph, type=types)
