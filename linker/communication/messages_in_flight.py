"""Puts messages of the host (gloo's sends and receives) on lanes of their own.

Such a row begins when the message is requested and ends when somebody has waited for it. The thread that it is recorded
on does other things meanwhile. Lanes are negative thread numbers, as few as keep the messages of a thread from
overlapping.
"""

import heapq
from dataclasses import replace

import numpy as np

from ...schema.columns import Int64, split_groups
from ..readers import DeviceTrace, RecordedOps

MESSAGES = ("gloo:send", "gloo:recv")
FIRST_LANE = -2


def messages_in_flight(device: DeviceTrace) -> DeviceTrace:
    """Returns the trace with its messages on lanes instead of threads. O(n + m log m) for m messages."""
    messages = np.flatnonzero(device.ops.name.where(lambda name: name.startswith(MESSAGES)))
    if not len(messages):
        return device
    thread = device.ops.thread.copy()
    thread[messages] = _lanes(device.ops, messages)
    return replace(device, ops=replace(device.ops, thread=thread))


def _lanes(ops: RecordedOps, messages: Int64) -> Int64:
    lanes = np.empty(len(messages), np.int64)
    thread, start, end = (column[messages] for column in (ops.thread, ops.start, ops.end))
    count = 0
    for rows in split_groups(np.lexsort((start, thread)), thread):
        # lanes of this thread with a message, by the message's end, and those without one
        busy: list[tuple[int, int]] = []
        free: list[int] = []
        for row, begin, until in zip(rows.tolist(), start[rows].tolist(), end[rows].tolist(), strict=True):
            while busy and busy[0][0] <= begin:
                heapq.heappush(free, heapq.heappop(busy)[1])
            lane = heapq.heappop(free) if free else count
            count = max(count, lane + 1)
            heapq.heappush(busy, (until, lane))
            lanes[row] = FIRST_LANE - lane
    return lanes
