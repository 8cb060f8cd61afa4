"""When each activity could and should have started by its known dependencies, and how exact the times of a trace are.

An activity that waited for an unknown event starts later than its known dependencies explain, right after what it
waited for has ended. Nothing that ended after it started can have blocked it, except within the error of the clocks.
"""

import numpy as np

from ...schema.linked import FOREVER, NEVER, Activities, Calls, previous_on_stream
from ...schema.machine import ENOUGH, LatencyStats, MachineCalibration, of_each, of_name


class TimingModel:
    """For each activity the earliest and the expected start, and the errors of the clocks. All times in ns.

    `ready_ns` is when all known dependencies of an activity had ended, `expected_start_ns` by when it usually starts
    then. `timestamp_quantum_ns` is by how much two times of one clock may be off, `clock_uncertainty_ns` by how much
    those of host and device may: a call never returns before what it waited for has ended, but it may seem to by the
    median time that calls take to return. `max_clock_lead_ns` is how far the device's clock may at most be ahead of the
    host's: no activity starts before its launch call, so the shortest launch limits it. `return_error_ns` and
    `max_return_lead_ns` are the same two by synchronising call; they are small where returns of calls of that name were
    measured on these very clocks. `max_gap_ns` is the longest usual gap between two activities of a stream.
    """

    def __init__(self, activities: Activities, calls: Calls, calibration: MachineCalibration) -> None:
        self.timestamp_quantum_ns = 2 * calibration.resolution_ns
        self.clock_uncertainty_ns = calibration.time_error_ns + of_name(calibration.sync_return, "").median
        self._sync_return_latency, self._names = calibration.sync_return, calls.name
        before = previous_on_stream(activities)
        ready, expected = np.full((2, len(activities)), NEVER, np.int64)
        follows = np.flatnonzero(before >= 0)
        ended = activities.end[before[follows]]
        ready[follows] = ended
        expected[follows] = ended + of_each(calibration.gap, activities.category.take(follows)).upper
        called = np.flatnonzero(activities.call_row >= 0)
        call = activities.call_row[called]
        launched = calls.end[call] + of_each(calibration.launch, calls.name.take(call)).upper
        ready[called] = np.maximum(ready[called], calls.start[call])
        expected[called] = np.maximum(expected[called], launched)
        shortest = int((activities.start[called] - calls.start[call]).min(initial=FOREVER))
        self.ready_ns, self.expected_start_ns = ready.data, expected.data
        self.max_clock_lead_ns = self.clock_uncertainty_ns + (max(shortest, 0) if shortest < FOREVER else 0)
        # where returns were measured, it is their own clock that they are compared with
        knows_returns = calls.name.where(lambda name: calibration.sync_return.get(name, LatencyStats()).count >= ENOUGH)
        error = calibration.time_error_ns
        self.return_error_ns = np.where(knows_returns, error, self.clock_uncertainty_ns).data
        self.max_return_lead_ns = np.where(knows_returns, error, self.max_clock_lead_ns).data
        self.max_gap_ns = of_name(calibration.gap, "").upper

    def max_sync_return_ns(self, call: int) -> int:
        """Returns how long after the awaited end a call of that name usually returns at most."""
        return of_name(self._sync_return_latency, self._names[call]).upper

    def add_dependency(self, activity: int, end: int, max_reaction_ns: int) -> None:
        """Adds that an activity follows one that ended at `end`, usually within `max_reaction_ns`."""
        self.ready_ns[activity] = max(self.ready_ns[activity], end)
        self.expected_start_ns[activity] = max(self.expected_start_ns[activity], end + max_reaction_ns)
