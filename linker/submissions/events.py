"""What the trace itself says of events: which recording a wait is for, by the call that recorded the event, else by the event's id.

An id is reused: where event 9 was recorded at 10 and at 30 µs, a wait for event 9 at 20 is for the first recording.
From CUDA 12.9 on only the id is recorded, and without cuda_sync records neither is.
"""

from bisect import bisect_left
from typing import NamedTuple

import numpy as np

from ...schema.linked import Calls, Found
from ..readers import EventRecordRows, SyncCall
from .recordings import Recordings
from .streams import StreamKey, StreamQueues

Findings = dict[str, list[int]]
"""By what was found, guessed or given up, the rows of the calls where that happened, a row for each time."""


class SyncRecord(NamedTuple):
    """What a cuda_sync row says of its call; -1 where unknown."""

    kind: SyncCall
    device: int
    stream: int
    wait_stream: int
    record_correlation: int
    event: int


class Recording(NamedTuple):
    """An event as it was recorded: by which call, when, and on which stream, whose work so far it marks."""

    call_row: int
    time: int
    stream: StreamKey
    found: Found


class NamedEvents:
    """The recordings of one process that records name. `awaited` are the calls of those that some cuda_sync record names."""

    def __init__(
        self, calls: Calls, records: dict[int, SyncRecord], event_rows: EventRecordRows, queues: StreamQueues
    ) -> None:
        self._calls, self._queues = calls, queues
        named = {record.record_correlation for record in records.values()} | {*event_rows.correlation.tolist()}
        of_named = np.flatnonzero(np.isin(calls.correlation, [*named]))
        self._call_of: dict[int, int] = dict(zip(calls.correlation[of_named].tolist(), of_named.tolist(), strict=True))
        """The calls that records name, by correlation."""
        self._stream_of = {r.record_correlation: r.wait_stream for r in records.values() if r.record_correlation > 0}
        """The stream's number by the correlation of the recording call, -1 for unknown."""
        self.awaited = [self._call_of[c] for c in self._stream_of if c in self._call_of]
        for correlation, stream in zip(event_rows.correlation.tolist(), event_rows.stream.tolist(), strict=True):
            self._stream_of.setdefault(correlation, stream)
        self._by_id = self._recordings_by_id(event_rows)

    def _recordings_by_id(self, rows: EventRecordRows) -> dict[int, list[tuple[int, int]]]:
        """For each event id the (time, call) pairs of its recordings, by time."""
        found: dict[int, list[tuple[int, int]]] = {}
        for correlation, event in zip(rows.correlation.tolist(), rows.event.tolist(), strict=True):
            if (call := self._call_of.get(correlation)) is not None:
                found.setdefault(event, []).append((int(self._calls.start[call]), call))
        return {event: sorted(recorded) for event, recorded in found.items()}

    def streams(self) -> dict[int, StreamKey]:
        """The streams that are recorded for recording calls, by call."""
        found = {}
        for correlation, number in self._stream_of.items():
            stream = self._queues.find(-1, number) if number >= 0 else None
            if stream is not None and correlation in self._call_of:
                found[self._call_of[correlation]] = stream
        return found

    def is_before_trace(self, record: SyncRecord | None) -> bool:
        """The event is known to have been recorded by a call that the trace does not hold."""
        return record is not None and record.record_correlation > 0 and record.record_correlation not in self._call_of

    def named(self, call: int, record: SyncRecord | None) -> int:
        """The call that recorded what a call waits for, -1 where the trace does not name it."""
        if record is None:
            return -1
        time = int(self._calls.start[call])
        if record.record_correlation > 0:
            recorded = self._call_of.get(record.record_correlation, -1)
            if recorded >= 0 and int(self._calls.start[recorded]) < time:
                return recorded
        of_event = self._by_id.get(record.event, [])
        place = bisect_left(of_event, (time, -1))
        return of_event[place - 1][1] if place else -1

    def recording(self, named: int, record: SyncRecord, recordings: Recordings) -> Recording | None:
        """A named call's recording: on the stream that is recorded for it, else on the one that its thread was using."""
        number = self._stream_of.get(int(self._calls.correlation[named]), -1)
        if number < 0:
            number = record.wait_stream
        in_use = next(iter(recordings.streams_at(named, None)), None)
        stream = self._queues.find(record.device, number) if number >= 0 else in_use
        return Recording(named, int(self._calls.start[named]), stream, Found.RECORD) if stream is not None else None
