"""What the tables of a trace tell without more: steps, streams, which op called which, which calls wait, and the trace
without what was inferred.

Parents never go round in a circle: circles are cut where traces are linked and where linked files are read.
"""

import re
from collections.abc import Callable
from dataclasses import fields, replace
from enum import IntEnum
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from ..columns import (
    ABSENT,
    Bool,
    Categorical,
    Int64,
    Ns,
    OpRows,
    Tree,
    group_ids,
    parent_rows,
    previous_in_group,
    rows_of_each,
)
from .linked_trace import DeviceWaits, HostWaits, LinkedTrace, Ops, Provenance, ThreadHandoffs


def name_of(value: Any) -> str:
    r"""Returns the value as text that a file can hold: with `?` for half a surrogate pair, which escapes may name.

    >>> name_of("gemm \ud83d")
    'gemm ?'
    """
    return str(value).encode("utf-8", "replace").decode()


STEP_MARK = "ProfilerStep#"
LONGEST_NUMBER = 18
"""Digits of a number that fits 64 bits."""


def are_step_marks(names: Categorical) -> Bool:
    """Returns which names mark a step."""
    return names.where(lambda name: name.startswith(STEP_MARK))


def step_starts(names: Categorical, start: Int64) -> dict[int, int]:
    """Returns the start (ns) of each step by its number, from ops' names and starts; of several marks the first.

    >>> step_starts(Categorical.of(["ProfilerStep#3", "aten::mm", "ProfilerStep#4"]), np.array([10, 11, 20]))
    {3: 10, 4: 20}
    """
    marks = np.flatnonzero(are_step_marks(names) & (start != ABSENT))
    starts: dict[int, int] = {}
    for row in marks[np.argsort(start[marks], kind="stable")].tolist():
        number = names[row].removeprefix(STEP_MARK)
        if number.isdecimal() and number.isascii() and len(number) <= LONGEST_NUMBER:
            starts.setdefault(int(number), int(start[row]))
    return starts


def step_count(names: Categorical, duration_ns: Ns) -> int:
    """Returns how many steps these ops mark. Several threads may mark the same step."""
    return len(np.unique(names.codes[are_step_marks(names) & (duration_ns > 0)]))


class OnStreams(Protocol):
    """Activities, or other rows that ran on streams. Times are in ns."""

    device: Int64
    stream: Int64
    start: Int64
    end: Int64


def stream_sorted(activities: OnStreams) -> Int64:
    """Returns the rows by device, stream, start and end."""
    return np.lexsort((activities.end, activities.start, activities.stream, activities.device)).astype(np.int64)


def previous_on_stream(activities: OnStreams) -> Int64:
    """Returns for each activity the one before it on its stream, -1 for the first."""
    return previous_in_group(stream_sorted(activities), activities.device, activities.stream)


class Streams(NamedTuple):
    """The streams of a process: `number` is the position of each activity's stream in `device` and `stream`."""

    device: Int64
    stream: Int64
    number: Int64


def streams_of(activities: OnStreams) -> Streams:
    """Returns the sorted pairs of device and stream, and the position of each activity's pair."""
    number = group_ids(activities.device, activities.stream)
    first = np.unique(number, return_index=True)[1]
    return Streams(activities.device[first], activities.stream[first], number)


def last_ended(end: Int64, times: Int64, fits: Callable[[Int64], Bool] | None = None, *, tried: int = 1) -> Int64:
    """Returns for each time the row that ended last at or before it, -1 for none. O(n log n).

    Args:
        end: The end of each row.
        times: The times.
        fits: Says whether a row counts for each time; given one row for each.
        tried: How many rows are looked at for each time, the last ended first.
    """
    by_end = np.append(np.argsort(end, kind="stable"), -1)
    position = np.searchsorted(end[by_end[:-1]], times, side="right") - 1
    source = np.full(len(times), -1, np.int64)
    for back in range(tried):
        row = by_end[np.maximum(position - back, -1)]
        counts = (source < 0) & (row >= 0)
        source = np.where(counts if fits is None else counts & fits(row), row, source)
    return source


def took_over(activities: OnStreams, slack: int) -> Bool:
    """Returns which activities started right when one on another stream of their device ended, within `slack` (ns).

    Activities do so that waited for a slot on a full device.
    """
    follows = np.zeros(len(activities.start), np.bool_)
    for rows in rows_of_each(activities.device).values():
        last = last_ended(activities.end[rows], activities.start[rows] + slack)
        is_soon = (last >= 0) & (last != np.arange(len(rows)))
        is_soon &= activities.start[rows] - activities.end[rows[last]] <= slack
        follows[rows] = is_soon & (activities.stream[rows[last]] != activities.stream[rows])
    return follows


def op_parents(ops: Ops) -> OpRows:
    """Returns for each op the row of the op that called it, -1 for none. O(n log n).

    An op that names itself as its parent is outermost.
    """
    return OpRows(parent_rows(ops.id, ops.parent_id))


def op_tree(ops: Ops) -> Tree:
    """Returns the tree of ops; those that one op called are in order of time. O(n log n)."""
    return Tree.of(op_parents(ops), ops.start)


Guessable = TypeVar("Guessable", DeviceWaits, HostWaits, ThreadHandoffs)


def guessed(known_by: Categorical) -> Bool:
    """Returns which edges are known from timing alone."""
    return known_by.equal(Provenance.TIMING.value)


def without_guesses(linked: LinkedTrace) -> LinkedTrace:
    """Returns the trace without waits and hand-offs that are known from timing alone.

    Their waiting time becomes the thread's own time again.
    """
    tables = {name: _certain(getattr(linked, name)) for name in ("device_waits", "host_waits", "handoffs")}
    return replace(linked, **tables)


def _certain(table: Guessable) -> Guessable:
    is_certain = ~guessed(table.known_by)
    columns: dict[str, Any] = {}
    for name in (field.name for field in fields(table)):
        column = getattr(table, name)
        columns[name] = column.take(is_certain) if isinstance(column, Categorical) else column[is_certain]
    return replace(table, **columns)


class SyncCall(IntEnum):
    """What a runtime call has to do with waiting; NONE for nothing."""

    NONE = 0
    EVENT_RECORD = 1
    STREAM_WAIT = 2
    EVENT_SYNC = 3
    STREAM_SYNC = 4
    DEVICE_SYNC = 5
    EVENT_QUERY = 6
    FREE = 7


_VENDOR = r"^(?:cuda|cu|hip|mu|musa)"
_NAMES = (
    (SyncCall.EVENT_RECORD, _VENDOR + r"EventRecord(?:WithFlags)?$"),
    (SyncCall.STREAM_WAIT, _VENDOR + r"StreamWaitEvent$"),
    (SyncCall.EVENT_SYNC, _VENDOR + r"EventSynchronize$|^(?:ur|pi)Events?Wait$"),
    (SyncCall.STREAM_SYNC, _VENDOR + r"StreamSynchronize$|synchronizeStream|^(?:ur|pi)QueueFinish$"),
    (SyncCall.DEVICE_SYNC, _VENDOR + r"(?:Device|Thread|Ctx)Synchronize$|synchronizeDevice"),
    (SyncCall.EVENT_QUERY, _VENDOR + r"EventQuery$"),
    (SyncCall.FREE, _VENDOR + r"(?:Mem)?(?:Free|FreeHost|HostFree|FreeArray|FreeMipmappedArray)$"),
)
_NAMED_BY_RECORD = (SyncCall.STREAM_WAIT, SyncCall.EVENT_SYNC, SyncCall.STREAM_SYNC)
_SUFFIX = re.compile(r"(_ptsz|_ptds|_spt|_v\d+)+$")


def sync_call(name: str) -> SyncCall:
    """Returns the meaning of a call's name; per-thread-stream and version suffixes do not matter.

    >>> sync_call("cudaStreamSynchronize_ptsz").name, sync_call("cudaLaunchKernel").name
    ('STREAM_SYNC', 'NONE')
    """
    plain = _SUFFIX.sub("", name)
    return next((kind for kind, pattern in _NAMES if re.search(pattern, plain)), SyncCall.NONE)


def sync_calls(names: Categorical) -> Int64:
    """Returns the SyncCall of every call."""
    return names.numbers(sync_call, SyncCall.NONE)


def waits_without_record(calls: Categorical, sync_records: int) -> int:
    """Returns how many CUDA calls wait for a stream or an event that the trace does not name.

    None do in a trace that has synchronisation records. Waits for a whole device need none, and other vendors'
    profilers have none.

    >>> from execgraph.schema.columns import Categorical
    >>> calls = Categorical.of(["cudaStreamWaitEvent", "cudaDeviceSynchronize", "hipStreamWaitEvent"])
    >>> waits_without_record(calls, 0), waits_without_record(calls, 1)
    (1, 0)
    """
    if sync_records:
        return 0
    return int(calls.where(lambda name: name.startswith("cu") and sync_call(name) in _NAMED_BY_RECORD).sum())


SYNC_RECORDS = {
    "stream wait event": SyncCall.STREAM_WAIT,
    "event sync": SyncCall.EVENT_SYNC,
    "stream sync": SyncCall.STREAM_SYNC,
    "context sync": SyncCall.DEVICE_SYNC,
}
