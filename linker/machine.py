"""Measures the machine that a trace was recorded on: its clocks, and its usual latencies and gaps. No activity starts
before its launch call, and no call returns before what it awaited has ended: this limits the clocks' difference from
both sides. Where both hold as recorded, the clocks are taken to agree.
"""

from collections import defaultdict
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

import numpy as np

from ..schema import linked
from ..schema.columns import Int64, Lookup, RowMap, is_group_start, isin, rows_by_number
from ..schema.linked import NEVER, Activities, Calls, SyncCall, sync_calls
from ..schema.machine import AGREEING, ANY_MACHINE, MANY, SLOWEST, WHOLE, MachineCalibration, rounding
from .overruns import Awaited, beyond_return, on_streams
from .readers import DeviceTrace, RecordedOps, RecordedSyncs
from .waits import MOST_STREAMS, submitted_streams

WINDOWS = 32
"""Equal parts of the trace, each of which gives its tightest bounds to the line through them."""
STEEPEST = 0.9
"""The largest drift, as a share of the time: a single wrong time gives a larger one, which must not reorder others."""
SAME_RETURN = ANY_MACHINE.upper // 2
"""ns. Returns after waits that differ by no more may be of one kind: they take 1 to 10 µs, and vary by half of that."""
SYNCHRONOUS_COPY = ("DtoH", "Pageable")
"""Words in the names of copies whose call certainly returns after they have ended."""


StreamEnds = tuple[Int64, Int64]
"""When the activities of a stream had been submitted, and when each and all before it had ended (ns)."""


class Bounds(NamedTuple):
    """At each device time the least, or the most, that has to be added (ns)."""

    time: Int64
    value: Int64

    def tightest(self, sign: int) -> "Bounds":
        """Returns the tightest of each of WINDOWS equal parts of the time. `sign` is 1 for lower bounds, else -1."""
        if not len(self.time):
            return self
        first, last = int(self.time.min()), int(self.time.max())
        window = (self.time - first) * WINDOWS // (last - first + 1)
        order = np.lexsort((sign * self.value, window))
        rows = order[np.append(is_group_start(window[order])[1:], True)]
        return Bounds(self.time[rows], self.value[rows])


def bounds_of(activities: Activities, calls: Calls, awaited: Awaited, resolution: int) -> tuple[Bounds, Bounds]:
    """Returns the clock's bounds, without a few activities before their launch calls or those that last too long."""
    launched = np.flatnonzero(activities.call_row >= 0)
    start, slack = activities.start[launched], 2 * resolution * (resolution > 1)
    too_long = activities.end[beyond_return(activities, activities.call_row, calls, awaited).row]
    awaited = Awaited(*(column[~isin(awaited.end, too_long)] for column in awaited))
    lower = Bounds(start, calls.start[activities.call_row[launched]] - start - slack)
    upper = Bounds(awaited.end, calls.end[awaited.call_row] - awaited.end + slack)
    impossible = lower.value > 0
    if impossible.sum() < AGREEING:
        lower = Bounds(lower.time[~impossible], lower.value[~impossible])
    return lower, upper


def unit_of_starts(*tables: RecordedOps | Calls | Activities) -> int:
    """Returns the unit (ns) of starts that lost digits: lengths are more exact, or no profiler writes it. Else 1."""
    start, end = (np.concatenate(of) for of in zip(*((each.start, each.end) for each in tables), strict=True))
    unit = int(np.gcd.reduce(np.diff(start))) if len(start) >= MANY else 1
    return unit if unit >= WHOLE and (unit >= WHOLE**2 or ((end - start) % unit).any()) else 1


def clock_of(activities: Activities, calls: Calls, awaited: Awaited) -> MachineCalibration:
    """Returns the clock of the line within the bounds that is nearest to no difference of the clocks. O(n log n)."""
    times = np.concatenate((activities.start, activities.end))
    resolution = WHOLE if len(times) and bool((times % WHOLE == 0).all()) else unit_of_starts(calls, activities)
    lower, upper = bounds_of(activities, calls, awaited, resolution)
    since, until = (int(activities.start.min()), int(activities.end.max())) if len(activities) else (0, 0)
    error = 2 * resolution * (resolution > 1)
    clock = MachineCalibration(resolution, clock_from_ns=since, clock_until_ns=until, clock_error_ns=error)
    if (lower.value > 0).any() or (upper.value < 0).any():
        _lay_line(clock, lower, upper, _late_returns(calls, awaited, upper))
    return clock


def _late_returns(calls: Calls, awaited: Awaited, upper: Bounds) -> int:
    """Returns how much later than usual for their API calls returned after the awaited end (ns); negative: sooner."""
    # usual is the median duration of calls that began long after what they awaited had ended
    begun, duration = calls.start[awaited.call_row], calls.end[awaited.call_row] - calls.start[awaited.call_row]
    waited = awaited.end > begun
    is_idle = begun - awaited.end - duration > 2.0 * np.abs(upper.value[upper.value < 0]).max(initial=0)
    name, late = calls.name.codes[awaited.call_row], list[float]()
    idle_rows = rows_by_number(np.flatnonzero(is_idle), name)
    for code, rows in rows_by_number(np.flatnonzero(waited), name).items():
        if code in idle_rows:
            late += (upper.value[rows] - np.median(duration[idle_rows[code]])).tolist()
    return int(np.median(late)) if late else 0


def _lay_line(clock: MachineCalibration, lower: Bounds, upper: Bounds, preferred_offset: int) -> None:
    """Lays the flattest line between the bounds, near the preferred offset; what it misses adds to the error."""
    low_bounds, high_bounds = lower.tightest(1), upper.tightest(-1)
    since, span = clock.clock_from_ns, max(clock.clock_until_ns - clock.clock_from_ns, 1)
    x_low, x_high = ((bounds.time - since) / span for bounds in (low_bounds, high_bounds))
    x, y = np.concatenate((x_low, x_high)), np.concatenate((low_bounds.value, high_bounds.value)).astype(np.float64)
    across = x[:, None] - x[None, :]
    slopes = np.append(((y[:, None] - y[None, :]) / np.where(np.abs(across) > 1e-3, across, np.inf)).ravel(), 0.0)
    slopes = np.unique(slopes[np.abs(slopes) <= STEEPEST * span])
    low = np.max(low_bounds.value[:, None] - x_low[:, None] * slopes, axis=0, initial=-np.inf)
    high = np.min(high_bounds.value[:, None] - x_high[:, None] * slopes, axis=0, initial=np.inf)
    if (low <= high).any():
        best = int(np.argmin(np.where(low <= high, np.abs(slopes), np.inf)))
        offset = float(np.clip(preferred_offset, low[best], high[best]))
    else:
        best = int(np.argmin(low - high + np.abs(slopes) * 1e-6))
        offset = float((low[best] + high[best]) / 2)
    clock.clock_offset_ns, clock.clock_drift_ns = round(offset), round(float(slopes[best]))
    # clocks may be so far apart that a double does not hold a sum of offset and drift exactly
    above_line, below_line = (
        bounds.value - clock.clock_offset_ns - (bounds.time - since) * clock.clock_drift_ns / span
        for bounds in (lower, upper)
    )
    clock.clock_error_ns += int(np.ceil(max(above_line.max(initial=0.0), -below_line.min(initial=0.0))))


def awaited_ends(activities: Activities, calls: Calls, syncs: RecordedSyncs) -> Awaited:
    """Returns blocking calls that certainly awaited certain activities, by record, kind or a common time of return."""
    is_synchronous = activities.name.where(lambda name: all(word in name for word in SYNCHRONOUS_COPY))
    rows = np.flatnonzero(is_synchronous & (activities.call_row >= 0))
    # a copy that began more than its call's duration after the call's end did not block it, whatever the clocks
    call = activities.call_row[rows]
    rows = rows[activities.start[rows] - calls.end[call] < calls.end[call] - calls.start[call]]
    streams = defaultdict[int, list[StreamEnds]](list)
    end, too_long = activities.end.copy(), on_streams(activities, activities.call_row, calls)
    end[too_long.row] -= too_long.by
    # an activity counts as submitted once its call has returned, and one without a call with the next one that has one
    for key, on_stream, submitted in submitted_streams(activities, calls.end):
        is_known = activities.call_row[on_stream] >= 0
        streams[key.stream].append((submitted[is_known], np.maximum.accumulate(end[on_stream])[is_known]))
    parts = [Awaited(activities.call_row[rows], activities.end[rows])]
    parts += _synchronised(activities, calls, syncs, streams)
    if not len(syncs.start):
        parts.append(_commonly_returning(activities, calls, [*chain(*streams.values())]))
    call_row, end = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return Awaited(call_row, end)


def _synchronised(
    activities: Activities, calls: Calls, syncs: RecordedSyncs, streams: dict[int, list[StreamEnds]]
) -> Iterator[Awaited]:
    """Yields the synchronisations of the only device and, by record, of streams and events."""
    kinds = sync_calls(calls.name)
    device_calls = np.flatnonzero(kinds == SyncCall.DEVICE_SYNC)
    if len(np.unique(activities.device)) == 1:
        yield _last_ends(device_calls, calls.start[device_calls], [*chain(*streams.values())])
    kind = syncs.kind.numbers(lambda name: linked.SYNC_RECORDS.get(name.lower(), SyncCall.NONE), SyncCall.NONE)
    with_id = np.flatnonzero(calls.correlation != 0)
    row_of = Lookup(calls.correlation[with_id], with_id)
    call, recorder = row_of.of(syncs.correlation), row_of.of(syncs.record_correlation)
    is_named = kind == np.append(kinds, SyncCall.NONE)[call]
    of_stream = is_named & (kind == SyncCall.STREAM_SYNC)
    of_event = is_named & (kind == SyncCall.EVENT_SYNC) & (recorder >= 0)
    stream = np.where(of_stream, syncs.stream, syncs.wait_stream)
    begun = RowMap(calls.start)
    stream_waits = rows_by_number(np.flatnonzero((call >= 0) & (kind == SyncCall.STREAM_WAIT)), syncs.stream)
    for number, rows in rows_by_number(np.flatnonzero(of_stream | of_event), stream).items():
        # a number that streams of several devices have names none of them
        if len(streams.get(number, ())) == 1:
            times = begun[np.where(of_stream, call, recorder)[rows]]
            waited = np.sort(begun[call[stream_waits.get(number, rows[:0])]])
            last_submitted, last_waited = (
                np.append(given, NEVER)[np.searchsorted(given, times, side="right") - 1]
                for given in (streams[number][0][0], waited)
            )
            # what a stream has to wait for since its last submission may end after all of its own activities
            is_certain = last_waited <= last_submitted
            yield _last_ends(call[rows][is_certain], times[is_certain], streams[number])


def _commonly_returning(activities: Activities, calls: Calls, streams: list[StreamEnds]) -> Awaited:
    """Returns long synchronisations of streams, with the last end of a stream at the common distance before them. It
    may be chance unless it is the distance of at least half of the calls, and twice as common as any other.
    """
    rows = np.flatnonzero((sync_calls(calls.name) == SyncCall.STREAM_SYNC) & (calls.end - calls.start > SLOWEST))
    none = Awaited(rows[:0], rows[:0])
    if len(rows) < AGREEING or len(streams) > MOST_STREAMS:
        return none
    ends = [_last_ends(np.arange(len(rows)), calls.start[rows], [stream]) for stream in streams]
    position, end = (np.concatenate(columns) for columns in zip(*ends, strict=True))
    distance = calls.end[rows[position]] - end
    launched = np.flatnonzero(activities.call_row >= 0)
    # an earlier clock would have activities start before their launch calls
    soonest = (activities.start[launched] - calls.start[activities.call_row[launched]]).min(initial=SLOWEST)
    possible = np.sort(distance[(distance >= -max(soonest, 0)) & (distance <= SLOWEST)])
    count = np.searchsorted(possible, possible + SAME_RETURN, side="right") - np.arange(len(possible))
    if count.max(initial=0) < max(AGREEING, len(rows) / 2):
        return none
    least = int(possible[np.argmax(count)])
    if 2 * count[np.abs(possible - least) > SAME_RETURN].max(initial=0) > count.max():
        return none
    # of several ends at that distance the call waited for the latest
    order = np.lexsort((end, position))
    order = order[(distance[order] >= least) & (distance[order] <= least + SAME_RETURN)]
    latest = order[np.append(is_group_start(position[order])[1:], True)]
    return Awaited(rows[position[latest]], end[latest])


def _last_ends(call: Int64, time: Int64, streams: list[StreamEnds]) -> Awaited:
    """Returns when all that had been submitted to the streams at each time had ended, without calls before anything."""
    last = np.full(len(call), NEVER, np.int64)
    for submitted, ended in streams:
        position = np.searchsorted(submitted, time, side="right") - 1
        last = np.maximum(last, np.append(ended, NEVER)[position])
    waited = last > NEVER
    return Awaited(call[waited], last[waited])


def rounded(device: DeviceTrace) -> list[str]:
    """Returns what whole µs make of short activities, if that is much."""
    text = rounding(device.activities.end - device.activities.start)
    return [f"{device.path}: {text}"] * bool(text)


def machine_of(activities: Activities, calls: Calls, awaited: Awaited) -> MachineCalibration:
    """Returns the calibration of a trace's machine; `activities` have device times, `awaited` ends. Launch latencies,
    by call name, are from the end of a call to the start of an activity that found stream and device free; gaps, by
    category, from the end of an activity to the start of the next one of its stream, launched long before.
    """
    calibration = clock_of(activities, calls, awaited)
    resolution, shifted = calibration.resolution_ns, linked.on_host_clock(activities, calibration)
    start, end, before = shifted.start, shifted.end, linked.previous_on_stream(shifted)
    rows = np.flatnonzero((shifted.call_row >= 0) & ~linked.took_over(shifted, 2 * resolution))
    call, earlier = shifted.call_row[rows], before[rows]
    is_free = ((earlier < 0) | (end[earlier] <= calls.start[call])) & (start[rows] >= calls.end[call])
    calibration.launch = calibration.by_name(start[rows] - calls.end[call], calls.name.take(call), is_free)
    max_launch_ns = calibration.launch[""].upper if calibration.launch else 0
    queued = (earlier >= 0) & (calls.end[call] + max_launch_ns < end[earlier]) & (start[rows] >= end[earlier])
    calibration.gap = calibration.by_name(start[rows] - end[earlier], shifted.category.take(rows), queued)
    awaited_end = awaited.end + calibration.clock_shift(awaited.end)
    begun, returned = calls.start[awaited.call_row], calls.end[awaited.call_row]
    waited = (awaited_end > begun) & (awaited_end <= returned)
    api = calls.name.take(awaited.call_row)
    calibration.sync_return = calibration.by_name(returned - awaited_end, api, waited)
    return calibration
