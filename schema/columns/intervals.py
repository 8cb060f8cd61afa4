"""Nesting of time intervals on threads, by columns: who encloses whom, and what is left of each without its children."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from .column_types import ABSENT, Bool, Int64, Rows
from .groups import begins, last_up_to, taken
from .on_disk import filled, in_blocks, let_go, settled

TOLERANCE = 1_000
"""ns by which a child may outlast its parent unremarked: whole-µs traces truncate start and duration separately."""

ROUNDING = 2
"""ns by which rounded decimal µs may misstate an end."""

AT_ONCE = 1 << 16


@dataclass(slots=True)
class Nesting:
    """n intervals: the row of the innermost interval around each (-1 for none), ends cut to the parent's end, and own time (ns)."""

    parent: Int64
    end: Int64
    exclusive: Int64
    clipped: int


def thread_order(thread: Int64, start: Int64, end: Int64, tie: Int64 | None = None) -> Int64:
    """Rows by thread, then start, parents before their children.

    Equal starts, the rule in whole-µs traces, follow `tie`, the recorded order, where every row has one (>= 0), else the longest is first.
    """
    recorded = tie is not None and bool((tie >= 0).all())
    return np.lexsort((tie if recorded else -end, start, thread)).astype(np.int64)  # type: ignore[arg-type]


def nest(thread: Int64, start: Int64, end: Int64, tie: Int64 | None = None) -> Nesting:
    """Nests the intervals of each thread; an interval that outlasts its parent is cut, and counted if by more than TOLERANCE.

    O(n log n): each round of `_enclosing` at least doubles the distance looked back.
    """
    order = settled(thread_order(thread, start, end, tie))
    parent, cut, exclusive = (filled(len(order), -1) for _ in range(3))
    clipped = 0
    for rows in _apart(order, thread, start, end):
        nested = _nested(thread[rows], start[rows], end[rows])
        parent[rows] = np.append(rows, -1)[nested.parent]
        cut[rows], exclusive[rows] = nested.end, nested.exclusive
        clipped += nested.clipped
        let_go()
    return Nesting(parent, cut, exclusive, clipped)


def _apart(order: Rows, thread: Int64, start: Int64, end: Int64) -> Iterator[Rows]:
    """The sorted rows in pieces of which none has an interval that reaches into the next one, as short as that allows from AT_ONCE on."""
    borders = np.append(np.flatnonzero(begins(taken(thread, order))), len(order)).tolist()
    for first, last in pairwise(borders):
        reach, before = ABSENT, ABSENT
        for block in range(first, last, AT_ONCE):
            rows = order[block : min(block + AT_ONCE, last)]
            reached = np.maximum.accumulate(np.append(reach, end[rows]))
            starts = np.append(before, start[rows])
            apart = np.flatnonzero((reached[:-1] <= starts[1:]) & (starts[:-1] < starts[1:]))
            if len(apart) and block + apart[-1] > first:
                yield order[first : block + apart[-1]]
                first = block + int(apart[-1])
            reach, before = reached[-1], starts[-1]
        yield order[first:last]


def _nested(thread: Int64, start: Int64, end: Int64) -> Nesting:
    """The nesting of sorted intervals."""
    ends = end.copy()
    clipped: Bool = np.zeros(len(ends), np.bool_)
    while True:
        parents = _enclosing(thread, start, ends)
        over = (parents >= 0) & (ends > ends[parents])
        if not over.any():
            break
        clipped |= over & (ends > ends[parents] + TOLERANCE)
        ends[over] = ends[parents[over]]
    lengths = (ends - start).astype(np.float64)
    inner = np.bincount(parents[parents >= 0], lengths[parents >= 0], len(ends))
    return Nesting(parents, ends, np.maximum(lengths - inner, 0).astype(np.int64), int(clipped.sum()))


def _enclosing(thread: Int64, start: Int64, end: Int64) -> Int64:
    """For sorted intervals the last earlier one that has not ended when each starts, -1 for none.

    Pointer jumping: an earlier interval that has ended cannot enclose, so its own candidate is tried next.
    """
    parent = np.where(begins(thread), -1, np.arange(-1, len(start) - 1))
    active = np.flatnonzero(parent >= 0)
    while len(active):
        candidate = parent[active]
        ended = (end[candidate] <= start[active]) & ~(
            (start[candidate] == start[active]) & (end[candidate] == end[active])
        )
        active = active[ended]
        parent[active] = parent[candidate[ended]]
        active = active[parent[active] >= 0]
    return parent


def innermost(
    thread: Int64,
    start: Int64,
    end: Int64,
    of_thread: Int64,
    of_start: Int64,
    of_end: Int64,
    parent: Int64,
    rounding: int = 0,
    tolerance: int = 0,
) -> Int64:
    """For each span (thread, start, end) the row of the innermost of the nested intervals `of_…` that encloses it, -1 for none.

    A span may outlast the interval by `rounding` ns; one that outlasts every interval around its start by up to `tolerance` ns
    belongs to the innermost of them.
    """
    intervals, row = Intervals(of_thread, of_start, of_end, parent), filled(len(start), -1)
    for spans in in_blocks(len(start)):
        row[spans] = intervals.innermost(thread[spans], start[spans], end[spans], rounding, tolerance)
    return row


class Intervals:
    """Nested intervals that are sorted once, to be asked for spans a block at a time."""

    def __init__(self, thread: Int64, start: Int64, end: Int64, parent: Int64) -> None:
        order = settled(thread_order(thread, start, end))
        self._thread, self._start = taken(thread, order), taken(start, order)
        self._end, self._parent = end, parent
        self._row = settled(np.append(order, -1))

    def innermost(self, thread: Int64, start: Int64, end: Int64, rounding: int = 0, tolerance: int = 0) -> Int64:
        """For each span what the function of that name says."""
        found = self._row[last_up_to(self._thread, self._start, thread, start)]
        strict = _climb(found, end - rounding, self._end, self._parent)
        if not tolerance:
            return strict
        until = np.maximum(end - tolerance, start + 1)
        loose = _climb(np.where(strict < 0, found, -1), until, self._end, self._parent)
        return np.where(strict >= 0, strict, loose)


def _climb(row: Int64, end: Int64, of_end: Int64, parent: Int64) -> Int64:
    """Follows parents until one lasts to `end`."""
    row = row.copy()
    active = np.flatnonzero(row >= 0)
    while len(active):
        active = active[of_end[row[active]] < end[active]]
        row[active] = parent[row[active]]
        active = active[row[active] >= 0]
    return row
