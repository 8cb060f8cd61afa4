"""Edges between nodes: joined, put in order and checked, and without those that others imply. Traces with many equal or
swapped times may give circles: there only edges that follow from the order of calls stay.
"""

from collections.abc import Callable, Iterable
from functools import reduce
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from ..schema.columns import Bool, Categorical, Int64, NodeNumbers, earliest_order, is_group_start, isin, positions
from ..schema.errors import DataError
from ..schema.graph import DependencyKind

ROUNDS = 64
NODES_SHOWN = 16
SURE = DependencyKind.PROGRAM_ORDER | DependencyKind.LAUNCH | DependencyKind.STREAM_ORDER
"""Kinds of edges that follow from the order of calls; in a circle all other edges give way to them."""
Clock = tuple[int, ...]
"""The last row of each lane that is known to have ended, -1 for none."""


class Edges(NamedTuple):
    """Finish-to-start dependencies between nodes of a context or rows of a graph; `kind` is a DependencyKind mask."""

    source: NodeNumbers
    target: NodeNumbers
    kind: Int64

    @staticmethod
    def of(source: Int64, target: Int64, kind: int | Int64) -> "Edges":
        """Returns edges of one kind, or with a kind each, without the pairs that lack an end (-1)."""
        kinds = kind if isinstance(kind, np.ndarray) else np.full(len(source), kind, np.int64)
        return Edges(NodeNumbers(source), NodeNumbers(target), kinds).where((source >= 0) & (target >= 0))

    def where(self, chosen: Bool | Int64) -> "Edges":
        """Returns the edges that a mask or rows choose."""
        return Edges(NodeNumbers(self.source[chosen]), NodeNumbers(self.target[chosen]), self.kind[chosen])

    def in_order(self) -> "Edges":
        """Returns the edges by target, then source."""
        return self.where(np.lexsort((self.source, self.target)))

    def renumbered(self, source: Int64 | None = None, target: Int64 | None = None) -> "Edges":
        """Returns the edges with these numbers instead of their sources, or targets, where such are given."""
        sources = self.source if source is None else NodeNumbers(source[self.source])
        targets = self.target if target is None else NodeNumbers(target[self.target])
        return Edges(sources, targets, self.kind)

    @staticmethod
    def joined(parts: "list[Edges]") -> "Edges":
        """Returns the edges of all parts, one part after the other."""
        source, target, kind = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        return Edges(NodeNumbers(source), NodeNumbers(target), kind)


NO_EDGES = Edges(NodeNumbers(np.empty(0, np.int64)), NodeNumbers(np.empty(0, np.int64)), np.empty(0, np.int64))


def deduplicated(edges: Edges, count: int) -> Edges:
    """Returns one edge per pair of nodes, with all its kinds, sorted by target, then source."""
    key = edges.target * count + edges.source
    order = np.argsort(key, kind="stable")
    key = key[order]
    first = np.flatnonzero(is_group_start(key))
    kind = np.bitwise_or.reduceat(edges.kind[order], first) if len(first) else edges.kind
    return Edges(NodeNumbers(key[first] % count), NodeNumbers(key[first] // count), kind)


def topological_order(start: Int64, edges: Edges, names: Callable[[], Categorical] | None = None) -> NodeNumbers:
    """Returns nodes in an order in which every edge points forward, by start if possible; DataError for a cycle."""
    order = _without_circles(start, edges)
    if len(order) == len(start):
        return order
    import networkx as nx  # needed for a cycle only, and slow to load

    inside = edges.where(~isin(edges.source, order) & ~isin(edges.target, order))
    graph: nx.DiGraph[int] = nx.DiGraph(zip(inside.source.tolist(), inside.target.tolist(), strict=True))
    nodes = [source for source, _ in nx.find_cycle(graph)]
    node_names = names() if names is not None else None
    labels = [str(node) if node_names is None else f"{node} ({node_names[node]})" for node in [*nodes, nodes[0]]]
    hidden = len(labels) - NODES_SHOWN
    cycle = " -> ".join([*labels[:NODES_SHOWN], f"and {hidden} more"] if hidden > 0 else labels)
    raise DataError(f"the dependencies form a cycle: {cycle}; if link made the trace, please report this")


def _without_circles(start: Int64, edges: Edges) -> NodeNumbers:
    """Returns the order of `topological_order`, without the nodes on a cycle or behind one."""
    time, level = start.copy(), np.zeros(len(start), np.int64)
    for _ in range(ROUNDS):
        source, target = edges.source, edges.target
        wrong = (time[source] > time[target]) | ((time[source] == time[target]) & (level[source] >= level[target]))
        if not wrong.any():
            return NodeNumbers(np.lexsort((np.arange(len(start)), level, time)).astype(np.int64))
        source, target = source[wrong], target[wrong]
        np.maximum.at(time, target, time[source])
        np.maximum.at(level, target, np.where(time[source] == time[target], level[source] + 1, 0))
    return NodeNumbers(earliest_order(edges.source, edges.target, start))


def check(edges: Edges, control: Edges, count: int) -> None:
    """Raises DataError unless every edge joins two nodes and points to a higher number, and none is there twice."""
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


def order_through_circles(start: Int64, edges: Edges) -> tuple[NodeNumbers, Bool]:
    """Returns an order by start time that breaks each circle somewhere, and which edges point backward in it."""
    order = _without_circles(start, edges)
    if len(order) == len(start):
        return order, np.zeros(len(edges.source), np.bool_)
    # taken is a node that is ready, else one that waits for unsure dependencies only, else any
    order = NodeNumbers(earliest_order(edges.source, edges.target, start, edges.kind & int(SURE) != 0))
    position = positions(order, len(order))
    return order, position[edges.source] >= position[edges.target]


def known_after(edges: Edges, lane: Int64, lanes: int) -> list[Clock]:
    """Returns a clock for each row, from forward edges by target; nodes without a lane (-1) pass on what they know."""
    nothing: Clock = (-1,) * lanes
    clocks: list[Clock] = []
    sources, first = edges.source.tolist(), np.searchsorted(edges.target, np.arange(len(lane) + 1)).tolist()
    for row, own_lane in enumerate(lane.tolist()):
        known = [clocks[source] for source in sources[first[row] : first[row + 1]]]
        clock = reduce(joined, known or [nothing])
        clocks.append(clock if own_lane < 0 else (*clock[:own_lane], row, *clock[own_lane + 1 :]))
    return clocks


def joined(first: Clock, second: Clock) -> Clock:
    """Returns the elementwise maximum of two clocks; one of the two objects where it equals that."""
    if first is second:
        return first
    merged = tuple(map(max, first, second))
    return first if merged == first else second if merged == second else merged


def not_implied(
    edges: Edges, is_sure: Bool, clocks: list[Clock], lane: Int64, candidates: Callable[[int], Iterable[int]]
) -> tuple[NodeNumbers, NodeNumbers]:
    """Returns the edges to the `candidates` of unsure sources that neither sure edges nor other candidates imply."""
    columns, lane_of, pairs = (edges.target.tolist(), edges.source.tolist(), is_sure.tolist()), lane.tolist(), []
    for target, group in groupby(zip(*columns, strict=True), itemgetter(0)):
        sources = [*group]
        known = [clocks[source] for _, source, source_is_sure in sources if source_is_sure]
        rows = {row for _, source, source_is_sure in sources if not source_is_sure for row in candidates(source)}
        # the latest row of each lane, which implies the others, and of these the latest first, as it often follows them
        for row in sorted({lane_of[row]: row for row in sorted(rows - {-1})}.values(), reverse=True):
            if all(row > clock[lane_of[row]] for clock in known):
                known.append(clocks[row])
                pairs.append((row, target))
    source, target_ = np.array(pairs, np.int64).reshape(-1, 2).T
    return NodeNumbers(source), NodeNumbers(target_)
