"""What one host thread did over time: when it was idle, when it may have been blocked, and its outermost ops.

An annotation from 0 to 100 µs with aten::add from 20 to 30 in it: boundaries 0, 20, 30, 100; in [0, 20] and [30, 100] the thread may have
been blocked, in [20, 30] it computed; it was idle in none of them.
"""

from typing import NamedTuple

import numpy as np

from ...schema.columns import ABSENT, Bool, Int64, Intervals, begins
from ...schema.linked import Calls, Ops
from ...schema.traces import NEVER

AT_ONCE = 1 << 16


class ThreadActivity(NamedTuple):
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
    times = np.concatenate((ops.start[mine], ops.end[mine], calls.start[called], calls.end[called]))
    times.sort()
    boundaries = times[begins(times)]
    place = np.full(len(ops), -1, np.int64)
    place[mine] = np.arange(len(mine))
    outer = np.where(parent[mine] >= 0, place[parent[mine]], -1)

    del times
    computes = ops.op_schema.where(bool) | ops.name.where(lambda name: name.startswith("aten::"))
    # of no op (-1) is the last
    computes, around = (
        np.append(computes[mine], False),
        Intervals(ops.thread[mine], ops.start[mine], ops.end[mine], outer),
    )
    may_wait, idle = np.ones((2, max(len(boundaries) - 1, 0)), np.bool_)
    for first in range(0, len(may_wait), AT_ONCE):
        edges = boundaries[first : first + AT_ONCE + 1]
        middle = (edges[:-1] + edges[1:]) // 2
        owner = around.innermost(np.full(len(middle), thread), middle, middle)
        may_wait[first : first + AT_ONCE], idle[first : first + AT_ONCE] = ~computes[owner], owner < 0
    in_call = _covered(boundaries, calls.start[called], calls.end[called])

    top = mine[outer < 0]
    top = top[np.argsort(ops.start[top], kind="stable")]
    return ThreadActivity(boundaries, may_wait & ~in_call, idle & ~in_call, ops.start[top], ops.end[top])


def _covered(boundaries: Int64, start: Int64, end: Int64) -> Bool:
    """Which of the stretches between boundaries lie inside one of the spans, whose ends are boundaries."""
    change = np.zeros(len(boundaries), np.int32)
    np.add.at(change, np.searchsorted(boundaries, start), 1)
    np.add.at(change, np.searchsorted(boundaries, end), -1)
    return np.cumsum(change, out=change)[:-1] > 0
