"""Puts ranges of unknown threads on the smallest number of lanes on which they nest."""

import heapq

import numpy as np

from ...schema.columns import Int64
from ...schema.linked import FOREVER


def nesting_lanes(start: Int64, end: Int64) -> Int64:
    """Returns for ranges, sorted by start, the first of the lanes 0, 1, … on which each nests. O(n log n).

    >>> nesting_lanes(np.array([0, 1, 2, 9]), np.array([5, 3, 8, 10])).tolist()
    [0, 0, 1, 0]
    """
    lane_of, latest_end = np.zeros_like(start), _LatestEnds(len(start))
    open_on: list[list[int]] = [[] for _ in range(len(start))]
    # open ranges on all lanes, by their ends
    opened: list[tuple[int, int]] = []
    for row, (begin, finish) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        while opened and opened[0][0] <= begin:
            lane = heapq.heappop(opened)[1]
            open_on[lane].pop()
            latest_end.set(lane, open_on[lane][-1] if open_on[lane] else FOREVER)
        lane_of[row] = lane = latest_end.first(finish)
        open_on[lane].append(finish)
        latest_end.set(lane, finish)
        heapq.heappush(opened, (finish, lane))
    return lane_of


class _LatestEnds:
    """The latest end that a new range may have on each lane, as a binary tree of maxima."""

    def __init__(self, count: int) -> None:
        self._first_leaf = 1 << max(count - 1, 0).bit_length()
        self._until = [FOREVER] * (2 * self._first_leaf)

    def set(self, lane: int, until: int) -> None:
        """Changes the latest end of a lane."""
        node = self._first_leaf + lane
        self._until[node] = until
        while node > 1:
            node //= 2
            self._until[node] = max(self._until[2 * node], self._until[2 * node + 1])

    def first(self, until: int) -> int:
        """Returns the lowest lane for a range that lasts until then; there always is one."""
        node = 1
        while node < self._first_leaf:
            node *= 2
            if self._until[node] < until:
                node += 1
        return node - self._first_leaf
