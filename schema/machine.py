"""What a trace says of its machine, from which all thresholds follow; the constants here are what is not measured."""

from typing import Annotated, NamedTuple

import msgspec
import numpy as np

from .columns import Bool, Categorical, Int64, rows_by_number, time_text

Nanoseconds = Annotated[int, msgspec.Meta(ge=-(1 << 62), le=1 << 62)]
"""A time whose sums with others fit a column."""
OUTLYING = 4
"""Times longer than this many lower quartiles are outliers, if they are also longer than `ANY_MACHINE.upper`."""
LONGEST = 100_000
"""ns. No machine takes longer to start ready work (measured: 1 to 25 µs, gaps 0 to 20); longer times are waits."""
WHOLE = 1_000
"""ns: profilers until early 2024 wrote whole µs."""
MANY = 100
"""Times of fewer rows may be multiples of a unit by chance."""
MOST_ROUNDED = 0.1
"""If whole µs may misstate less of the time of activities, that is not said."""
AGREEING = 3
"""The clock is in doubt only if this many activities started before their launch calls; fewer are damaged records."""
LAUNCHES = 0.5
"""If this share of the calls of a name launched activities, the other calls of that name lost theirs."""
CROWDED = 0.9
"""A device counts as full if this share of what was ready while it was busiest started just as another one ended,"""
BY_CHANCE = 0.01
"""and if the probability that they did so by chance is at most this."""
ENOUGH = 5
"""The statistics of a name need this many samples; with fewer the ones of all machines count."""
FENCE = 3.0
"""The upper limit of usual times: so many interquartile ranges above the upper quartile (Tukey's outer fence),"""
COMMON = 0.98
"""or this quantile, if that is higher."""
SLOWEST = 25_000
"""ns: the longest usual launch latency of any machine measured. A few samples with a longer median are waits."""
HOST_TRACE_US = 16
"""By how much recording a host trace slows an op: measured on one H100 with PyTorch 2.11, see docs/capture.md."""


class LatencyStats(msgspec.Struct, frozen=True):
    """How long something took in a trace (ns): the `median`, the `upper` limit of usual times, how many samples."""

    median: Nanoseconds = 0
    upper: Nanoseconds = 0
    count: int = 0

    def or_if_few(self, other: "LatencyStats") -> "LatencyStats":
        """Returns these statistics, or the other ones where these are of fewer than ENOUGH samples."""
        return self if self.count >= ENOUGH else other


class MachineCalibration(msgspec.Struct, omit_defaults=True):
    """Clock offset and latencies of the machine that a trace was recorded on, in ns.

    Device times plus `clock_offset_ns`, growing by `clock_drift_ns` from `clock_from_ns` to `clock_until_ns`, are times
    on the host's clock, give or take `clock_error_ns`. `launch` is from a call to the start on a free stream, `gap`
    between chained activities, `sync_return` from the awaited end to the call's return; "" is over all names.
    """

    resolution_ns: Nanoseconds = 1
    clock_offset_ns: Nanoseconds = 0
    clock_drift_ns: Nanoseconds = 0
    clock_from_ns: Nanoseconds = 0
    clock_until_ns: Nanoseconds = 0
    clock_error_ns: Nanoseconds = 0
    launch: dict[str, LatencyStats] = {}
    gap: dict[str, LatencyStats] = {}
    sync_return: dict[str, LatencyStats] = {}

    @property
    def time_error_ns(self) -> int:
        """How far a time of the device and one of the host may differ where they are the same moment."""
        return self.clock_error_ns + 2 * self.resolution_ns

    def clock_shift(self, time: Int64) -> Int64:
        """Returns what to add to device times for times on the host's clock."""
        shift = np.full(len(time), self.clock_offset_ns, np.int64)
        if self.clock_drift_ns:
            span = max(self.clock_until_ns - self.clock_from_ns, 1)
            shift += np.rint((time - self.clock_from_ns) * (self.clock_drift_ns / span)).astype(np.int64)
        return shift

    def by_name(self, times: Int64, names: Categorical, certain: Bool) -> dict[str, LatencyStats]:
        """Returns the statistics by name, and of all under "", from `times` (ns) that are `certain` to be no longer."""
        rows = np.flatnonzero(certain)
        if not len(rows):
            return {}
        groups = {"": rows} | {names.table[code]: alike for code, alike in rows_by_number(rows, names.codes).items()}
        return {name: latency_stats(times[alike], self.resolution_ns) for name, alike in groups.items()}


ANY_MACHINE = LatencyStats(median=2_000, upper=10_000)
"""Latencies and gaps of most machines (NVIDIA V100 to B200: 1 to 4 µs), for a trace that does not show its own."""


ANY_THREAD = LatencyStats(median=20_000, upper=200_000)
"""How long host threads take to wake one another, where a run does not show it: more with few cores."""


def latency_stats(times: Int64, resolution: int = 1) -> LatencyStats:
    """Returns the statistics of `times` (ns), without outliers, which include time that the machine did not cause.

    >>> latency_stats(np.array([1000, 1100, 1200, 1300, 90_000]))
    LatencyStats(median=1150, upper=1675, count=4)
    """
    times = times[(times >= 0) & (times <= LONGEST)]
    if not len(times):
        return LatencyStats()
    times = np.sort(times)
    low = float(times[(len(times) - 1) // 4])
    without_outliers = times[times <= max(OUTLYING * low, ANY_MACHINE.upper)]
    first, median, third, common = np.quantile(without_outliers, (0.25, 0.5, 0.75, COMMON))
    upper = max(third + FENCE * (third - first), common, median + resolution)
    return LatencyStats(round(median), round(upper), len(without_outliers))


def rounding(duration: Int64) -> str:
    """Returns by how much durations in whole µs, of many activities, may be wrong together; "" if that is little."""
    most_ns, total_ns = len(duration) * WHOLE, int(duration.sum())
    if len(duration) < MANY or (duration % WHOLE).any() or most_ns <= MOST_ROUNDED * total_ns:
        return ""
    longer = f"{time_text(most_ns / 1000)} ({100 * most_ns / max(total_ns, 1):.0f} % of their time) longer"
    what = f"{len(duration):,} activities may last up to {longer}, and latencies of launches are as uncertain"
    return f"times are in whole µs, as PyTorch before 2.2 writes them: {what}"


class LatencyColumns(NamedTuple):
    """LatencyStats as columns, a row each; in ns."""

    median: Int64
    upper: Int64


def of_each(table: dict[str, LatencyStats], names: Categorical) -> LatencyColumns:
    """Returns the statistics of each row's name."""
    stats = [of_name(table, name) for name in (*names.table, "")]
    columns = np.array([(latency.median, latency.upper) for latency in stats], np.int64)[names.codes]
    return LatencyColumns(columns[:, 0], columns[:, 1])


def of_name(table: dict[str, LatencyStats], name: str) -> LatencyStats:
    """Returns the statistics of a name, or those over all names where it has fewer than ENOUGH samples.

    With few over all names, too, the upper limit is at least that of most machines.
    """
    own, of_all = (table.get(key, LatencyStats()) for key in (name, ""))
    few = next((stats for stats in (own, of_all) if stats.count and stats.median <= SLOWEST), ANY_MACHINE)
    few = LatencyStats(few.median, max(few.upper, ANY_MACHINE.upper), few.count)
    return own.or_if_few(of_all.or_if_few(few))
