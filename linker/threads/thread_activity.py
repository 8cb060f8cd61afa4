"""What one host thread did over time: when it was idle, when it may have been blocked, and its outermost ops.

An annotation from 0 to 100 µs with aten::add from 20 to 30 in it: boundaries 0, 20, 30, 100; in [0, 20] and [30, 100] the thread may have
been blocked, in [20, 30] it computed; it was idle in none of them.
"""

from dataclasses import dataclass

import numpy as np

from ...schema.columns import (
    ABSENT,
    Bool,
    Int64,
    Intervals,
    Table,
    within,
)
from ...schema.linked import Calls, Ops
from ...schema.traces import NEVER

STRETCHES = 8


@dataclass(slots=True, repr=False)
class ThreadActivity(Table):
    """`boundaries` are the times at which an op or call begins or ends. `may_wait` and `idle` tell of the stretches between two of them.

    `top_start` and `top_end` are those of its outermost ops, by start.
    """

    boundaries: Int64
    may_wait: Bool
    idle: Bool
    top_start: Int64
    top_end: Int64

    def idle_since(self, time: int) -> int:
        """When the thread, if it starts something at `time`, had last done something: at `time`, if it was busy; ABSENT for never."""
        place = int(np.searchsorted(self.boundaries, time)) - 1
        if place < 0:
            return ABSENT
        return time if place < len(self.idle) and not self.idle[place] else int(self.boundaries[place])

    def last_end(self, time: int) -> int:
        """When its last outermost op up to `time` ended."""
        place = int(np.searchsorted(self.top_end, time, side="right")) - 1
        return int(self.top_end[place]) if place >= 0 else NEVER


def thread_activity(ops: Ops, parent: Int64, calls: Calls, mine: Int64, thread: int) -> ThreadActivity:
    """Of the ops in rows `mine`, all of one thread, whose parents are rows, too."""
    called = np.flatnonzero(calls.thread == thread)
    outer = within(mine, parent)
    boundaries = _boundaries(ops, calls, mine, called)
    computes = ops.op_schema.where(bool) | ops.name.where(lambda name: name.startswith("aten::"))
    # of no op (-1) is the last
    computes = np.append(computes[mine], False)
    start, end = ops.start[mine], ops.end[mine]
    around = Intervals(np.full(len(mine), thread, np.int64), start, end, outer)
    in_call = _covered(boundaries, calls.start[called], calls.end[called])
    middle = (boundaries[:-1] + boundaries[1:]) // 2
    owner = around.innermost(np.full(len(middle), thread), middle, middle)
    may_wait, idle = ~computes[owner] & ~in_call, (owner < 0) & ~in_call

    top = mine[outer < 0]
    top = top[np.argsort(ops.start[top], kind="stable")]
    return ThreadActivity(boundaries, may_wait, idle, ops.start[top], ops.end[top])


def _boundaries(ops: Ops, calls: Calls, mine: Int64, called: Int64) -> Int64:
    """When ops or calls begin or end, each time once."""
    return np.unique(np.concatenate((ops.start[mine], ops.end[mine], calls.start[called], calls.end[called])))


def _covered(boundaries: Int64, start: Int64, end: Int64) -> Bool:
    """Which of the stretches between boundaries lie inside one of the spans, whose ends are boundaries."""
    begun, ended = (
        np.bincount(np.searchsorted(boundaries, times), minlength=len(boundaries)) for times in (start, end)
    )
    covered: Bool = np.cumsum(begun - ended)[:-1] > 0
    return covered
