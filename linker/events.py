"""Which recording of an event a wait is for, as the trace tells: by the call that recorded it, else by the event's id.

CUDA tells of a wait which call recorded the event and where, but not always: from 12.9 on only the event's id is left, and without
cuda_sync records nothing is.
"""

from bisect import bisect_left
from typing import NamedTuple

from ..schema.linked import Calls, Found
from .device_rows import EventRecordRows
from .recordings import Recordings
from .streams import StreamKey, StreamQueues
from .sync_calls import SyncCall

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
    """What the records of one process tell of events."""

    def __init__(
        self, calls: Calls, records: dict[int, SyncRecord], event_rows: EventRecordRows, queues: StreamQueues
    ) -> None:
        self._calls, self._queues = calls, queues
        self._row_of = dict(zip(calls.correlation.tolist(), range(len(calls)), strict=True))
        self._stream_of = {r.record_correlation: r.wait_stream for r in records.values() if r.record_correlation > 0}
        self.awaited = [self._row_of[c] for c in self._stream_of if c in self._row_of]
        """The calls whose recordings some record names."""
        self._by_id = self._recorded_ids(event_rows)

    def _recorded_ids(self, rows: EventRecordRows) -> dict[int, list[tuple[int, int]]]:
        """For each event id the (time, call) pairs of its recordings, from cuda_event rows."""
        found: dict[int, list[tuple[int, int]]] = {}
        for correlation, stream, event in zip(
            rows.correlation.tolist(), rows.stream.tolist(), rows.event.tolist(), strict=True
        ):
            self._stream_of.setdefault(correlation, stream)
            call = self._row_of.get(correlation)
            if call is not None:
                found.setdefault(event, []).append((int(self._calls.start[call]), call))
        for recorded in found.values():
            recorded.sort()
        return found

    def streams(self) -> dict[int, StreamKey]:
        """The streams that are recorded for recording calls, by call."""
        found = {}
        for correlation, number in self._stream_of.items():
            call, stream = self._row_of.get(correlation), self._queues.find(-1, number) if number >= 0 else None
            if call is not None and stream is not None:
                found[call] = stream
        return found

    def is_before_trace(self, record: SyncRecord | None) -> bool:
        """The event is known to have been recorded by a call that the trace does not hold."""
        return record is not None and record.record_correlation > 0 and record.record_correlation not in self._row_of

    def named(self, call: int, record: SyncRecord | None) -> int:
        """The call that recorded what a call waits for, -1 where the trace does not name it."""
        time = int(self._calls.start[call])
        if record is None:
            return -1
        known = self._row_of.get(record.record_correlation, -1) if record.record_correlation > 0 else -1
        if known >= 0 and self._calls.start[known] < time:
            return known
        by_id = self._by_id.get(record.event, [])
        place = bisect_left(by_id, (time, -1))
        return by_id[place - 1][1] if place else -1

    def recording(self, named: int, record: SyncRecord, recordings: Recordings) -> Recording | None:
        """A named call's recording: on the stream that is recorded for it, else on the one in use."""
        number = self._stream_of.get(int(self._calls.correlation[named]), -1)
        number = record.wait_stream if number < 0 else number
        in_use = recordings.streams_at(named, None)[:1] if number < 0 else []
        stream = next(iter(in_use), None) if number < 0 else self._queues.find(record.device, number)
        return Recording(named, int(self._calls.start[named]), stream, Found.RECORD) if stream is not None else None
