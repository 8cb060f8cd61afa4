"""Synchronous launches, for simulators without queues: dependents of a launching slice wait for what it launched.

Slice a launches kernel k and is followed by slice b: the edges a → k, a → b become a → k → b.
"""

import numpy as np

from ...schema.columns import ActivityRows, Bool, NodeNumbers, group_ids
from ..edges import Edges
from ..timeline import ConversionContext
from .rules import launching_node


def with_synchronous_launches(context: ConversionContext, edges: Edges) -> Edges:
    """Replaces every dependency on a launching slice by dependencies on the last activity that it launched on each
    stream.

    Kinds are kept, and so are the edges to the activities that the slice launched. An activity that followed one
    launched after it blocks nobody, as its stream is no queue.
    """
    node, tail = _tails(context, _in_launch_order(context, edges))
    launch_node = np.full(context.node_count, -1, np.int64)
    launch_node[context.activities_from : context.unrecorded_from] = launching_node(context)
    first = np.searchsorted(node, edges.source)
    count = np.searchsorted(node, edges.source, side="right") - first
    replaced = (count > 0) & (launch_node[edges.target] != edges.source)
    rows = np.flatnonzero(replaced)
    repeat = np.repeat(rows, count[rows])
    within = np.arange(len(repeat)) - np.repeat(np.cumsum(count[rows]) - count[rows], count[rows])
    blocked = edges.where(repeat)._replace(source=NodeNumbers(tail[first[repeat] + within]))
    return Edges.joined([edges.where(~replaced), blocked])


def _in_launch_order(context: ConversionContext, edges: Edges) -> Bool:
    """Returns which activities followed only activities that had been launched before them."""
    first, count = context.activities_from, len(context.linked.activities)
    by_end = np.empty(context.node_count, np.int64)
    by_end[np.argsort(context.end, kind="stable")] = np.arange(context.node_count)
    launched = by_end[launching_node(context)]
    inside = (edges.source >= first) & (edges.source < first + count) & (edges.target >= first)
    inside &= edges.target < first + count
    source, target = edges.source[inside] - first, edges.target[inside] - first
    if np.all(launched[source] <= launched[target]):
        return np.ones(count, np.bool_)
    latest, order = launched.tolist(), np.argsort(context.linked.activities.start[target], kind="stable")
    changed = True
    while changed:
        changed = False
        for before, after in zip(source[order].tolist(), target[order].tolist(), strict=True):
            if latest[before] > latest[after]:
                latest[after], changed = latest[before], True
    in_order: Bool = np.array(latest, np.int64) == launched
    return in_order


def _tails(context: ConversionContext, in_order: Bool) -> tuple[NodeNumbers, NodeNumbers]:
    """Returns (launching node, activity node) pairs sorted by launching node: the last activity that each launched on
    each stream, among those in launch order.
    """
    activities, node = context.linked.activities, launching_node(context)
    order = np.lexsort((activities.end, activities.start, activities.stream, activities.device, node))
    order = order[(activities.call_row[order] >= 0) & in_order[order]]
    backward = order[::-1]
    _, last = np.unique(group_ids(node, activities.device, activities.stream)[backward], return_index=True)
    tails = ActivityRows(backward[last])
    return NodeNumbers(node[tails]), context.activity_node(tails)
