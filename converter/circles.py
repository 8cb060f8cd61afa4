"""Orders the nodes of a graph even if its dependencies form circles.

Circles come from traces with many equal or swapped times.
"""

import heapq
from typing import NamedTuple

import numpy as np

from ..schema.columns import Bool, Int64, NodeNumbers
from ..schema.graph import DependencyKind
from .context import Edges
from .order import order_without_circles

SURE = DependencyKind.PROGRAM_ORDER | DependencyKind.LAUNCH | DependencyKind.STREAM_ORDER
"""Kinds of edges that follow from the order of calls; in a circle all other edges give way to them."""
READY, SURELY_READY, STUCK = range(3)


class Ordered(NamedTuple):
    """All nodes in an order, and which edges point backward in it, as they are part of a circle."""

    order: NodeNumbers
    backward: Bool


def order_through_circles(start: Int64, edges: Edges) -> Ordered:
    """Returns the topological order by start time, or, if there are circles, an order that breaks each one somewhere.
    O((n + e) log n).
    """
    order = order_without_circles(start, edges)
    if len(order) == len(start):
        return Ordered(order, np.zeros(len(edges.source), np.bool_))
    order = NodeNumbers(_by_readiness(start, edges))
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    return Ordered(order, position[edges.source] >= position[edges.target])


def _by_readiness(start: Int64, edges: Edges) -> Int64:
    """Takes a node that is ready, else one that waits for unsure dependencies only, else any; the earliest of several,
    then the first row.
    """
    count, by_source = len(start), np.argsort(edges.source, kind="stable")
    first = np.searchsorted(edges.source[by_source], np.arange(count + 1)).tolist()
    is_sure = edges.kind & int(SURE) != 0
    waiting = np.bincount(edges.target, minlength=count).tolist()
    surely = np.bincount(edges.target[is_sure], minlength=count).tolist()
    time, dependents, sure = start.tolist(), edges.target[by_source].tolist(), is_sure[by_source].tolist()

    def readiness(node: int) -> int:
        return READY if not waiting[node] else SURELY_READY if not surely[node] else STUCK

    heap = [(readiness(node), time[node], node) for node in range(count)]
    heapq.heapify(heap)
    order: list[int] = []
    is_done = [False] * count
    while heap:
        _, _, node = heapq.heappop(heap)
        if is_done[node]:
            continue
        is_done[node] = True
        order.append(node)
        for index in range(first[node], first[node + 1]):
            dependent = dependents[index]
            waiting[dependent] -= 1
            surely[dependent] -= sure[index]
            if not waiting[dependent] or (sure[index] and not surely[dependent]):
                heapq.heappush(heap, (readiness(dependent), time[dependent], dependent))
    return np.array(order, np.int64)
