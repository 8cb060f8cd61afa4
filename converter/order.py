"""Topological order of nodes that follows the measured start times, and checks that the edges of a graph are sound."""

from collections.abc import Callable

import numpy as np

from ..schema.columns import Categorical, Int64, NodeNumbers, earliest_order, is_group_start
from ..schema.errors import DataError
from .context import Edges

ROUNDS = 64
NODES_SHOWN = 16


def deduplicated(edges: Edges, count: int) -> Edges:
    """Returns one edge per pair of nodes, with all its kinds, sorted by target, then source."""
    key = edges.target * count + edges.source
    order = np.argsort(key, kind="stable")
    key = key[order]
    first = np.flatnonzero(is_group_start(key))
    kind = np.bitwise_or.reduceat(edges.kind[order], first) if len(first) else edges.kind
    return Edges(NodeNumbers(key[first] % count), NodeNumbers(key[first] // count), kind)


def topological_order(start: Int64, edges: Edges, names: Callable[[], Categorical] | None = None) -> NodeNumbers:
    """Returns node numbers in an order in which every edge points forward, by start time as far as that allows.

    Equal times, frequent in whole-µs traces, are settled in a few vectorised rounds, and by a heap if these do not
    suffice. Raises DataError with the nodes of a cycle, named by `names`, if there is one.
    """
    order = order_without_circles(start, edges)
    if len(order) < len(start):
        raise DataError(
            f"the dependencies form a cycle: {_cycle(edges, order, names)}; if link made the trace, please report this"
        )
    return order


def order_without_circles(start: Int64, edges: Edges) -> NodeNumbers:
    """Returns the same order, without the nodes on a cycle or behind one."""
    order = _settle_ties(start, edges)
    return NodeNumbers(earliest_order(edges.source, edges.target, start) if order is None else order)


def _settle_ties(start: Int64, edges: Edges) -> Int64 | None:
    time, level = start.copy(), np.zeros(len(start), np.int64)
    for _ in range(ROUNDS):
        source, target = edges.source, edges.target
        wrong = (time[source] > time[target]) | ((time[source] == time[target]) & (level[source] >= level[target]))
        if not wrong.any():
            return np.lexsort((np.arange(len(start)), level, time)).astype(np.int64)
        source, target = source[wrong], target[wrong]
        np.maximum.at(time, target, time[source])
        level_with = np.where(time[source] == time[target], level[source] + 1, 0)
        np.maximum.at(level, target, level_with)
    return None


def _cycle(edges: Edges, ordered: NodeNumbers, names: Callable[[], Categorical] | None) -> str:
    import networkx as nx  # needed for a cycle only, and slow to load

    inside = ~np.isin(edges.source, ordered) & ~np.isin(edges.target, ordered)
    graph: nx.DiGraph[int] = nx.DiGraph(zip(edges.source[inside].tolist(), edges.target[inside].tolist(), strict=True))
    nodes = [source for source, _ in nx.find_cycle(graph)]
    node_names = names() if names is not None else None
    labels = [str(node) if node_names is None else f"{node} ({node_names[node]})" for node in [*nodes, nodes[0]]]
    hidden = len(labels) - NODES_SHOWN
    return " -> ".join([*labels[:NODES_SHOWN], f"and {hidden} more"] if hidden > 0 else labels)


def check(edges: Edges, control: Edges, count: int) -> None:
    """Raises DataError unless every edge joins two nodes and points to a higher number, and none is there twice.
    Linear.

    As all edges point forward, data and control dependencies together are acyclic.
    """
    for what, part in (("data", edges), ("control", control)):
        outside = (part.source < 0) | (part.target < 0) | (part.source >= count) | (part.target >= count)
        if outside.any():
            raise DataError(f"{int(outside.sum())} {what} dependencies point to no node")
        if (part.source >= part.target).any():
            first = int(np.flatnonzero(part.source >= part.target)[0])
            raise DataError(
                f"a {what} dependency points forward: node {part.target[first] + 1} on {part.source[first] + 1}"
            )
    again = ~is_group_start(np.sort(edges.target * count + edges.source))
    if again.any():
        raise DataError(f"{int(again.sum())} dependencies are there twice")
