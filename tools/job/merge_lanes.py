"""Moves rows of a rank that cross others to lanes beside their threads.

Viewers show the rows of a thread only where they nest, and drop a row that begins inside another and outlasts it: a
kernel that starts before the one before it has ended, or beside a record of waiting.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec
import numpy as np

from ...schema.columns import ABSENT, Int64, ThreadIntervals, nest
from ...schema.linked import InexactTime, exact_times, identity, json_value, nanoseconds

FIRST_LANE = 1 << 30
"""Above the numbers of threads and streams."""
MOST_BESIDE = 64
"""Lanes beside one thread; the last takes what still crosses."""
NULL = msgspec.Raw(b"null")


class PlacedRow(msgspec.Struct, gc=False):
    """Where and when a row is shown."""

    ph: Any = ""
    pid: msgspec.Raw = NULL
    tid: msgspec.Raw = NULL
    ts: msgspec.Raw = NULL
    dur: msgspec.Raw = NULL


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
