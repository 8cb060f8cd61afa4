"""Orders the nodes of a graph whose dependencies may go round in circles, as they can where a trace has many equal or
exchanged times.
"""

import heapq
from typing import NamedTuple

import numpy as np

from ...schema.columns import Bool, Int64
from ...schema.graph import DependencyKind
from ..context import Edges
from .order import order_without_circles

SURE = DependencyKind.PROGRAM_ORDER | DependencyKind.LAUNCH | DependencyKind.STREAM_ORDER
"""What the order of calls tells; in a circle all else gives way to it."""
READY, SURELY_READY, STUCK = range(3)


class Ordered(NamedTuple):
    """All nodes in an order, and which edges do not point forward in it, as they go round in circles."""

    order: Int64
    backward: Bool


def order_through_circles(start: Int64, edges: Edges) -> Ordered:
    """Returns the topological order by start time where there is one, else one that breaks each circle somewhere. O((n
    + e) log n).
    """
    order = order_without_circles(start, edges)
    if len(order) == len(start):
        return Ordered(order, np.zeros(len(edges.source), np.bool_))
    order = _by_readiness(start, edges)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return Ordered(order, place[edges.source] >= place[edges.target])


def _by_readiness(start: Int64, edges: Edges) -> Int64:
    """Takes a node that is ready, else one that only unsure dependencies hold up, else any; of several the earliest,
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
        for at in range(first[node], first[node + 1]):
            dependent = dependents[at]
            waiting[dependent] -= 1
            surely[dependent] -= sure[at]
            if not waiting[dependent] or (sure[at] and not surely[dependent]):
                heapq.heappush(heap, (readiness(dependent), time[dependent], dependent))
    return np.array(order, np.int64)
