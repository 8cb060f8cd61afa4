"""Submit times: when each launch call has handed its work to the device. Host work before that delays the activity.

Activities may start before their call returns; later work of the program does not delay them. A call that waits for its
own activity, as blocking copies do, launches early in the call if the device was not ready; the rest is waiting.
"""

import numpy as np

from ...schema.columns import ABSENT, Int64
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
    row, call = _self_awaited(linked)
    ready_ns = _ready_ns(linked)[row]
    submission = submit_ns[call] - calls.start[call]
    on_free_stream = ready_ns <= calls.start[call]
    kinds = by_name(submission[on_free_stream], activities.name, row[on_free_stream], linked.info.machine.resolution_ns)
    typical = activities.name.take(row).numbers(lambda name: kinds.get(name, kinds.get("", LatencyStats())).median)
    gap = of_each(linked.info.machine.gap, activities.category).median[row]
    is_device_late = np.abs(activities.start[row] - ready_ns - gap) < np.abs(submission - typical)
    submit_ns[call[is_device_late]] = np.minimum(submit_ns[call], calls.start[call] + typical)[is_device_late]
    return submit_ns


def _self_awaited(linked: LinkedTrace) -> tuple[Int64, Int64]:
    """Returns the activities for which their own calls waited, and these calls."""
    waits = linked.host_waits
    awaited = waits.source_row >= 0
    row, call = waits.source_row[awaited], waits.call_row[awaited]
    is_own = linked.activities.call_row[row] == call
    return row[is_own], call[is_own]


def _ready_ns(linked: LinkedTrace) -> Int64:
    """Returns when the predecessors of each activity, on its stream and by device waits, had ended; NEVER for none."""
    activities, waits = linked.activities, linked.device_waits
    previous = previous_on_stream(activities)
    if not len(previous):
        return previous
    ready_ns = np.where(previous >= 0, _launch_ended(linked, previous, activities.start), NEVER)
    has_source = waits.source_row >= 0
    np.maximum.at(ready_ns, waits.target_row[has_source], activities.end[waits.source_row[has_source]])
    return ready_ns


def _launch_ended(linked: LinkedTrace, rows: Int64, by: Int64) -> Int64:
    """Returns when all branches of the launches of `rows` had ended, as the stream of a CUDA graph waits for all.

    Where that is later than `by`, returns when the rows themselves had ended.
    """
    activities = linked.activities
    ended = np.full(len(linked.calls) + 1, NEVER, np.int64)
    np.maximum.at(ended, activities.call_row, activities.end)
    ended[-1] = FOREVER
    of_launch = ended[activities.call_row[rows]]
    return np.where(of_launch <= by, of_launch, activities.end[rows])
