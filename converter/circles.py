"""Orders the nodes of a graph even if its dependencies form circles.

Circles come from traces with many equal or swapped times.
"""

from typing import NamedTuple

import numpy as np

from ..schema.columns import Bool, Int64, NodeNumbers, earliest_order
from ..schema.graph import DependencyKind
from .context import Edges
from .order import order_without_circles

SURE = DependencyKind.PROGRAM_ORDER | DependencyKind.LAUNCH | DependencyKind.STREAM_ORDER
"""Kinds of edges that follow from the order of calls; in a circle all other edges give way to them."""


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
    # taken is a node that is ready, else one that waits for unsure dependencies only, else any
    order = NodeNumbers(earliest_order(edges.source, edges.target, start, edges.kind & int(SURE) != 0))
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    return Ordered(order, position[edges.source] >= position[edges.target])
