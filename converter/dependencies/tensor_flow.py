"""Data dependencies of the device: if op B reads a storage that op A wrote, B's first activity follows A's last.

Storages are followed by id and byte range in launch order. An op writes its outputs, the inputs that its schema marks
(a!), and the buffers of an in-place collective. The access belongs to the innermost op that lists the storage and whose
subtree launched work. Edges that stream order and event waits imply, by clocks over streams, are omitted.
"""

from bisect import bisect_right
from typing import NamedTuple

import numpy as np

from ...schema.columns import ActivityRows, Bool, Int64, NodeNumbers, OpRows, Tree, group_ids
from ...schema.graph import DependencyKind
from ...schema.linked import HOST, Ops, Tensors, mutated, streams_of
from ..edges import Edges
from ..timeline import ConversionContext
from .rules import event_wait

RECORD = "record_param_comms"
MOST_RANGES = 64


class StreamClocks:
    """For each stream, a clock (last ended position on every stream) from each activity that joined
    another stream on.
    """

    def __init__(self, context: ConversionContext) -> None:
        activities, order = context.linked.activities, context.stream_sorted
        self._stream = streams_of(activities).number
        self._position = np.empty(len(order), np.int64)
        counts = np.bincount(self._stream)
        firsts = np.concatenate(([0], np.cumsum(counts)[:-1]))
        self._position[order] = np.arange(len(order)) - firsts[self._stream[order]]
        self._start = activities.start
        self._at: list[list[int]] = [[] for _ in counts]
        self._clocks: list[list[Int64]] = [[] for _ in counts]

    def not_implied(
        self, candidates: list[tuple[int, int]], known_edges: list[tuple[int, int]]
    ) -> tuple[ActivityRows, ActivityRows]:
        """Returns the sources and targets of the candidates that neither stream order, known edges nor earlier
        candidates imply.

        Takes one pass in the order in which targets started; O(edges × streams).
        """
        edges = [(s, t, True) for s, t in known_edges] + [(s, t, False) for s, t in candidates]
        # the latest writer first: it often implies the earlier ones
        edges.sort(key=lambda e: (self._start[e[1]], self._position[e[1]], not e[2], -self._start[e[0]]))
        needed_edges = [(s, t) for s, t, is_known in edges if self._join(s, t) and not is_known]
        sources, targets = np.array(needed_edges, np.int64).reshape(-1, 2).T
        return ActivityRows(sources), ActivityRows(targets)

    def _clock(self, activity: int) -> Int64:
        stream = self._stream[activity]
        index = bisect_right(self._at[stream], int(self._position[activity])) - 1
        return self._clocks[stream][index] if index >= 0 else np.full(len(self._at), -1, np.int64)

    def _join(self, source: int, target: int) -> bool:
        """Records that target follows source; returns False if that was known."""
        stream, position = int(self._stream[source]), int(self._position[source])
        if stream == self._stream[target]:
            return bool(position >= self._position[target])
        clock = self._clock(target)
        if clock[stream] >= position:
            return False
        joined = np.maximum(clock, self._clock(source))
        joined[stream] = max(int(joined[stream]), position)
        self._at[self._stream[target]].append(int(self._position[target]))
        self._clocks[self._stream[target]].append(joined)
        return True


class Accesses(NamedTuple):
    """Columns of accesses: `op` reads or writes bytes [low, high) of a storage, without holes where `dense`."""

    op: OpRows
    storage: Int64
    low: Int64
    high: Int64
    dense: Bool
    written: Bool


class Writer(NamedTuple):
    """The activity that last wrote bytes [low, high) of a storage."""

    low: int
    high: int
    activity: int


def tensor_flow(context: ConversionContext) -> Edges:
    """Returns data dependencies across streams. Linear in ops and tensors, apart from sorts."""
    empty = np.empty(0, np.int64)
    if len(streams_of(context.linked.activities).device) < 2:
        return Edges.of(NodeNumbers(empty), NodeNumbers(empty), DependencyKind.TENSOR_FLOW)
    tree = Tree.of(context.op_parent, context.linked.ops.start)
    first, last = _subtree_activities(context, tree)
    pairs = _flows(context, _accesses(context, tree, first, last), first, last)
    waits = event_wait(context)
    known_edges = np.stack((waits.source, waits.target), axis=1) - context.activities_from
    source, target = StreamClocks(context).not_implied(pairs, known_edges.tolist())
    return Edges.of(context.activity_node(source), context.activity_node(target), DependencyKind.TENSOR_FLOW)


def _launch_rank(context: ConversionContext) -> Int64:
    """Returns the position of each activity in the order of launches."""
    activities = context.linked.activities
    rank = np.empty(len(activities), np.int64)
    rank[np.lexsort((activities.start, context.launched))] = np.arange(len(activities))
    return rank


def _subtree_activities(context: ConversionContext, tree: Tree) -> tuple[ActivityRows, ActivityRows]:
    """Returns the first and last activity launched by each op and the ops that it called, -1 for none."""
    rank = _launch_rank(context)
    by_rank = np.append(np.argsort(rank), -1)
    op_row = context.linked.activities.op_row
    count = len(context.linked.ops)
    first, last = np.full(count, len(rank), np.int64), np.full(count, -1, np.int64)
    has_op = op_row >= 0
    np.minimum.at(first, op_row[has_op], rank[has_op])
    np.maximum.at(last, op_row[has_op], rank[has_op])
    # an op that launched nothing takes the last value: -1
    return ActivityRows(by_rank[tree.subtree_least(first)]), ActivityRows(by_rank[tree.subtree_largest(last)])


def _accesses(context: ConversionContext, tree: Tree, first: ActivityRows, last: ActivityRows) -> Accesses:
    """Returns what launching ops read and write of storages that several streams use, as the order of a stream implies
    all else; without what a called op lists too. An op's reads come before its writes.
    """
    ops = context.linked.ops
    tensors = ops.arguments.tensors
    tensors = tensors.where((first >= 0)[tensors.row] & tensors.in_memory)
    on_device = tensors.device != HOST
    named, changed = np.flatnonzero(on_device), np.flatnonzero(on_device & _is_changed(ops, tensors))
    index, is_changed = np.append(named, changed), np.repeat((False, True), (len(named), len(changed)))
    order = np.argsort(tensors.row[index], kind="stable")
    tensors, is_changed = tensors.where(index[order]), is_changed[order]
    stream, number = streams_of(context.linked.activities).number, group_ids(tensors.storage)
    ends = np.stack([stream[end[tensors.row]] for end in (first, last)])
    lowest, highest = np.full(len(number), len(stream)), np.full(len(number), -1)
    np.minimum.at(lowest, number, ends.min(axis=0))
    np.maximum.at(highest, number, ends.max(axis=0))
    is_shared = (lowest < highest)[number]
    tensors, is_changed, number = tensors.where(is_shared), is_changed[is_shared], number[is_shared]
    high, dense = _extents(tensors, is_changed)
    written = tensors.is_output | is_changed
    is_innermost = ~tree.encloses_its_kind(OpRows(tensors.row), number * 2 + written)
    columns = (tensors.row, tensors.storage, tensors.low, high, dense, written)
    return Accesses(*(column[is_innermost] for column in columns))  # type: ignore[arg-type]


def _extents(tensors: Tensors, is_changed: Bool) -> tuple[Int64, Bool]:
    """Returns where each tensor ends by its strides, where these are recorded, and whether it has no holes; contiguous
    tensors are assumed otherwise. Of the views of an op that begin alike the last one holds, a result's before an
    input's.
    """
    group, spanned = group_ids(tensors.row, tensors.storage, tensors.low), tensors.spanned
    # the strides of what was changed are those of the input that was read
    has_strides = np.flatnonzero((spanned > 0) & ~is_changed)
    view = np.full(len(group), -1, np.int64)
    view[group[has_strides]] = has_strides
    view = view[group]
    strided_high = ((tensors.offset + spanned) * tensors.size)[view]
    high = np.where(view >= 0, strided_high, tensors.high)
    return high, (view < 0) | (spanned <= tensors.elements)[view]


def _is_changed(ops: Ops, tensors: Tensors) -> Bool:
    """Returns which tensors are inputs that their op writes: those that its schema marks, or all buffers of an in-place
    collective.
    """
    marks = [mutated(schema) for schema in ops.op_schema.table] + [()]  # code -1 is the last: no schema
    is_marked = np.zeros((len(marks), 1 + max((position for mark in marks for position in mark), default=0)), np.bool_)
    for number, mark in enumerate(marks):
        is_marked[number, [*mark]] = True
    in_place = ops.name.equal(RECORD) & ~np.any(is_marked, axis=1)[ops.op_schema.codes]
    in_place[tensors.row[tensors.is_output]] = False
    argument = np.minimum(tensors.argument, is_marked.shape[1] - 1)
    marked = is_marked[ops.op_schema.codes[tensors.row], argument] & (argument == tensors.argument)
    is_changed: Bool = ~tensors.is_output & (marked | in_place[tensors.row])
    return is_changed


def _flows(
    context: ConversionContext, accesses: Accesses, first: ActivityRows, last: ActivityRows
) -> list[tuple[int, int]]:
    """Returns (writer, reader) activity pairs from one pass over the accesses in launch order; an op reads before it
    writes.
    """
    rank = _launch_rank(context)
    activity = np.where(accesses.written, last[accesses.op], first[accesses.op])
    order = np.lexsort((accesses.written, rank[activity]))
    columns = (accesses.storage, accesses.low, accesses.high, accesses.written, accesses.dense, activity)
    writers: dict[int, list[Writer]] = {}
    pairs: set[tuple[int, int]] = set()
    for storage, low, high, written, dense, by in zip(*(column[order].tolist() for column in columns), strict=True):
        last_writers = writers.setdefault(storage, [])
        if written:
            earlier_writers = [w for w in last_writers if not dense or w.low < low or w.high > high][-MOST_RANGES:]
            writers[storage] = [*earlier_writers, Writer(low, high, by)]
        else:
            pairs |= {(w.activity, by) for w in last_writers if w.low < high and low < w.high and w.activity != by}
    start, end = context.linked.activities.start, context.activity_end
    return [(source, target) for source, target in pairs if end[source] <= start[target]]
