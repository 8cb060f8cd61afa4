"""The blocking reading of a run, for simulators without queues: who depended on a launching slice waits for what it launched."""

import numpy as np

from ..schema.columns import Bool, Int64
from ..schema.groups import numbered
from .dependencies.launch import launching_node
from .run import Edges, Run


def block_on_activities(run: Run, edges: Edges) -> Edges:
    """Replaces every dependency on a launching slice, but for those of its own activities, by ones on the last activity that it
    launched on each stream. Kinds are kept. An activity that followed one launched after it blocks nobody: its stream is no queue."""
    node, tail = _tails(run, _in_turn(run, edges))
    launcher = np.full(run.node_count, -1, np.int64)
    launcher[run.activities_from : run.unrecorded_from] = launching_node(run)
    first = np.searchsorted(node, edges.source)
    count = np.searchsorted(node, edges.source, side="right") - first
    replaced = (count > 0) & (launcher[edges.target] != edges.source)
    rows = np.flatnonzero(replaced)
    repeat = np.repeat(rows, count[rows])
    within = np.arange(len(repeat)) - np.repeat(np.cumsum(count[rows]) - count[rows], count[rows])
    blocked = Edges(tail[first[repeat] + within], edges.target[repeat], edges.kind[repeat])
    kept = ~replaced
    return Edges.joined([Edges(edges.source[kept], edges.target[kept], edges.kind[kept]), blocked])


def _in_turn(run: Run, edges: Edges) -> Bool:
    """Which activities followed only activities that had been launched before them."""
    first, count = run.activities_from, len(run.linked.activities)
    node = launching_node(run)
    launched = np.empty(run.node_count, np.int64)
    launched[np.argsort(run.end, kind="stable")] = np.arange(run.node_count)
    own = launched[node]
    inside = (edges.source >= first) & (edges.source < first + count) & (edges.target >= first)
    inside &= edges.target < first + count
    source, target = edges.source[inside] - first, edges.target[inside] - first
    if np.all(own[source] <= own[target]):
        return np.ones(count, np.bool_)
    latest, order = own.tolist(), np.argsort(run.linked.activities.start[target], kind="stable")
    changed = True
    while changed:
        changed = False
        for before, after in zip(source[order].tolist(), target[order].tolist(), strict=True):
            if latest[before] > latest[after]:
                latest[after], changed = latest[before], True
    in_turn: Bool = np.array(latest, np.int64) == own
    return in_turn


def _tails(run: Run, in_turn: Bool) -> tuple[Int64, Int64]:
    """(launching node, activity node) pairs sorted by launching node: the last activity of each on each stream, of those in turn."""
    activities, node = run.linked.activities, launching_node(run)
    order = np.lexsort((activities.end, activities.start, activities.stream, activities.device, node))
    order = order[(activities.call_row[order] >= 0) & in_turn[order]]
    backward = order[::-1]
    _, last = np.unique(numbered(node, activities.device, activities.stream)[backward], return_index=True)
    tails = backward[last]
    return node[tails], run.activity_node(tails)
