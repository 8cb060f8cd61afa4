"""Reads waits that a device itself records, as MTIA's queues do: a stream waits until another one reaches a numbered
event record.
"""

from bisect import bisect_left
from collections.abc import Iterator

import numpy as np

from ...schema.linked import NEVER
from ..readers import RecordedQueueEvents
from .streams import StreamKey, StreamQueues

NOTHING = np.empty(0, np.int64).data


def queue_waits(rows: RecordedQueueEvents, queues: StreamQueues, start: list[int]) -> Iterator[tuple[int, int]]:
    """Yields for each wait the awaited activity and the blocked one, -1 for none; `start` has that of every activity.

    The awaited activity is the last one on the awaited stream before the event record, the blocked one the first on the
    waiting stream after the wait.
    """
    columns = (rows.device, rows.stream, rows.awaited, rows.sequence, rows.start, rows.end)
    events = list(zip(*(column.tolist() for column in columns), strict=True))
    recorded = {(device, stream, number): time for device, stream, awaited, number, time, _ in events if awaited < 0}
    for device, stream, awaited, number, wait_start, _ in events:
        if awaited < 0:
            continue
        time = recorded.get((device, awaited, number), NEVER)
        before, after = (queues.rows.get(StreamKey(device, key), NOTHING) for key in (awaited, stream))
        last = bisect_left(before, time, key=start.__getitem__) - 1
        # the blocked stream goes on while the event record that it waited for is still being made
        first = bisect_left(after, max(wait_start, time), key=start.__getitem__)
        yield before[last] if last >= 0 else -1, after[first] if first < len(after) else -1
