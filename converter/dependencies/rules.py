"""Edges from the order of calls, from recorded waits and hand-offs, around launched graphs, and from timing alone.

A launched graph (CUDA or HIP) is one piece of work of its stream, with branches that run on several streams: its first
activities follow the earlier work of the stream, the stream's later work the end of every branch. What only timing
shows is marked inferred. For simulators without queues launches can be synchronous: dependents of a launching slice
wait for what it launched. Slice a launches kernel k and is followed by slice b: a → k and a → b become a → k → b.
"""

from collections.abc import Iterator

import numpy as np

from ...schema.columns import (
    ActivityRows,
    Bool,
    Categorical,
    Int64,
    NodeNumbers,
    RowMap,
    group_ids,
    is_group_start,
    split_groups,
)
from ...schema.graph import DependencyKind
from ...schema.linked import Provenance, SyncCall, guessed, last_ended, streams_of, sync_calls
from ...schema.machine import ENOUGH, latency_stats, of_name
from ..edges import Edges
from ..timeline import ConversionContext

Edge = tuple[int, int, int]
LOOKED_BACK = 8
"""The number of candidates per activity, which bounds the search."""


def program_order(context: ConversionContext) -> Edges:
    """Returns an edge to each host node from the previous one of its thread; `unrecorded host` nodes are one thread."""
    thread = context.timeline.thread
    rows = np.arange(len(thread), dtype=np.int64)
    same = ~is_group_start(thread)[1:]
    unrecorded = context.unrecorded_node
    source = np.concatenate((rows[:-1][same], unrecorded[:-1]))
    target = np.concatenate((rows[1:][same], unrecorded[1:]))
    return Edges.of(NodeNumbers(source), NodeNumbers(target), DependencyKind.PROGRAM_ORDER)


def stream_order(context: ConversionContext) -> Edges:
    """Returns an edge to each activity from the previous one on its (device, stream), even where the two overlap."""
    following = context.stream_next
    rows = ActivityRows(np.arange(len(following), dtype=np.int64))
    return Edges.of(context.activity_node(rows), context.activity_node(following), DependencyKind.STREAM_ORDER)


def launch(context: ConversionContext) -> Edges:
    """Returns an edge to each activity from its launching node; its `unrecorded host` node if no call is recorded."""
    rows = ActivityRows(np.arange(len(context.linked.activities), dtype=np.int64))
    return Edges.of(launching_node(context), context.activity_node(rows), DependencyKind.LAUNCH)


def launching_node(context: ConversionContext) -> NodeNumbers:
    """Returns the host node at whose end each activity was launched."""
    call = context.linked.activities.call_row
    node = RowMap(context.timeline.launch_node)[call]
    node[context.unrecorded] = context.unrecorded_node
    return node


def event_wait(context: ConversionContext) -> Edges:
    """Returns an edge for each wait of a stream; those known from timing or the order of calls alone are marked."""
    waits = context.linked.device_waits
    by_order = waits.known_by.equal(Provenance.CALL_ORDER.value)
    kind = by_evidence(DependencyKind.EVENT_WAIT, waits.known_by)
    return _marked(context.activity_node(waits.source_row), context.activity_node(waits.target_row), kind, by_order)


def host_sync(context: ConversionContext) -> Edges:
    """Returns edges to the wait node of each blocking call from its sources; those known from timing or the order of
    calls alone are marked.

    A call that waits for the whole of the only device needs no record: what it is for is in its name.
    """
    waits, activities = context.linked.host_waits, context.linked.activities
    wait_node = NodeNumbers(context.timeline.sync_node[waits.call_row])
    by_order = waits.known_by.equal(Provenance.CALL_ORDER.value)
    if by_order.any() and len(np.unique(activities.device)) == 1:
        by_order &= (sync_calls(context.linked.calls.name) != SyncCall.DEVICE_SYNC)[waits.call_row]
    kind = by_evidence(DependencyKind.HOST_SYNC, waits.known_by)
    return _marked(context.activity_node(waits.source_row), wait_node, kind, by_order)


def by_evidence(kind: DependencyKind, evidence: Categorical) -> Int64:
    """Returns the kind of each edge, with INFERRED where the evidence is timing."""
    return np.where(guessed(evidence), int(kind | DependencyKind.INFERRED), int(kind))


def _marked(source: NodeNumbers, target: NodeNumbers, kind: Int64, by_order: Bool) -> Edges:
    """Returns the edges, with CALL_ORDER where the order of calls is the only evidence of a wait between the two."""
    edges = Edges.of(source, target, np.where(by_order, kind | DependencyKind.CALL_ORDER, kind))
    is_marked = edges.kind & DependencyKind.CALL_ORDER != 0
    if not is_marked.any() or is_marked.all():
        return edges
    pair = edges.target * (int(edges.source.max()) + 1) + edges.source
    is_certain = edges.kind & (DependencyKind.CALL_ORDER | DependencyKind.INFERRED) == 0
    also_recorded = np.isin(pair, pair[is_certain])
    return edges._replace(kind=np.where(also_recorded, edges.kind & ~int(DependencyKind.CALL_ORDER), edges.kind))


def handoff(context: ConversionContext) -> Edges:
    """Returns an edge for each hand-off between threads; those known from timing alone are marked inferred."""
    # a hand-off at the end of a thread releases nothing: its node is -1
    kind = by_evidence(DependencyKind.HANDOFF, context.linked.handoffs.known_by)
    return Edges.of(context.timeline.handoff_source_node, context.timeline.handoff_target_node, kind)


def graph_launch(context: ConversionContext) -> Edges:
    """Returns the edges into, inside and out of launches whose activities run on several streams."""
    edges = [
        edge for members in _launches(context) for edge in (*_inside(context, members), *_outside(context, members))
    ]
    columns = np.array(edges, np.int64).reshape(-1, 3)
    source, target = (context.activity_node(ActivityRows(columns[:, end])) for end in (0, 1))
    return Edges.of(source, target, columns[:, 2])


def _launches(context: ConversionContext) -> Iterator[list[int]]:
    """Yields the activities of each launch over several streams, in the order of their streams."""
    activities = context.linked.activities
    order = np.lexsort((activities.end, activities.start, activities.call_row))
    order = order[activities.call_row[order] >= 0]
    launched = np.bincount(activities.call_row[order])
    # nearly all calls launch one
    order = order[launched[activities.call_row[order]] > 1]
    for members in split_groups(order, activities.call_row):
        if len(np.unique(activities.stream[members])) > 1:
            yield members.tolist()


def _inside(context: ConversionContext, members: list[int]) -> Iterator[Edge]:
    """Yields edges between branches, by timing."""
    start, end, stream = context.linked.activities.start, context.activity_end, context.linked.activities.stream
    prompt = of_name(context.linked.info.machine.gap, "").upper
    kind = int(DependencyKind.EVENT_WAIT | DependencyKind.INFERRED)
    by_end = sorted(members, key=lambda row: (int(end[row]), int(start[row])))
    latest: dict[int, int] = {}
    next_end = 0
    for row in members:
        # ends before the row starts; of two activities of no length at the same time neither follows the other
        while (end[by_end[next_end]], start[by_end[next_end]]) < (start[row], start[row]):
            latest[int(stream[by_end[next_end]])] = by_end[next_end]
            next_end += 1
        # a start just after the previous activity of its own stream needs no other explanation
        branch, before = int(stream[row]), context.stream_previous[row]
        candidates = [source for key, source in latest.items() if key != branch and start[row] - end[source] <= prompt]
        if candidates and (before < 0 or start[row] - end[before] > prompt):
            yield max(candidates, key=lambda source: int(end[source])), row, kind


def _outside(context: ConversionContext, members: list[int]) -> Iterator[Edge]:
    """Yields edges from the stream's work before the graph to its branches, and from all branches to the stream's work
    after; -1 where there is none.
    """
    activities, end = context.linked.activities, context.activity_end
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for row in members:
        first.setdefault(int(activities.stream[row]), row)
        last[int(activities.stream[row])] = row
    before = context.stream_previous[members[0]]
    kind = int(DependencyKind.EVENT_WAIT)
    for row in first.values():
        if row != members[0]:
            yield int(before), row, kind
    for tail in last.values():
        after = int(context.stream_next[tail])
        for source in last.values():
            if source != tail and end[source] <= activities.start[after]:
                yield source, after, kind


def inferred(context: ConversionContext, late: ActivityRows, tolerance_ns: int) -> tuple[Edges, int]:
    """Returns edges to late activities from the activity of another stream that ended last before, if that was not long
    ago; and the number of activities whose search was cut off.

    Not long ago is within `tolerance_ns`, or within the usual time between such pairs if that is longer, as a stream
    may take longer to resume than to start. The source must have been launched before the target, as a stream can only
    wait for submitted work.

    Args:
        context: the context of the conversion.
        late: rows of late activities.
        tolerance_ns: the longest time between the end of the source and the start of the target.
    """
    source, cut_off = _last_ended_elsewhere(context, late)
    has_source = source >= 0
    since = context.linked.activities.start[late[has_source]] - context.activity_end[source[has_source]]
    between = latency_stats(since, context.linked.info.machine.resolution_ns)
    longest = max(tolerance_ns, between.upper if between.count >= ENOUGH else 0)
    soon = np.flatnonzero(has_source)[since <= longest]
    kind = DependencyKind.EVENT_WAIT | DependencyKind.INFERRED
    source_node, late_node = (context.activity_node(ActivityRows(rows[soon])) for rows in (source, late))
    return Edges.of(source_node, late_node, kind), cut_off


def _last_ended_elsewhere(context: ConversionContext, late: ActivityRows) -> tuple[ActivityRows, int]:
    """Returns, for each of the rows, the activity of another stream, launched before, that ended last before it
    started, -1 for none; and the number of rows whose search was cut off.
    """
    activities, launched = context.linked.activities, context.launched
    stream = streams_of(activities).number

    def fits(row: Int64) -> Bool:
        is_elsewhere: Bool = (stream[row] != stream[late]) & (launched[row] < launched[late])
        return is_elsewhere

    start = activities.start[late]
    source = last_ended(context.activity_end, start, fits, tried=LOOKED_BACK)
    ended_before = np.searchsorted(np.sort(context.activity_end), start, side="right")
    return ActivityRows(source), int(((source < 0) & (ended_before > LOOKED_BACK)).sum())


def calling_slices(context: ConversionContext) -> Edges:
    """Returns an edge to each host slice from the last earlier slice, on its thread, of the op that called its op.

    The caller of a wait is the op that encloses the blocking call. Program order always implies these edges.
    """
    timeline = context.timeline
    slices = np.flatnonzero((timeline.op_row >= 0) & ~timeline.is_wait)
    nodes = np.flatnonzero(timeline.op_row >= 0)
    op = timeline.op_row[nodes]
    caller = np.where(timeline.is_wait[nodes], op, context.op_parent[op])
    # rows follow program order, so (op, row) pairs sorted by op list each op's slices in time
    by_op = slices[np.lexsort((slices, timeline.op_row[slices]))]
    width = len(timeline)
    position = np.searchsorted(timeline.op_row[by_op] * width + by_op, caller * width + nodes) - 1
    # the position -1, before the first slice, takes the last value: none
    candidate = np.append(by_op, -1)[position]
    fits = (timeline.op_row[candidate] == caller) & (timeline.thread[candidate] == timeline.thread[nodes])
    return Edges.of(NodeNumbers(np.where(fits, candidate, -1)), NodeNumbers(nodes), 0)


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
