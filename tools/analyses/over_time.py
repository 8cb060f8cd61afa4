"""Counters over time: the queue length of each stream, and the bandwidth of each kind of copy.

A launch is in its stream's queue from the start of its call to the start of its first activity there; a graph launch
counts once. The bandwidth of a copy is the recorded one, which the profiler computes from exact times. If none was
recorded, it is bytes over duration, for copies that are long enough for the duration to be known to a tenth.
"""

import re
from typing import NamedTuple

import numpy as np

from ...schema.columns import Int64, Intervals, Series, group_ids, is_group_start, rows_of_each, running_sum
from ...schema.linked import LinkedTrace, streams_of
from .classes import ActivityClass, activity_classes, intervals_of
from .first_start import first_start_ns
from .rank_trace import AnalysisOptions, RankTrace, per_rank
from .table import Column, Floats, Table, integers, microseconds, rank_column

QUEUE_LENGTH = "queue length"
ALL_STREAMS = -1
COPY_KIND = re.compile(r"([HDP]to[HDPA])|(Host|Device)To(Host|Device)|(memset|fill)", re.IGNORECASE)
OTHER_COPY = "copy"
KNOWN_LENGTH = 10
"""A copy must last so many times the resolution of the trace's times for its bandwidth to be known to a tenth."""
GIGA = 1e9


class Counter(NamedTuple):
    """A series of one stream of a device, or of all (-1). Values are launches, or GB/s if `limit` is None."""

    device: int
    name: str
    stream: int
    series: Series
    limit: int | None


def counters_of(rank: RankTrace, limit: int) -> list[Counter]:
    """Returns the queue length of each stream with launches, and the bandwidth of each kind of copy of known size."""
    return [*_queues(rank.linked, limit), *_bandwidths(rank.linked)]


def _queues(linked: LinkedTrace, limit: int) -> list[Counter]:
    activities, streams = linked.activities, streams_of(linked.activities)
    row = np.flatnonzero(activities.call_row >= 0)
    by_start = row[np.lexsort((activities.start[row], streams.number[row], activities.call_row[row]))]
    call, lane = activities.call_row[by_start], streams.number[by_start]
    first = is_group_start(call, lane)
    lane, issued = lane[first], linked.calls.start[call[first]]
    # an activity that seems to start before its call, as the clocks differ, was not queued
    queued = Intervals(issued, np.maximum(activities.start[by_start[first]], issued))
    queues = []
    for number, rows in rows_of_each(lane).items():
        of_stream = queued.take(rows)
        series = running_sum(of_stream, np.ones(len(of_stream.start)))
        queues.append(Counter(int(streams.device[number]), QUEUE_LENGTH, int(streams.stream[number]), series, limit))
    return queues


def _bandwidths(linked: LinkedTrace) -> list[Counter]:
    activities, copies = linked.activities, _copies(linked)
    row, speed = copies.row, copies.speed
    intervals = intervals_of(activities).take(row)
    kind_of_name = np.array([copy_kind(name) for name in activities.name.table] or [""])
    kinds, kind = np.unique(kind_of_name[activities.name.codes[row]], return_inverse=True)
    bandwidths = []
    for rows in rows_of_each(group_ids(activities.device[row], kind)).values():
        device, name = int(activities.device[row[rows[0]]]), str(kinds[kind[rows[0]]])
        bandwidths.append(Counter(device, name, ALL_STREAMS, running_sum(intervals.take(rows), speed[rows]), None))
    return bandwidths


class _Copies(NamedTuple):
    """The copies and sets whose bandwidth (GB/s) is known, and how many lack bytes or are too short."""

    row: Int64
    speed: Floats
    unknown: int
    short: int


def _copies(linked: LinkedTrace) -> _Copies:
    activities = linked.activities
    row = np.flatnonzero(activity_classes(activities) == ActivityClass.MEMORY)
    length = (activities.end - activities.start)[row]
    size, recorded = activities.size[row], activities.bandwidth[row]
    has_bandwidth = (length > 0) & ((size >= 0) | (recorded > 0))
    is_known = has_bandwidth & ((recorded > 0) | (length >= KNOWN_LENGTH * linked.info.machine.resolution_ns))
    speed = np.where(recorded > 0, recorded / GIGA, size / np.maximum(length, 1))
    return _Copies(row[is_known], speed[is_known], int((~has_bandwidth).sum()), int((has_bandwidth & ~is_known).sum()))


def copy_kind(name: str) -> str:
    """Returns the direction of a copy.

    >>> copy_kind("Memcpy HtoD (Pageable -> Device)"), copy_kind("CopyDeviceToHost"), copy_kind("Memset (Device)")
    ('HtoD', 'DtoH', 'Memset')
    """
    match = COPY_KIND.search(name)
    if match is None:
        return OTHER_COPY
    short, source, target, _ = match.groups()
    return short or (f"{source[0].upper()}to{target[0].upper()}" if source else "Memset")


def _table(rank: RankTrace, options: AnalysisOptions) -> Table:
    counters_ = counters_of(rank, options.queue_limit)
    lengths = [len(counter.series.time) for counter in counters_]
    time = np.concatenate([counter.series.time for counter in counters_] or [np.empty(0, np.int64)])
    columns = [
        rank_column(rank.rank, sum(lengths)),
        Column("device", "", np.repeat([counter.device for counter in counters_], lengths).astype(np.int64)),
        Column("counter", "", [counter.name for counter in counters_ for _ in range(len(counter.series.time))]),
        Column("stream", "", np.repeat([counter.stream for counter in counters_], lengths).astype(np.int64)),
        microseconds("ts", time - first_start_ns(rank.linked)),
        Column("value", "", np.concatenate([counter.series.value for counter in counters_] or [np.empty(0)])),
    ]
    note = _note(rank, counters_)
    return Table(NAME, "Queue length and copy bandwidth (GB/s)", columns, note, (_summary(rank, counters_, note),))


def _note(rank: RankTrace, counters_: list[Counter]) -> str:
    if not counters_:
        return "nothing was launched and no copy's bytes were recorded"
    copies, resolution = _copies(rank.linked), rank.linked.info.machine.resolution_ns
    count = len(copies.row) + copies.unknown + copies.short
    notes = []
    if copies.unknown:
        notes.append(f"{copies.unknown} of {count} copies have no bytes or no length and are in no bandwidth")
    if copies.short:
        shortest = KNOWN_LENGTH * resolution / 1000
        notes.append(
            f"{copies.short} of {count} copies have no recorded bandwidth and are in none, as they last less than "
            f"{shortest:g} µs: times known to {resolution / 1000:g} µs are too coarse to say how fast these are"
        )
    return "; ".join(notes)


def _summary(rank: RankTrace, counters_: list[Counter], note: str) -> Table:
    rows = np.array([_weighted_statistics(counter) for counter in counters_], np.float64).reshape(-1, 6).T
    mean, largest, median, high, active, at_limit = rows
    columns = [
        rank_column(rank.rank, len(counters_)),
        integers("device", [counter.device for counter in counters_]),
        Column("counter", "", [counter.name for counter in counters_]),
        integers("stream", [counter.stream for counter in counters_]),
        Column("mean", "", mean),
        Column("max", "", largest),
        Column("q50", "", median),
        Column("q95", "", high),
        microseconds("active", active),
        microseconds("at_limit", at_limit),
    ]
    return Table(f"{NAME}_summary", "Counters in short, weighted by time", columns, note)


def _weighted_statistics(counter: Counter) -> tuple[float, ...]:
    """Returns the mean, maximum, median and 95th percentile by time, the time (ns) above 0 and that at the limit."""
    value, limit = counter.series.value, counter.limit
    duration = np.diff(counter.series.time, append=counter.series.time[-1:])
    at_limit = float(duration[value >= limit].sum()) if limit is not None else np.nan
    mean = float(value @ duration) / max(int(duration.sum()), 1)
    median, high = _quantiles(value, duration, (0.5, 0.95))
    return mean, float(value.max()), median, high, float(duration[value > 0].sum()), at_limit


def _quantiles(value: Floats, duration: Int64, shares: tuple[float, ...]) -> list[float]:
    """Returns for each share the smallest value that is not exceeded for that share of the time."""
    order = np.argsort(value, kind="stable")
    until = np.cumsum(duration[order])
    position = np.searchsorted(until, np.array(shares) * until[-1])
    quantiles: list[float] = value[order][np.minimum(position, len(order) - 1)].tolist()
    return quantiles


NAME = "counters"
counters = per_rank(NAME, _table)
