"""The calls in a graph, and what flows between them: tensors from the call that made them to those that read them, and
other dependencies.

Each op with all of its slices is one call, each other host node and each activity is one by itself; idle time,
metadata and delays are none. A tensor is known by its id. Where no call made it, as after a detour through C++, its
storage tells who wrote it last.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...schema.columns import (
    ABSENT,
    Int64,
    Keys,
    NodeIds,
    Rows,
    SummaryRepr,
    asof_backward,
    group_ids,
    group_sums,
    is_group_start,
    nearest,
)
from ...schema.graph import DependencyKind, ExecutionGraph
from ...schema.linked import Tensors, read_arguments
from ..replay import NodeClass, gather, node_classes

IDLE = "host idle"
NO_CALLS = (NodeClass.METADATA, NodeClass.DELAY, NodeClass.UNRECORDED)
DATA = 0
"""The kind of a flow that is a tensor."""
ORDERS = DependencyKind.PROGRAM_ORDER | DependencyKind.LAUNCH | DependencyKind.STREAM_ORDER | DependencyKind.CALL_ORDER
"""Reasons that are shown only where no tensors were recorded."""


@dataclass(slots=True, repr=False)
class Calls(SummaryRepr):
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
    rows = np.flatnonzero(~np.isin(node_classes(graph), NO_CALLS) & ~graph.name.equal(IDLE))
    # slices are of one call if they have the op's id in common, else if they are of a thread's ops of one name and
    # count on
    part, op = graph.integers("slice")[rows], graph.integers("op_id")[rows]
    thread, name = graph.integers("tid")[rows], graph.name.codes[rows].astype(np.int64)
    order = np.lexsort((rows, name, thread))
    is_start = is_group_start(thread[order], name[order])
    is_start[1:] |= part[order][1:] <= part[order][:-1]
    without_id = np.empty(len(rows), np.int64)
    without_id[order] = np.cumsum(is_start)
    known_by = np.where(part == ABSENT, 0, np.where(op == ABSENT, 1, 2))
    number = group_ids(known_by, np.choose(known_by, (rows, without_id, op)))
    first = np.unique(number, return_index=True)[1]
    number = np.searchsorted(np.sort(first), first)[number]
    first_row, last_row, of_row = rows[np.sort(first)], np.zeros(len(first), np.int64), np.full(len(graph), -1)
    last_row[number], of_row[rows] = rows, number
    # each call's first node names the slice of its caller, or of what launched it
    controls, caller = graph.ctrl_deps, np.full(len(graph), -1)
    has_caller = np.flatnonzero(controls.lengths() > 0)
    caller[has_caller] = graph.rows_of(NodeIds(controls.values[controls.starts[has_caller]]))
    above = caller[first_row]
    # a caller begins before what it calls: what a damaged file says otherwise is left out, so that there is no circle
    parent = np.where((above >= 0) & (above < first_row), np.append(of_row, -1)[above], -1)
    return Calls(first_row, last_row, parent, of_row)


class Flows(NamedTuple):
    """Flows from one call to a later one: their kinds, DATA or the bits of a dependency, and bytes of the tensors."""

    source: Int64
    target: Int64
    kind: Int64
    size: Int64


def recorded_tensors(graph: ExecutionGraph) -> Tensors:
    """Returns the tensors that a graph holds, none if it was made without them; `row` is that of the op's node."""
    texts = graph.tensors
    if texts is None:
        return read_arguments([], []).tensors
    columns = ([b'{"values":%s}' % (text or b"[]") for text in of] for of in (texts.input_values, texts.output_values))
    tensors = read_arguments(*columns).tensors
    return tensors._replace(row=texts.rows[tensors.row])


def flows_of(graph: ExecutionGraph, calls: Calls, tensors: Tensors) -> Flows:
    """Returns what flows between calls, each pair once for each kind; `row` of tensors is that of the op's node.

    O(n log n).
    """
    data = _tensor_flows(graph, calls, tensors)
    work = gather([graph])
    source, target = calls.of_row[work.source], calls.of_row[work.target]
    between = (source >= 0) & (target >= 0) & (source != target)
    if len(data.source):
        between &= (work.kind & ~(ORDERS | DependencyKind.INFERRED)) != 0
    kind = work.kind[between]
    others = _unique_flows(Flows(source[between], target[between], kind, np.zeros(len(kind), np.int64)))
    return Flows(*map(np.concatenate, zip(data, others, strict=True)))


def _tensor_flows(graph: ExecutionGraph, calls: Calls, tensors: Tensors) -> Flows:
    accesses = tensors._replace(row=calls.of_row[tensors.row])
    accesses = accesses.where(accesses.row >= 0)
    writes, reads = accesses.where(accesses.is_output), accesses.where(~accesses.is_output)
    # a result that shares the storage of an argument, though the op's schema marks nothing as changed, is a view
    changes = graph.texts("op_schema").where(lambda text: "!" in text)[calls.first_row]
    key = group_ids(np.concatenate((reads.row, writes.row)), np.concatenate((reads.storage, writes.storage)))
    is_view = np.isin(key[len(reads.row) :], key[: len(reads.row)]) & ~changes[writes.row]
    reads = _innermost(reads, calls)
    source = _last_writer(_innermost(writes, calls), reads, calls, "tensor")
    unknown = source < 0
    in_place = _innermost(writes.where(~is_view), calls)
    source[unknown] = _last_writer(in_place, reads.where(unknown), calls, "storage")
    has_source = source >= 0
    source, reads = source[has_source], reads.where(has_source)
    return _unique_flows(Flows(source, reads.row, np.full(len(source), DATA), reads.elements * reads.size))


def _innermost(accesses: Tensors, calls: Calls) -> Tensors:
    """Returns the accesses, by call, without those of a call that called one which accesses the same tensor."""
    caller = calls.parent[accesses.row]
    key = group_ids(np.concatenate((accesses.row, caller)), np.tile(accesses.tensor, 2))
    return accesses.where(~np.isin(key[: len(caller)], key[len(caller) :]))


def _last_writer(writes: Tensors, reads: Tensors, calls: Calls, known_by: str) -> Int64:
    """Returns the call that last wrote what each read reads, before the reader began; -1 for none."""
    written, read = getattr(writes, known_by), getattr(reads, known_by)
    ended = calls.last_row[writes.row]
    order = np.lexsort((ended, written))
    last_write = asof_backward(Keys(written[order], ended[order]), Keys(read, calls.first_row[reads.row] - 1))
    return np.append(writes.row[order], -1)[last_write]


def _unique_flows(flows: Flows) -> Flows:
    """Returns each flow once, with the bytes of all."""
    number = group_ids(flows.source, flows.target, flows.kind)
    first = np.unique(number, return_index=True)[1]
    size = group_sums(number, flows.size, len(first))
    return Flows(flows.source[first], flows.target[first], flows.kind[first], size)
