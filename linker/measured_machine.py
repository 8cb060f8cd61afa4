"""Measures the machine that a trace was recorded on: its clocks, latencies and gaps.

It runs before all rules, which take the usual latencies from here.
"""

import numpy as np

from ..schema.linked import Activities, Calls, on_host_clock, previous_on_stream, took_over
from ..schema.machine import LatencyStats, MachineCalibration, by_name
from .clocks import Awaited, awaited_ends, clock_of
from .readers import RecordedSyncs


def machine_of(activities: Activities, calls: Calls, syncs: RecordedSyncs) -> MachineCalibration:
    """Returns the calibration of a trace's machine; `activities` have device times. O(n log n)."""
    awaited = awaited_ends(activities, calls, syncs)
    clock = clock_of(activities, calls, awaited)
    calibration = MachineCalibration(
        resolution_ns=clock.resolution,
        clock_offset_ns=clock.offset,
        clock_drift_ns=clock.drift,
        clock_from_ns=clock.since,
        clock_until_ns=clock.until,
        clock_error_ns=clock.error,
    )
    shifted = on_host_clock(activities, calibration)
    calibration.launch = _launch_latencies(shifted, calls, clock.resolution)
    max_launch_ns = calibration.launch[""].upper if calibration.launch else 0
    calibration.gap = _gaps(shifted, calls, max_launch_ns, clock.resolution)
    awaited = awaited._replace(end=awaited.end + calibration.clock_shift(awaited.end))
    calibration.sync_return = _return_latencies(calls, awaited, clock.resolution)
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
