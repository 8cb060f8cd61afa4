"""Durations by group: how many, their sum, mean, standard deviation, extremes and quantiles, for all groups at once. n
log n.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...schema.columns import Int64, group_sums
from .rank import Column, Floats, microseconds


@dataclass(slots=True)
class Durations:
    """ns by group (0 … `groups` - 1): sorted by group and then by length; `first[g]` is where group g begins."""

    duration: Int64
    group: Int64
    first: Int64
    count: Int64

    @staticmethod
    def of(duration: Int64, group: Int64, groups: int) -> "Durations":
        """Returns the durations by group."""
        order = np.lexsort((duration, group))
        group = group[order]
        count = np.bincount(group, minlength=groups).astype(np.int64)
        return Durations(duration[order], group, np.cumsum(count) - count, count)

    def sums(self) -> Int64:
        """Returns the sum of each group."""
        return group_sums(self.group, self.duration, len(self.count))

    def means(self) -> Floats:
        """Returns the mean of each group."""
        return self.sums() / np.maximum(self.count, 1)

    def deviations(self) -> Floats:
        """Returns the sample standard deviation (n - 1 below the line), 0 for a single one."""
        square = np.bincount(self.group, (self.duration - self.means()[self.group]) ** 2, len(self.count))
        return np.asarray(np.sqrt(square / np.maximum(self.count - 1, 1)))

    def quantile(self, share: float) -> Floats:
        """Returns by linear interpolation between the two nearest, as numpy does it; NaN for a group of none."""
        position = self.first + share * np.maximum(self.count - 1, 0)
        below = np.floor(position).astype(np.int64)
        above = np.minimum(below + 1, len(self.duration) - 1)
        if not len(self.duration):
            return np.full(len(self.count), np.nan)
        low, high = self.duration[np.minimum(below, above)], self.duration[above]
        return np.where(self.count > 0, low + (position - below) * (high - low), np.nan)

    def columns(self, quantiles: Sequence[float] = ()) -> list[Column]:
        """count, sum, mean, std, min, the quantiles (q05 …) and max, in µs."""
        return [
            Column("count", "", self.count),
            microseconds("sum", self.sums()),
            microseconds("mean", self.means()),
            microseconds("std", self.deviations()),
            microseconds("min", self.quantile(0)),
            *(microseconds(f"q{100 * share:02.0f}", self.quantile(share)) for share in quantiles),
            microseconds("max", self.quantile(1)),
        ]
