"""Splits the time between the release of an activity and its start into a usual part and a delay; finds full devices.

An activity usually starts a launch latency after its launch, or a gap after the activities that it follows, whichever
comes later. The later one is taken to have released it. The run does not show the other one, which is taken as usual.
A device was full if it never ran more than so many activities at once, and if late activities that were ready while it
ran so many started just as another one ended, more often than by chance.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...schema.columns import (
    ActivityRows,
    Bool,
    Categorical,
    Int64,
    Intervals,
    NodeNumbers,
    SummaryRepr,
    rows_by_number,
)
from ...schema.graph import DependencyKind
from ...schema.linked import NEVER, took_over
from ...schema.machine import BY_CHANCE, CROWDED, LatencyColumns, by_name, of_each
from ..edges import Edges
from .context import ConversionContext


@dataclass(slots=True, repr=False)
class StartTiming(SummaryRepr):
    """A row for each activity, in ns: the `latency` after its launch, the `gap` after its predecessors on the device,
    and the `delay` beyond these.

    The delay follows the node `after`, -1 for none. That node is the launch where `by_launch` is set.
    """

    latency: Int64
    gap: Int64
    delay: Int64
    after: NodeNumbers
    by_launch: Bool


class Release(NamedTuple):
    """The measured end of each activity's launch, and of the last of its predecessors on the device; NEVER for none."""

    launched_ns: Int64
    ready_ns: Int64


class _Releaser(NamedTuple):
    """A launch, or the predecessors on the device, of each activity: when it ended, how long before the activity's
    start (0 ns where there are none), and how long that usually takes.
    """

    ended_ns: Int64
    elapsed_ns: Int64
    median: Int64
    upper: Int64


def release(context: ConversionContext, edges: Edges) -> Release:
    """Returns when the sources of the edges that lead to activities ended."""
    first, count = context.activities_from, len(context.linked.activities)
    to_activity = (edges.target >= first) & (edges.target < context.unrecorded_from)
    by_launch = (edges.kind & int(DependencyKind.LAUNCH)) != 0
    columns = []
    for chosen in (to_activity & by_launch, to_activity & ~by_launch):
        ended = np.full(count, NEVER, np.int64)
        np.maximum.at(ended, edges.target[chosen] - first, context.end[edges.source[chosen]])
        columns.append(ended)
    if context.backlog_until is not None:
        columns[1] = np.maximum(columns[1], np.where(context.backlog_until >= 0, context.backlog_until, NEVER))
    return Release(*columns)


def start_timing(context: ConversionContext, edges: Edges, waited_for_slot: Bool | None = None) -> StartTiming:
    """Splits the time of every activity since its release. O(n log n).

    Activities that `waited_for_slot`, as a full device ran others, are late even if they took no longer than usual.
    """
    if waited_for_slot is None:
        waited_for_slot = np.zeros(len(context.linked.activities), np.bool_)
    launched, ready = released = release(context, edges)
    latency, gap = _typical_latencies(context, released, waited_for_slot)
    start = context.linked.activities.start
    launch = _Releaser(launched, np.maximum(start - launched, 0), *latency)
    chain = _Releaser(ready, np.where(ready > NEVER, np.maximum(start - ready, 0), 0), *gap)
    by_launch = launch.ended_ns + launch.median >= chain.ended_ns + chain.median
    later = _Releaser(*(np.where(by_launch, *columns) for columns in zip(launch, chain, strict=True)))
    is_late = (later.elapsed_ns > later.upper) | waited_for_slot
    delay = np.where(is_late, np.maximum(later.elapsed_ns - later.median, 0), 0)
    delay -= _behind_others(context, delay, waited_for_slot=waited_for_slot, spread=later.upper - later.median)
    expected_ns = later.elapsed_ns - delay
    return StartTiming(
        latency=np.where(by_launch, expected_ns, np.minimum(launch.median, launch.elapsed_ns)),
        gap=np.where(by_launch, np.minimum(chain.median, chain.elapsed_ns), expected_ns),
        delay=delay,
        after=_last_source(context, edges, later.ended_ns, by_launch),
        by_launch=by_launch,
    )


def _behind_others(context: ConversionContext, delay: Int64, *, waited_for_slot: Bool, spread: Int64) -> Int64:
    """Returns by how many ns of its delay each activity was not ready yet: those that wait for a slot of a full device
    start in the order in which they became ready.

    0 where that is beyond the usual `spread` of times.
    """
    activities, later = context.linked.activities, np.zeros(len(delay), np.int64)
    on_full_device = np.flatnonzero(np.isin(activities.device, activities.device[waited_for_slot]))
    for rows in rows_by_number(on_full_device, activities.device).values():
        rows = rows[np.argsort(activities.start[rows], kind="stable")]
        ready = activities.start[rows] - np.where(waited_for_slot[rows], delay[rows], 0)
        later[rows] = np.maximum.accumulate(ready) - ready
    return np.where(later <= spread, later, 0)


def _typical_latencies(
    context: ConversionContext, released: Release, waited_for_slot: Bool
) -> tuple[LatencyColumns, LatencyColumns]:
    """Returns the usual launch latency by API and the usual gap by category, a row for each activity.

    Both are measured on activities of which it is certain what released them, and the machine's where there are none.
    """
    activities, calls, calibration = context.linked.activities, context.linked.calls, context.linked.info.machine
    start, has_call = activities.start, activities.call_row >= 0
    call = activities.call_row[has_call]
    api = Categorical(np.full(len(activities), -1, np.int32), calls.name.table)
    api.codes[has_call] = calls.name.codes[call]
    after_call = np.zeros(len(activities), np.bool_)
    after_call[has_call] = start[has_call] >= calls.end[call]
    has_slot = ~waited_for_slot & ~took_over(activities, context.slack)
    since_launch = start - released.launched_ns
    on_free_stream = np.flatnonzero(after_call & has_slot & (released.ready_ns <= released.launched_ns))
    waited = has_slot & (since_launch > of_each(calibration.launch, api).upper)
    queued = np.flatnonzero((api.codes >= 0) & waited & (released.ready_ns > NEVER))
    since_ready = start[queued] - released.ready_ns[queued]
    latencies = by_name(since_launch[on_free_stream], api, on_free_stream, calibration.resolution_ns)
    gaps = by_name(since_ready, activities.category, queued, calibration.resolution_ns)
    return of_each(latencies or calibration.launch, api), of_each(gaps or calibration.gap, activities.category)


def _last_source(context: ConversionContext, edges: Edges, ended_ns: Int64, by_launch: Bool) -> NodeNumbers:
    """Returns the node whose end, at `ended_ns`, released each activity; -1 for none in the trace."""
    first = context.activities_from
    to_activity = np.flatnonzero((edges.target >= first) & (edges.target < context.unrecorded_from))
    row, source = edges.target[to_activity] - first, edges.source[to_activity]
    is_launch = (edges.kind[to_activity] & int(DependencyKind.LAUNCH)) != 0
    last = (is_launch == by_launch[row]) & (context.end[source] == ended_ns[row])
    after = np.full(len(ended_ns), -1, np.int64)
    after[row[last]] = source[last]
    return NodeNumbers(after)


@dataclass(slots=True)
class ConcurrencyLimit:
    """How many activities each full device runs at once (`slot_counts`), and which activities were ready and waited for
    one of its slots.
    """

    slot_counts: dict[int, int]
    waited_for_slot: Bool


def concurrency_limit(context: ConversionContext, timing: StartTiming) -> ConcurrencyLimit:
    """Returns the limits of all devices that were full. O(n log n)."""
    activities = context.linked.activities
    limit = ConcurrencyLimit({}, np.zeros(len(activities), np.bool_))
    computing = np.isin(activities.device, activities.device[timing.delay > 0]) & (activities.communication_row < 0)
    for device, rows in rows_by_number(np.flatnonzero(computing), activities.device).items():
        _add_device(limit, context, timing, device, ActivityRows(rows))
    return limit


def _add_device(
    limit: ConcurrencyLimit, context: ConversionContext, timing: StartTiming, device: int, rows: ActivityRows
) -> None:
    """Adds the device that ran the activities `rows` to `limit` if it was full."""
    start, delay, slack = context.linked.activities.start[rows], timing.delay[rows], context.slack
    ran = Intervals(start, np.maximum(context.activity_end[rows] - slack, start))
    slot_count = int(_running(ran, start).max(initial=0))
    if slot_count >= len(np.unique(context.linked.activities.stream[rows])):
        return
    device_was_full = (delay > 0) & (_running(ran, start - delay + slack) >= slot_count)
    after_an_end = _starts_after_an_end(ran, slack)
    full_count, waited_count = int(device_was_full.sum()), int((device_was_full & after_an_end).sum())
    if (
        waited_count > 1
        and waited_count >= CROWDED * full_count
        and _share_after_an_end(ran, slack) ** waited_count <= BY_CHANCE
    ):
        limit.slot_counts[device] = slot_count
        limit.waited_for_slot[rows[after_an_end]] = True


def _running(ran: Intervals, time: Int64) -> Int64:
    """Returns how many activities ran at each time."""
    started = np.searchsorted(np.sort(ran.start), time, side="right")
    return started - np.searchsorted(np.sort(ran.end), time, side="right")


def _starts_after_an_end(ran: Intervals, slack: int) -> Bool:
    """Returns which activities started just as another one ended."""
    ends = np.sort(ran.end)
    last = np.searchsorted(ends, ran.start + slack, side="right") - 1
    return np.asarray((last >= 0) & (ran.start - ends[last] <= 2 * slack))


def _share_after_an_end(ran: Intervals, slack: int) -> float:
    """Returns the share of the device's time just after an end: the probability that an activity starts there by
    chance.
    """
    return min(3 * slack * len(ran.end) / max(int(ran.end.max() - ran.start.min()), 1), 1.0)
