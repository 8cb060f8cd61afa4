"""Replays on devices that run only so many activities at once.

What is ready first takes a place first, and the place that is free first; without a free one it starts when one is.
"""

import heapq
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from ...schema.columns import Int64, Ragged
from .workload import Workload


class Problem(NamedTuple):
    """A row costs `cost_ns` after the latest end of its sources, each `lag_ns` later; dependencies are sorted by target."""

    source: Int64
    target: Int64
    lag_ns: Int64
    cost_ns: Int64


def ends_with_room(problem: Problem, work: Workload) -> tuple[Int64, Int64]:
    """The end of each row, and the row whose place it had to wait for, -1 for none. O((n + e) log n)."""
    source, target, lag, cost = problem
    count = len(cost)
    by_source = np.argsort(source, kind="stable")
    after = Ragged.grouped(source[by_source], target[by_source], count)
    starts, values, lags = after.starts.tolist(), after.values.tolist(), lag[by_source].tolist()
    unmet, costs = np.bincount(target, minlength=count).tolist(), cost.tolist()
    place = [*work.place.tolist(), *[-1] * (count - len(work))]
    free = [[(0, -1)] * place.at_once for place in work.places]
    ready, end, held_by = [0] * count, [0] * count, [-1] * count
    heap = [(0, row) for row in range(count) if not unmet[row]]
    heapq.heapify(heap)
    while heap:
        begin, row = heapq.heappop(heap)
        device = place[row]
        if device >= 0 and work.places[device].cut_off_ns:
            begin, row = _first_of_ties(heap, begin, row, place, 4 * work.places[device].cut_off_ns)
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
                heapq.heappush(heap, (ready[follower], follower))
    return np.array(end, np.int64), np.array(held_by, np.int64)


def _first_of_ties(heap: list[tuple[int, int]], begin: int, row: int, place: list[int], apart: int) -> tuple[int, int]:
    """Of what is ready on a device at one time, as far as its clock tells, what started first in the measured run: the lowest row."""
    ties = [(begin, row)]
    while heap and heap[0][0] <= begin + apart:
        ties.append(heapq.heappop(heap))
    first = min((tie for tie in ties if place[tie[1]] == place[row]), key=itemgetter(1))
    for tie in ties:
        if tie is not first:
            heapq.heappush(heap, tie)
    return first
