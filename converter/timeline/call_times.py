"""When each launch call has handed its work to the device, and when the host waited inside its blocking calls.

Host work before a submission delays the activity, later work does not: activities may start before their call returns.
A cudaStreamSynchronize from 10 to 50 µs whose stream was done at 40 waits from 10 to 40, and works from 40 to 50. If
calls of that name take 2 µs when they have nothing to wait for, it returns from 40 to 48, and works from 48 to 50.
"""

from dataclasses import dataclass

import numpy as np

from ...schema.columns import ABSENT, CallRows, Int64
from ...schema.linked import FOREVER, NEVER, LinkedTrace, previous_on_stream
from ...schema.machine import LatencyStats, by_name, of_each


def submit_times(linked: LinkedTrace) -> Int64:
    """Returns when each call submitted its work (ns), ABSENT for calls without activities.

    That is the end of the call, or a launch latency before its first activity if that activity starts earlier.
    """
    calls, activities = linked.calls, linked.activities
    first = np.full(len(calls), FOREVER, np.int64)
    has_call = activities.call_row >= 0
    np.minimum.at(first, activities.call_row[has_call], activities.start[has_call])
    latency = of_each(linked.info.machine.launch, calls.name).median
    submit_ns = np.where(first < calls.end, np.maximum(first - latency, calls.start), calls.end)
    is_launch = np.zeros(len(calls), np.bool_)
    is_launch[activities.call_row[has_call]] = True
    return _with_late_copies(linked, np.where(is_launch, submit_ns, ABSENT))


def _with_late_copies(linked: LinkedTrace, submit_ns: Int64) -> Int64:
    """Returns the submit times, but copies for which the device was not ready are submitted as soon as copies of their
    kind usually are.

    Either the host was slow to launch a copy or the device to start it: the one that took its usual time was not.
    """
    calls, activities = linked.calls, linked.activities
    # activities for which their own calls waited
    awaited = linked.host_waits.source_row >= 0
    row, call = linked.host_waits.source_row[awaited], linked.host_waits.call_row[awaited]
    is_own = activities.call_row[row] == call
    row, call = row[is_own], call[is_own]
    ready_ns = _ready_ns(linked)[row]
    submission = submit_ns[call] - calls.start[call]
    on_free_stream = ready_ns <= calls.start[call]
    kinds = by_name(submission[on_free_stream], activities.name, row[on_free_stream], linked.info.machine.resolution_ns)
    typical = activities.name.take(row).numbers(lambda name: kinds.get(name, kinds.get("", LatencyStats())).median)
    gap = of_each(linked.info.machine.gap, activities.category).median[row]
    is_device_late = np.abs(activities.start[row] - ready_ns - gap) < np.abs(submission - typical)
    submit_ns[call[is_device_late]] = np.minimum(submit_ns[call], calls.start[call] + typical)[is_device_late]
    return submit_ns


def _ready_ns(linked: LinkedTrace) -> Int64:
    """Returns when the predecessors of each activity, on its stream and by device waits, had ended; NEVER for none."""
    activities, waits = linked.activities, linked.device_waits
    previous = previous_on_stream(activities)
    if not len(previous):
        return previous
    # the stream of a CUDA graph waits for all branches of the launch, if these ended before the activity started
    ended = np.full(len(linked.calls) + 1, NEVER, np.int64)
    np.maximum.at(ended, activities.call_row, activities.end)
    ended[-1] = FOREVER
    of_launch = ended[activities.call_row[previous]]
    of_previous = np.where(of_launch <= activities.start, of_launch, activities.end[previous])
    ready_ns = np.where(previous >= 0, of_previous, NEVER)
    has_source = waits.source_row >= 0
    np.maximum.at(ready_ns, waits.target_row[has_source], activities.end[waits.source_row[has_source]])
    return ready_ns


@dataclass(slots=True)
class Blocking:
    """Blocking calls, by call row. The host only waits from `since` to `until`; from `until` to `end` the call works
    again.

    `return_ns` is how long before `until` the awaited work ended: the latency of the return. `call_ns` is what a call
    of that name costs beyond `until` to `end` if it does not have to wait. One of the two is 0.
    """

    call: CallRows
    since: Int64
    until: Int64
    end: Int64
    return_ns: Int64
    call_ns: Int64


def blocking_calls(linked: LinkedTrace, submit_ns: Int64) -> Blocking:
    """Returns the blocking calls; `submit_ns` is when each call launched, ABSENT for those that launch nothing."""
    waits, calls = linked.host_waits, linked.calls
    call, position = np.unique(waits.call_row, return_inverse=True)
    awaited = np.full(len(call), NEVER, np.int64)
    has_source = waits.source_row >= 0
    np.maximum.at(awaited, position[has_source], linked.activities.end[waits.source_row[has_source]])
    submitted = submit_ns[call]
    since = np.where(submitted == ABSENT, calls.start[call], submitted)
    has_since = np.flatnonzero(waits.since != ABSENT)
    np.minimum.at(since, position[has_since], waits.since[has_since])
    end = np.maximum(calls.end[call], since)
    until = np.clip(awaited, since, end)
    only_waits = submitted == ABSENT
    only_waits[position[has_since]] = False
    # how long calls of a name take that have nothing to wait for: those that began longer after what they awaited had
    # ended than they took, as less may be due to the clocks
    duration = calls.end[call] - calls.start[call]
    rows = np.flatnonzero(only_waits & (awaited > NEVER) & (calls.start[call] - awaited > duration))
    stats = by_name(duration[rows], calls.name, call[rows], linked.info.machine.resolution_ns)
    medians = {name: latency.median for name, latency in stats.items() if latency.count}
    usual = calls.name.take(call).numbers(lambda name: medians.get(name, ABSENT), ABSENT)
    idle_ns = np.where(only_waits, usual, ABSENT)
    is_known = (awaited > since) & (idle_ns != ABSENT)
    return_ns = np.where(is_known, np.maximum(end - until - idle_ns, 0), 0)
    call_ns = np.where(is_known, np.clip(idle_ns - (end - until), 0, until - since), 0)
    until += return_ns
    # after waiting for room in a queue, a launch is work of its op again
    end = np.where(since < submitted, until, end)
    return Blocking(CallRows(call), since, until, end, return_ns, call_ns)
