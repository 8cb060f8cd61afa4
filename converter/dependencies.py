"""The rules that make the edges of a graph: pure functions from a conversion context to edges between its nodes. What
only timing shows is marked inferred; `inferred` runs after all other rules, on activities that start late by their
edges. A launched graph (CUDA or HIP) is one piece of work of its stream, with branches on several streams.
"""

from collections.abc import Callable, Iterator
from itertools import permutations

import numpy as np

from ..schema import columns, linked
from ..schema.columns import ActivityRows, Bool, Categorical, Int64, Keys, NodeNumbers, OpRows, Ragged, RowMap
from ..schema.graph import DependencyKind
from ..schema.linked import DeviceWaits, HostWaits, Provenance, SyncCall, Tensors, streams_of, sync_calls
from ..schema.machine import LatencyStats, latency_stats, of_name
from .edges import NO_EDGES, Edges, known_after, not_implied, order_through_circles
from .timeline import ConversionContext

Rule = Callable[[ConversionContext], Edges]
LOOKED_BACK = 8
"""The number of candidates per activity, which bounds the search."""
RECORD = "record_param_comms"
MOST_RANGES = 64


def program_order(context: ConversionContext) -> Edges:
    """Returns an edge to each host node from the previous one of its thread; `unrecorded host` nodes are one thread."""
    follows, unrecorded = ~columns.is_group_start(context.timeline.thread)[1:], context.unrecorded_node
    source = np.concatenate((np.flatnonzero(follows), unrecorded[:-1]))
    target = np.concatenate((np.flatnonzero(follows) + 1, unrecorded[1:]))
    return Edges.of(source, target, DependencyKind.PROGRAM_ORDER)


def stream_order(context: ConversionContext) -> Edges:
    """Returns an edge to each activity from the previous one on its (device, stream), even where the two overlap."""
    following = context.activity_node(context.stream_next)
    return Edges.of(np.arange(context.activities_from, context.unrecorded_from), following, DependencyKind.STREAM_ORDER)


def launch(context: ConversionContext) -> Edges:
    """Returns an edge to each activity from its launching node; its `unrecorded host` node if no call is recorded."""
    nodes = np.arange(context.activities_from, context.unrecorded_from)
    return Edges.of(launching_node(context), nodes, DependencyKind.LAUNCH)


def launching_node(context: ConversionContext) -> NodeNumbers:
    """Returns the host node at whose end each activity was launched."""
    call = context.linked.activities.call_row
    node = RowMap(context.timeline.launch_node)[call]
    node[context.unrecorded] = context.unrecorded_node
    return node


def event_wait(context: ConversionContext) -> Edges:
    """Returns an edge for each wait of a stream; those known from timing or the order of calls alone are marked."""
    waits = context.linked.device_waits
    waits = linked.select_rows(waits, ~waits.known_by.equal(Provenance.GRAPH.value))
    by_order = waits.known_by.equal(Provenance.CALL_ORDER.value)
    return _waited(context, DependencyKind.EVENT_WAIT, waits, context.activity_node(waits.target_row), by_order)


def host_sync(context: ConversionContext) -> Edges:
    """Returns edges to the waits of blocking calls; those known from timing or the order of calls alone are marked."""
    waits, activities = context.linked.host_waits, context.linked.activities
    by_order = waits.known_by.equal(Provenance.CALL_ORDER.value)
    if by_order.any() and len(np.unique(activities.device)) == 1:
        by_order &= (sync_calls(context.linked.calls.name) != SyncCall.DEVICE_SYNC)[waits.call_row]
    wait_node = NodeNumbers(context.timeline.sync_node[waits.call_row])
    return _waited(context, DependencyKind.HOST_SYNC, waits, wait_node, by_order)


def _waited(
    context: ConversionContext,
    kind: DependencyKind,
    waits: DeviceWaits | HostWaits,
    target: NodeNumbers,
    by_order: Bool,
) -> Edges:
    """Returns the edges from the sources of waits, marked where only timing or the order of calls shows them."""
    kinds = _by_evidence(kind, waits.known_by) | by_order * int(DependencyKind.CALL_ORDER)
    edges = Edges.of(context.activity_node(waits.source_row), target, kinds)
    is_marked = edges.kind & DependencyKind.CALL_ORDER != 0
    if not is_marked.any() or is_marked.all():
        return edges
    pair = edges.target * (int(edges.source.max()) + 1) + edges.source
    is_certain = edges.kind & (DependencyKind.CALL_ORDER | DependencyKind.INFERRED) == 0
    also_recorded = columns.isin(pair, pair[is_certain])
    return edges._replace(kind=np.where(also_recorded, edges.kind & ~int(DependencyKind.CALL_ORDER), edges.kind))


def _by_evidence(kind: DependencyKind, evidence: Categorical) -> Int64:
    """Returns the kind of each edge, with INFERRED where the evidence is timing."""
    return np.where(linked.guessed(evidence), int(kind | DependencyKind.INFERRED), int(kind))


def handoff(context: ConversionContext) -> Edges:
    """Returns an edge for each hand-off between threads; those known from timing alone are marked inferred."""
    # a hand-off at the end of a thread releases nothing: its node is -1
    kind = _by_evidence(DependencyKind.HANDOFF, context.linked.handoffs.known_by)
    return Edges.of(context.timeline.handoff_source_node, context.timeline.handoff_target_node, kind)


def graph_launch(context: ConversionContext) -> Edges:
    """Returns the edges into, inside and out of graph launches; inside only the recorded ones where there are any."""
    activities, waits = context.linked.activities, context.linked.device_waits
    waits = linked.select_rows(waits, waits.known_by.equal(Provenance.GRAPH.value))
    recorded = Edges.of(
        context.activity_node(waits.source_row), context.activity_node(waits.target_row), DependencyKind.LAUNCHED_GRAPH
    )
    order = np.lexsort((activities.end, activities.start, activities.call_row))
    order = order[activities.call_row[order] >= 0]
    # nearly all calls launch one
    order = order[np.bincount(activities.call_row[order])[activities.call_row[order]] > 1]
    launches = [
        rows for rows in columns.split_groups(order, activities.call_row) if len(np.unique(activities.stream[rows])) > 1
    ]
    outside = [edge for rows in launches for edge in _outside(context, rows.tolist())]
    several = np.concatenate([order[:0], *launches])
    is_recorded = columns.isin(activities.call_row[several], activities.call_row[waits.target_row])
    inside = _inside(context, several[~is_recorded])
    source, target = np.concatenate((np.array(outside, np.int64).reshape(-1, 2), inside)).T
    kinds = np.full(len(source), int(DependencyKind.EVENT_WAIT))
    kinds[len(outside) :] |= int(DependencyKind.INFERRED)
    assumed = Edges.of(context.activity_node(source), context.activity_node(target), kinds)
    return Edges.joined([assumed, recorded])


def _inside(context: ConversionContext, rows: Int64) -> Int64:
    """Returns edges between branches as rows of source and target, by timing: from what ended last of the launch."""
    call, start, end = context.linked.activities.call_row, context.linked.activities.start, context.activity_end
    prompt, before = of_name(context.linked.info.machine.gap, "").upper, context.stream_previous[rows]
    # a start just after the previous activity of its own stream needs no other explanation
    late = rows[(before < 0) | (start[rows] - end[before] > prompt)]
    # of two activities of no length at the same time neither follows the other
    until = end + (end == start)
    by_end = rows[np.lexsort((end[rows], until[rows], call[rows]))]
    source = RowMap(by_end)[columns.asof_backward(Keys(call[by_end], until[by_end]), Keys(call[late], start[late]))]
    follows = (source >= 0) & (start[late] - end[source] <= prompt)
    return np.stack((source[follows], late[follows]), axis=1)


def _outside(context: ConversionContext, members: list[int]) -> Iterator[tuple[int, int]]:
    """Yields edges from the stream's earlier work to the branches, and from these to its later work; -1 for none."""
    activities, end = context.linked.activities, context.activity_end
    streams = activities.stream[members].tolist()
    first, last = dict(zip(streams[::-1], members[::-1], strict=True)), dict(zip(streams, members, strict=True))
    before = int(context.stream_previous[members[0]])
    yield from ((before, row) for row in first.values() if row != members[0])
    for source, tail in permutations(last.values(), 2):
        after = int(context.stream_next[tail])
        if end[source] <= activities.start[after]:
            yield source, after


def inferred(context: ConversionContext, late: ActivityRows, tolerance_ns: int) -> tuple[Edges, int]:
    """Returns edges to late activities from what ended just before on another stream, and the number of activities
    whose search was cut off after LOOKED_BACK candidates.
    """
    activities, launched = context.linked.activities, context.launched
    stream, start = streams_of(activities).number, activities.start[late]

    def fits(row: Int64) -> Bool:
        return np.asarray((stream[row] != stream[late]) & (launched[row] < launched[late]))

    source = linked.last_ended(context.activity_end, start, fits, tried=LOOKED_BACK)
    has_source = source >= 0
    ended_before = np.searchsorted(np.sort(context.activity_end), start, side="right")
    cut_off = int((~has_source & (ended_before > LOOKED_BACK)).sum())
    since = (start - context.activity_end[source])[has_source]
    between = latency_stats(since, context.linked.info.machine.resolution_ns)
    longest = max(tolerance_ns, between.or_if_few(LatencyStats()).upper)
    soon = np.flatnonzero(has_source)[since <= longest]
    kind = DependencyKind.EVENT_WAIT | DependencyKind.INFERRED
    return Edges.of(context.activity_node(source[soon]), context.activity_node(late[soon]), kind), cut_off


def calling_slices(context: ConversionContext) -> Edges:
    """Returns an edge to each slice from the last earlier slice of its op's caller; program order implies these."""
    timeline = context.timeline
    slices = np.flatnonzero((timeline.op_row >= 0) & ~timeline.is_wait)
    nodes = np.flatnonzero(timeline.op_row >= 0)
    op = timeline.op_row[nodes]
    caller = np.where(timeline.is_wait[nodes], op, context.op_tree.parent[op])
    # rows follow program order, so (op, row) pairs sorted by op list each op's slices in time
    by_op = slices[np.argsort(timeline.op_row[slices], kind="stable")]
    width = len(timeline)
    position = np.searchsorted(timeline.op_row[by_op] * width + by_op, caller * width + nodes) - 1
    # the position -1, before the first slice, takes the last value: none
    candidate = RowMap(by_op)[position]
    fits = (timeline.op_row[candidate] == caller) & (timeline.thread[candidate] == timeline.thread[nodes])
    return Edges.of(np.where(fits, candidate, -1), nodes, 0)


def with_synchronous_launches(context: ConversionContext, edges: Edges) -> Edges:
    """Lets what follows a launching slice wait for what it launched: a → k and a → b become a → k → b."""
    activities, launched_by = context.linked.activities, launching_node(context)
    # the last activity that each node launched on each stream, among those in launch order
    order = np.lexsort((activities.end, activities.start, activities.stream, activities.device, launched_by))
    backward = order[(activities.call_row[order] >= 0) & _in_launch_order(context, edges)[order]][::-1]
    queue = columns.group_ids(launched_by, activities.device, activities.stream)
    _, last = np.unique(queue[backward], return_index=True)
    tail = backward[last]
    tail = tail[np.argsort(launched_by[tail], kind="stable")]
    tails = Ragged.grouped(launched_by[tail], tail, context.node_count)
    launch_node = np.full(context.node_count, -1, np.int64)
    launch_node[context.activities_from : context.unrecorded_from] = launched_by
    replaced = (tails.lengths()[edges.source] > 0) & (launch_node[edges.target] != edges.source)
    rows = np.flatnonzero(replaced)
    waited = tails.take(edges.source[rows])
    blocked = edges.where(np.repeat(rows, waited.lengths()))._replace(source=context.activity_node(waited.values))
    return Edges.joined([edges.where(~replaced), blocked])


def _in_launch_order(context: ConversionContext, edges: Edges) -> Bool:
    """Returns which activities followed only activities that had been launched before them."""
    first, count = context.activities_from, len(context.linked.activities)
    by_end = columns.positions(np.argsort(context.end, kind="stable"), context.node_count)
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


def needed_flows(
    context: ConversionContext, flows: list[tuple[int, int]], known: list[tuple[int, int]]
) -> tuple[ActivityRows, ActivityRows]:
    """Returns the flows, pairs of activities, that neither stream order, known pairs nor other flows imply."""
    pairs = np.array([*flows, *known], np.int64).reshape(-1, 2)
    is_known = np.arange(len(pairs)) >= len(flows)
    # only activities at an end of a pair have to be looked at
    rows = context.stream_sorted[columns.isin(context.stream_sorted, pairs)]
    stream = streams_of(context.linked.activities).number
    position = columns.positions(rows, len(context.stream_sorted))
    source, target = position[pairs].T
    chain = np.flatnonzero(~columns.is_group_start(stream[rows])[1:])
    edges = Edges.joined([Edges.of(source, target, is_known.astype(np.int64)), Edges.of(chain, chain + 1, 1)])
    order, backward = order_through_circles(context.linked.activities.start[rows], edges)
    rows, position = rows[order], np.argsort(order)
    edges = edges.where(~backward).renumbered(position, position).in_order()
    clocks = known_after(edges, stream[rows], int(stream.max()) + 1)
    needed = not_implied(edges, edges.kind != 0, clocks, stream[rows], lambda source: (source,))
    in_circles = pairs[backward[: len(pairs)] & ~is_known].T
    sources, targets = (np.concatenate((rows[row], more)) for row, more in zip(needed, in_circles, strict=True))
    return ActivityRows(sources), ActivityRows(targets)


def tensor_flow(context: ConversionContext) -> Edges:
    """Returns data dependencies: if op B reads a storage that op A wrote, B's first activity follows A's last."""
    activities = context.linked.activities
    if len(streams_of(activities).device) < 2:
        return NO_EDGES
    tree = context.op_tree
    by_rank = np.lexsort((activities.start, context.launched))
    rank = columns.positions(by_rank, len(activities))
    # the first and last activity launched by each op and the ops that it called, -1 (the last value) for none
    has_op = activities.op_row >= 0
    first = np.full(len(context.linked.ops), len(rank), np.int64)
    last = np.full(len(context.linked.ops), -1, np.int64)
    np.minimum.at(first, activities.op_row[has_op], rank[has_op])
    np.maximum.at(last, activities.op_row[has_op], rank[has_op])
    by_rank = np.append(by_rank, -1)
    first, last = by_rank[tree.subtrees(np.minimum, first)], by_rank[tree.subtrees(np.maximum, last)]
    op, storage, low, high, dense, written = _accesses(context, tree, first, last)
    activity = np.where(written, last[op], first[op])
    order = np.lexsort((written, rank[activity]))
    pairs = _flows(context, *(column[order] for column in (storage, low, high, dense, written, activity)))
    waits = event_wait(context)
    known_edges = np.stack((waits.source, waits.target), axis=1) - context.activities_from
    source, target = needed_flows(context, pairs, known_edges.tolist())
    return Edges.of(context.activity_node(source), context.activity_node(target), DependencyKind.TENSOR_FLOW)


def _accesses(context: ConversionContext, tree: columns.Tree, first: Int64, last: Int64) -> tuple[Int64 | Bool, ...]:
    """Returns what ops read and write of storages that several streams use, as columns; an op's reads come first."""
    ops = context.linked.ops
    tensors = ops.arguments.tensors
    tensors = tensors.where((first >= 0)[tensors.row] & tensors.in_memory)
    on_device = tensors.device != linked.HOST
    named, changed = np.flatnonzero(on_device), np.flatnonzero(on_device & _is_changed(ops, tensors))
    index, is_changed = np.append(named, changed), np.repeat((False, True), (len(named), len(changed)))
    order = np.argsort(tensors.row[index], kind="stable")
    tensors, is_changed = tensors.where(index[order]), is_changed[order]
    stream, number = streams_of(context.linked.activities).number, columns.group_ids(tensors.storage)
    ends = np.stack([stream[end[tensors.row]] for end in (first, last)])
    lowest, highest = np.full(len(number), len(stream)), np.full(len(number), -1)
    np.minimum.at(lowest, number, ends.min(axis=0))
    np.maximum.at(highest, number, ends.max(axis=0))
    is_shared = (lowest < highest)[number]
    tensors, is_changed, number = tensors.where(is_shared), is_changed[is_shared], number[is_shared]
    high, dense = _extents(tensors, is_changed)
    written = tensors.is_output | is_changed
    is_innermost = ~tree.encloses_its_kind(OpRows(tensors.row), number * 2 + written)
    accesses = (tensors.row, tensors.storage, tensors.low, high, dense, written)
    return tuple(column[is_innermost] for column in accesses)


def _extents(tensors: Tensors, is_changed: Bool) -> tuple[Int64, Bool]:
    """Returns where each tensor ends by its strides, and whether it has no holes; without strides it is contiguous."""
    group, spanned = columns.group_ids(tensors.row, tensors.storage, tensors.low), tensors.spanned
    # the strides of what was changed are those of the input that was read
    has_strides = np.flatnonzero((spanned > 0) & ~is_changed)
    view = np.full(len(group), -1, np.int64)
    view[group[has_strides]] = has_strides
    view = view[group]
    strided_high = ((tensors.offset + spanned) * tensors.size)[view]
    high = np.where(view >= 0, strided_high, tensors.high)
    return high, (view < 0) | (spanned <= tensors.elements)[view]


def _is_changed(ops: linked.Ops, tensors: Tensors) -> Bool:
    """Returns which inputs their op writes: those that its schema marks, or all buffers of an in-place collective."""
    # code -1 is the last: no schema
    marks = [*(linked.declared_arguments(schema).written for schema in ops.op_schema.table), ()]
    is_marked = np.zeros((len(marks), 1 + max((position for mark in marks for position in mark), default=0)), np.bool_)
    for number, mark in enumerate(marks):
        is_marked[number, [*mark]] = True
    in_place = ops.name.equal(RECORD) & ~np.any(is_marked, axis=1)[ops.op_schema.codes]
    in_place[tensors.row[tensors.is_output]] = False
    argument = np.minimum(tensors.argument, is_marked.shape[1] - 1)
    marked = is_marked[ops.op_schema.codes[tensors.row], argument] & (argument == tensors.argument)
    is_changed: Bool = ~tensors.is_output & (marked | in_place[tensors.row])
    return is_changed


def _flows(context: ConversionContext, *accesses: Int64 | Bool) -> list[tuple[int, int]]:
    """Returns (writer, reader) pairs from one pass over accesses in launch order; an op reads before it writes."""
    # the activities that last wrote bytes [low, high) of a storage
    writers: dict[int, list[tuple[int, int, int]]] = {}
    pairs: set[tuple[int, int]] = set()
    for storage, low, high, dense, written, by in zip(*(column.tolist() for column in accesses), strict=True):
        last_writers = writers.setdefault(storage, [])
        if written:
            kept = [writer for writer in last_writers if not dense or writer[0] < low or writer[1] > high]
            writers[storage] = [*kept[-MOST_RANGES:], (low, high, by)]
        else:
            pairs |= {
                (writer, by) for begin, end, writer in last_writers if begin < high and low < end and writer != by
            }
    start, end = context.linked.activities.start, context.activity_end
    return [(source, target) for source, target in pairs if end[source] <= start[target]]


RULES: tuple[Rule, ...] = (
    program_order, launch, stream_order, graph_launch, event_wait, host_sync, tensor_flow, handoff,
)  # fmt: skip
