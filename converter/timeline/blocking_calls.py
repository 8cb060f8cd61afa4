"""When the host waited inside its blocking calls.

A cudaStreamSynchronize from 10 to 50 µs whose stream was done at 40 waits from 10 to 40, and works from 40 to 50. If
calls of that name take 2 µs when they have nothing to wait for, it returns from 40 to 48, and works from 48 to 50.
"""

from dataclasses import dataclass

import numpy as np

from ...schema.columns import ABSENT, Bool, CallRows, Int64
from ...schema.linked import NEVER, LinkedTrace
from ...schema.machine import by_name


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
    idle_ns = _idle_durations(linked, CallRows(call), awaited, only_waits)
    is_known = (awaited > since) & (idle_ns != ABSENT)
    return_ns = np.where(is_known, np.maximum(end - until - idle_ns, 0), 0)
    call_ns = np.where(is_known, np.clip(idle_ns - (end - until), 0, until - since), 0)
    until += return_ns
    # after waiting for room in a queue, a launch is work of its op again
    end = np.where(since < submitted, until, end)
    return Blocking(CallRows(call), since, until, end, return_ns, call_ns)


def _idle_durations(linked: LinkedTrace, call: CallRows, awaited: Int64, only_waits: Bool) -> Int64:
    """Returns how long calls of each call's name usually take that have nothing to wait for, ABSENT if that is unknown.

    Such calls began longer after what they awaited had ended than they took: less may be due to the clocks.
    """
    calls = linked.calls
    duration = calls.end[call] - calls.start[call]
    rows = np.flatnonzero(only_waits & (awaited > NEVER) & (calls.start[call] - awaited > duration))
    stats = by_name(duration[rows], calls.name, call[rows], linked.info.machine.resolution_ns)
    measured = {name: latency.median for name, latency in stats.items() if latency.count}
    idle = calls.name.take(call).numbers(lambda name: measured.get(name, ABSENT), ABSENT)
    return np.where(only_waits, idle, ABSENT)
