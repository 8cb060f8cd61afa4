"""Puts messages of the host (gloo's sends and receives) on lanes of their own.

Such a row begins where the message is asked for and ends where somebody has waited for it; the thread that it is recorded on does other
things meanwhile. Lanes are negative thread numbers, as few as the messages of a thread need not to overlap.
"""

from dataclasses import replace

import numpy as np

from ...schema.columns import Int64
from ..readers import DeviceTrace, OpRows

MESSAGES = ("gloo:send", "gloo:recv")
FIRST_LANE = -2


def messages_in_flight(device: DeviceTrace) -> DeviceTrace:
    """The trace with other threads for its messages. O(m log m) for m messages, of which few are in flight at once."""
    messages = np.flatnonzero(device.ops.name.where(lambda name: name.startswith(MESSAGES)))
    if not len(messages):
        return device
    thread = device.ops.thread.copy()
    thread[messages] = _lanes(device.ops, messages)
    return replace(device, ops=replace(device.ops, thread=thread))


def _lanes(ops: OpRows, messages: Int64) -> Int64:
    lanes = np.empty(len(messages), np.int64)
    # of each lane the thread whose messages it carries, and when the last one ended
    free_from: list[tuple[int, int]] = []
    for row in np.lexsort((ops.start[messages], ops.thread[messages])).tolist():
        thread, start, end = (int(column[messages[row]]) for column in (ops.thread, ops.start, ops.end))
        lane = next((n for n, (of, free) in enumerate(free_from) if of == thread and free <= start), len(free_from))
        free_from[lane : lane + 1] = [(thread, end)]
        lanes[row] = FIRST_LANE - lane
    return lanes
