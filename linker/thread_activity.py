"""What one host thread did over time: when it was idle, when it may have been blocked, and its outermost ops.

An annotation from 0 to 100 µs that contains aten::add from 20 to 30 has the boundaries 0, 20, 30 and 100. The thread
may have been blocked in [0, 20] and [30, 100], it computed in [20, 30], and was idle in none of them.
"""

from dataclasses import dataclass

import numpy as np

from ..schema.columns import (
    ABSENT,
    Bool,
    Int64,
    Intervals,
    NestedIntervals,
    Table,
    ThreadIntervals,
    is_covered,
    is_group_start,
    rows_by_number,
)
from ..schema.linked import FOREVER, NEVER, Calls, Ops


@dataclass(slots=True, repr=False)
class ThreadActivity(Table):
    """The activity of a thread. Times in ns.

    `boundaries` are NEVER, the times at which an op or call begins or ends, and FOREVER. `may_wait` and `idle` are of
    the intervals between two boundaries. `top_start` and `top_end` are the times of the outermost ops, by start.
    """

    boundaries: Int64
    may_wait: Bool
    idle: Bool
    top_start: Int64
    top_end: Int64

    def idle_since(self, time: int) -> int:
        """Returns when the thread had last done something before it starts something at `time`.

        That is `time` if the thread was busy, and ABSENT if it had never done anything.
        """
        interval = int(np.searchsorted(self.boundaries, time)) - 1
        if interval < 1:
            return ABSENT
        return int(self.boundaries[interval]) if self.idle[interval] else time


def activity_by_thread(ops: Ops, parent: Int64, calls: Calls, of_thread: dict[int, Int64]) -> dict[int, ThreadActivity]:
    """Returns what each thread did, by the rows of its ops and by its calls; `parent` is of all ops. O(n log n)."""
    calls_of = rows_by_number(np.arange(len(calls)), calls.thread)
    position, no_calls = np.full(len(ops), -1, np.int64), np.empty(0, np.int64)
    for rows in of_thread.values():
        position[rows] = np.arange(len(rows))
    computes = ops.op_schema.where(bool) | ops.name.where(lambda name: name.startswith("aten::"))
    activities = {}
    for thread, rows in of_thread.items():
        enclosing = parent[rows]
        on_thread = (enclosing >= 0) & (ops.thread[enclosing] == ops.thread[rows])
        enclosing = np.where(on_thread, position[enclosing], -1)
        called = calls_of.get(thread, no_calls)
        call_times = Intervals(calls.start[called], calls.end[called])
        op_times = Intervals(ops.start[rows], ops.end[rows])
        activities[thread] = _thread_activity(op_times, enclosing, computes[rows], call_times)
    return activities


def _thread_activity(ops: Intervals, enclosing: Int64, computes: Bool, calls: Intervals) -> ThreadActivity:
    """Returns the activity of a thread from the times, enclosing ops (-1 for none) and kinds of its ops, and from the
    times of its calls.
    """
    boundaries = np.concatenate(([NEVER], *ops, *calls, [FOREVER]))
    boundaries.sort(kind="stable")  # fastest for what is mostly in order
    boundaries = boundaries[is_group_start(boundaries)]
    in_call = is_covered(_one_thread(boundaries), boundaries, ThreadIntervals(_one_thread(calls.start), *calls))[:-1]
    middle = (boundaries[:-1] + boundaries[1:]) // 2
    nested = NestedIntervals(ThreadIntervals(_one_thread(ops.start), *ops), enclosing)
    innermost = nested.innermost(ThreadIntervals.at(_one_thread(middle), middle))
    # no op (-1) computes nothing
    may_wait, idle = ~np.append(computes, False)[innermost] & ~in_call, (innermost < 0) & ~in_call
    top = np.flatnonzero(enclosing < 0)
    top = top[np.argsort(ops.start[top], kind="stable")]
    return ThreadActivity(boundaries, may_wait, idle, ops.start[top], ops.end[top])


def _one_thread(times: Int64) -> Int64:
    return np.zeros(len(times), np.int64)
