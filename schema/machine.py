"""Calibration of the machine that recorded a trace: its clocks, and its usual latencies.

Every threshold in linking and converting follows from these measurements; what is not measured stands here with unit
and evidence.
"""

from typing import Annotated, NamedTuple

import msgspec
import numpy as np

from .columns import Categorical, Int64, rows_of_each

Nanoseconds = Annotated[int, msgspec.Meta(ge=-(1 << 62), le=1 << 62)]
"""A time whose sums with others fit a column."""
OUTLYING = 4
"""How many times the lower quartile a time may be, if it is longer than on any common machine, before something else is
taken to have added to it.
"""
LONGEST = 100_000
"""ns: no machine takes longer to start what is ready (measured: 1 to 25 µs, gaps 0 to 20); what does waits for
something.
"""
AGREEING = 3
"""So many activities must have started before their launch calls to speak against the clock; fewer are damage."""
LAUNCHES = 0.5
"""Of a name's calls this share must own activities for the others to have lost theirs; other APIs launch only at times.
"""
CROWDED = 0.9
"""Of the late activities that were ready when a device ran as many as ever this share must have started when one ended
for it to be known as full,
"""
BY_CHANCE = 0.01
"""and this likely at most may it be that they did so by chance."""
ENOUGH = 5
"""So many times tell what is usual; of fewer nothing is known but what holds for all machines."""
FENCE = 3.0
"""Spreads (interquartile ranges) above the upper quartile up to which a time counts as usual (Tukey's outer fence), and
so do
"""
COMMON = 0.98
"""of all times this share, whatever their spread."""


class LatencyStats(msgspec.Struct, frozen=True):
    """How long something took in a trace (ns): the median, `most`, the longest usual time, and the sample count."""

    median: Nanoseconds = 0
    most: Nanoseconds = 0
    count: int = 0


class MachineCalibration(msgspec.Struct, omit_defaults=True):
    """What a trace says of the machine that it was recorded on. Times in ns.

    Device times plus `clock_offset_ns`, growing by `clock_drift_ns` from `clock_from_ns` to `clock_until_ns`, are on
    the host's clock; up to `clock_error_ns` they may still disagree. `launch` is the time from a call's launch to the
    start on a free stream, by the call's name, `gap` that between chained activities, by category, `wake` that from an
    awaited end to the end of the blocking call, by name; under "" over all.
    """

    resolution_ns: Nanoseconds = 1
    clock_offset_ns: Nanoseconds = 0
    clock_drift_ns: Nanoseconds = 0
    clock_from_ns: Nanoseconds = 0
    clock_until_ns: Nanoseconds = 0
    clock_error_ns: Nanoseconds = 0
    launch: dict[str, LatencyStats] = {}
    gap: dict[str, LatencyStats] = {}
    wake: dict[str, LatencyStats] = {}

    def clock_shift(self, time: Int64) -> Int64:
        """Returns what to add to device times for times on the host's clock."""
        shift = np.full(len(time), self.clock_offset_ns, np.int64)
        if self.clock_drift_ns:
            span = max(self.clock_until_ns - self.clock_from_ns, 1)
            shift += np.rint((time - self.clock_from_ns) * (self.clock_drift_ns / span)).astype(np.int64)
        return shift


ANY_MACHINE = LatencyStats(median=2_000, most=10_000)
"""Latencies and gaps of most machines (NVIDIA V100 to B200: 1 to 4 µs), where a trace does not tell its own."""
SLOWEST = 25_000
"""ns: the longest launch latency that was usual on any machine measured; few times beyond it are no machine's, but
waits.
"""


ANY_THREAD = LatencyStats(median=20_000, most=200_000)
"""How long host threads take to wake one another, where a run does not show it: tens of µs, hundreds where cores are
few.
"""


def latency_stats(times: Int64, resolution: int = 1) -> LatencyStats:
    """Returns the usual latency among `times` (ns), of which some are longer for reasons other than the machine.

    >>> latency_stats(np.array([1000, 1100, 1200, 1300, 90_000]))
    LatencyStats(median=1150, most=1675, count=4)
    """
    times = times[(times >= 0) & (times <= LONGEST)]
    if not len(times):
        return LatencyStats()
    low = float(np.quantile(times, 0.25, method="lower"))
    usual = times[times <= max(OUTLYING * low, ANY_MACHINE.most)]
    first, median, third, common = np.quantile(usual, (0.25, 0.5, 0.75, COMMON))
    return LatencyStats(
        round(median), round(max(third + FENCE * (third - first), common, median + resolution)), len(usual)
    )


def by_name(times: Int64, names: Categorical, rows: Int64, resolution: int) -> dict[str, LatencyStats]:
    """Returns the latencies over all times, under "", and of each name."""
    if not len(times):
        return {}
    codes = names.codes[rows]
    each = {names.table[code]: latency_stats(times[part], resolution) for code, part in rows_of_each(codes).items()}
    return {"": latency_stats(times, resolution)} | each


class Usuals(NamedTuple):
    """The usual latencies of some rows, in ns."""

    median: Int64
    most: Int64


def of_each(table: dict[str, LatencyStats], names: Categorical) -> Usuals:
    """Returns the latencies of each row's name."""
    each = [of_name(table, name) for name in (*names.table, "")]
    columns = np.array([(stats.median, stats.most) for stats in each], np.int64)[names.codes]
    return Usuals(columns[:, 0], columns[:, 1])


def of_name(table: dict[str, LatencyStats], name: str) -> LatencyStats:
    """Returns the latencies of a name, or of all names if it has too few; few ones count only as on common machines."""
    candidates = [table.get(key, LatencyStats()) for key in (name, "")]
    enough = next((stats for stats in candidates if stats.count >= ENOUGH), None)
    few = next((stats for stats in candidates if stats.count and stats.median <= SLOWEST), ANY_MACHINE)
    return enough or LatencyStats(few.median, max(few.most, ANY_MACHINE.most), few.count)
