"""Synchronous launches, for simulators without queues: what depended on a launching slice waits for what the slice
launched.

Slice a launches kernel k and is followed by slice b: the edges a → k, a → b become a → k → b.
"""

import numpy as np

from ...schema.columns import Bool, Int64, group_ids
from ..context import ConversionContext, Edges
from ..dependencies import launching_node


def with_synchronous_launches(context: ConversionContext, edges: Edges) -> Edges:
    """Replaces every dependency on a launching slice, but for those of its own activities, by ones on the last activity
    that it launched on each stream. Kinds are kept. An activity that followed one launched after it blocks nobody: its
    stream is no queue.
    """
    node, tail = _tails(context, _in_turn(context, edges))
    launcher = np.full(context.node_count, -1, np.int64)
    launcher[context.activities_from : context.unrecorded_from] = launching_node(context)
    first = np.searchsorted(node, edges.source)
    count = np.searchsorted(node, edges.source, side="right") - first
    replaced = (count > 0) & (launcher[edges.target] != edges.source)
    rows = np.flatnonzero(replaced)
    repeat = np.repeat(rows, count[rows])
    within = np.arange(len(repeat)) - np.repeat(np.cumsum(count[rows]) - count[rows], count[rows])
    blocked = Edges(tail[first[repeat] + within], edges.target[repeat], edges.kind[repeat])
    kept = ~replaced
    return Edges.joined([Edges(edges.source[kept], edges.target[kept], edges.kind[kept]), blocked])


def _in_turn(context: ConversionContext, edges: Edges) -> Bool:
    """Returns which activities followed only activities that had been launched before them."""
    first, count = context.activities_from, len(context.linked.activities)
    node = launching_node(context)
    launched = np.empty(context.node_count, np.int64)
    launched[np.argsort(context.end, kind="stable")] = np.arange(context.node_count)
    own = launched[node]
    inside = (edges.source >= first) & (edges.source < first + count) & (edges.target >= first)
    inside &= edges.target < first + count
    source, target = edges.source[inside] - first, edges.target[inside] - first
    if np.all(own[source] <= own[target]):
        return np.ones(count, np.bool_)
    latest, order = own.tolist(), np.argsort(context.linked.activities.start[target], kind="stable")
    changed = True
    while changed:
        changed = False
        for before, after in zip(source[order].tolist(), target[order].tolist(), strict=True):
            if latest[before] > latest[after]:
                latest[after], changed = latest[before], True
    in_turn: Bool = np.array(latest, np.int64) == own
    return in_turn


def _tails(context: ConversionContext, in_turn: Bool) -> tuple[Int64, Int64]:
    """(launching node, activity node) pairs sorted by launching node: the last activity of each on each stream, of
    those in turn.
    """
    activities, node = context.linked.activities, launching_node(context)
    order = np.lexsort((activities.end, activities.start, activities.stream, activities.device, node))
    order = order[(activities.call_row[order] >= 0) & in_turn[order]]
    backward = order[::-1]
    _, last = np.unique(group_ids(node, activities.device, activities.stream)[backward], return_index=True)
    tails = backward[last]
    return node[tails], context.activity_node(tails)
