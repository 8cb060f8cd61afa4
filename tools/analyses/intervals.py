"""Arithmetic of time intervals (int64 ns) by columns: intersections, time by what runs at once, running sums.

Intervals are half open; an interval of no length covers nothing. Every function is O(n log n).
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...schema.columns import Int64, Intervals, busy_until, group_sums


def intersection(a: Intervals, b: Intervals) -> int:
    """Returns for how long both `a` and `b` cover the time; the intervals of each must not overlap."""
    time = np.concatenate((a.start, a.end, b.start, b.end))
    step = np.repeat([1, -1, 1, -1], [len(a.start)] * 2 + [len(b.start)] * 2)
    order = np.argsort(time, kind="stable")
    running = np.cumsum(step[order])
    return int(np.diff(time[order])[running[:-1] == 2].sum())


def time_by_set(intervals: Intervals, kind: npt.NDArray[np.integer], kinds: int) -> Int64:
    """Returns how long each set of kinds ran at once: element m is the time in which exactly the kinds of the bits set
    in m ran.

    Element 0 is the time between the first start and the last end in which nothing ran.
    """
    time = np.concatenate((intervals.start, intervals.end))
    order = np.argsort(time, kind="stable")
    step = np.repeat([1, -1], len(intervals.start))[order]
    kind = np.concatenate((kind, kind))[order]
    running = np.zeros(len(order), np.int64)
    for bit in range(kinds):
        running |= (np.cumsum(np.where(kind == bit, step, 0)) > 0).astype(np.int64) << bit
    return group_sums(running[:-1], np.diff(time[order]), 1 << kinds)


class Sequence(NamedTuple):
    """Intervals sorted by lane and start: the `row` of each among the given ones, its `lane`, and in `busy_until` the
    latest end of the earlier ones on its lane, for the first of a lane its own start.
    """

    row: Int64
    lane: Int64
    busy_until: Int64


def sequence(intervals: Intervals, lane: Int64) -> Sequence:
    """Sorts the intervals by lane (0, 1, …) and start, and returns until when each lane was busy before each."""
    order = np.lexsort((intervals.end, intervals.start, lane))
    return Sequence(order, lane[order], busy_until(lane[order], intervals.take(order)))


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
