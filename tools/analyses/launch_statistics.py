"""Every launch: the host's time for the call, the device's time for the work, and the delay between them.

Any runtime or driver call that owns activities is a launch. A graph is one launch with many activities; its device time
is that of their union. There is also a histogram of kernel durations, as short kernels are often not worth a launch.
"""

from dataclasses import dataclass

import numpy as np

from ...schema.columns import Bool, Int64, Intervals, group_sums, sequence
from ...schema.linked import LinkedTrace
from .classes import ActivityClass, activity_classes
from .rank_trace import AnalysisOptions, RankTrace, per_rank
from .table import Column, Table, integers, microseconds, percentage, rank_column, text_column
from .temporal_breakdown import NO_ACTIVITIES

FLAGS = ("short", "slow call", "long delay")
LONG_DELAY = 2
NO_KERNELS = "no kernel ran"
BUCKETS = 1000 * np.concatenate(([0], 1 << np.arange(53)))
"""The shortest duration (ns) of each bucket: 0, then the powers of two from 1 µs on."""


@dataclass(slots=True)
class Launches:
    """Launches in order of their calls; times are in ns. `first` is the earliest activity of each, `count` their
    number.
    """

    call: Int64
    first: Int64
    count: Int64
    host: Int64
    device: Int64
    delay: Int64

    def flags(self, options: AnalysisOptions) -> list[Bool]:
        """Returns for each of FLAGS which launches have it."""
        slow, late = round(1000 * options.slow_call_us), round(1000 * options.long_delay_us)
        return [self.device < self.host, self.host > slow, self.delay > late]


def launches_of(linked: LinkedTrace) -> Launches:
    """Returns the launches of a linked trace."""
    activities, calls = linked.activities, linked.calls
    row = np.flatnonzero(activities.call_row >= 0)
    call, lane = np.unique(activities.call_row[row], return_inverse=True)
    order = sequence(Intervals(activities.start[row], activities.end[row]), lane)
    fresh = activities.end[row][order.row] - np.maximum(activities.start[row][order.row], order.busy_until)
    device = group_sums(order.lane, np.maximum(fresh, 0), len(call))
    first = row[order.row[np.searchsorted(order.lane, np.arange(len(call)))]] if len(row) else row
    delay = np.maximum(activities.start[first] - calls.end[call], 0)
    by_time = np.argsort(calls.start[call], kind="stable")
    count = np.bincount(lane, minlength=len(call)).astype(np.int64)
    host = calls.end[call] - calls.start[call]
    return Launches(*(column[by_time] for column in (call, first, count, host, device, delay)))


def _table(rank: RankTrace, options: AnalysisOptions) -> Table:
    activities, calls, launches = rank.linked.activities, rank.linked.calls, launches_of(rank.linked)
    flags = launches.flags(options)
    names = [", ".join(flag for bit, flag in enumerate(FLAGS) if mask >> bit & 1) for mask in range(1 << len(FLAGS))]
    mask = sum((flag.astype(np.int64) << bit for bit, flag in enumerate(flags)), np.zeros(len(launches.call), np.int64))
    unlaunched = int((activities.call_row < 0).sum())
    note = "" if len(launches.call) else "no activity has a launch call" if len(activities) else NO_ACTIVITIES
    if unlaunched and not note:
        note = f"{unlaunched} of {len(activities)} activities have no launch call and are not in it"
    columns = [
        rank_column(rank.rank, len(launches.call)),
        Column("on_device", "", activities.device[launches.first]),
        Column("stream", "", activities.stream[launches.first]),
        Column("correlation", "", calls.correlation[launches.call]),
        text_column("api", calls.name.take(launches.call)),
        text_column("name", activities.name.take(launches.first)),
        Column("activities", "", launches.count),
        microseconds("host", launches.host),
        microseconds("device", launches.device),
        microseconds("delay", launches.delay),
        Column("flags", "", [names[code] for code in mask.tolist()]),
    ]
    by_op = _delay_by_op(rank, launches, flags[LONG_DELAY], note)
    details = (_api_table(rank, launches, flags, note), by_op, _short_kernels(rank))
    return Table(NAME, "Launch statistics", columns, note, details)


def _api_table(rank: RankTrace, launches: Launches, flags: list[Bool], note: str) -> Table:
    api = rank.linked.calls.name.take(launches.call)
    codes, number = np.unique(api.codes, return_inverse=True)
    count = np.bincount(number, minlength=len(codes)).astype(np.int64)

    def total(column: Int64 | Bool) -> Int64:
        return group_sums(number, column, len(codes))

    longest = np.zeros(len(codes), np.int64)
    np.maximum.at(longest, number, launches.delay)
    columns = [
        rank_column(rank.rank, len(codes)),
        Column("api", "", [api.table[code] for code in codes.tolist()]),
        Column("launches", "", count),
        microseconds("host", total(launches.host)),
        microseconds("device", total(launches.device)),
        *(Column(flag.replace(" ", "_"), "", total(is_flagged)) for flag, is_flagged in zip(FLAGS, flags, strict=True)),
        microseconds("delay_mean", total(launches.delay) / count),
        microseconds("delay_max", longest),
    ]
    return Table(f"{NAME}_by_api", "Launches by API", columns, note)


def _delay_by_op(rank: RankTrace, launches: Launches, late: Bool, note: str) -> Table:
    """Returns the delays by the name of the op that made the call, "" for none; the largest total first."""
    ops, row = rank.linked.ops, rank.linked.calls.op_row[launches.call]
    codes, number = np.unique(np.where(row >= 0, np.append(ops.name.codes, -1)[row], -1), return_inverse=True)
    by_op = np.split(launches.delay[np.argsort(number, kind="stable")], np.cumsum(np.bincount(number))[:-1])
    order = np.argsort([-delays.sum() for delays in by_op], kind="stable") if len(codes) else codes
    delays_of = [by_op[position] for position in order.tolist()]
    names = [*ops.name.table, ""]
    columns = [
        rank_column(rank.rank, len(codes)),
        Column("op", "", [names[code] for code in codes[order].tolist()]),
        integers("launches", [len(delays) for delays in delays_of]),
        microseconds("delay_mean", [delays.mean() for delays in delays_of]),
        microseconds("delay_median", [np.median(delays) for delays in delays_of]),
        microseconds("delay_max", [delays.max() for delays in delays_of]),
        Column("long_delay", "", np.bincount(number, late, len(codes)).astype(np.int64)[order]),
    ]
    return Table(f"{NAME}_delay_by_op", "Launch delay by op", columns, note)


def _short_kernels(rank: RankTrace) -> Table:
    """Returns a histogram of kernel durations: buckets from one power of two µs to the next, up to the longest."""
    activities = rank.linked.activities
    kernel = activity_classes(activities) != ActivityClass.MEMORY
    duration = (activities.end - activities.start)[kernel]
    bucket = np.searchsorted(BUCKETS, duration, side="right") - 1
    count = np.bincount(bucket).astype(np.int64)
    time = group_sums(bucket, duration, len(count))
    columns = [
        rank_column(rank.rank, len(count)),
        microseconds("from", BUCKETS[: len(count)]),
        microseconds("to", BUCKETS[1 : len(count) + 1]),
        Column("kernels", "", count),
        percentage("kernels_pct", count, count.sum()),
        microseconds("time", time),
        percentage("time_pct", time, time.sum()),
    ]
    return Table(f"{NAME}_short_kernels", "Kernels by duration", columns, "" if len(count) else NO_KERNELS)


NAME = "launch_statistics"
launch_statistics = per_rank(NAME, _table)
