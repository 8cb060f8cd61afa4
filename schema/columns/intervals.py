"""Time intervals by columns: their union, how much of a time they cover, and until when they keep lanes busy.

Intervals are half open; an interval of no length covers nothing. Every function is O(n log n).
"""

from typing import NamedTuple

import numpy as np

from .column_types import Bool, Int64
from .groups import is_group_start


class Intervals(NamedTuple):
    """n intervals in ns: `end` is never before `start`."""

    start: Int64
    end: Int64

    def take(self, rows: Int64 | Bool) -> "Intervals":
        """Returns the intervals in these rows."""
        return Intervals(self.start[rows], self.end[rows])

    def length(self) -> int:
        """Returns the sum of the intervals' lengths."""
        return int((self.end - self.start).sum())


def union(intervals: Intervals) -> Intervals:
    """Returns the time that at least one of the intervals covers, as disjoint intervals in order of time."""
    order = np.argsort(intervals.start, kind="stable")
    start, latest = intervals.start[order], np.maximum.accumulate(intervals.end[order])
    first = np.flatnonzero(np.append(True, start[1:] > latest[:-1])[: len(order)])
    return Intervals(start[first], latest[np.append(first[1:] - 1, len(order) - 1)[: len(first)]])


def covered_until(time: Int64, intervals: Intervals) -> Int64:
    """Returns for how many ns before each time at least one of the intervals was running.

    >>> covered_until(np.array([3, 9]), Intervals(np.array([2, 4, 8]), np.array([5, 6, 9]))).tolist()
    [1, 5]
    """
    start, end = union(intervals)
    if not len(start):
        return np.zeros(len(time), np.int64)
    before = np.cumsum(end - start) - (end - start)
    latest = np.searchsorted(start, time, side="right") - 1
    inside = np.minimum(time, end[latest]) - start[latest]
    return np.where(latest >= 0, before[latest] + inside, 0)


def covered_within(spans: Intervals, intervals: Intervals) -> Int64:
    """Returns for how many ns of each span at least one of the intervals was running."""
    return covered_until(spans.end, intervals) - covered_until(spans.start, intervals)


def busy_until(lane: Int64, intervals: Intervals) -> Int64:
    """Returns for each interval the latest end of the earlier ones on its lane, for the first of a lane its own start.

    Rows are sorted by lane (0, 1, …).

    >>> busy_until(np.array([0, 0, 0, 1]), Intervals(np.array([1, 3, 4, 2]), np.array([9, 5, 6, 4]))).tolist()
    [1, 9, 9, 2]
    """
    start, end = intervals
    if not len(lane):
        return start
    # lanes are laid end to end, so that one running maximum serves all of them
    origin, extent = int(start.min()), int(end.max() - start.min()) + 1
    latest = np.maximum.accumulate(end - origin + lane * extent) - lane * extent + origin
    return np.where(is_group_start(lane), start, np.append(start[:1], latest[:-1]))
