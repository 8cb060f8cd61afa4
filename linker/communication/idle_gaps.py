"""Finds the idle gaps of a thread: stretches of time in which it recorded no work.

A thread may have waited outside ops, and inside ops that only annotate or wait.
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np

from ...schema.columns import ABSENT, Int64, NestedIntervals, ThreadIntervals, nest, rows_by_number, rows_of_each
from ...schema.linked import FOREVER, Calls, Ops, are_step_marks

WAITS = "_c10d_functional::wait_tensor"
COMPUTE = ("aten::", "c10d::", "gloo:")


class Gap(NamedTuple):
    """A stretch of time, in ns."""

    begin: int
    end: int


class IdleGaps:
    """The idle gaps of one thread. It is idle or busy between two bounds: times at which an op or a call starts or
    ends.
    """

    def __init__(self, ops: Ops, calls: Calls, op_rows: Int64, call_rows: Int64) -> None:
        start = np.concatenate((ops.start[op_rows], calls.start[call_rows]))
        end = np.concatenate((ops.end[op_rows], calls.end[call_rows]))
        on_thread = ThreadIntervals(np.zeros(len(start), np.int64), start, end)
        nesting = nest(on_thread)
        self._bounds = np.unique(np.concatenate((start, nesting.end)))
        middle = (self._bounds[:-1] + self._bounds[1:]) // 2
        nested = NestedIntervals(on_thread._replace(end=nesting.end), nesting.parent)
        span = nested.innermost(ThreadIntervals.at(np.zeros(len(middle), np.int64), middle))
        # the last is for -1, outside all ops and calls
        may_wait = np.array([*(_may_wait(ops, row) for row in op_rows.tolist()), *(False for _ in call_rows), True])
        self._is_idle = np.concatenate(([True], may_wait[span], [True]))

    def gap_at(self, time: int) -> Gap:
        """Returns the gap that `time` is in or the start of, an empty one at `time` where the thread was busy."""
        following = int(np.searchsorted(self._bounds, time, side="right"))
        begin = int(self._bounds[following - 1]) if following else ABSENT
        end = int(self._bounds[following]) if following < len(self._bounds) else FOREVER
        return Gap(begin, end) if self._is_idle[following] else Gap(time, time)

    def waiting_for(self, end: int, since: int, until: int) -> Gap | None:
        """Returns the gap in which the thread waited for what ended at `end`, None if it did not seem to wait.

        This is the longest gap from `since` on that began before `until` and `end`. It was a wait if it ended neither
        later nor earlier than `end` by more than its length, or if the thread did nothing else in between.
        """
        first, last = np.searchsorted(self._bounds[:-1], (since, min(end + 1, until)))
        lengths = np.where(self._is_idle[first + 1 : last + 1], np.diff(self._bounds[first : last + 1]), 0)
        if not lengths.any():
            return None
        longest = int(first + lengths.argmax())
        gap = Gap(int(self._bounds[longest]), int(self._bounds[longest + 1]))
        nothing_else = gap.begin == since and gap.end >= end
        return gap if nothing_else or abs(gap.end - end) <= gap.end - gap.begin else None


def idle_gaps(ops: Ops, calls: Calls) -> Callable[[int], IdleGaps]:
    """Returns a function that finds the idle gaps of a thread when it is first asked. O(n log n) for all threads."""
    of_thread = rows_by_number(np.flatnonzero((ops.start != ABSENT) & ~are_step_marks(ops.name)), ops.thread)
    calls_of, none = rows_of_each(calls.thread), np.empty(0, np.int64)
    return cache(lambda thread: IdleGaps(ops, calls, of_thread.get(thread, none), calls_of.get(thread, none)))


def _may_wait(ops: Ops, row: int) -> bool:
    name = ops.name[row]
    return name == WAITS or not (ops.op_schema[row] or name.startswith(COMPUTE))
