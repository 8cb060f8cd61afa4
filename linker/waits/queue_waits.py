"""Waits that a device itself records, as MTIA's queues do: a stream stands still until another one comes to a numbered
recording.
"""

from bisect import bisect_left
from collections.abc import Iterator

import numpy as np

from ...schema.traces import NEVER
from ..readers import RecordedQueueEvents
from ..submissions import StreamKey, StreamQueues

NOTHING = np.empty(0, np.int64).data


def queue_waits(rows: RecordedQueueEvents, queues: StreamQueues, start: list[int]) -> Iterator[tuple[int, int]]:
    """Yields for each wait the awaited activity and the one held up, -1 where there is none; `start` has that of every
    activity.

    Awaited is what ran last on the awaited stream before the recording, held up what runs first on the waiting one
    after the wait.
    """
    columns = (rows.device, rows.stream, rows.awaited, rows.sequence, rows.start, rows.end)
    events = list(zip(*(column.tolist() for column in columns), strict=True))
    recorded = {(device, stream, number): at for device, stream, awaited, number, at, _ in events if awaited < 0}
    for device, stream, awaited, number, begin, _ in events:
        if awaited < 0:
            continue
        at = recorded.get((device, awaited, number), NEVER)
        before, after = (queues.rows.get(StreamKey(device, one), NOTHING) for one in (awaited, stream))
        last = bisect_left(before, at, key=start.__getitem__) - 1
        # what stood still goes on while the recording that it waited for is still being made
        first = bisect_left(after, max(begin, at), key=start.__getitem__)
        yield before[last] if last >= 0 else -1, after[first] if first < len(after) else -1
