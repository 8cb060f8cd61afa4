"""When the host waited inside its blocking calls.

A cudaStreamSynchronize from 10 to 50 µs whose stream was done at 40 waits from 10 to 40, and works from 40 to 50.
"""

from dataclasses import dataclass

import numpy as np

from ...schema.columns import ABSENT, CallRows, Int64
from ...schema.linked import LinkedTrace
from ...schema.traces import NEVER


@dataclass(slots=True)
class Blocking:
    """Blocking calls, by call row. The host only waits from `since` to `until`; from `until` to `end` the call works
    again.
    """

    call: CallRows
    since: Int64
    until: Int64
    end: Int64


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
    # after waiting for room in a queue, a launch is work of its op again
    return Blocking(CallRows(call), since, until, np.where(since < submitted, until, end))
