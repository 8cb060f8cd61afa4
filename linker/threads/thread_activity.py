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
    settled,
    stacked,
    taken,
    within,
)
from ...schema.linked import Calls, Ops
from ...schema.traces import FOREVER, NEVER

STRETCHES = 8


@dataclass(slots=True)
class ThreadActivity:
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
    boundaries = settled(_boundaries(ops, calls, mine, called))
    computes = ops.op_schema.where(bool) | ops.name.where(lambda name: name.startswith("aten::"))
    # of no op (-1) is the last
    computes = np.append(computes[mine], False)
    start, end = taken(ops.start, mine), taken(ops.end, mine)
    around = Intervals(filled(len(mine), thread), start, end, outer)
    in_call = _covered(boundaries, taken(calls.start, called), taken(calls.end, called))
    may_wait, idle = np.ones((2, max(len(boundaries) - 1, 0)), np.bool_)
    for rows in in_blocks(len(may_wait)):
        edges = boundaries[rows.start : rows.stop + 1]
        middle = (edges[:-1] + edges[1:]) // 2
        owner = around.innermost(np.full(len(middle), thread), middle, middle)
        may_wait[rows], idle[rows] = ~computes[owner] & ~in_call[rows], (owner < 0) & ~in_call[rows]

    top = mine[outer < 0]
    top = top[np.argsort(ops.start[top], kind="stable")]
    return settled(ThreadActivity(boundaries, may_wait, idle, ops.start[top], ops.end[top]))


def _boundaries(ops: Ops, calls: Calls, mine: Int64, called: Int64) -> Int64:
    """When ops or calls begin or end, each time once; sorted a stretch of time at a time."""
    columns = ((ops.start, mine), (ops.end, mine), (calls.start, called), (calls.end, called))
    times = stacked(*(taken(column, rows) for column, rows in columns))
    borders = np.linspace(times.min(initial=FOREVER), times.max(initial=NEVER), STRETCHES + 1).astype(np.int64)
    found = NumberPieces()
    for first, last in pairwise((NEVER, *borders[1:-1].tolist(), FOREVER)):
        within_both = [part[(part >= first) & (part < last)] for part in map(times.__getitem__, in_blocks(len(times)))]
        found.add(np.unique(np.concatenate([times[:0], *within_both])))
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
