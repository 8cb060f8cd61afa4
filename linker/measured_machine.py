"""The machine that a trace was recorded on, as the trace itself tells: calls and activities in, clocks, latencies and gaps out.

Measured before any rule judges. What a rule takes for usual comes from here; thresholds that are ratios of what is measured stand here, too.
"""

import numpy as np

from ..schema.columns import Int64, Strings
from ..schema.linked import Activities, Calls, Machine, Usual, on_host_clock
from .clocks import Awaited, awaited_ends, clock_of
from .device_rows import SyncRows

OUTLYING = 4
"""How many times the lower quartile a time may be before something else than the machine is taken to have added to it."""
FENCE = 3.0
"""Spreads (interquartile ranges) above the upper quartile up to which a time counts as usual (Tukey's outer fence)."""


def machine_of(activities: Activities, calls: Calls, syncs: SyncRows) -> Machine:
    """What the trace tells of its machine; `activities` have device times. O(n log n)."""
    awaited = awaited_ends(activities, calls, syncs)
    clock = clock_of(activities, calls, awaited)
    machine = Machine(
        resolution_ns=clock.resolution,
        clock_offset_ns=clock.offset,
        clock_drift_ns=clock.drift,
        clock_from_ns=clock.since,
        clock_until_ns=clock.until,
        clock_error_ns=clock.error,
    )
    shifted = on_host_clock(activities, machine)
    machine.launch = _launches(shifted, calls, clock.resolution)
    most = machine.launch[""].most if machine.launch else 0
    machine.gap = _gaps(shifted, calls, most, clock.resolution)
    awaited = awaited._replace(end=awaited.end + machine.clock_shift(awaited.end))
    machine.wake = _wakes(calls, awaited, clock.resolution)
    return machine


def usual(times: Int64, resolution: int = 1) -> Usual:
    """What is usual of `times` (ns), of which some are longer for other reasons than the machine.

    >>> usual(np.array([1000, 1100, 1200, 1300, 90_000]))
    Usual(median=1150, most=1675, count=4)
    """
    if not len(times):
        return Usual()
    low = max(float(np.quantile(times, 0.25, method="lower")), resolution)
    own = times[times <= OUTLYING * low]
    first, median, third = np.quantile(own, (0.25, 0.5, 0.75))
    return Usual(round(median), round(max(third + FENCE * (third - first), median + resolution)), len(own))


def by_name(times: Int64, names: Strings, rows: Int64, resolution: int) -> dict[str, Usual]:
    """What is usual over all times, under "", and of each name."""
    if not len(times):
        return {}
    codes = names.codes[rows]
    each = {names.table[code]: usual(times[codes == code], resolution) for code in np.unique(codes).tolist()}
    return {"": usual(times, resolution)} | each


def previous_on_stream(activities: Activities) -> Int64:
    """For each activity the one before it on its stream, -1 for the first."""
    order = np.lexsort((activities.end, activities.start, activities.stream, activities.device))
    same = (activities.device[order[1:]] == activities.device[order[:-1]]) & (
        activities.stream[order[1:]] == activities.stream[order[:-1]]
    )
    previous = np.full(len(order), -1, np.int64)
    previous[order[1:][same]] = order[:-1][same]
    return previous


def _launches(activities: Activities, calls: Calls, resolution: int) -> dict[str, Usual]:
    """From the end of the call to the start, of activities that found their stream free and did not start before their call returned."""
    rows = np.flatnonzero(activities.call_row >= 0)
    call, before = activities.call_row[rows], previous_on_stream(activities)[rows]
    free = (before < 0) | (activities.end[before] <= calls.start[call])
    after = activities.start[rows] >= calls.end[call]
    rows, call = rows[free & after], call[free & after]
    return by_name(activities.start[rows] - calls.end[call], calls.name, call, resolution)


def _gaps(activities: Activities, calls: Calls, launch: int, resolution: int) -> dict[str, Usual]:
    """Between the end of an activity and the start of the next on its stream, which had long been launched then."""
    before = previous_on_stream(activities)
    rows = np.flatnonzero((activities.call_row >= 0) & (before >= 0))
    queued = calls.end[activities.call_row[rows]] + launch < activities.end[before[rows]]
    rows = rows[queued & (activities.start[rows] >= activities.end[before[rows]])]
    return by_name(activities.start[rows] - activities.end[before[rows]], activities.category, rows, resolution)


def _wakes(calls: Calls, awaited: Awaited, resolution: int) -> dict[str, Usual]:
    """From the end of what a blocking call awaited to the end of the call, where it did wait."""
    waited = (awaited.end > calls.start[awaited.call_row]) & (awaited.end <= calls.end[awaited.call_row])
    rows = awaited.call_row[waited]
    return by_name(calls.end[rows] - awaited.end[waited], calls.name, rows, resolution)
