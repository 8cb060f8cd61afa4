"""When the host waited inside its blocking calls.

A cudaStreamSynchronize from 10 to 50 µs whose stream was done at 40 waits from 10 to 40, and works from 40 to 50.
"""

from dataclasses import dataclass

import numpy as np

from ...schema.columns import ABSENT, Int64
from ...schema.linked import LinkedTrace
from ...schema.traces import NEVER


@dataclass(slots=True)
class Blocking:
    """Blocking calls, by call row: from `since` to `until` the host only waits, from `until` to `end` the call itself
    has work again.
    """

    call: Int64
    since: Int64
    until: Int64
    end: Int64


def blocking_calls(linked: LinkedTrace, launched_at: Int64) -> Blocking:
    """`launched_at` is when each call launched, ABSENT for those that launch nothing."""
    waits, calls = linked.host_waits, linked.calls
    call, group = np.unique(waits.call_row, return_inverse=True)
    awaited = np.full(len(call), NEVER, np.int64)
    real = waits.source_row >= 0
    np.maximum.at(awaited, group[real], linked.activities.end[waits.source_row[real]])
    launched = launched_at[call]
    since = np.where(launched == ABSENT, calls.start[call], launched)
    known = np.flatnonzero(waits.since != ABSENT)
    np.minimum.at(since, group[known], waits.since[known])
    end = np.maximum(calls.end[call], since)
    until = np.clip(awaited, since, end)
    # a launch that waited for room is its op's own work from then on
    return Blocking(call, since, until, np.where(since < launched, until, end))
