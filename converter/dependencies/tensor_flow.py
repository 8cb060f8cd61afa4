"""GPU-promoted data dependency: where op B reads a storage that op A's activities wrote, B's first activity follows A's last.

Storages are followed by id and byte range in launch order. Written are an op's outputs, inputs that its schema marks (a!), and the
buffers of an in-place collective, by the innermost op that lists them and whose subtree launched. An edge is made only where
stream order and event waits do not imply it already.
"""

import re
from functools import cache
from typing import NamedTuple

import msgspec
import numpy as np

from ...schema.columns import Int64
from ...schema.graph import DependencyKind
from ...schema.host import TensorLists
from ..run import Edges, Run
from .event_wait import event_wait
from .stream_clocks import StreamClocks

TENSOR = re.compile(rb'\[(\d+), ?(\d+), ?(\d+), ?(\d+), ?(\d+), ?"([^"]*)"\]')
RECORD = "record_param_comms"
MOST_RANGES = 64


class Access(NamedTuple):
    """Bytes [low, high) of a storage that an op reads or writes."""

    op: int
    storage: int
    low: int
    high: int
    written: bool


class Writer(NamedTuple):
    low: int
    high: int
    activity: int


def tensor_flow(run: Run) -> Edges:
    """Data dependencies across streams. Linear in ops and tensors, but for sorts."""
    activities = run.linked.activities
    streams = np.unique(np.stack((activities.device, activities.stream)), axis=1)
    empty = np.empty(0, np.int64)
    if streams.shape[1] < 2:
        return Edges.of(empty, empty, DependencyKind.TENSOR_FLOW)
    first, last = _subtree_activities(run)
    accesses = _between_streams(run, _accesses(run, np.flatnonzero(first >= 0)), first, last)
    pairs = _flows(run, accesses, first, last)
    waits = event_wait(run)
    clocks = StreamClocks(run)
    source, target = clocks.not_implied(
        pairs,
        list(
            zip(
                (waits.source - run.activities_from).tolist(),
                (waits.target - run.activities_from).tolist(),
                strict=True,
            )
        ),
    )
    return Edges.of(run.activity_node(source), run.activity_node(target), DependencyKind.TENSOR_FLOW)


def _launch_rank(run: Run) -> Int64:
    """The place of each activity in the order of launches."""
    activities, calls = run.linked.activities, run.linked.calls
    called = activities.call_row >= 0
    time = activities.start.copy()
    time[called] = calls.start[activities.call_row[called]]
    rank = np.empty(len(activities), np.int64)
    rank[np.lexsort((activities.start, time))] = np.arange(len(activities))
    return rank


def _subtree_activities(run: Run) -> tuple[Int64, Int64]:
    """For each op the first and last activity launched by it and what it called, -1 for none."""
    rank = _launch_rank(run)
    by_rank = np.argsort(rank)
    owner = run.linked.activities.op_row
    count = len(run.linked.ops)
    first, last = np.full(count, np.iinfo(np.int64).max, np.int64), np.full(count, -1, np.int64)
    owned = owner >= 0
    np.minimum.at(first, owner[owned], rank[owned])
    np.maximum.at(last, owner[owned], rank[owned])
    active, parent = np.unique(owner[owned]), run.op_parent
    for _ in range(count):
        active = active[parent[active] >= 0]
        if not len(active):
            break
        np.minimum.at(first, parent[active], first[active])
        np.maximum.at(last, parent[active], last[active])
        active = np.unique(parent[active])
    launched = last >= 0
    none = np.full(count, -1, np.int64)
    first_row, last_row = none.copy(), none.copy()
    first_row[launched], last_row[launched] = by_rank[first[launched]], by_rank[last[launched]]
    return first_row, last_row


def _accesses(run: Run, launching: Int64) -> list[Access]:
    """Every storage range that launching ops name in their arguments."""
    ops = run.linked.ops
    record = ops.name.table.index(RECORD) if RECORD in ops.name.table else -2
    found: list[Access] = []
    for op in launching.tolist():
        inputs, outputs = ops.inputs[op], ops.outputs[op]
        found += _tensors(op, inputs, False)
        found += _tensors(op, outputs, True)
        mutated = _mutated(ops.op_schema[op])
        if mutated:
            found += _mutated_inputs(op, inputs, mutated)
        elif ops.name.codes[op] == record and not TENSOR.search(outputs):
            found += _tensors(op, inputs, True)
    return found


def _tensors(op: int, text: bytes, written: bool) -> list[Access]:
    return [
        Access(op, int(storage), int(offset) * int(size), (int(offset) + int(count)) * int(size), written)
        for _, storage, offset, count, size, device in TENSOR.findall(text)
        if int(storage) and int(count) and device != b"cpu"
    ]


@cache
def _mutated(schema: str) -> tuple[int, ...]:
    """Positions of the arguments that an op's schema marks as written.

    >>> _mutated("aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)")
    (0,)
    """
    arguments = schema.partition(" -> ")[0]
    return tuple(i for i, argument in enumerate(a for a in arguments.split(", ") if a != "*") if "!" in argument)


def _mutated_inputs(op: int, inputs: bytes, positions: tuple[int, ...]) -> list[Access]:
    values = msgspec.json.decode(msgspec.json.decode(inputs, type=TensorLists).values, type=list[msgspec.Raw])
    return [access for i in positions if i < len(values) for access in _tensors(op, bytes(values[i]), True)]


def _between_streams(run: Run, accesses: list[Access], first: Int64, last: Int64) -> list[Access]:
    """Without storages that only one stream touches (its order implies all), and accesses that a called op lists too."""
    if not accesses:
        return []
    activities = run.linked.activities
    _, stream = np.unique(np.stack((activities.device, activities.stream)), axis=1, return_inverse=True)
    stream = stream.reshape(-1)
    op = np.fromiter((access.op for access in accesses), np.int64, len(accesses))
    _, storage = np.unique(np.fromiter((a.storage for a in accesses), np.int64, len(accesses)), return_inverse=True)
    low, high = np.full(storage.max() + 1, len(activities)), np.full(storage.max() + 1, -1)
    for end in (first, last):
        np.minimum.at(low, storage, stream[end[op]])
        np.maximum.at(high, storage, stream[end[op]])
    written = np.fromiter((access.written for access in accesses), np.int64, len(accesses))
    inner = _listed_by_callee(run, op, storage * 2 + written)
    return [accesses[i] for i in np.flatnonzero((low < high)[storage] & ~inner).tolist()]


def _listed_by_callee(run: Run, op: Int64, what: Int64) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """Which (op, what) pairs stand for an op below it in the call tree too."""
    width = int(what.max()) + 1
    keys = op * width + what
    covered = np.zeros(len(keys), np.bool_)
    above, above_what, parent = op, what, run.op_parent
    while len(above):
        above = parent[above]
        real = above >= 0
        above, above_what = above[real], above_what[real]
        pairs = np.unique(above * width + above_what)
        covered |= np.isin(keys, pairs)
        above, above_what = pairs // width, pairs % width
    return covered


def _flows(run: Run, accesses: list[Access], first: Int64, last: Int64) -> list[tuple[int, int]]:
    """(writer, reader) activity pairs, from one pass over the accesses in launch order: an op reads before it writes."""
    rank = _launch_rank(run)
    moments = [int(rank[last[a.op]]) * 2 + 1 if a.written else int(rank[first[a.op]]) * 2 for a in accesses]
    writers: dict[int, list[Writer]] = {}
    pairs: set[tuple[int, int]] = set()
    for i in np.argsort(moments, kind="stable").tolist():
        access = accesses[i]
        known = writers.setdefault(access.storage, [])
        if access.written:
            kept = [w for w in known if w.low < access.low or w.high > access.high][-MOST_RANGES:]
            writers[access.storage] = [*kept, Writer(access.low, access.high, int(last[access.op]))]
        else:
            target = int(first[access.op])
            pairs |= {
                (w.activity, target)
                for w in known
                if w.low < access.high and access.low < w.high and w.activity != target
            }
    start, end = run.linked.activities.start, run.activity_end
    return [(source, target) for source, target in pairs if end[source] <= start[target]]
