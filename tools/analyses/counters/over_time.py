"""What builds up over time: the work queued on each stream, and the bandwidth of the copies of each kind.

A launch is in its stream's queue from the start of its call to the start of its first activity there; a graph is one
entry. The bandwidth of a copy is the recorded one: the profiler takes it from exact times, of which a trace in whole µs
keeps less. Where none was recorded it is bytes by length, of copies that are long enough for their length to be known
to a tenth.
"""

import re
from typing import NamedTuple

import numpy as np

from ....schema.columns import Int64, group_ids, is_group_start, rows_of_each
from ....schema.linked import LinkedTrace, streams_of
from ..rank import (
    ActivityClass,
    Column,
    Floats,
    Intervals,
    Options,
    RankTrace,
    Series,
    Table,
    activity_classes,
    began_ns,
    integers,
    intervals_of,
    microseconds,
    per_rank,
    rank_column,
    running_sum,
)

QUEUE_LENGTH = "queue length"
ALL_STREAMS = -1
COPY_KIND = re.compile(r"([HDP]to[HDPA])|(Host|Device)To(Host|Device)|(memset|fill)", re.IGNORECASE)
OTHER_COPY = "copy"
KNOWN_LENGTH = 10
"""So many times the resolution of its times must a copy last for its bandwidth to be known from them, to a tenth."""
GIGA = 1e9


class Counter(NamedTuple):
    """A series of one device: of one stream, or of all (-1). Values are launches, or GB/s where `limit` is None."""

    device: int
    name: str
    stream: int
    series: Series
    limit: int | None


def counters_of(rank: RankTrace, limit: int) -> list[Counter]:
    """Returns the queue length of each stream that was launched to, and the bandwidth of each kind of copy whose bytes
    were recorded.
    """
    return [*_queues(rank.linked, limit), *_bandwidths(rank.linked)]


def _queues(linked: LinkedTrace, limit: int) -> list[Counter]:
    activities, streams = linked.activities, streams_of(linked.activities)
    row = np.flatnonzero(activities.call_row >= 0)
    by_start = row[np.lexsort((activities.start[row], streams.number[row], activities.call_row[row]))]
    call, lane = activities.call_row[by_start], streams.number[by_start]
    first = is_group_start(call, lane)
    lane, issued = lane[first], linked.calls.start[call[first]]
    # an activity that started before its call, by the clocks, was not queued
    queued = Intervals(issued, np.maximum(activities.start[by_start[first]], issued))
    found = []
    for number, rows in rows_of_each(lane).items():
        own = queued.take(rows)
        series = running_sum(own, np.ones(len(own.start)))
        found.append(Counter(int(streams.device[number]), QUEUE_LENGTH, int(streams.stream[number]), series, limit))
    return found


def _bandwidths(linked: LinkedTrace) -> list[Counter]:
    activities, copies = linked.activities, _copies(linked)
    row, speed = copies.row, copies.speed
    intervals = intervals_of(activities).take(row)
    named = np.array([copy_kind(name) for name in activities.name.table] or [""])
    kinds, kind = np.unique(named[activities.name.codes[row]], return_inverse=True)
    found = []
    for mine in rows_of_each(group_ids(activities.device[row], kind)).values():
        device, name = int(activities.device[row[mine[0]]]), str(kinds[kind[mine[0]]])
        found.append(Counter(device, name, ALL_STREAMS, running_sum(intervals.take(mine), speed[mine]), None))
    return found


class _Copies(NamedTuple):
    """Rows of the copies and sets whose bandwidth (GB/s) is known; how many have none, and how many of too short a
    length.
    """

    row: Int64
    speed: Floats
    unknown: int
    short: int


def _copies(linked: LinkedTrace) -> _Copies:
    activities = linked.activities
    row = np.flatnonzero(activity_classes(activities) == ActivityClass.MEMORY)
    length = (activities.end - activities.start)[row]
    size, recorded = activities.size[row], activities.bandwidth[row]
    told = (length > 0) & ((size >= 0) | (recorded > 0))
    known = told & ((recorded > 0) | (length >= KNOWN_LENGTH * linked.info.machine.resolution_ns))
    speed = np.where(recorded > 0, recorded / GIGA, size / np.maximum(length, 1))
    return _Copies(row[known], speed[known], int((~told).sum()), int((told & ~known).sum()))


def copy_kind(name: str) -> str:
    """Returns from where to where a copy goes.

    >>> copy_kind("Memcpy HtoD (Pageable -> Device)"), copy_kind("CopyDeviceToHost"), copy_kind("Memset (Device)")
    ('HtoD', 'DtoH', 'Memset')
    """
    found = COPY_KIND.search(name)
    if found is None:
        return OTHER_COPY
    short, source, target, _ = found.groups()
    return short or (f"{source[0].upper()}to{target[0].upper()}" if source else "Memset")


def _table(rank: RankTrace, options: Options) -> Table:
    found = counters_of(rank, options.queue_limit)
    lengths = [len(one.series.time) for one in found]
    time = np.concatenate([one.series.time for one in found] or [np.empty(0, np.int64)])
    columns = [
        rank_column(rank.rank, sum(lengths)),
        Column("device", "", np.repeat([one.device for one in found], lengths).astype(np.int64)),
        Column("counter", "", [one.name for one in found for _ in range(len(one.series.time))]),
        Column("stream", "", np.repeat([one.stream for one in found], lengths).astype(np.int64)),
        microseconds("ts", time - began_ns(rank.linked)),
        Column("value", "", np.concatenate([one.series.value for one in found] or [np.empty(0)])),
    ]
    note = _note(rank, found)
    return Table(NAME, "Queue length and copy bandwidth (GB/s)", columns, note, (_summary(rank, found, note),))


def _note(rank: RankTrace, found: list[Counter]) -> str:
    if not found:
        return "nothing was launched and no copy's bytes were recorded"
    copies, resolution = _copies(rank.linked), rank.linked.info.machine.resolution_ns
    count = len(copies.row) + copies.unknown + copies.short
    notes = []
    if copies.unknown:
        notes.append(f"{copies.unknown} of {count} copies have no bytes or no length and are in no bandwidth")
    if copies.short:
        shortest = KNOWN_LENGTH * resolution / 1000
        notes.append(
            f"{copies.short} of {count} copies have no recorded bandwidth and are in none, as they last less than {shortest:g} µs: "
            f"times known to {resolution / 1000:g} µs do not tell how fast these are"
        )
    return "; ".join(notes)


def _summary(rank: RankTrace, found: list[Counter], note: str) -> Table:
    rows = np.array([_figures(one) for one in found], np.float64).reshape(-1, 6).T
    mean, largest, median, high, active, at_limit = rows
    columns = [
        rank_column(rank.rank, len(found)),
        integers("device", [one.device for one in found]),
        Column("counter", "", [one.name for one in found]),
        integers("stream", [one.stream for one in found]),
        Column("mean", "", mean),
        Column("max", "", largest),
        Column("q50", "", median),
        Column("q95", "", high),
        microseconds("active", active),
        microseconds("at_limit", at_limit),
    ]
    return Table(f"{NAME}_summary", "Counters in short, weighted by time", columns, note)


def _figures(counter: Counter) -> tuple[float, ...]:
    """Mean, maximum, median and 95th percentile over the time between first and last change; time above 0 and at the
    limit (ns).
    """
    value, limit = counter.series.value, counter.limit
    held = np.diff(counter.series.time, append=counter.series.time[-1:])
    at_limit = float(held[value >= limit].sum()) if limit is not None else np.nan
    mean = float(value @ held) / max(int(held.sum()), 1)
    median, high = _quantiles(value, held, (0.5, 0.95))
    return mean, float(value.max()), median, high, float(held[value > 0].sum()), at_limit


def _quantiles(value: Floats, held: Int64, shares: tuple[float, ...]) -> list[float]:
    """Returns the smallest value that is not exceeded for each share of the time."""
    order = np.argsort(value, kind="stable")
    until = np.cumsum(held[order])
    place = np.searchsorted(until, np.array(shares) * until[-1])
    found: list[float] = value[order][np.minimum(place, len(order) - 1)].tolist()
    return found


NAME = "counters"
counters = per_rank(NAME, _table)
