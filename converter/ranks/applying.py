"""Makes one rank's graph keep what its job agreed on: an order of communication, sizes, what has no partner.

Nodes are given by id. The graphs given stay as they are.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from ...schema.graph import DependencyKind, ExecutionGraph, NodeType
from ..context import Edges
from ..edit import control_edges, data_edges, deduplicated, edited_graph


def order_collectives(graph: ExecutionGraph, order: Sequence[int]) -> ExecutionGraph:
    """Returns the graph with each of these nodes after the one before it in `order`, by dependencies of kind
    collective.

    Its ids are new where the order is against the old ones. Raises DataError if the order contradicts the graph's
    dependencies.
    """
    rows = graph.rows_of(np.array(order, np.int64))
    chain = Edges.of(rows[:-1], rows[1:], DependencyKind.COLLECTIVE)
    data = deduplicated(Edges.joined([data_edges(graph), chain]), len(graph))
    return edited_graph(graph, np.arange(len(graph)), data, control_edges(graph))


def resize_communication(graph: ExecutionGraph, sizes: Mapping[int, int]) -> ExecutionGraph:
    """Returns the graph with these bytes as the sizes of nodes."""
    size = graph.integers("comm_size")
    size[graph.rows_of(np.fromiter(sizes, np.int64, len(sizes)))] = list(sizes.values())
    return dataclasses.replace(graph, attributes={**graph.attributes, "comm_size": size})


def compute_instead(graph: ExecutionGraph, nodes: Sequence[int]) -> ExecutionGraph:
    """Returns the graph with these nodes as computation of their measured duration."""
    types = graph.type.copy()
    types[graph.rows_of(np.array(nodes, np.int64))] = NodeType.COMP
    return dataclasses.replace(graph, type=types)
