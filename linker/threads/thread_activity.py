"""What one host thread did over time: when it was idle, when it may have been blocked, and its outermost ops.

An annotation from 0 to 100 µs with aten::add from 20 to 30 in it: boundaries 0, 20, 30, 100; in [0, 20] and [30, 100] the thread may have
been blocked, in [20, 30] it computed; it was idle in none of them.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ...schema.columns import (
    ABSENT,
    Bool,
    Int64,
    Intervals,
    NumberPieces,
    filled,
    in_blocks,
    rows_by_number,
    settled,
    stacked,
    taken,
)
from ...schema.linked import Calls, Ops
from ...schema.traces import FOREVER, NEVER

STRETCHES, FEW = 8, 1 << 12
"""Into how many stretches the time of a thread is divided, and up to how many times it is not."""


@dataclass(slots=True)
class ThreadActivity:
    """`boundaries` are NEVER, the times at which an op or call begins or ends, and FOREVER. `may_wait` and `idle` tell of the stretches
    between two of them.

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
        if place < 1:
            return ABSENT
        return int(self.boundaries[place]) if self.idle[place] else time


def activity_by_thread(ops: Ops, parent: Int64, calls: Calls, of_thread: dict[int, Int64]) -> dict[int, ThreadActivity]:
    """What each thread did by its ops in these rows, whose parents are rows, too, and by its calls. O(n log n)."""
    called = rows_by_number(np.arange(len(calls)), calls.thread)
    place, none = filled(len(ops), -1), np.empty(0, np.int64)
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
    """The places among their thread's rows of what encloses the rows, -1 for what encloses none of them."""
    outer = filled(len(rows), -1)
    for block in in_blocks(len(rows)):
        around = parent[rows[block]]
        outer[block] = np.where((around >= 0) & (thread[around] == thread[rows[block]]), place[around], -1)
    return outer


def _thread_activity(
    ops: Ops, outer: Int64, calls: Calls, mine: Int64, called: Int64, computes: Bool
) -> ThreadActivity:
    boundaries = settled(_boundaries(ops, calls, mine, called))
    # of no op (-1) is the last
    computes = np.append(computes[mine], False)
    start, end = taken(ops.start, mine), taken(ops.end, mine)
    around = Intervals(filled(len(mine), 0), start, end, outer)
    in_call = _covered(boundaries, taken(calls.start, called), taken(calls.end, called))
    may_wait, idle = np.ones((2, len(boundaries) - 1), np.bool_)
    for rows in in_blocks(len(may_wait)):
        edges = boundaries[rows.start : rows.stop + 1]
        middle = (edges[:-1] + edges[1:]) // 2
        owner = around.innermost(np.zeros(len(middle), np.int64), middle, middle)
        may_wait[rows], idle[rows] = ~computes[owner] & ~in_call[rows], (owner < 0) & ~in_call[rows]

    top = mine[outer < 0]
    top = top[np.argsort(ops.start[top], kind="stable")]
    return settled(ThreadActivity(boundaries, may_wait, idle, ops.start[top], ops.end[top]))


def _boundaries(ops: Ops, calls: Calls, mine: Int64, called: Int64) -> Int64:
    """NEVER, when ops or calls begin or end, each time once, and FOREVER; sorted a stretch of time at a time."""
    columns = ((ops.start, mine), (ops.end, mine), (calls.start, called), (calls.end, called))
    times = stacked(*(taken(column, rows) for column, rows in columns))
    if len(times) <= FEW:
        return np.unique(np.concatenate(([NEVER], times, [FOREVER])))
    borders = np.linspace(times.min(initial=FOREVER), times.max(initial=NEVER), STRETCHES + 1).astype(np.int64)
    found = NumberPieces()
    found.add(np.array([NEVER]))
    for first, last in pairwise((NEVER, *borders[1:-1].tolist(), FOREVER)):
        within_both = [part[(part >= first) & (part < last)] for part in map(times.__getitem__, in_blocks(len(times)))]
        found.add(np.unique(np.concatenate([times[:0], *within_both])))
    found.add(np.array([FOREVER]))
    return found.column()


def _covered(boundaries: Int64, start: Int64, end: Int64) -> Bool:
    """Which of the stretches between boundaries lie inside one of the spans, whose ends are boundaries."""
    change, covered, under_way = filled(len(boundaries), 0, np.int32), np.zeros(len(boundaries), np.bool_), 0
    for rows in in_blocks(len(start)):
        np.add.at(change, np.searchsorted(boundaries, start[rows]), 1)
        np.add.at(change, np.searchsorted(boundaries, end[rows]), -1)
    for rows in in_blocks(len(boundaries)):
        spans = under_way + np.cumsum(change[rows])
        covered[rows], under_way = spans > 0, int(spans[-1])
    return covered[:-1]
