"""Data dependencies of the device: if op B reads a storage that op A wrote, B's first activity follows A's last.

Storages are followed by id and byte range in launch order. An op writes its outputs, the inputs that its schema marks
(a!), and the buffers of an in-place collective. The access belongs to the innermost op that lists the storage and whose
subtree launched work. Edges that stream order and event waits imply, by clocks over streams, are omitted.
"""

from bisect import bisect_right
from typing import NamedTuple

import numpy as np

from ...schema.columns import ABSENT, ActivityRows, Bool, Int64, NodeNumbers, OpRows, Tree, group_ids
from ...schema.graph import DependencyKind
from ...schema.linked import HOST, Ops, Tensors, mutated, streams_of
from ..edges import Edges
from ..timeline import ConversionContext
from .rules import event_wait


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


RECORD = "record_param_comms"
MOST_RANGES = 64


class Accesses(NamedTuple):
    """Columns of accesses: `op` reads or writes bytes [low, high) of a storage, without holes where `dense`."""

    op: OpRows
    storage: Int64
    low: Int64
    high: Int64
    written: Bool
    dense: Bool
    strided_high: Int64
    """Where it ends by the recorded strides, ABSENT without them."""
    strided_dense: Bool

    def where(self, chosen: Int64 | Bool) -> "Accesses":
        """Returns the accesses at these rows."""
        return Accesses(OpRows(self.op[chosen]), *(column[chosen] for column in self[1:]))  # type: ignore[arg-type]


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
    accesses = _between_streams(context, tree, _accesses(context, np.flatnonzero(first >= 0)), first, last)
    pairs = _flows(context, accesses, first, last)
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


def _accesses(context: ConversionContext, launching: Int64) -> Accesses:
    """Returns every storage range that launching ops name in their arguments; an op's reads come before its writes."""
    ops = context.linked.ops
    is_launching = np.zeros(len(ops), np.bool_)
    is_launching[launching] = True
    tensors = ops.arguments.tensors
    tensors = tensors.where(is_launching[tensors.row] & tensors.in_memory)
    on_device = tensors.device != HOST
    named, changed = np.flatnonzero(on_device), np.flatnonzero(on_device & _is_changed(ops, tensors))
    index, is_changed = np.append(named, changed), np.repeat((False, True), (len(named), len(changed)))
    order = np.argsort(tensors.row[index], kind="stable")
    tensors, is_changed = tensors.where(index[order]), is_changed[order]
    spanned = tensors.spanned
    # the strides of what was changed are those of the input that was read
    strided_high = np.where((spanned > 0) & ~is_changed, (tensors.offset + spanned) * tensors.size, ABSENT)
    return Accesses(
        op=OpRows(tensors.row),
        storage=tensors.storage,
        low=tensors.low,
        high=tensors.high,
        written=tensors.is_output | is_changed,
        dense=np.ones(len(is_changed), np.bool_),
        strided_high=strided_high,
        strided_dense=spanned <= tensors.elements,
    )


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


def _between_streams(
    context: ConversionContext, tree: Tree, accesses: Accesses, first: ActivityRows, last: ActivityRows
) -> Accesses:
    """Returns the accesses without those that a called op lists too, and without storages of a single stream, whose
    order implies all; with the extent of strided views.
    """
    if not len(accesses.op):
        return accesses
    stream = streams_of(context.linked.activities).number
    _, storage = np.unique(accesses.storage, return_inverse=True)
    low, high = np.full(storage.max() + 1, len(stream)), np.full(storage.max() + 1, -1)
    for end in (first, last):
        np.minimum.at(low, storage, stream[end[accesses.op]])
        np.maximum.at(high, storage, stream[end[accesses.op]])
    is_shared = np.flatnonzero((low < high)[storage])
    shared = _strided(accesses.where(is_shared))
    inner = tree.encloses_its_kind(shared.op, storage[is_shared] * 2 + shared.written)
    return shared.where(~inner)


def _strided(accesses: Accesses) -> Accesses:
    """Returns the accesses with the extent of strided views, where strides are recorded; contiguous tensors are assumed
    before. Of the views of an op that begin alike the last one holds, a result's before an input's.
    """
    group = group_ids(accesses.op, accesses.storage, accesses.low)
    has_strides = np.flatnonzero(accesses.strided_high != ABSENT)
    last = np.full(len(group), -1, np.int64)
    last[group[has_strides]] = has_strides
    view = last[group]
    high = np.where(view >= 0, accesses.strided_high[view], accesses.high)
    return accesses._replace(high=high, dense=np.where(view >= 0, accesses.strided_dense[view], accesses.dense))


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
