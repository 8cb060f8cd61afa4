"""Sums bars over equal stretches of time: the time of each kind of work on each lane, and how many bars began."""

from dataclasses import dataclass

import numpy as np

from ...schema.columns import Bool, Int64, Ns
from ..view import LOOKS
from .bars import Bars

KINDS = 2 * len(LOOKS)
"""A kind is twice the look, plus one on the critical path."""
CELLS, FEWEST = 1 << 22, 128
"""The most cells of a summary in memory, and the least number of stretches."""


@dataclass(slots=True)
class BarSums:
    """Of k lanes and kinds (`lane`, `kind`) in b stretches of `width_ns` from the run's start on, k × b: their time, a
    lane never busy twice, and how many bars began.
    """

    width_ns: int
    lane: Int64
    kind: Int64
    time_ns: Ns
    begun: Int64

    def coarser(self) -> "BarSums":
        """Returns the summary with half as many stretches, which must be an even number."""
        time, begun = (column.reshape(len(self.lane), -1, 2).sum(axis=2) for column in (self.time_ns, self.begun))
        return BarSums(2 * self.width_ns, self.lane, self.kind, time, begun)

    @property
    def filled(self) -> Bool:
        """Which cells have time or a start, k × b."""
        return np.asarray((self.time_ns > 0) | (self.begun > 0))


def kinds(bars: Bars) -> Int64:
    """Returns the kind of each bar."""
    return np.asarray(2 * bars.look + bars.critical)


def sum_bars(bars: Bars, chosen: Bool, length_ns: int, finest: int) -> BarSums:
    """Sums the chosen bars over stretches of the run's `length_ns`: as many as memory allows, at most `finest`.

    Both numbers are powers of 2. O(n + k · b): stretches that lie within a bar are counted by a running sum.
    """
    keys, key = np.unique(bars.lane[chosen] * KINDS + kinds(bars)[chosen], return_inverse=True)
    key = key.reshape(-1)
    count = min(finest, max(1 << (CELLS // max(len(keys), 1)).bit_length() >> 1, FEWEST))
    width = -(-max(length_ns, 1) // count)
    start, end = bars.alone_ns[chosen], bars.end_ns[chosen]
    first, last = (key * count + np.minimum(time // width, count - 1) for time in (start, np.maximum(end - 1, start)))
    size = len(keys) * count
    within = first == last
    # of a bar in one stretch all, of others what lies in their first and last
    head = np.where(within, end - start, (first % count + 1) * width - start)
    tail = np.where(within, 0, end - last % count * width)
    covered = np.cumsum(np.bincount(np.minimum(first + 1, size - 1), ~within, size) - np.bincount(last, ~within, size))
    time = np.bincount(first, head, size) + np.bincount(last, tail, size) + covered * width
    began = key * count + np.minimum(bars.start_ns[chosen] // width, count - 1)
    shape = len(keys), count
    return BarSums(
        width,
        keys // KINDS,
        keys % KINDS,
        time.astype(np.int64).reshape(shape),
        np.bincount(began, minlength=size).reshape(shape),
    )
