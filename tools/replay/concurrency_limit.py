"""Replays on devices that run a limited number of activities at once.

The activity that is ready first takes the slot that is free first, and waits for it if none is free.
"""

import heapq
from typing import NamedTuple

import numpy as np

from ...schema.columns import Int64, Ragged
from .workload import Workload


class Problem(NamedTuple):
    """Rows with costs and dependencies: a row ends `cost_ns` after the latest of its sources' ends plus `lag_ns`.

    Dependencies are sorted by target.
    """

    source: Int64
    target: Int64
    lag_ns: Int64
    cost_ns: Int64


def ends_with_limited_slots(problem: Problem, work: Workload) -> tuple[Int64, Int64]:
    """Returns the end of each row, and the row whose slot it had to wait for, -1 for none. O((n + e) log n)."""
    source, target, lag, cost = problem
    count = len(cost)
    by_source = np.argsort(source, kind="stable")
    dependents = Ragged.grouped(source[by_source], target[by_source], count)
    starts, values, lags = dependents.starts.tolist(), dependents.values.tolist(), lag[by_source].tolist()
    unmet, costs = np.bincount(target, minlength=count).tolist(), cost.tolist()
    pool = [*work.slot_pool.tolist(), *[-1] * (count - len(work))]
    free_slots = [[(0, -1)] * of_device.slot_count for of_device in work.slot_pools]
    ready, end, slot_after = [0] * count, [0] * count, [-1] * count
    heap, begun = list[tuple[int, int]](), bytearray(count)
    # None for devices whose clock tells the order, and last for rows that take no slot
    ties = [*(_Ties(4 * of_device.cut_off_ns) if of_device.cut_off_ns else None for of_device in work.slot_pools), None]

    def release(row: int) -> None:
        heapq.heappush(heap, (ready[row], row))
        if pool_ties := ties[pool[row]]:
            pool_ties.add(ready[row], row)

    for row in range(count):
        if not unmet[row]:
            release(row)
    while heap:
        begin, row = heapq.heappop(heap)
        if begun[row]:
            continue
        device = pool[row]
        if (pool_ties := ties[device]) and (first := pool_ties.first(begin)) != row:
            # of rows that are ready at the same time the lowest goes first; this one is popped again after it
            heapq.heappush(heap, (begin, row))
            begin, row = ready[first], first
        begun[row] = True
        if device >= 0:
            free_from, last_row = free_slots[device][0]
            if free_from > begin:
                begin, slot_after[row] = free_from, last_row
        ended = end[row] = begin + costs[row]
        if device >= 0:
            heapq.heapreplace(free_slots[device], (ended + work.slot_pools[device].cut_off_ns, row))
        for edge in range(starts[row], starts[row + 1]):
            follower = values[edge]
            ready[follower] = max(ready[follower], ended + lags[edge])
            unmet[follower] -= 1
            if not unmet[follower]:
                release(follower)
    return np.array(end, np.int64), np.array(slot_after, np.int64)


class _Ties:
    """The ready rows of a device, of which those ready within `resolution_ns` count as ready at the same time."""

    def __init__(self, resolution_ns: int) -> None:
        self._resolution_ns = resolution_ns
        self._later: list[tuple[int, int]] = []
        self._tied: list[int] = []

    def add(self, ready: int, row: int) -> None:
        """Adds a row with the time at which it is ready."""
        heapq.heappush(self._later, (ready, row))

    def first(self, begin: int) -> int:
        """Takes out the lowest row of those ready at `begin`, when the first is: it started first when measured."""
        while self._later and self._later[0][0] <= begin + self._resolution_ns:
            heapq.heappush(self._tied, heapq.heappop(self._later)[1])
        return heapq.heappop(self._tied)
