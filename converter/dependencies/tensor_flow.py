"""Data dependencies of the device: if op B reads a storage that op A wrote, B's first activity follows A's last.

Storages are followed by id and byte range in launch order. An op writes its outputs, the inputs that its schema marks
(a!), and the buffers of an in-place collective. The access belongs to the innermost op that lists the storage and whose
subtree launched work. Edges that stream order and event waits imply are omitted.
"""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from ...schema.columns import ActivityRows, Bool, Int64, NodeNumbers, OpRows, Tree
from ...schema.graph import DependencyKind
from ...schema.linked import Ops, streams_of
from ...schema.traces import TENSOR, value_texts
from ..context import ConversionContext, Edges
from ..op_schema import mutated
from ..storages import HOST, Ranges, named_ranges, strided_ranges
from .stream_clocks import StreamClocks
from .waits import event_wait

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

    def where(self, chosen: Int64) -> "Accesses":
        """Returns the accesses at these rows."""
        op, storage, low, high = (column[chosen] for column in self[:4])
        return Accesses(OpRows(op), storage, low, high, self.written[chosen], self.dense[chosen])


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
    pairs = _flows(context, _strided(context, accesses), first, last)
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
    ops, rows = context.linked.ops, launching.tolist()
    read = _ranges(ops.inputs.at(rows))
    written = [_ranges(ops.outputs.at(rows)), _ranges(_changed_inputs(ops, rows))]
    row, storage, low, high, _ = (np.concatenate(columns) for columns in zip(read, *written, strict=True))
    is_written = np.arange(len(row)) >= len(read.row)
    dense = np.ones(len(row), np.bool_)
    return Accesses(launching[row], storage, low, high, is_written, dense).where(np.argsort(row, kind="stable"))


def _ranges(arguments: Sequence[bytes]) -> Ranges:
    """Returns the ranges of the device tensors in each text."""
    ranges = named_ranges(arguments)
    return ranges.where(ranges.device != HOST)


def _changed_inputs(ops: Ops, rows: list[int]) -> list[bytes]:
    """Returns the text of the inputs that each op writes: those that its schema marks, or all buffers of an in-place
    collective.
    """
    records = ops.name.equal(RECORD)[rows].tolist()
    marked = [mutated(schema) for schema in ops.op_schema.table] + [()]  # code -1 is the last: no schema
    changed = []
    for op, is_record, schema in zip(rows, records, ops.op_schema.codes[rows].tolist(), strict=True):
        if marked[schema]:
            changed.append(_arguments(ops.inputs[op], marked[schema]))
        else:
            changed.append(ops.inputs[op] if is_record and not TENSOR.search(ops.outputs[op]) else b"")
    return changed


def _arguments(inputs: bytes, positions: tuple[int, ...]) -> bytes:
    values = value_texts(inputs)
    return b",".join([values[i] for i in positions if i < len(values)])


def _between_streams(
    context: ConversionContext, tree: Tree, accesses: Accesses, first: ActivityRows, last: ActivityRows
) -> Accesses:
    """Returns the accesses without those that a called op lists too, and without storages of a single stream, whose
    order implies all.
    """
    if not len(accesses.op):
        return accesses
    stream = streams_of(context.linked.activities).number
    _, storage = np.unique(accesses.storage, return_inverse=True)
    low, high = np.full(storage.max() + 1, len(stream)), np.full(storage.max() + 1, -1)
    for end in (first, last):
        np.minimum.at(low, storage, stream[end[accesses.op]])
        np.maximum.at(high, storage, stream[end[accesses.op]])
    shared = np.flatnonzero((low < high)[storage])
    inner = tree.encloses_its_kind(accesses.op[shared], (storage * 2 + accesses.written)[shared])
    return accesses.where(shared[~inner])


def _strided(context: ConversionContext, accesses: Accesses) -> Accesses:
    """Returns the accesses with the extent of strided views, where strides are recorded; contiguous tensors are assumed
    before.
    """
    high, dense = accesses.high.copy(), accesses.dense.copy()
    rows_of: dict[tuple[int, int, int], list[int]] = {}
    keys = zip(accesses.op.tolist(), accesses.storage.tolist(), accesses.low.tolist(), strict=True)
    for row, key in enumerate(keys):
        rows_of.setdefault(key, []).append(row)
    ops, ranges_of = context.linked.ops, cache(strided_ranges)
    for op in np.unique(accesses.op).tolist():
        for extent in (*ranges_of(ops.inputs[op]), *ranges_of(ops.outputs[op])):
            for row in rows_of.get((op, extent.storage, extent.low), ()):
                high[row], dense[row] = extent.high, extent.dense
    return accesses._replace(high=high, dense=dense)


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
            kept = [w for w in last_writers if not dense or w.low < low or w.high > high][-MOST_RANGES:]
            writers[storage] = [*kept, Writer(low, high, by)]
        else:
            pairs |= {(w.activity, by) for w in last_writers if w.low < high and low < w.high and w.activity != by}
    start, end = context.linked.activities.start, context.activity_end
    return [(source, target) for source, target in pairs if end[source] <= start[target]]
