"""Finds whether the device's clock steps in the middle of a trace, by more than any drift explains. On an idle device
an activity starts as soon as its launch arrives: from a step on all take longer, or less long. Where the device is
never idle, launches and waits contradict each other.
"""

import numpy as np

from ..schema.columns import Floats, Int64, is_group_start, rows_of_each, time_text
from ..schema.linked import Activities, Calls
from ..schema.machine import ANY_MACHINE, SLOWEST, WHOLE, MachineCalibration
from .machine import Bounds, bounds_of
from .overruns import FASTEST_DRIFT, Awaited

ALIKE = 8
"""So many launches on an idle device, of which one may be odd, show how long they take."""


def clock_step(activities: Activities, calls: Calls, awaited: Awaited, clock: MachineCalibration, zero: int) -> str:
    """Returns where the device's clock steps most, in µs after `zero` (ns), and by how much; else "". O(n log n)."""
    latency, begun, _ = _idle_latencies(activities, calls)
    if steps := _steps(latency, begun):
        at, size = max(steps, key=lambda step: abs(step[1]))
        what = f"goes {'on' if size > 0 else 'back'} by {time_text(abs(size) / 1000)} at once"
        times = begun[at - 3 : at + 3]
        more = f", the largest of {len(steps)} steps" if len(steps) > 1 else ""
    elif not (clock.clock_drift_ns or clock.clock_error_ns > 2 * WHOLE):
        return ""
    else:
        bounds = bounds_of(activities, calls, awaited, clock.resolution_ns)
        # by times of the host, as those of the device need not be in order
        lower, upper = (Bounds(of.time + of.value, of.value) for of in bounds)
        low, high = lower.tightest(1), upper.tightest(-1)
        apart = np.abs(high.time - low.time[:, None])
        beyond: Floats = low.value[:, None] - high.value - FASTEST_DRIFT * apart
        if (most := beyond.max(initial=0.0)) <= SLOWEST:
            return ""
        nearest = np.argmin(np.where(2 * beyond >= most, apart, np.inf))
        row, column = np.unravel_index(nearest, apart.shape)
        what, more = f"steps by at least {time_text(most / 1000)}", ""
        times = np.append(low.time[row], high.time[column])
    since, until = ((int(time) - zero) / 1000 for time in (times.min(), times.max()))
    return f"{what} between {since:.3f} and {until:.3f} µs of the trace{more}"


def threads_apart(activities: Activities, calls: Calls) -> str:
    """Returns by how much the clocks of two threads are apart, if launches of each show no step, but of all several."""
    latency, begun, thread = _idle_latencies(activities, calls)
    rows_of = rows_of_each(thread)
    if len(_steps(latency, begun)) < 2 or any(_steps(latency[rows], begun[rows]) for rows in rows_of.values()):
        return ""
    medians = ((float(np.median(latency[rows])), number) for number, rows in rows_of.items())
    (least, later), *_, (most, sooner) = sorted(medians)
    return f"the clock of thread {later} is {time_text((most - least) / 1000)} ahead of that of thread {sooner}"


def _idle_latencies(activities: Activities, calls: Calls) -> tuple[Int64, Int64, Int64]:
    """Returns how long launches of the most frequent call took on an idle device (ns), their starts and threads."""
    rows = np.flatnonzero(activities.call_row >= 0)
    begun = calls.start[activities.call_row[rows]]
    rows = rows[np.lexsort((activities.start[rows], begun, activities.device[rows]))]
    call, device, start, end = (getattr(activities, name)[rows] for name in ("call_row", "device", "start", "end"))
    is_idle = is_group_start(call)
    # after a step back all that ran before it seems to end late, so only the last few count
    for back in range(1, ALIKE + 1):
        is_idle[back:] &= (device[back:] != device[:-back]) | (start[back:] > end[:-back] + ANY_MACHINE.upper)
    name = calls.name.codes[call]
    is_idle &= name == np.bincount(name[is_idle], minlength=1).argmax()
    latency, begun = (start - calls.end[call])[is_idle], calls.start[call[is_idle]]
    order = np.argsort(begun, kind="stable")
    return latency[order], begun[order], calls.thread[call[is_idle][order]]


def _steps(latency: Int64, begun: Int64) -> list[tuple[int, int]]:
    """Returns the launches before which the clock steps, and by how much (ns)."""
    if len(latency) < 2 * ALIKE:
        return []
    some = np.sort(np.lib.stride_tricks.sliding_window_view(latency, ALIKE), axis=1)
    least, median, most = some[:, 1], some[:, ALIKE // 2], some[:, -2]
    apart = np.maximum(least[ALIKE:] - most[:-ALIKE], least[:-ALIKE] - most[ALIKE:])
    apart = apart - FASTEST_DRIFT * (begun[2 * ALIKE - 1 :] - begun[: 1 - 2 * ALIKE])
    spread = np.maximum((most - least)[ALIKE:], (most - least)[:-ALIKE])
    # latencies that differ by more are of a queue, whose kernels in between were not recorded
    found = np.flatnonzero((spread <= SLOWEST) & (apart > np.maximum(2 * spread, SLOWEST)))
    # those next to each other are of one step
    of_each = np.split(found, np.flatnonzero(np.diff(found) > ALIKE) + 1) if len(found) else []
    widest = [int(splits[np.argmax(apart[splits])]) for splits in of_each]
    return [(at + ALIKE, int(median[at + ALIKE] - median[at])) for at in widest]
