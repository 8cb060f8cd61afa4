"""Time intervals (int64 ns, half open) by columns: what they cover, how they nest. Every function is O(n log n)."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .column_types import ABSENT, Bool, Floats, Int64, SummaryRepr
from .groups import Keys, asof_backward, group_searchsorted, group_sums, is_group_start

TOLERANCE = 1_000
"""ns by which a child may outlast its parent unremarked: whole-µs traces truncate start and duration separately."""

ROUNDING = 2
"""ns by which rounded decimal µs may misstate an end."""

NEVER_ENDS = np.iinfo(np.int64).max
ROWS_AT_ONCE = 1 << 16
LANES = 65
"""Lanes of one thread."""
STEPS = 32
"""Levels of nesting up which is gone one by one; a usual trace has fewer."""


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
    """
    start, end = intervals
    if not len(lane):
        return start
    # lanes are laid end to end, so that one running maximum serves all of them
    origin, extent = int(start.min()), int(end.max() - start.min()) + 1
    latest = np.maximum.accumulate(end - origin + lane * extent) - lane * extent + origin
    return np.where(is_group_start(lane), start, np.append(start[:1], latest[:-1]))


def time_by_set(intervals: Intervals, kind: npt.NDArray[np.integer], kinds: int) -> Int64:
    """Returns as element m how long exactly the kinds of the bits set in m ran at once; as element 0, how long none."""
    time = np.concatenate((intervals.start, intervals.end))
    order = np.argsort(time, kind="stable")
    step = np.repeat([1, -1], len(intervals.start))[order]
    kind = np.concatenate((kind, kind))[order]
    running = np.zeros(len(order), np.int64)
    for bit in range(kinds):
        running |= (np.cumsum(np.where(kind == bit, step, 0)) > 0).astype(np.int64) << bit
    return group_sums(running[:-1], np.diff(time[order]), 1 << kinds)


class Sequence(NamedTuple):
    """Intervals sorted by lane and start: the `row` of each among the given ones, and what `busy_until` returns."""

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
    value: Floats


def running_sum(intervals: Intervals, weight: Floats) -> Series:
    """Returns the sum of the weights of all intervals that cover a time, exactly 0 where none does."""
    time = np.concatenate((intervals.start, intervals.end))
    order = np.argsort(time, kind="stable")
    time = time[order]
    count = np.cumsum(np.repeat([1, -1], len(weight))[order])
    value = np.where(count > 0, np.cumsum(np.concatenate((weight, -weight))[order]), 0.0)
    last = np.flatnonzero(np.append(time[1:] != time[:-1], True)[: len(time)])
    return Series(time[last], value[last])


class ThreadIntervals(NamedTuple):
    """n intervals, each from `start` to before `end` (ns) on a thread."""

    thread: Int64
    start: Int64
    end: Int64

    @staticmethod
    def at(thread: Int64, time: Int64) -> "ThreadIntervals":
        """Returns intervals of no length."""
        return ThreadIntervals(thread, time, time)


@dataclass(slots=True, repr=False)
class Nesting(SummaryRepr):
    """The row of each interval's parent (-1 for none), ends cut to the parent's end, and own time (ns)."""

    parent: Int64
    end: Int64
    exclusive: Int64
    clipped: int


def thread_order(intervals: ThreadIntervals, tie: Int64 | None = None) -> Int64:
    """Returns rows by thread, then start; of equal starts by `tie`, if no row lacks it (-1), else the longest first."""
    thread, start, end = intervals
    recorded = tie is not None and bool((tie >= 0).all())
    return np.lexsort((tie if recorded else -end, start, thread)).astype(np.int64)  # type: ignore[arg-type]


def nest(intervals: ThreadIntervals, tie: Int64 | None = None) -> Nesting:
    """Nests the intervals of each thread; cuts those that outlast their parent, and counts cuts above TOLERANCE.

    The parent is the last earlier interval that, itself cut, has not ended. It takes a step for each interval, as what
    encloses it depends on where all before it were cut; whole columns would need as many rounds in the worst case.
    """
    thread, start, end = intervals
    order = thread_order(intervals, tie)
    parent, cut = np.full((2, len(order)), -1, np.int64)
    opens_thread = is_group_start(thread[order])
    # the row, start and end of those that have not ended
    enclosing = [(-1, ABSENT, NEVER_ENDS)]
    # as Python's own numbers they take five times as much memory as in columns
    for at in range(0, len(order), ROWS_AT_ONCE):
        rows = order[at : at + ROWS_AT_ONCE]
        columns = (rows, opens_thread[at : at + ROWS_AT_ONCE], start[rows], end[rows])
        parents, cuts = [], []
        for row, is_first, first, last in zip(*(column.tolist() for column in columns), strict=True):
            if is_first:
                del enclosing[1:]
            above, above_first, above_last = enclosing[-1]
            # of two that begin and end at the same moment, the earlier one encloses the other
            while above_last <= first and not above_first == first == last:
                enclosing.pop()
                above, above_first, above_last = enclosing[-1]
            if last > above_last:
                last = above_last
            parents.append(above)
            cuts.append(last)
            enclosing.append((row, first, last))
        parent[rows], cut[rows] = parents, cuts
    inside, exclusive = parent >= 0, cut - start
    np.subtract.at(exclusive, parent[inside], (cut - start)[inside])
    return Nesting(parent, cut, np.maximum(exclusive, 0), int((end > cut + TOLERANCE).sum()))


def nesting_lanes(intervals: ThreadIntervals) -> Int64:
    """Returns the first lane of its thread on which each interval nests; the last of LANES takes what still crosses."""
    lane, crossing = np.zeros_like(intervals.start), np.arange(len(intervals.start))
    for number in range(1, LANES):
        shown = ThreadIntervals(*(column[crossing] for column in intervals))
        crossing = crossing[nest(shown).end < shown.end]
        lane[crossing] = number
        if not len(crossing):
            break
    return lane


def is_covered(thread: Int64, time: Int64, intervals: ThreadIntervals) -> Bool:
    """Returns at which of the sorted (thread, time) pairs, which hold all ends of intervals, some interval runs."""
    times = Keys(thread, time)
    change = np.zeros(len(time) + 1, np.int64)
    np.add.at(change, group_searchsorted(times, Keys(intervals.thread, intervals.start)), 1)
    np.add.at(change, group_searchsorted(times, Keys(intervals.thread, intervals.end)), -1)
    covered: Bool = np.cumsum(change)[: len(time)] > 0
    return covered


class NestedIntervals:
    """Nested intervals, sorted once, so that several columns of spans can be looked up. `parent` is by row."""

    def __init__(self, intervals: ThreadIntervals, parent: Int64) -> None:
        order = thread_order(intervals)
        self._starts = Keys(intervals.thread[order], intervals.start[order])
        self._end, self._parent = intervals.end, parent
        self._row = np.append(order, -1)

    def innermost(self, spans: ThreadIntervals, *, rounding: int = 0, tolerance: int = 0) -> Int64:
        """Returns the row of the innermost interval that encloses each span, -1 for none.

        A span may outlast the interval by `rounding` ns; one that outlasts every interval that it begins in, by up to
        `tolerance` ns, belongs to the innermost of them.
        """
        candidates = self._row[asof_backward(self._starts, Keys(spans.thread, spans.start))]
        strict = self._climb(candidates, spans.end - rounding)
        if not tolerance:
            return strict
        until = np.maximum(spans.end - tolerance, spans.start + 1)
        loose = self._climb(np.where(strict < 0, candidates, -1), until)
        return np.where(strict >= 0, strict, loose)

    def _climb(self, row: Int64, end: Int64) -> Int64:
        """Follows parents until one lasts to `end`. O(n log n): each round climbs twice as far as the one before."""
        row = row.copy()
        active = np.flatnonzero(row >= 0)
        for _ in range(STEPS):
            active = active[self._end[row[active]] < end[active]]
            row[active] = self._parent[row[active]]
            active = active[row[active] >= 0]
            if not len(active):
                return row
        # the row -1, which encloses all others, is the last one and never ends
        above, last = [np.append(self._parent, -1)], [np.append(self._end, NEVER_ENDS)]
        while (above[-1] >= 0).any():
            # from so many rows up, and of all on the way there the last end
            last.append(np.maximum(last[-1], last[-1][above[-1]]))
            above.append(above[-1][above[-1]])
        for up, latest in zip(reversed(above), reversed(last), strict=True):
            row[active] = np.where(latest[row[active]] < end[active], up[row[active]], row[active])
        return row
