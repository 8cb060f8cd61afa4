"""Finds the streams of a process and what ran before on them, and names calls that record, await, query or free."""

import re
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple, Protocol

import numpy as np

from ..columns import Bool, Categorical, Int64, group_ids, previous_in_group, rows_of_each


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


_VENDOR = r"^(?:cuda|cu|hip|mu|musa|(?:AscendCL@)?aclrt)"
_NAMES = (
    (SyncCall.EVENT_RECORD, _VENDOR + r"(?:EventRecord(?:WithFlags)?|RecordEvent)$"),
    (SyncCall.STREAM_WAIT, _VENDOR + r"StreamWaitEvent(?:WithTimeout)?$"),
    (SyncCall.EVENT_SYNC, _VENDOR + r"(?:EventSynchronize|SynchronizeEvent\w*)$|^(?:ur|pi)Events?Wait$"),
    (SyncCall.STREAM_SYNC, _VENDOR + r"StreamSynchronize$|[sS]ynchronizeStream|^(?:ur|pi)QueueFinish$"),
    (SyncCall.DEVICE_SYNC, _VENDOR + r"(?:Device|Thread|Ctx)Synchronize$|[sS]ynchronizeDevice"),
    (SyncCall.EVENT_QUERY, _VENDOR + r"(?:EventQuery|QueryEvent\w*)$"),
    (SyncCall.FREE, _VENDOR + r"(?:Mem)?(?:Free|FreeHost|HostFree|FreeArray|FreeMipmappedArray)$"),
)
_NAMED_BY_RECORD = (SyncCall.STREAM_WAIT, SyncCall.EVENT_SYNC, SyncCall.STREAM_SYNC)
_SUFFIX = re.compile(r"(_ptsz|_ptds|_spt|_v\d+)+$")
SYNC_RECORDS = {
    "stream wait event": SyncCall.STREAM_WAIT, "event sync": SyncCall.EVENT_SYNC,
    "stream sync": SyncCall.STREAM_SYNC, "context sync": SyncCall.DEVICE_SYNC,
}  # fmt: skip


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
    """Returns for each time the last ended row that `fits`, of the `tried` that ended last by then; -1 for none."""
    by_end = np.append(np.argsort(end, kind="stable"), -1)
    position = np.searchsorted(end[by_end[:-1]], times, side="right") - 1
    source = np.full(len(times), -1, np.int64)
    for back in range(tried):
        row = by_end[np.maximum(position - back, -1)]
        counts = (source < 0) & (row >= 0)
        source = np.where(counts if fits is None else counts & fits(row), row, source)
    return source


def took_over(activities: OnStreams, slack: int) -> Bool:
    """Returns which activities started within `slack` (ns) of an end on another stream, as on a full device."""
    follows = np.zeros(len(activities.start), np.bool_)
    for rows in rows_of_each(activities.device).values():
        last = last_ended(activities.end[rows], activities.start[rows] + slack)
        is_soon = (last >= 0) & (last != np.arange(len(rows)))
        is_soon &= activities.start[rows] - activities.end[rows[last]] <= slack
        follows[rows] = is_soon & (activities.stream[rows[last]] != activities.stream[rows])
    return follows


def sync_call(name: str) -> SyncCall:
    """Returns the meaning of a call's name; per-thread-stream and version suffixes do not matter."""
    plain = _SUFFIX.sub("", name)
    return next((kind for kind, pattern in _NAMES if re.search(pattern, plain)), SyncCall.NONE)


def sync_calls(names: Categorical) -> Int64:
    """Returns the SyncCall of every call."""
    return names.numbers(sync_call, SyncCall.NONE)


def waits_without_record(calls: Categorical, sync_records: int) -> int:
    """Returns how many CUDA calls wait for a stream or an event that the trace does not name: none with sync records.

    Waits for a whole device need no record, and other vendors' profilers have none.
    """
    if sync_records:
        return 0
    return int(calls.where(lambda name: name.startswith("cu") and sync_call(name) in _NAMED_BY_RECORD).sum())
