"""The calls in a graph, and what flows between them: tensors from the call that made them to those that read them, and
other dependencies.

Each op with all of its slices is one call, each other host node and each activity is one by itself; idle time,
metadata and delays are none. A tensor is known by its id. Where no call made it, as after a detour through C++, its
storage tells who wrote it last.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...schema.columns import (
    ABSENT,
    Bool,
    Int64,
    Keys,
    NodeIds,
    Rows,
    Table,
    asof_backward,
    group_ids,
    is_group_start,
    nearest,
)
from ...schema.graph import DependencyKind, ExecutionGraph
from ...schema.linked import Tensors, tensors_of
from ..replay import NodeClass, gather, node_classes

IDLE = "host idle"
NO_CALLS = (NodeClass.METADATA, NodeClass.DELAY, NodeClass.UNRECORDED)


@dataclass(slots=True, repr=False)
class Calls(Table):
    """Calls in the order of their first nodes: rows of their first and last nodes, the call that called or launched
    them, -1 for none. `of_row` is the call of each node of the graph, -1 for none.
    """

    first_row: Rows
    last_row: Rows
    parent: Int64
    of_row: Int64

    def __len__(self) -> int:
        return len(self.first_row)

    def roots(self) -> Int64:
        """Returns the outermost call around each call. O(n log n)."""
        return nearest(self.parent < 0, self.parent)


def calls_of(graph: ExecutionGraph) -> Calls:
    """Returns the calls of a graph, in O(n log n)."""
    is_call = ~np.isin(node_classes(graph), NO_CALLS) & ~graph.name.equal(IDLE)
    rows = np.flatnonzero(is_call)
    number = _call_numbers(graph, rows)
    first = np.unique(number, return_index=True)[1]
    in_order = np.argsort(first, kind="stable")
    number = np.argsort(in_order)[number] if len(rows) else number
    of_row = np.full(len(graph), -1)
    of_row[rows] = number
    last = np.zeros(len(first), np.int64)
    np.maximum.at(last, number, rows)
    first_row = rows[first[in_order]]
    return Calls(first_row, last, _callers(graph, first_row, of_row), of_row)


def _call_numbers(graph: ExecutionGraph, rows: Rows) -> Int64:
    """Returns equal numbers for slices of one op: those with its id, else those of a thread's ops of one name that
    count on.
    """
    part, op = graph.integers("slice")[rows], graph.integers("op_id")[rows]
    is_slice = part != ABSENT
    thread, name = graph.integers("tid")[rows], graph.name.codes[rows].astype(np.int64)
    order = np.lexsort((rows, name, thread))
    is_start = is_group_start(thread[order], name[order])
    is_start[1:] |= part[order][1:] <= part[order][:-1]
    without_id = np.empty(len(rows), np.int64)
    without_id[order] = np.cumsum(is_start)
    known_by = np.where(~is_slice, 0, np.where(op == ABSENT, 1, 2))
    return group_ids(known_by, np.choose(known_by, (rows, without_id, op)))


def _callers(graph: ExecutionGraph, first_row: Rows, of_row: Int64) -> Int64:
    """Returns the call of the slice that each call's first node names as its caller's, or as what launched it."""
    controls = graph.ctrl_deps
    has_caller = np.flatnonzero(controls.lengths() > 0)
    row_of_caller = np.full(len(graph), -1)
    row_of_caller[has_caller] = graph.rows_of(NodeIds(controls.values[controls.starts[has_caller]]))
    above = row_of_caller[first_row]
    # a caller begins before what it calls: what a damaged file says otherwise is left out, so that there is no circle
    return np.where((above >= 0) & (above < first_row), np.append(of_row, -1)[above], -1)


DATA = 0
"""The kind of a flow that is a tensor."""
ORDERS = DependencyKind.PROGRAM_ORDER | DependencyKind.LAUNCH | DependencyKind.STREAM_ORDER | DependencyKind.CALL_ORDER
"""Reasons that are shown only where no tensors were recorded."""


class Flows(NamedTuple):
    """Flows from one call to a later one: their kinds, DATA or the bits of a dependency, and bytes of the tensors."""

    source: Int64
    target: Int64
    kind: Int64
    size: Int64


class TensorTexts(NamedTuple):
    """The recorded arguments and results of ops, as texts, and the row of the node of each op."""

    row: Rows
    inputs: Sequence[bytes]
    outputs: Sequence[bytes]


class _Accesses(NamedTuple):
    """Tensors that calls read or write."""

    call: Int64
    tensor: Int64
    storage: Int64
    size: Int64

    def where(self, chosen: Bool | Int64) -> "_Accesses":
        return _Accesses(*(column[chosen] for column in self))


def recorded_texts(graph: ExecutionGraph) -> TensorTexts:
    """Returns the tensors' texts that a graph holds, none if it was made without them."""
    tensors = graph.tensors
    if tensors is None:
        return TensorTexts(np.empty(0, np.int64), [], [])
    inputs, outputs = ([_as_list(text) for text in column] for column in (tensors.input_values, tensors.output_values))
    return TensorTexts(tensors.rows, inputs, outputs)


def _as_list(text: bytes) -> bytes:
    return b'{"values":%s}' % (text or b"[]")


def flows_of(graph: ExecutionGraph, calls: Calls, texts: TensorTexts) -> Flows:
    """Returns what flows between calls, each pair once for each kind. O(n log n)."""
    tensors = _tensor_flows(graph, calls, texts)
    others = _dependencies(graph, calls, with_orders=not len(tensors.source))
    return Flows(*(np.concatenate(columns) for columns in zip(tensors, others, strict=True)))


def _dependencies(graph: ExecutionGraph, calls: Calls, with_orders: bool) -> Flows:
    work = gather([graph])
    source, target = calls.of_row[work.source], calls.of_row[work.target]
    between = (source >= 0) & (target >= 0) & (source != target)
    if not with_orders:
        between &= (work.kind & ~(ORDERS | DependencyKind.INFERRED)) != 0
    kind = work.kind[between]
    return _unique_flows(Flows(source[between], target[between], kind, np.zeros(len(kind), np.int64)))


def _tensor_flows(graph: ExecutionGraph, calls: Calls, texts: TensorTexts) -> Flows:
    reads, writes = (_accesses(calls, texts.row, tensors_of(column)) for column in (texts.inputs, texts.outputs))
    is_view = _are_views(graph, calls, reads, writes)
    reads, writes_inside = _innermost(reads, calls), _innermost(writes, calls)
    source = _last_writer(writes_inside, reads, calls, "tensor")
    unknown = source < 0
    in_place = _innermost(writes.where(~is_view), calls)
    source[unknown] = _last_writer(in_place, reads.where(unknown), calls, "storage")
    has_source = source >= 0
    return _unique_flows(
        Flows(
            source[has_source],
            reads.call[has_source],
            np.full(int(has_source.sum()), DATA, np.int64),
            reads.size[has_source],
        )
    )


def _accesses(calls: Calls, row: Rows, tensors: Tensors) -> _Accesses:
    call = calls.of_row[row][tensors.row]
    kept = call >= 0
    return _Accesses(call, tensors.tensor, tensors.storage, tensors.elements * tensors.size).where(kept)


def _are_views(graph: ExecutionGraph, calls: Calls, reads: _Accesses, writes: _Accesses) -> Bool:
    """Returns which results share the storage of an argument though the op's schema marks nothing as changed."""
    changes = graph.texts("op_schema").where(lambda text: "!" in text)[calls.first_row]
    key = group_ids(np.concatenate((reads.call, writes.call)), np.concatenate((reads.storage, writes.storage)))
    is_view: Bool = np.isin(key[len(reads.call) :], key[: len(reads.call)]) & ~changes[writes.call]
    return is_view


def _innermost(accesses: _Accesses, calls: Calls) -> _Accesses:
    """Returns the accesses without those of a call that called one which accesses the same tensor."""
    caller = calls.parent[accesses.call]
    key = group_ids(np.concatenate((accesses.call, caller)), np.tile(accesses.tensor, 2))
    return accesses.where(~np.isin(key[: len(caller)], key[len(caller) :]))


def _last_writer(writes: _Accesses, reads: _Accesses, calls: Calls, known_by: str) -> Int64:
    """Returns the call that last wrote what each read reads, before the reader began; -1 for none."""
    written, read = getattr(writes, known_by), getattr(reads, known_by)
    ended = calls.last_row[writes.call]
    order = np.lexsort((ended, written))
    last_write = asof_backward(Keys(written[order], ended[order]), Keys(read, calls.first_row[reads.call] - 1))
    return np.append(writes.call[order], -1)[last_write]


def _unique_flows(flows: Flows) -> Flows:
    """Returns each flow once, with the bytes of all."""
    number = group_ids(flows.source, flows.target, flows.kind)
    first = np.unique(number, return_index=True)[1]
    size = np.bincount(number, flows.size, len(first)).astype(np.int64)
    return Flows(flows.source[first], flows.target[first], flows.kind[first], size)
