"""The stretches of time in which a thread did nothing that is recorded.

A thread may have waited where it is outside ops, and inside those that only annotate or wait.
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np

from ...schema.columns import ABSENT, Int64, innermost, nest, rows_by_number, rows_of_each
from ...schema.linked import Calls, Ops
from ...schema.traces import FOREVER, are_step_marks

WAITS = "_c10d_functional::wait_tensor"
COMPUTE = ("aten::", "c10d::", "gloo:")


class Gap(NamedTuple):
    """A stretch of time, in ns."""

    begin: int
    end: int


class IdleGaps:
    """The quiet stretches of one thread, between the moments at which an op or a call begins or ends."""

    def __init__(self, ops: Ops, calls: Calls, mine: Int64, called: Int64) -> None:
        start = np.concatenate((ops.start[mine], calls.start[called]))
        end = np.concatenate((ops.end[mine], calls.end[called]))
        one, nesting = np.zeros(len(start), np.int64), nest(np.zeros(len(start), np.int64), start, end)
        self._cuts = np.unique(np.concatenate((start, nesting.end)))
        middle = (self._cuts[:-1] + self._cuts[1:]) // 2
        owner = innermost(np.zeros(len(middle), np.int64), middle, middle, one, start, nesting.end, nesting.parent)
        # no owner, -1, is the last
        quiet = np.array([*(_may_wait(ops, row) for row in mine.tolist()), *(False for _ in called), True])
        self._quiet = np.concatenate(([True], quiet[owner], [True]))

    def around(self, time: int) -> Gap:
        """Returns the quiet stretch that `time` is in or the start of; nothing but that moment where the thread was
        busy.
        """
        place = int(np.searchsorted(self._cuts, time, side="right"))
        begin = int(self._cuts[place - 1]) if place else ABSENT
        end = int(self._cuts[place]) if place < len(self._cuts) else FOREVER
        return Gap(begin, end) if self._quiet[place] else Gap(time, time)

    def waiting_for(self, end: int, since: int, until: int) -> Gap | None:
        """Returns the longest stretch from `since` on that began before `until` and `end`, if it was a wait for what
        ended then.

        It was if it ended neither later nor earlier than that by more than it is long, or if the thread did nothing
        else in between.
        """
        first, last = np.searchsorted(self._cuts[:-1], (since, min(end + 1, until)))
        lengths = np.where(self._quiet[first + 1 : last + 1], np.diff(self._cuts[first : last + 1]), 0)
        if not lengths.any():
            return None
        place = int(first + lengths.argmax())
        pause = Gap(int(self._cuts[place]), int(self._cuts[place + 1]))
        only = pause.begin == since and pause.end >= end
        return pause if only or abs(pause.end - end) <= pause.end - pause.begin else None


def quiet_threads(ops: Ops, calls: Calls) -> Callable[[int], IdleGaps]:
    """Looks for the quiet stretches of each thread when they are first asked for. O(n log n) for all threads."""
    of_thread = rows_by_number(np.flatnonzero((ops.start != ABSENT) & ~are_step_marks(ops.name)), ops.thread)
    called, none = rows_of_each(calls.thread), np.empty(0, np.int64)
    return cache(lambda thread: IdleGaps(ops, calls, of_thread.get(thread, none), called.get(thread, none)))


def _may_wait(ops: Ops, row: int) -> bool:
    name = ops.name[row]
    return name == WAITS or not (ops.op_schema[row] or name.startswith(COMPUTE))
