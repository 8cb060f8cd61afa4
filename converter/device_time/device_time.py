"""Splits the time between an activity's release and its start into what is usual on this machine and what is delay.

An activity starts a launch latency after its launch and a gap after the activities that it follows, whichever comes
later. Which of the two held it in the run is told by what is usual; the other one, which the run does not show, is
taken as usual, too.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...schema.columns import Bool, Categorical, Int64, Table, rows_by_number
from ...schema.graph import DependencyKind
from ...schema.linked import took_over
from ...schema.machine import LatencyColumns, MachineCalibration, by_name, of_each
from ...schema.traces import NEVER
from ..context import ConversionContext, Edges


@dataclass(slots=True, repr=False)
class DeviceTime(Table):
    """Of each activity, in ns: the `latency` after its launch, the `gap` after what it follows on the device, and the
    `delay` beyond.

    The `delay` follows the node `after` (-1: none), the launch where `by_launch`.
    """

    latency: Int64
    gap: Int64
    delay: Int64
    after: Int64
    by_launch: Bool


class Release(NamedTuple):
    """When, as measured, the launch of each activity was over and the last of the activities that it follows, NEVER
    without any.
    """

    launched: Int64
    freed: Int64


def release(context: ConversionContext, edges: Edges) -> Release:
    """Returns by all edges that lead to activities."""
    first, count = context.activities_from, len(context.linked.activities)
    to_activity = (edges.target >= first) & (edges.target < context.unrecorded_from)
    by_launch = (edges.kind & int(DependencyKind.LAUNCH)) != 0
    columns = []
    for chosen in (to_activity & by_launch, to_activity & ~by_launch):
        ended = np.full(count, NEVER, np.int64)
        np.maximum.at(ended, edges.target[chosen] - first, context.end[edges.source[chosen]])
        columns.append(ended)
    if context.carried is not None:
        columns[1] = np.maximum(columns[1], np.where(context.carried >= 0, context.carried, NEVER))
    return Release(*columns)


def device_time(
    context: ConversionContext, edges: Edges, machine: MachineCalibration, placed: Bool | None = None
) -> DeviceTime:
    """Splits every activity's time since its release; `placed` are those that were ready and waited for room. O(n log
    n).
    """
    placed = np.zeros(len(context.linked.activities), np.bool_) if placed is None else placed
    activities, released = context.linked.activities, release(context, edges)
    launch, chain = _usuals(context, released, machine, placed)
    by_launch = released.launched + launch.median >= released.freed + chain.median
    since_launch = np.maximum(activities.start - released.launched, 0)
    since_freed = np.where(released.freed > NEVER, np.maximum(activities.start - released.freed, 0), 0)
    slack, usual = np.where(by_launch, since_launch, since_freed), LatencyColumns(*_where(by_launch, launch, chain))
    delay = np.where((slack > usual.upper) | placed, np.maximum(slack - usual.median, 0), 0)
    delay -= _in_turn(context, placed, delay, usual.upper - usual.median)
    return DeviceTime(
        latency=np.where(by_launch, slack - delay, np.minimum(launch.median, since_launch)),
        gap=np.where(by_launch, np.minimum(chain.median, since_freed), slack - delay),
        delay=delay,
        after=_last_source(context, edges, np.where(by_launch, released.launched, released.freed), by_launch),
        by_launch=by_launch,
    )


def _in_turn(context: ConversionContext, placed: Bool, delay: Int64, spread: Int64) -> Int64:
    """Returns how much later than usual, within the usual spread, what waited for room was ready, as those that started
    before it were first.
    """
    activities, later = context.linked.activities, np.zeros(len(delay), np.int64)
    on_full = np.flatnonzero(np.isin(activities.device, activities.device[placed]))
    for own in rows_by_number(on_full, activities.device).values():
        own = own[np.argsort(activities.start[own], kind="stable")]
        ready = activities.start[own] - np.where(placed[own], delay[own], 0)
        later[own] = np.maximum.accumulate(ready) - ready
    return np.where(later <= spread, later, 0)


def _where(chosen: Bool, first: LatencyColumns, second: LatencyColumns) -> tuple[Int64, Int64]:
    return np.where(chosen, first.median, second.median), np.where(chosen, first.upper, second.upper)


def _usuals(
    context: ConversionContext, released: Release, machine: MachineCalibration, placed: Bool
) -> tuple[LatencyColumns, LatencyColumns]:
    """Launch latency by API and gap by category, of activities of which it is certain which of the two held them."""
    activities, calls = context.linked.activities, context.linked.calls
    called = np.flatnonzero(activities.call_row >= 0)
    name = np.full(len(activities), -1, np.int32)
    name[called] = calls.name.codes[activities.call_row[called]]
    names = Categorical(name, calls.name.table)
    first = of_each(machine.launch, names)
    after_call = np.zeros(len(activities), np.bool_)
    after_call[called] = activities.start[called] >= calls.end[activities.call_row[called]]
    alone = ~placed & ~took_over(activities, context.slack)
    free = np.flatnonzero(after_call & alone & (released.freed <= released.launched))
    waited = alone & (activities.start - released.launched > first.upper)
    queued = np.flatnonzero((name >= 0) & waited & (released.freed > NEVER))
    resolution = machine.resolution_ns
    launch = by_name(activities.start[free] - released.launched[free], names, free, resolution)
    gaps = by_name(activities.start[queued] - released.freed[queued], activities.category, queued, resolution)
    return of_each(launch or machine.launch, names), of_each(gaps or machine.gap, activities.category)


def _last_source(context: ConversionContext, edges: Edges, ended: Int64, by_launch: Bool) -> Int64:
    """Returns for each activity the node of its kind of release that ended last, at `ended`."""
    first = context.activities_from
    to_activity = np.flatnonzero((edges.target >= first) & (edges.target < context.unrecorded_from))
    row, source = edges.target[to_activity] - first, edges.source[to_activity]
    is_launch = (edges.kind[to_activity] & int(DependencyKind.LAUNCH)) != 0
    last = (is_launch == by_launch[row]) & (context.end[source] == ended[row])
    after = np.full(len(ended), -1, np.int64)
    after[row[last]] = source[last]
    return after
