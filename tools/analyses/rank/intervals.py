"""Arithmetic of time intervals by columns: unions, intersections, time by what runs at once, ends so far. Times are
int64 ns.

Intervals are half open; an interval of no length covers nothing. Every pass is n log n.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ....schema.columns import Bool, Int64, group_sums, is_group_start


class Intervals(NamedTuple):
    """n intervals: `end` is never before `start`."""

    start: Int64
    end: Int64

    def take(self, rows: Int64 | Bool) -> "Intervals":
        """Returns the given intervals."""
        return Intervals(self.start[rows], self.end[rows])

    def length(self) -> int:
        """Returns the sum of the intervals' lengths."""
        return int((self.end - self.start).sum())


def union(intervals: Intervals) -> Intervals:
    """Returns the time that any of the intervals covers, as disjoint intervals in order."""
    order = np.argsort(intervals.start, kind="stable")
    start, latest = intervals.start[order], np.maximum.accumulate(intervals.end[order])
    fresh = np.append(True, start[1:] > latest[:-1])[: len(order)]
    first = np.flatnonzero(fresh)
    return Intervals(start[first], latest[np.append(first[1:] - 1, len(order) - 1)[: len(first)]])


def intersection(one: Intervals, other: Intervals) -> int:
    """Returns the time that both cover; each must be disjoint in itself."""
    time = np.concatenate((one.start, one.end, other.start, other.end))
    step = np.repeat([1, -1, 1, -1], [len(one.start)] * 2 + [len(other.start)] * 2)
    order = np.argsort(time, kind="stable")
    running = np.cumsum(step[order])
    return int(np.diff(time[order])[running[:-1] == 2].sum())


def time_by_set(intervals: Intervals, kind: npt.NDArray[np.integer], kinds: int) -> Int64:
    """Returns how long which kinds ran at once: element m is the time in which exactly the kinds whose bits m has were
    running.

    Element 0 is the time inside the extent of the intervals in which nothing ran.
    """
    time = np.concatenate((intervals.start, intervals.end))
    order = np.argsort(time, kind="stable")
    step = np.repeat([1, -1], len(intervals.start))[order]
    which = np.concatenate((kind, kind))[order]
    running = np.zeros(len(order), np.int64)
    for one in range(kinds):
        running |= (np.cumsum(np.where(which == one, step, 0)) > 0).astype(np.int64) << one
    return group_sums(running[:-1], np.diff(time[order]), 1 << kinds)


class Sequence(NamedTuple):
    """Intervals by lane and start: `row` is where each came from, `lane` its lane, `busy_until` the latest end among
    the earlier ones of its lane, for the first of a lane its own start.
    """

    row: Int64
    lane: Int64
    busy_until: Int64


def sequence(intervals: Intervals, lane: Int64) -> Sequence:
    """Returns the intervals of each lane (0, 1, …) one after the other, with the end that each could have followed."""
    order = np.lexsort((intervals.end, intervals.start, lane))
    start, end, lane = intervals.start[order], intervals.end[order], lane[order]
    if not len(order):
        return Sequence(order, lane, start)
    # lanes are laid end to end, so that one running maximum serves all of them
    origin, extent = int(start.min()), int(end.max() - start.min()) + 1
    latest = np.maximum.accumulate(end - origin + lane * extent) - lane * extent + origin
    first = is_group_start(lane)
    return Sequence(order, lane, np.where(first, start, np.append(start[:1], latest[:-1])))


class Series(NamedTuple):
    """A step function: `value[i]` holds from `time[i]` to the next time. Times are distinct and ascending."""

    time: Int64
    value: npt.NDArray[np.float64]


def running_sum(intervals: Intervals, weight: npt.NDArray[np.float64]) -> Series:
    """Returns the sum of the weights of all intervals that cover a time, exactly 0 where none does."""
    time = np.concatenate((intervals.start, intervals.end))
    order = np.argsort(time, kind="stable")
    time = time[order]
    count = np.cumsum(np.repeat([1, -1], len(weight))[order])
    value = np.where(count > 0, np.cumsum(np.concatenate((weight, -weight))[order]), 0.0)
    last = np.flatnonzero(np.append(time[1:] != time[:-1], True)[: len(time)])
    return Series(time[last], value[last])
