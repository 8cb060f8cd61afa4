"""Replays on devices that run only so many activities at once.

What is ready first takes a place first, and the place that is free first; without a free one it starts when one is.
"""

import heapq
from typing import NamedTuple

import numpy as np

from ...schema.columns import Int64, Ragged
from .workload import Workload


class Problem(NamedTuple):
    """A row costs `cost_ns` after the latest end of its sources, each `lag_ns` later; dependencies are sorted by
    target.
    """

    source: Int64
    target: Int64
    lag_ns: Int64
    cost_ns: Int64


def ends_with_room(problem: Problem, work: Workload) -> tuple[Int64, Int64]:
    """Returns the end of each row, and the row whose place it had to wait for, -1 for none. O((n + e) log n)."""
    source, target, lag, cost = problem
    count = len(cost)
    by_source = np.argsort(source, kind="stable")
    after = Ragged.grouped(source[by_source], target[by_source], count)
    starts, values, lags = after.starts.tolist(), after.values.tolist(), lag[by_source].tolist()
    unmet, costs = np.bincount(target, minlength=count).tolist(), cost.tolist()
    place = [*work.place.tolist(), *[-1] * (count - len(work))]
    free = [[(0, -1)] * place.at_once for place in work.places]
    ready, end, held_by = [0] * count, [0] * count, [-1] * count
    heap, begun = list[tuple[int, int]](), bytearray(count)
    # none for what takes no place, the last, and for devices whose clock tells the order
    ties = [*(_Ties(4 * one.cut_off_ns) if one.cut_off_ns else None for one in work.places), None]

    def release(row: int) -> None:
        heapq.heappush(heap, (ready[row], row))
        if tied := ties[place[row]]:
            tied.add(ready[row], row)

    for row in range(count):
        if not unmet[row]:
            release(row)
    while heap:
        begin, row = heapq.heappop(heap)
        if begun[row]:
            continue
        device = place[row]
        if (tied := ties[device]) and (first := tied.first(begin)) != row:
            # this one is next again, after the lowest of its ties
            heapq.heappush(heap, (begin, row))
            begin, row = ready[first], first
        begun[row] = True
        if device >= 0:
            until, before = free[device][0]
            if until > begin:
                begin, held_by[row] = until, before
        ended = end[row] = begin + costs[row]
        if device >= 0:
            heapq.heapreplace(free[device], (ended + work.places[device].cut_off_ns, row))
        for at in range(starts[row], starts[row + 1]):
            follower = values[at]
            ready[follower] = max(ready[follower], ended + lags[at])
            unmet[follower] -= 1
            if not unmet[follower]:
                release(follower)
    return np.array(end, np.int64), np.array(held_by, np.int64)


class _Ties:
    """What is ready on a device, for the choice of what was ready at one time as far as its clock tells: up to `apart`
    ns later.
    """

    def __init__(self, apart: int) -> None:
        self._apart = apart
        self._later: list[tuple[int, int]] = []
        self._tied: list[int] = []

    def add(self, ready: int, row: int) -> None:
        """Adds a row that is ready from then on."""
        heapq.heappush(self._later, (ready, row))

    def first(self, begin: int) -> int:
        """Takes out what started first in the measured run, the lowest row; `begin` is when the first of all is ready."""
        while self._later and self._later[0][0] <= begin + self._apart:
            heapq.heappush(self._tied, heapq.heappop(self._later)[1])
        return heapq.heappop(self._tied)
