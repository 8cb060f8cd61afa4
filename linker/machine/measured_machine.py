"""Measures the machine that a trace was recorded on: its clocks, latencies and gaps.

Measured before any rule judges: what a rule takes for usual comes from here.
"""

import numpy as np

from ...schema.linked import Activities, Calls, on_host_clock, previous_on_stream, took_over
from ...schema.machine import LatencyStats, MachineCalibration, by_name
from ..readers import RecordedSyncs
from .clocks import Awaited, awaited_ends, clock_of


def machine_of(activities: Activities, calls: Calls, syncs: RecordedSyncs) -> MachineCalibration:
    """Returns what the trace tells of its machine; `activities` have device times. O(n log n)."""
    awaited = awaited_ends(activities, calls, syncs)
    clock = clock_of(activities, calls, awaited)
    machine = MachineCalibration(
        resolution_ns=clock.resolution,
        clock_offset_ns=clock.offset,
        clock_drift_ns=clock.drift,
        clock_from_ns=clock.since,
        clock_until_ns=clock.until,
        clock_error_ns=clock.error,
    )
    shifted = on_host_clock(activities, machine)
    machine.launch = _launches(shifted, calls, clock.resolution)
    most = machine.launch[""].upper if machine.launch else 0
    machine.gap = _gaps(shifted, calls, most, clock.resolution)
    awaited = awaited._replace(end=awaited.end + machine.clock_shift(awaited.end))
    machine.sync_return_latency = _wakes(calls, awaited, clock.resolution)
    return machine


def _launches(activities: Activities, calls: Calls, resolution: int) -> dict[str, LatencyStats]:
    """Returns from the end of the call to the start, of activities that found their stream and device free and began
    after their call.
    """
    rows = np.flatnonzero(activities.call_row >= 0)
    call, before = activities.call_row[rows], previous_on_stream(activities)[rows]
    free = (before < 0) | (activities.end[before] <= calls.start[call])
    alone = (activities.start[rows] >= calls.end[call]) & ~took_over(activities, 2 * resolution)[rows]
    rows, call = rows[free & alone], call[free & alone]
    return by_name(activities.start[rows] - calls.end[call], calls.name, call, resolution)


def _gaps(activities: Activities, calls: Calls, launch: int, resolution: int) -> dict[str, LatencyStats]:
    """Between the end of an activity and the start of the next on its stream, which had long been launched and found
    the device free.
    """
    before = previous_on_stream(activities)
    rows = np.flatnonzero((activities.call_row >= 0) & (before >= 0) & ~took_over(activities, 2 * resolution))
    queued = calls.end[activities.call_row[rows]] + launch < activities.end[before[rows]]
    rows = rows[queued & (activities.start[rows] >= activities.end[before[rows]])]
    return by_name(activities.start[rows] - activities.end[before[rows]], activities.category, rows, resolution)


def _wakes(calls: Calls, awaited: Awaited, resolution: int) -> dict[str, LatencyStats]:
    """Returns from the end of what a blocking call awaited to the end of the call, where it did wait."""
    waited = (awaited.end > calls.start[awaited.call_row]) & (awaited.end <= calls.end[awaited.call_row])
    rows = awaited.call_row[waited]
    return by_name(calls.end[rows] - awaited.end[waited], calls.name, rows, resolution)
