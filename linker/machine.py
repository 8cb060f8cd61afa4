"""Measures the machine that a trace was recorded on, before all rules: its clocks, and its usual latencies and gaps.

No activity starts before its launch call, which limits the clocks' difference from one side. No call that waits for the
device returns before what it awaited has ended, which limits it from the other. Where both hold as recorded, the clocks
are taken to agree.
"""

from itertools import chain
from typing import NamedTuple

import numpy as np

from ..schema.columns import Bool, Int64, is_group_start, rows_by_number
from ..schema.linked import (
    NEVER,
    SYNC_RECORDS,
    Activities,
    Calls,
    SyncCall,
    on_host_clock,
    previous_on_stream,
    sync_calls,
    took_over,
)
from ..schema.machine import AGREEING, ANY_MACHINE, SLOWEST, LatencyStats, MachineCalibration, by_name
from .readers import RecordedSyncs
from .waits import MOST_STREAMS, submitted_streams

WHOLE = 1_000
"""ns: profilers until early 2024 wrote whole µs."""
WINDOWS = 32
"""Equal parts of the trace, each of which gives its tightest bounds to the line through them."""
STEEPEST = 0.9
"""The largest drift, as a share of the time. A larger one comes from a single wrong time, which must not reorder all
others.
"""
SAME_RETURN = ANY_MACHINE.upper // 2
"""ns. Returns after waits that differ by no more may be of one kind: they take 1 to 10 µs, and vary by half of that."""
SYNCHRONOUS_COPY = ("DtoH", "Pageable")
"""Words in the names of copies whose call certainly returns after they have ended."""


class Awaited(NamedTuple):
    """Calls that certainly waited for the device, and when what each awaited had ended, on the device's clock (ns)."""

    call_row: Int64
    end: Int64


class _Bounds(NamedTuple):
    """At each device time the least, or the most, that has to be added (ns)."""

    time: Int64
    value: Int64


def clock_of(activities: Activities, calls: Calls, awaited: Awaited) -> MachineCalibration:
    """Returns the clock of the line within the bounds that is nearest to no difference of the clocks. O(n log n)."""
    resolution = resolution_of(activities)
    launched = np.flatnonzero(activities.call_row >= 0)
    slack = 2 * resolution if resolution > 1 else 0
    lower = _Bounds(
        activities.start[launched], calls.start[activities.call_row[launched]] - activities.start[launched] - slack
    )
    upper = _Bounds(awaited.end, calls.end[awaited.call_row] - awaited.end + slack)
    impossible = lower.value > 0
    if impossible.sum() < AGREEING:
        lower = _Bounds(lower.time[~impossible], lower.value[~impossible])
    since, until = (int(activities.start.min()), int(activities.end.max())) if len(activities) else (0, 0)
    clock = MachineCalibration(
        resolution_ns=resolution, clock_from_ns=since, clock_until_ns=until, clock_error_ns=slack
    )
    if (lower.value > 0).any() or (upper.value < 0).any():
        _lay_line(clock, _tightest(lower, 1), _tightest(upper, -1), _late_returns(calls, awaited, upper))
        clock.clock_error_ns += _largest_miss(clock, lower, upper)
    return clock


def resolution_of(activities: Activities) -> int:
    """Returns 1 where times are in ns, 1000 where all are whole µs."""
    times = np.concatenate((activities.start, activities.end))
    return WHOLE if len(times) and bool((times % WHOLE == 0).all()) else 1


def _late_returns(calls: Calls, awaited: Awaited, upper: _Bounds) -> int:
    """Returns how much later than usual for their API calls returned after the awaited end (ns), negative for sooner.

    Usual is the median duration of calls that began long after what they awaited had ended.
    """
    begun, duration = calls.start[awaited.call_row], calls.end[awaited.call_row] - calls.start[awaited.call_row]
    waited = awaited.end > begun
    is_idle = begun - awaited.end - duration > 2.0 * np.abs(upper.value[upper.value < 0]).max(initial=0)
    name, late = calls.name.codes[awaited.call_row], list[float]()
    idle_rows = rows_by_number(np.flatnonzero(is_idle), name)
    for code, rows in rows_by_number(np.flatnonzero(waited), name).items():
        if code in idle_rows:
            late += (upper.value[rows] - np.median(duration[idle_rows[code]])).tolist()
    return int(np.median(late)) if late else 0


def _tightest(bounds: _Bounds, sign: int) -> _Bounds:
    """Returns the tightest bound of each of WINDOWS equal parts of the time; `sign` is 1 for lower bounds, else -1."""
    if not len(bounds.time):
        return bounds
    first, last = int(bounds.time.min()), int(bounds.time.max())
    window = (bounds.time - first) * WINDOWS // (last - first + 1)
    order = np.lexsort((sign * bounds.value, window))
    rows = order[np.append(is_group_start(window[order])[1:], True)]
    return _Bounds(bounds.time[rows], bounds.value[rows])


def _lay_line(clock: MachineCalibration, lower: _Bounds, upper: _Bounds, preferred_offset: int) -> None:
    """Sets the clock's offset and drift to the flattest line between the bounds, with the possible offset that is
    nearest to the preferred one.

    If the bounds contradict each other, the line misses both by the same.
    """
    span = _span(clock)
    x_lower, x_upper = ((bounds.time - clock.clock_from_ns) / span for bounds in (lower, upper))
    x, y = np.concatenate((x_lower, x_upper)), np.concatenate((lower.value, upper.value)).astype(np.float64)
    across = x[:, None] - x[None, :]
    slopes = np.append(((y[:, None] - y[None, :]) / np.where(np.abs(across) > 1e-3, across, np.inf)).ravel(), 0.0)
    slopes = np.unique(slopes[np.abs(slopes) <= STEEPEST * span])
    low = np.max(lower.value[:, None] - x_lower[:, None] * slopes, axis=0, initial=-np.inf)
    high = np.min(upper.value[:, None] - x_upper[:, None] * slopes, axis=0, initial=np.inf)
    fits = low <= high
    if fits.any():
        best = int(np.argmin(np.where(fits, np.abs(slopes), np.inf)))
        offset = float(np.clip(preferred_offset, low[best], high[best]))
    else:
        best = int(np.argmin(low - high + np.abs(slopes) * 1e-6))
        offset = float((low[best] + high[best]) / 2)
    clock.clock_offset_ns, clock.clock_drift_ns = round(offset), round(float(slopes[best]))


def _largest_miss(clock: MachineCalibration, lower: _Bounds, upper: _Bounds) -> int:
    """Returns by how much the clock's line misses the bounds at worst, ns."""
    offset, since, drift, span = clock.clock_offset_ns, clock.clock_from_ns, clock.clock_drift_ns, _span(clock)
    low = lower.value - offset - (lower.time - since) * drift / span
    high = offset + (upper.time - since) * drift / span - upper.value
    return int(np.ceil(max(low.max(initial=0.0), high.max(initial=0.0), 0.0)))


def _span(clock: MachineCalibration) -> int:
    return max(clock.clock_until_ns - clock.clock_from_ns, 1)


def awaited_ends(activities: Activities, calls: Calls, syncs: RecordedSyncs) -> Awaited:
    """Returns blocking calls that certainly awaited certain activities.

    These are synchronisations of devices and, by record, of streams and events, and copies to pageable memory. In a
    trace without records they are also synchronisations of streams that return at one common distance from an end.
    O(n log n) for a bounded number of streams.
    """
    parts = [_pageable_copies(activities, calls), *_synchronised(activities, calls, syncs)]
    if not len(syncs.start):
        parts.append(_commonly_returning(activities, calls))
    call, end = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return Awaited(call, end)


def _pageable_copies(activities: Activities, calls: Calls) -> Awaited:
    is_synchronous = activities.name.where(lambda name: all(word in name for word in SYNCHRONOUS_COPY))
    rows = np.flatnonzero(is_synchronous & (activities.call_row >= 0))
    # a copy that began more than its call's duration after the call's end did not block it, whatever the clocks
    call = activities.call_row[rows]
    rows = rows[activities.start[rows] - calls.end[call] < calls.end[call] - calls.start[call]]
    return Awaited(activities.call_row[rows], activities.end[rows])


def _synchronised(activities: Activities, calls: Calls, syncs: RecordedSyncs) -> list[Awaited]:
    kinds = sync_calls(calls.name)
    streams = _stream_ends(activities, calls)
    parts = []
    device_calls = np.flatnonzero(kinds == SyncCall.DEVICE_SYNC)
    if len(np.unique(activities.device)) == 1:
        parts.append(_last_ends(device_calls, calls.start[device_calls], [*chain(*streams.values())]))
    kind = syncs.kind.numbers(lambda name: SYNC_RECORDS.get(name.lower(), SyncCall.NONE), SyncCall.NONE)
    recorded = np.unique(np.concatenate((syncs.correlation, syncs.record_correlation)))
    rows = np.flatnonzero(np.isin(calls.correlation, recorded[recorded != 0]))
    row_of = dict(zip(calls.correlation[rows].tolist(), rows.tolist(), strict=True))
    waits: dict[int, list[tuple[int, int]]] = {}
    stream_waits: dict[int, list[int]] = {}
    columns = (kind, syncs.correlation, syncs.stream, syncs.wait_stream, syncs.record_correlation)
    records = zip(*(column.tolist() for column in columns), strict=True)
    for sync, correlation, stream, wait_stream, record_correlation in records:
        call, recorder = row_of.get(correlation), row_of.get(record_correlation)
        if call is None:
            continue
        if sync == SyncCall.STREAM_WAIT:
            stream_waits.setdefault(stream, []).append(int(calls.start[call]))
        if sync == SyncCall.STREAM_SYNC and kinds[call] == SyncCall.STREAM_SYNC:
            waits.setdefault(stream, []).append((call, int(calls.start[call])))
        elif sync == SyncCall.EVENT_SYNC and kinds[call] == SyncCall.EVENT_SYNC and recorder is not None:
            waits.setdefault(wait_stream, []).append((call, int(calls.start[recorder])))
    for stream, pairs in waits.items():
        # a number that streams of several devices have names none of them
        if len(streams.get(stream, ())) == 1:
            call_rows, times = np.array(pairs, np.int64).T
            is_certain = ~_has_pending_wait(times, streams[stream][0].submitted, stream_waits.get(stream, []))
            parts.append(_last_ends(call_rows[is_certain], times[is_certain], streams[stream]))
    return parts


def _commonly_returning(activities: Activities, calls: Calls) -> Awaited:
    """Returns long synchronisations of streams, with the stream's last end that is at the common distance from them.

    The stream is not recorded, but every call returns as soon after the end of its own. Of the ends of all streams'
    last activities, that distance is the most common one. Calls that return at 100, 200 and 300 µs, with ends at 97,
    60, 198, 190 and 297.5 on any streams, return 2 to 3 µs after the end of their own.
    """
    rows = np.flatnonzero((sync_calls(calls.name) == SyncCall.STREAM_SYNC) & (calls.end - calls.start > SLOWEST))
    streams = [*chain(*_stream_ends(activities, calls).values())]
    if len(rows) < AGREEING or len(streams) > MOST_STREAMS:
        return Awaited(rows[:0], rows[:0])
    ends = [_last_ends(np.arange(len(rows)), calls.start[rows], [stream]) for stream in streams]
    position, end = (np.concatenate(columns) for columns in zip(*ends, strict=True))
    distance = calls.end[rows[position]] - end
    launched = np.flatnonzero(activities.call_row >= 0)
    # an earlier clock would have activities start before their launch calls
    soonest = (activities.start[launched] - calls.start[activities.call_row[launched]]).min(initial=SLOWEST)
    least = _common_distance(distance[(distance >= -max(soonest, 0)) & (distance <= SLOWEST)], len(rows))
    if least is None:
        return Awaited(rows[:0], rows[:0])
    # of several ends at that distance the call waited for the latest
    order = np.lexsort((end, position))
    order = order[(distance[order] >= least) & (distance[order] <= least + SAME_RETURN)]
    latest = order[np.append(is_group_start(position[order])[1:], True)]
    return Awaited(rows[position[latest]], end[latest])


def _common_distance(distance: Int64, call_count: int) -> int | None:
    """Returns the least of the distances that most calls have in common, None where it may be chance.

    It must be that of at least half of the calls, and of AGREEING, and twice as common as any other.
    """
    distance = np.sort(distance)
    count = np.searchsorted(distance, distance + SAME_RETURN, side="right") - np.arange(len(distance))
    if count.max(initial=0) < max(AGREEING, call_count / 2):
        return None
    least = int(distance[np.argmax(count)])
    is_apart = np.abs(distance - least) > SAME_RETURN
    return least if 2 * count[is_apart].max(initial=0) <= count.max() else None


class _StreamEnds(NamedTuple):
    """When the activities of a stream had been submitted, and when each and all before it had ended (ns)."""

    submitted: Int64
    ended: Int64


def _stream_ends(activities: Activities, calls: Calls) -> dict[int, list[_StreamEnds]]:
    """Returns the streams of all devices by number. An activity counts as submitted once its call has returned."""
    streams: dict[int, list[_StreamEnds]] = {}
    for key, rows, submitted in submitted_streams(activities, calls.end):
        streams.setdefault(key.stream, []).append(_StreamEnds(submitted, np.maximum.accumulate(activities.end[rows])))
    return streams


def _last_ends(call: Int64, time: Int64, streams: list[_StreamEnds]) -> Awaited:
    """Returns when all that had been submitted to the streams at each time had ended, without calls before anything."""
    last = np.full(len(call), NEVER, np.int64)
    for submitted, ended in streams:
        position = np.searchsorted(submitted, time, side="right") - 1
        last = np.maximum(last, np.append(ended, NEVER)[position])
    waited = last > NEVER
    return Awaited(call[waited], last[waited])


def _has_pending_wait(time: Int64, submitted: Int64, stream_waits: list[int]) -> Bool:
    """Says at which times a stream had been told to wait after the last activity that had been submitted to it.

    What the stream then waits for may end after all of its own activities.
    """
    last_submitted, last_wait = (
        np.append(times, NEVER)[np.searchsorted(times, time, side="right") - 1]
        for times in (submitted, np.sort(np.array(stream_waits, np.int64)))
    )
    return np.asarray(last_wait > last_submitted)


def machine_of(activities: Activities, calls: Calls, syncs: RecordedSyncs) -> MachineCalibration:
    """Returns the calibration of a trace's machine; `activities` have device times. O(n log n)."""
    awaited = awaited_ends(activities, calls, syncs)
    calibration = clock_of(activities, calls, awaited)
    resolution = calibration.resolution_ns
    shifted = on_host_clock(activities, calibration)
    calibration.launch = _launch_latencies(shifted, calls, resolution)
    max_launch_ns = calibration.launch[""].upper if calibration.launch else 0
    calibration.gap = _gaps(shifted, calls, max_launch_ns, resolution)
    awaited = awaited._replace(end=awaited.end + calibration.clock_shift(awaited.end))
    calibration.sync_return = _return_latencies(calls, awaited, resolution)
    return calibration


def _launch_latencies(activities: Activities, calls: Calls, resolution: int) -> dict[str, LatencyStats]:
    """Returns the latencies from the end of the call to the start, by the call's name.

    Only activities count that found their stream and device free and began after their call.
    """
    rows = np.flatnonzero(activities.call_row >= 0)
    call, before = activities.call_row[rows], previous_on_stream(activities)[rows]
    is_free = (before < 0) | (activities.end[before] <= calls.start[call])
    is_free &= (activities.start[rows] >= calls.end[call]) & ~took_over(activities, 2 * resolution)[rows]
    rows, call = rows[is_free], call[is_free]
    return by_name(activities.start[rows] - calls.end[call], calls.name, call, resolution)


def _gaps(activities: Activities, calls: Calls, max_launch_ns: int, resolution: int) -> dict[str, LatencyStats]:
    """Returns the gaps between the end of an activity and the start of the next on its stream, by category.

    Only activities count that had been launched more than `max_launch_ns` before the gap, and found the device free.
    """
    before = previous_on_stream(activities)
    rows = np.flatnonzero((activities.call_row >= 0) & (before >= 0) & ~took_over(activities, 2 * resolution))
    queued = calls.end[activities.call_row[rows]] + max_launch_ns < activities.end[before[rows]]
    rows = rows[queued & (activities.start[rows] >= activities.end[before[rows]])]
    return by_name(activities.start[rows] - activities.end[before[rows]], activities.category, rows, resolution)


def _return_latencies(calls: Calls, awaited: Awaited, resolution: int) -> dict[str, LatencyStats]:
    """Returns the latencies from the awaited end to the end of a call that waited, by the call's name."""
    waited = (awaited.end > calls.start[awaited.call_row]) & (awaited.end <= calls.end[awaited.call_row])
    rows = awaited.call_row[waited]
    return by_name(calls.end[rows] - awaited.end[waited], calls.name, rows, resolution)
