"""Makes rows of a Chrome trace fit to be merged: on lanes where they nest, and of databases as Kineto would write them.

Viewers show the rows of a thread only where they nest, and drop a row that begins inside another and outlasts it: a
kernel that starts before the one before it has ended, or beside a record of waiting. Reading the rows of a database
gives its columns again.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import msgspec
import numpy as np

from ...linker.readers import DeviceTrace, RecordedActivities, RecordedCalls, RecordedOps
from ...schema.columns import ABSENT, Int64, Interner, ThreadIntervals, nest
from ...schema.linked import InexactTime, exact_microseconds, exact_times, nanoseconds, streams_of

FIRST_LANE = 1 << 30
"""Above the numbers of threads and streams."""
MOST_BESIDE = 64
"""Lanes beside one thread; the last takes what still crosses."""
ROWS_AT_A_TIME = 1 << 14
FLOW = {"cat": "ac2g", "name": "ac2g"}


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


class Lanes:
    """The lane of each row that is not shown on its own thread, by the row's number in the file.

    `numbers` are the thread numbers by which the lanes go, from `first` on.
    """

    def __init__(self, pieces: Iterable[list[PlacedRow]], first: int) -> None:
        self.of_row: dict[int, int] = {}
        self.numbers: dict[Lane, int] = {}
        self._first = first
        self._starts = defaultdict[Thread, dict[int, int]](dict)
        codes, columns, count = Interner[Thread](), [np.empty((4, 0), np.int64)], 0
        for piece in pieces:
            rows = [(row_number, row) for row_number, row in enumerate(piece, count) if row.ph == "X"]
            count += len(piece)
            threads = [codes[Thread(bytes(row.pid), bytes(row.tid))] for _, row in rows]
            start, length = _times([bytes(row.ts) for _, row in rows]), _times([bytes(row.dur) for _, row in rows])
            of_piece = np.array([[row_number for row_number, _ in rows], threads, start, start + length], np.int64)
            columns.append(of_piece[:, (start != ABSENT) & (length != ABSENT)])
        number, thread, start, end = np.concatenate(columns, axis=1)
        depth, crossing = np.zeros_like(number), np.arange(len(number))
        for lane_depth in range(1, MOST_BESIDE + 1):
            shown = ThreadIntervals(thread[crossing], start[crossing], end[crossing])
            crossing = crossing[nest(shown).end < shown.end]
            depth[crossing] = lane_depth
        names = list(codes)
        for row in np.flatnonzero(depth).tolist():
            lane = Lane(names[thread[row]], int(depth[row]))
            lane_number = self.numbers.setdefault(lane, self.end)
            self.of_row[int(number[row])] = lane_number
            self._starts[lane.thread][int(start[row])] = lane_number

    @property
    def end(self) -> int:
        """The number after that of the last lane."""
        return self._first + len(self.numbers)

    def of_flow(self, thread: Thread, time: bytes) -> int | None:
        """Returns the lane of the row that a flow begins or ends with."""
        starts = self._starts.get(thread)
        return starts.get(int(exact_times([time]).ns[0])) if starts else None


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
    launches, streams = set(activities.correlation[activities.correlation > 0].tolist()), streams_of(activities)
    # the thread that shows a stream is its number, or if viewers cannot show that, its device index
    fits_viewers = ((streams.stream >= 0) & (streams.stream < FIRST_LANE)).all()
    lanes = {
        (device, stream): stream if fits_viewers else lane
        for lane, (device, stream) in enumerate(zip(streams.device.tolist(), streams.stream.tolist(), strict=True), 1)
    }
    for row in range(len(ops.start)):
        shown = {"pid": int(ops.process[row]), "tid": int(ops.thread[row])}
        yield _complete("user_annotation", ops, row, shown, {})
    for row, number in enumerate(calls.correlation.tolist()):
        shown = {"pid": int(calls.process[row]), "tid": int(calls.thread[row])}
        yield _complete("hip_runtime", calls, row, shown, {"correlation": number})
        if number in launches:
            yield {"ph": "s", "id": number, **shown, "ts": _stamp(calls.start[row]), **FLOW}
    for row, number in enumerate(activities.correlation.tolist()):
        device, stream = int(activities.device[row]), int(activities.stream[row])
        shown = {"pid": device, "tid": lanes[device, stream]}
        args = {"device": device, "stream": stream, "correlation": number}
        yield _complete(activities.category[row], activities, row, shown, args)
        if number:
            yield {"ph": "f", "id": number, **shown, "ts": _stamp(activities.start[row]), **FLOW, "bp": "e"}


def _complete(
    category: str,
    rows: RecordedOps | RecordedCalls | RecordedActivities,
    row: int,
    shown: dict[str, int],
    args: dict[str, int],
) -> dict[str, object]:
    times = {"ts": _stamp(rows.start[row]), "dur": _stamp(rows.end[row] - rows.start[row])}
    return {"ph": "X", "cat": category, "name": rows.name[row], **shown, **times, "args": args}


def _stamp(ns: np.int64) -> msgspec.Raw:
    return msgspec.Raw(exact_microseconds(int(ns)).encode())
