"""Puts device times on the host's clock, by the order that activities, calls and synchronisation records must have had.

No activity starts before its launch call does, which bounds the difference from one side; no call that waits for the
device returns before what it awaited has ended, which bounds it from the other. Within the bounds the clocks are
believed.
"""

from typing import NamedTuple

import numpy as np

from ...schema.columns import Int64, is_group_start, rows_by_number, split_groups
from ...schema.linked import Activities, Calls, stream_sorted
from ...schema.machine import AGREEING
from ...schema.traces import NEVER
from ..readers import SYNC_RECORDS, RecordedSyncs, SyncCall, sync_calls

WHOLE = 1_000
"""ns: profilers until early 2024 wrote whole µs."""
WINDOWS = 32
"""Stretches of the trace of which each gives the tightest bounds to the line through them."""
STEEPEST = 0.9
"""Of the time: a clock that seems to gain or lose more than this against another has a wrong time, which may not
reorder all others.
"""
SYNCHRONOUS_COPY = ("DtoH", "Pageable")
"""In the names of copies after which the host certainly holds the data when their call returns."""


class Clock(NamedTuple):
    """Device times plus `offset`, growing by `drift` from `since` to `until`, are on the host's clock, but for `error`
    ns.
    """

    offset: int
    drift: int
    since: int
    until: int
    error: int
    resolution: int


class Awaited(NamedTuple):
    """Calls that certainly waited for the device, and when the last activity that each awaited had ended, on the
    device's clock.
    """

    call_row: Int64
    end: Int64


class _Bounds(NamedTuple):
    """At each device time the least (or the most) that has to be added."""

    time: Int64
    value: Int64


def clock_of(activities: Activities, calls: Calls, awaited: Awaited) -> Clock:
    """Returns the line within the bounds that is nearest to no difference of the clocks. O(n log n)."""
    resolution = resolution_of(activities)
    launched = np.flatnonzero(activities.call_row >= 0)
    slack = 2 * resolution if resolution > 1 else 0
    least = _Bounds(
        activities.start[launched], calls.start[activities.call_row[launched]] - activities.start[launched] - slack
    )
    most = _Bounds(awaited.end, calls.end[awaited.call_row] - awaited.end + slack)
    impossible = least.value > 0
    if impossible.sum() < AGREEING:
        least = _Bounds(least.time[~impossible], least.value[~impossible])
    since, until = (int(activities.start.min()), int(activities.end.max())) if len(activities) else (0, 0)
    if not (least.value > 0).any() and not (most.value < 0).any():
        return Clock(0, 0, since, until, slack, resolution)
    wanted = _late_returns(calls, awaited, most)
    offset, drift = _line(_tightest(least, 1), _tightest(most, -1), since, until, wanted)
    return Clock(offset, drift, since, until, slack + _left(least, most, offset, drift, since, until), resolution)


def resolution_of(activities: Activities) -> int:
    """1 where times have ns, 1000 where all are whole µs."""
    times = np.concatenate((activities.start, activities.end))
    return WHOLE if len(times) and bool((times % WHOLE == 0).all()) else 1


def _late_returns(calls: Calls, awaited: Awaited, most: _Bounds) -> int:
    """Returns how much later than usual for their API, negative for sooner, calls returned after what they awaited had
    ended.

    Usual is what calls took for which nothing was left to await.
    """
    begun, length = calls.start[awaited.call_row], calls.end[awaited.call_row] - calls.start[awaited.call_row]
    waited = awaited.end > begun
    idle = begun - awaited.end - length > 2.0 * np.abs(most.value[most.value < 0]).max(initial=0)
    name, late = calls.name.codes[awaited.call_row], list[float]()
    of_idle = rows_by_number(np.flatnonzero(idle), name)
    for code, rows in rows_by_number(np.flatnonzero(waited), name).items():
        if code in of_idle:
            late += (most.value[rows] - np.median(length[of_idle[code]])).tolist()
    return int(np.median(late)) if late else 0


def _tightest(bounds: _Bounds, sign: int) -> _Bounds:
    """Returns the tightest bound of each of WINDOWS stretches of time."""
    if not len(bounds.time):
        return bounds
    first, last = int(bounds.time.min()), int(bounds.time.max())
    window = (bounds.time - first) * WINDOWS // (last - first + 1)
    order = np.lexsort((sign * bounds.value, window))
    rows = order[np.append(is_group_start(window[order])[1:], True)]
    return _Bounds(bounds.time[rows], bounds.value[rows])


def _line(least: _Bounds, most: _Bounds, since: int, until: int, wanted: int) -> tuple[int, int]:
    """(offset at `since`, drift until `until`) of the flattest line between the bounds, and of these the nearest to
    `wanted`.
    """
    span = max(until - since, 1)
    place = [(bounds.time - since) / span for bounds in (least, most)]
    x, y = np.concatenate(place), np.concatenate((least.value, most.value)).astype(np.float64)
    across = x[:, None] - x[None, :]
    slopes = np.append(((y[:, None] - y[None, :]) / np.where(np.abs(across) > 1e-3, across, np.inf)).ravel(), 0.0)
    slopes = np.unique(slopes[np.abs(slopes) <= STEEPEST * span])
    low = np.max(least.value[:, None] - place[0][:, None] * slopes, axis=0, initial=-np.inf)
    high = np.min(most.value[:, None] - place[1][:, None] * slopes, axis=0, initial=np.inf)
    fits = low <= high
    if fits.any():
        best = int(np.argmin(np.where(fits, np.abs(slopes), np.inf)))
        offset = float(np.clip(wanted, low[best], high[best]))
    else:
        best = int(np.argmin(low - high + np.abs(slopes) * 1e-6))
        offset = float((low[best] + high[best]) / 2)
    return round(offset), round(float(slopes[best]))


def _left(least: _Bounds, most: _Bounds, offset: int, drift: int, since: int, until: int) -> int:
    """Returns by how much the line misses the bounds at worst."""
    span = max(until - since, 1)
    low = least.value - offset - (least.time - since) * drift / span
    high = offset + (most.time - since) * drift / span - most.value
    return int(np.ceil(max(low.max(initial=0.0), high.max(initial=0.0), 0.0)))


def awaited_ends(activities: Activities, calls: Calls, syncs: RecordedSyncs) -> Awaited:
    """Blocking calls of which it is certain what they awaited: synchronisations of devices and, by record, of streams
    and events, and copies to pageable memory. O(n log n) for a bounded number of streams.
    """
    parts = [_copies(activities, calls), *_synchronised(activities, calls, syncs)]
    call, end = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return Awaited(call, end)


def _copies(activities: Activities, calls: Calls) -> Awaited:
    """Copies to pageable memory."""
    kept = activities.name.where(lambda name: all(word in name for word in SYNCHRONOUS_COPY))
    rows = np.flatnonzero(kept & (activities.call_row >= 0))
    # a copy that began more than its call's length after the call's end was none that blocks, whatever the clocks
    call = activities.call_row[rows]
    rows = rows[activities.start[rows] - calls.end[call] < calls.end[call] - calls.start[call]]
    return Awaited(activities.call_row[rows], activities.end[rows])


def _synchronised(activities: Activities, calls: Calls, syncs: RecordedSyncs) -> list[Awaited]:
    kinds = sync_calls(calls.name)
    streams = _Streams(activities, calls)
    found = []
    device_calls = np.flatnonzero(kinds == SyncCall.DEVICE_SYNC)
    if len(streams.devices) == 1:
        found.append(streams.all_ended(device_calls, calls.start[device_calls]))
    kind = syncs.kind.numbers(lambda name: SYNC_RECORDS.get(name.lower(), SyncCall.NONE), SyncCall.NONE)
    told = np.unique(np.concatenate((syncs.correlation, syncs.record_correlation)))
    rows = np.flatnonzero(np.isin(calls.correlation, told) & (calls.correlation != 0))
    row_of = dict(zip(calls.correlation[rows].tolist(), rows.tolist(), strict=True))
    waits: dict[int, list[tuple[int, int]]] = {}
    for what, correlation, stream, awaited, record in zip(
        kind.tolist(), *(column.tolist() for column in (syncs.correlation, syncs.stream, syncs.wait_stream, syncs.record_correlation)),
        strict=True,
    ):  # fmt: skip
        call, by = row_of.get(correlation), row_of.get(record)
        if call is None:
            continue
        if what == SyncCall.STREAM_SYNC and kinds[call] == SyncCall.STREAM_SYNC:
            waits.setdefault(stream, []).append((call, int(calls.start[call])))
        elif what == SyncCall.EVENT_SYNC and kinds[call] == SyncCall.EVENT_SYNC and by is not None:
            waits.setdefault(awaited, []).append((call, int(calls.start[by])))
    for stream, pairs in waits.items():
        rows = np.array(pairs, np.int64)
        found.append(streams.ended(stream, rows[:, 0], rows[:, 1]))
    return found


class _Streams:
    """The streams of a trace: when each one's activities had been submitted, and when they ended."""

    def __init__(self, activities: Activities, calls: Calls) -> None:
        submitted = np.full(len(activities), NEVER, np.int64)
        called = activities.call_row >= 0
        submitted[called] = calls.end[activities.call_row[called]]
        self.devices = np.unique(activities.device)
        self._of: dict[tuple[int, int], tuple[Int64, Int64]] = {}
        for rows in split_groups(stream_sorted(activities), activities.device, activities.stream):
            key = int(activities.device[rows[0]]), int(activities.stream[rows[0]])
            self._of[key] = np.maximum.accumulate(submitted[rows]), np.maximum.accumulate(activities.end[rows])

    def ended(self, stream: int, call: Int64, time: Int64) -> Awaited:
        """Returns what the stream of that number had been given at each time, without calls before which it had been
        given nothing.
        """
        found = [queue for key, queue in self._of.items() if key[1] == stream]
        return _last(call, time, found[:1]) if len(found) == 1 else Awaited(*np.empty((2, 0), np.int64))

    def all_ended(self, call: Int64, time: Int64) -> Awaited:
        return _last(call, time, list(self._of.values()))


def _last(call: Int64, time: Int64, queues: list[tuple[Int64, Int64]]) -> Awaited:
    last = np.full(len(call), NEVER, np.int64)
    for submitted, ends in queues:
        place = np.searchsorted(submitted, time, side="right") - 1
        last = np.maximum(last, np.where(place >= 0, ends[np.maximum(place, 0)], last))
    known = last > NEVER
    return Awaited(call[known], last[known])
