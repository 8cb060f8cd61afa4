"""What the times of a trace say about a wait: by when each activity should have started, as far as is known.

What is held up goes on later than all that is known explains, right after what it waited for has ended. Nothing that
ended after it went on can have held it up, except by as much as the clocks are in doubt.
"""

import numpy as np

from ...schema.columns import ROUNDING
from ...schema.linked import Activities, Calls, previous_on_stream
from ...schema.machine import MachineCalibration, of_each, of_name
from ...schema.traces import FOREVER, NEVER


class TimingModel:
    """`ready_ns` is when all that is known to hold an activity back had ended, `expected_start_ns` by when it usually
    starts then.

    `timestamp_quantum_ns` is how far two times of one clock may be misstated, `clock_uncertainty_ns` those of host and
    device against each other: no call was seen to return before what it waited for had ended, but it may have by as
    little as calls usually take to. `max_clock_lead_ns` is how far the device's clock may at most be ahead of the
    host's: as no activity started before its launch call, by what the soonest took to.
    """

    def __init__(self, activities: Activities, calls: Calls, machine: MachineCalibration) -> None:
        self.timestamp_quantum_ns = ROUNDING if machine.resolution_ns == 1 else 2 * machine.resolution_ns
        self.clock_uncertainty_ns = (
            machine.clock_error_ns + self.timestamp_quantum_ns + of_name(machine.sync_return_latency, "").median
        )
        self._wake, self._names = machine.sync_return_latency, calls.name
        before = previous_on_stream(activities)
        freed, due = np.full(len(activities), NEVER, np.int64), np.full(len(activities), NEVER, np.int64)
        follows = np.flatnonzero(before >= 0)
        ended = activities.end[before[follows]]
        freed[follows], due[follows] = ended, ended + of_each(machine.gap, activities.category.take(follows)).upper
        called = np.flatnonzero(activities.call_row >= 0)
        call = activities.call_row[called]
        freed[called] = np.maximum(freed[called], calls.start[call])
        due[called] = np.maximum(due[called], calls.end[call] + of_each(machine.launch, calls.name.take(call)).upper)
        soonest = int((activities.start[called] - calls.start[call]).min(initial=FOREVER))
        self.ready_ns, self.expected_start_ns = freed.data, due.data
        self.max_clock_lead_ns = self.clock_uncertainty_ns + (max(soonest, 0) if soonest < FOREVER else 0)
        self.gap = of_name(machine.gap, "").upper

    def wake(self, call: int) -> int:
        """Returns how long after what it awaited a call of that name usually returns at most."""
        return of_name(self._wake, self._names[call]).upper

    def explained(self, activity: int, end: int, reach: int) -> None:
        """The activity is known to follow one that ended at `end`, usually within `max_reaction_ns`."""
        self.ready_ns[activity] = max(self.ready_ns[activity], end)
        self.expected_start_ns[activity] = max(self.expected_start_ns[activity], end + reach)
