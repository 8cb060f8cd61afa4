"""Makes rows of a Chrome trace fit to be merged: on lanes where they nest, and of databases as Kineto would write them.

Viewers show the rows of a thread only where they nest, and drop a row that begins inside another and outlasts it: a
kernel that starts before the one before it has ended, or beside a record of waiting. Reading the rows of a database
gives its columns again.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import msgspec
import numpy as np

from ...linker.readers import DeviceTrace
from ...schema.columns import ABSENT, Int64, ThreadIntervals, nest
from ...schema.linked import InexactTime, exact_microseconds, exact_times, identity, json_value, nanoseconds, streams_of

FIRST_LANE = 1 << 30
"""Above the numbers of threads and streams."""
MOST_BESIDE = 64
"""Lanes beside one thread; the last takes what still crosses."""
ROWS_AT_A_TIME = 1 << 14


class PlacedRow(msgspec.Struct, gc=False):
    """Where and when a row is shown."""

    ph: Any = ""
    pid: msgspec.Raw = msgspec.Raw(b"null")
    tid: msgspec.Raw = msgspec.Raw(b"null")
    ts: msgspec.Raw = msgspec.Raw(b"null")
    dur: msgspec.Raw = msgspec.Raw(b"null")


class Thread(NamedTuple):
    """A process and a thread as they stand in the file."""

    process: bytes
    thread: bytes


class Lane(NamedTuple):
    """The lane `depth`, from 1, beside a thread."""

    thread: Thread
    depth: int


class _CompleteRows(NamedTuple):
    """Rows that last: the number of each in the file, its thread, start and end (ns)."""

    number: Int64
    thread: Int64
    start: Int64
    end: Int64


class Lanes:
    """The lane of each row that is not shown on its own thread, by the row's number in the file.

    `numbers` are the thread numbers by which the lanes go, from `first` on.
    """

    def __init__(self, pieces: Iterable[list[PlacedRow]], first: int) -> None:
        self.of_row: dict[int, int] = {}
        self.numbers: dict[Lane, int] = {}
        self._first = first
        self._starts: dict[Thread, dict[int, int]] = {}
        self._threads: dict[Thread, int] = {}
        columns, count = [np.empty((4, 0), np.int64)], 0
        for piece in pieces:
            columns.append(self._complete_rows(piece, count))
            count += len(piece)
        self._assign_lanes(_CompleteRows(*np.concatenate(columns, axis=1)))

    @property
    def end(self) -> int:
        """The number after that of the last lane."""
        return self._first + len(self.numbers)

    def of_flow(self, thread: Thread, time: bytes) -> int | None:
        """Returns the lane of the row that a flow begins or ends with."""
        starts = self._starts.get(thread)
        return starts.get(int(exact_times([time]).ns[0])) if starts else None

    def recorded_threads(self) -> dict[int, int]:
        """Returns the thread beside which each lane is."""
        return {number: identity(json_value(lane.thread.thread)) for lane, number in self.numbers.items()}

    def _complete_rows(self, piece: list[PlacedRow], first: int) -> Int64:
        """Returns the columns of _CompleteRows; `first` is the number of the first row."""
        rows = [(number, row) for number, row in enumerate(piece, first) if row.ph == "X"]
        codes = self._threads
        threads = [codes.setdefault(Thread(bytes(row.pid), bytes(row.tid)), len(codes)) for _, row in rows]
        start, length = _times([bytes(row.ts) for _, row in rows]), _times([bytes(row.dur) for _, row in rows])
        columns = np.array([[number for number, _ in rows], threads, start, start + length], np.int64)
        return columns[:, (start != ABSENT) & (length != ABSENT)]

    def _assign_lanes(self, rows: _CompleteRows) -> None:
        threads, depth = list(self._threads), _lane_depths(rows)
        for row in np.flatnonzero(depth).tolist():
            lane = Lane(threads[rows.thread[row]], int(depth[row]))
            lane_number = self.numbers.setdefault(lane, self.end)
            self.of_row[int(rows.number[row])] = lane_number
            self._starts.setdefault(lane.thread, {})[int(rows.start[row])] = lane_number


def _lane_depths(rows: _CompleteRows) -> Int64:
    """Returns the depth of each row's lane, 0 for rows that nest on their own thread."""
    depth, crossing = np.zeros_like(rows.number), np.arange(len(rows.number))
    for lane in range(1, MOST_BESIDE + 1):
        _, thread, start, end = (column[crossing] for column in rows)
        crossing = crossing[nest(ThreadIntervals(thread, start, end)).end < end]
        if not len(crossing):
            break
        depth[crossing] = lane
    return depth


def _times(numbers: list[bytes]) -> Int64:
    try:
        return nanoseconds(np.array(numbers).astype(np.float64).tolist())
    except (ValueError, InexactTime):
        return exact_times(numbers).ns


def chrome_rows(trace: DeviceTrace) -> Iterator[bytes]:
    """Yields JSON lists of rows: annotations, calls, activities, and the flows between calls and activities."""
    rows = _rows(trace)
    while piece := list(islice(rows, ROWS_AT_A_TIME)):
        yield msgspec.json.encode(piece)


def _rows(trace: DeviceTrace) -> Iterator[dict[str, object]]:
    ops, calls, activities = trace.ops, trace.calls, trace.activities
    launches = set(activities.correlation[activities.correlation > 0].tolist())
    for row in range(len(ops.start)):
        lane = {"pid": int(ops.process[row]), "tid": int(ops.thread[row])}
        yield _complete("user_annotation", ops.name[row], lane, int(ops.start[row]), int(ops.end[row]), args={})
    for row, number in enumerate(calls.correlation.tolist()):
        lane = {"pid": int(calls.process[row]), "tid": int(calls.thread[row])}
        yield _complete(
            "hip_runtime",
            calls.name[row],
            lane,
            int(calls.start[row]),
            int(calls.end[row]),
            args={"correlation": number},
        )
        if number in launches:
            yield _flow("s", number, lane, int(calls.start[row]))
    lanes = _lanes(trace)
    for row, number in enumerate(activities.correlation.tolist()):
        device, stream = int(activities.device[row]), int(activities.stream[row])
        lane = {"pid": device, "tid": lanes[device, stream]}
        args = {"device": device, "stream": stream, "correlation": number}
        start, end = int(activities.start[row]), int(activities.end[row])
        yield _complete(activities.category[row], activities.name[row], lane, start, end, args=args)
        if number:
            yield _flow("f", number, lane, start)


def _lanes(trace: DeviceTrace) -> dict[tuple[int, int], int]:
    """Returns the thread id that shows a stream: its number, or if viewers cannot show that, its device index."""
    streams = streams_of(trace.activities)
    keys = list(zip(streams.device.tolist(), streams.stream.tolist(), strict=True))
    fits_viewers = all(0 <= stream < FIRST_LANE for _, stream in keys)
    return {(device, stream): stream if fits_viewers else lane for lane, (device, stream) in enumerate(keys, 1)}


def _complete(
    category: str, name: str, lane: dict[str, int], start: int, end: int, *, args: dict[str, int]
) -> dict[str, object]:
    times = {"ts": _stamp(start), "dur": _stamp(end - start)}
    return {"ph": "X", "cat": category, "name": name, **lane, **times, "args": args}


def _flow(phase: str, number: int, lane: dict[str, int], at: int) -> dict[str, object]:
    ends = {"bp": "e"} if phase == "f" else {}
    return {"ph": phase, "id": number, **lane, "ts": _stamp(at), "cat": "ac2g", "name": "ac2g", **ends}


def _stamp(ns: int) -> msgspec.Raw:
    return msgspec.Raw(exact_microseconds(ns).encode())
