"""What one host thread did over time: when it was idle, when it may have been blocked, and its outermost ops.

An annotation from 0 to 100 µs with aten::add from 20 to 30 in it: boundaries 0, 20, 30, 100; in [0, 20] and [30, 100]
the thread may have been blocked, in [20, 30] it computed; it was idle in none of them.
"""

from dataclasses import dataclass

import numpy as np

from ...schema.columns import (
    ABSENT,
    Bool,
    Int64,
    Intervals,
    Table,
    rows_by_number,
)
from ...schema.linked import Calls, Ops
from ...schema.traces import FOREVER, NEVER


@dataclass(slots=True, repr=False)
class ThreadActivity(Table):
    """`boundaries` are NEVER, the times at which an op or call begins or ends, and FOREVER. `may_wait` and `idle` tell
    of the stretches between two of them.

    `top_start` and `top_end` are those of its outermost ops, by start.
    """

    boundaries: Int64
    may_wait: Bool
    idle: Bool
    top_start: Int64
    top_end: Int64

    def idle_since(self, time: int) -> int:
        """Returns when the thread, if it starts something at `time`, had last done something: at `time`, if it was
        busy; ABSENT for never.
        """
        place = int(np.searchsorted(self.boundaries, time)) - 1
        if place < 1:
            return ABSENT
        return int(self.boundaries[place]) if self.idle[place] else time


def activity_by_thread(ops: Ops, parent: Int64, calls: Calls, of_thread: dict[int, Int64]) -> dict[int, ThreadActivity]:
    """Returns what each thread did by its ops in these rows, whose parents are rows, too, and by its calls. O(n log n)."""
    called = rows_by_number(np.arange(len(calls)), calls.thread)
    place, none = np.full(len(ops), -1, np.int64), np.empty(0, np.int64)
    for rows in of_thread.values():
        place[rows] = np.arange(len(rows))
    computes = ops.op_schema.where(bool) | ops.name.where(lambda name: name.startswith("aten::"))
    return {
        thread: _thread_activity(
            ops, _places(rows, parent, ops.thread, place), calls, rows, called.get(thread, none), computes
        )
        for thread, rows in of_thread.items()
    }


def _places(rows: Int64, parent: Int64, thread: Int64, place: Int64) -> Int64:
    """Returns the places among their thread's rows of what encloses the rows, -1 for what encloses none of them."""
    around = parent[rows]
    return np.where((around >= 0) & (thread[around] == thread[rows]), place[around], -1)


def _thread_activity(
    ops: Ops, outer: Int64, calls: Calls, mine: Int64, called: Int64, computes: Bool
) -> ThreadActivity:
    boundaries = _boundaries(ops, calls, mine, called)
    # of no op (-1) is the last
    computes = np.append(computes[mine], False)
    start, end = ops.start[mine], ops.end[mine]
    around = Intervals(np.full(len(mine), 0, np.int64), start, end, outer)
    in_call = _covered(boundaries, calls.start[called], calls.end[called])
    middle = (boundaries[:-1] + boundaries[1:]) // 2
    owner = around.innermost(np.zeros(len(middle), np.int64), middle, middle)
    may_wait, idle = ~computes[owner] & ~in_call, (owner < 0) & ~in_call

    top = mine[outer < 0]
    top = top[np.argsort(ops.start[top], kind="stable")]
    return ThreadActivity(boundaries, may_wait, idle, ops.start[top], ops.end[top])


def _boundaries(ops: Ops, calls: Calls, mine: Int64, called: Int64) -> Int64:
    """NEVER, when ops or calls begin or end, each time once, and FOREVER."""
    times = (ops.start[mine], ops.end[mine], calls.start[called], calls.end[called])
    return np.unique(np.concatenate(([NEVER], *times, [FOREVER])))


def _covered(boundaries: Int64, start: Int64, end: Int64) -> Bool:
    """Returns which of the stretches between boundaries lie inside one of the spans, whose ends are boundaries."""
    begun, ended = (
        np.bincount(np.searchsorted(boundaries, times), minlength=len(boundaries)) for times in (start, end)
    )
    covered: Bool = np.cumsum(begun - ended)[:-1] > 0
    return covered
