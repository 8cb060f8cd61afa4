"""Looks for all contradictions in the traces of one process."""

import numpy as np

from ..schema.columns import CallRows, OpRows
from ..schema.linked import Calls
from ..schema.machine import MachineCalibration
from .activity_rows import activities_of
from .contradiction import Contradiction
from .launch_order import against_numbers, other_launches, other_order
from .launches import launching_calls
from .measured_machine import machine_of
from .rank_contradictions import groups_without_rank, other_rank, rank_beyond_world
from .readers import DeviceTrace, HostTrace
from .time_contradictions import clock_apart, other_units, overlapping_activities


def contradictions_in_traces(host: HostTrace | None, device: DeviceTrace) -> list[Contradiction]:
    """Returns the contradictions of traces that are not linked yet. O(n log n)."""
    calls, call_row = device.calls, launching_calls(device.activities, device.calls)
    no_op, none = (OpRows(np.full(len(rows), -1, np.int64)) for rows in (calls.start, call_row))
    in_no_op = Calls(calls.name, calls.thread, calls.start, calls.end, calls.correlation, no_op)
    calibration = machine_of(activities_of(device, call_row, none), in_no_op, device.syncs)
    return contradictions(host, device, call_row, calibration)


def contradictions(
    host: HostTrace | None, device: DeviceTrace, call_row: CallRows, calibration: MachineCalibration
) -> list[Contradiction]:
    """Returns in what the two traces, or one of them alone, cannot be right. O(n log n).

    Of several signs of one cause only the plainest is returned.

    Args:
        host: The host trace, if there is one.
        device: The device trace of the same process.
        call_row: For each activity the row of the call with its correlation, -1 for none.
        calibration: What was measured of the clocks.
    """
    launched = bool((call_row >= 0).any())
    by_cause = (
        rank_beyond_world(device)
        or groups_without_rank(host, device)
        or (other_rank(host, device) if host is not None else None),
        launched
        and (
            other_units(device, call_row, calibration)
            or overlapping_activities(device, call_row)
            or clock_apart(device, calibration)
        ),
        (launched and (other_launches(device, call_row) or other_order(device, call_row))) or against_numbers(device),
    )
    return [each for each in by_cause if each]
