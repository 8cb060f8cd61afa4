"""Statistics of durations by group: count, sum, mean, standard deviation, extremes and quantiles. O(n log n)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...schema.columns import Int64, group_sums
from .table import Column, Floats, microseconds


@dataclass(slots=True)
class Durations:
    """Durations (ns) sorted by group and then by length; `first[g]` is the row where group g begins."""

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
        """Returns the sample standard deviation (divided by n - 1) of each group, 0 for a single duration."""
        square = np.bincount(self.group, (self.duration - self.means()[self.group]) ** 2, len(self.count))
        return np.asarray(np.sqrt(square / np.maximum(self.count - 1, 1)))

    def quantile(self, share: float) -> Floats:
        """Returns a quantile of each group, interpolated linearly as numpy does; NaN for an empty group."""
        position = self.first + share * np.maximum(self.count - 1, 0)
        below = np.floor(position).astype(np.int64)
        above = np.minimum(below + 1, len(self.duration) - 1)
        if not len(self.duration):
            return np.full(len(self.count), np.nan)
        low, high = self.duration[np.minimum(below, above)], self.duration[above]
        return np.where(self.count > 0, low + (position - below) * (high - low), np.nan)

    def columns(self, quantiles: Sequence[float] = ()) -> list[Column]:
        """Returns the columns count, sum, mean, std, min, the quantiles (q05 …) and max; times are in µs."""
        return [
            Column("count", "", self.count),
            microseconds("sum", self.sums()),
            microseconds("mean", self.means()),
            microseconds("std", self.deviations()),
            microseconds("min", self.quantile(0)),
            *(microseconds(f"q{100 * share:02.0f}", self.quantile(share)) for share in quantiles),
            microseconds("max", self.quantile(1)),
        ]
