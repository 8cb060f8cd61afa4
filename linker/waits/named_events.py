"""Which event record a wait is for, as the trace itself says: by the call that recorded the event, else by the event's
id.

An id is reused: where event 9 was recorded at 10 and at 30 µs, a wait for event 9 at 20 µs is for the first event
record. From CUDA 12.9 on only the id is recorded, and without cuda_sync records neither is.
"""

from bisect import bisect_left
from collections.abc import MutableSequence
from typing import NamedTuple

import numpy as np

from ...schema.columns import Int64, Lookup
from ...schema.linked import SYNC_RECORDS, Calls, Provenance, SyncCall
from ...schema.reasons import AnyReason
from ..readers import RecordedEvents, RecordedSyncs
from .event_record_calls import EventRecordCalls
from .streams import StreamKey, StreamQueues

KINDS = {int(kind): kind for kind in SyncCall}
Findings = dict[AnyReason, MutableSequence[int]]
"""The calls by what was resolved, inferred or dropped, one entry per time."""


class SyncRecord(NamedTuple):
    """What a cuda_sync row says of its call; -1 where unknown."""

    kind: SyncCall
    device: int
    stream: int
    wait_stream: int
    record_correlation: int
    event: int


class SyncRecords:
    """The cuda_sync rows by the correlation of their call. If a call has several, the last one counts."""

    def __init__(self, syncs: RecordedSyncs) -> None:
        kinds = syncs.kind.numbers(lambda name: SYNC_RECORDS.get(name.lower(), SyncCall.NONE), SyncCall.NONE)
        self._row_of = Lookup(syncs.correlation, np.arange(len(syncs.start)))
        columns = (kinds, syncs.device, syncs.stream, syncs.wait_stream, syncs.record_correlation, syncs.event)
        self._columns = [column.data for column in columns]
        _, first = np.unique(syncs.correlation, return_index=True)
        self._rows = self._row_of.of(syncs.correlation[np.sort(first)])
        self.has_stream_waits = bool((kinds[self._rows] == SyncCall.STREAM_WAIT).any())

    def of(self, correlation: int) -> SyncRecord | None:
        """Returns the record of the call with this correlation."""
        row = self._row_of.get(correlation)
        if row < 0:
            return None
        kind, *numbers = (column[row] for column in self._columns)
        return SyncRecord(KINDS[kind], *numbers)

    def kinds(self, correlation: Int64) -> Int64:
        """Returns what the calls with these correlations do, NONE for calls without a record."""
        row = self._row_of.of(correlation)
        return np.append(self._columns[0], SyncCall.NONE)[row]

    def awaited_events(self) -> tuple[Int64, Int64]:
        """Returns, by record, the correlation of the call that recorded the event, and the event's stream number."""
        stream, recorder = (np.asarray(column)[self._rows] for column in self._columns[3:5])
        return recorder, stream


class EventRecord(NamedTuple):
    """An event record: the call that made it, its time in ns, and the stream whose work so far it marks."""

    call_row: int
    time: int
    stream: StreamKey
    provenance: Provenance


class NamedEvents:
    """The event records of one process that cuda_sync or event rows of the trace name.

    `awaited` are the calls that made those that some cuda_sync row waits for.
    """

    def __init__(self, calls: Calls, records: SyncRecords, event_rows: RecordedEvents, queues: StreamQueues) -> None:
        self._calls, self._queues = calls, queues
        recorder, stream = records.awaited_events()
        named_calls = np.flatnonzero(np.isin(calls.correlation, np.concatenate((recorder, event_rows.correlation))))
        self._call_of = Lookup(calls.correlation[named_calls], named_calls)
        """The calls that the trace names, by correlation."""
        is_named = recorder > 0
        recorder, stream = recorder[is_named], stream[is_named]
        self._recorders = _unique_in_order(np.concatenate((recorder, event_rows.correlation)))
        self._stream_of = Lookup(
            np.concatenate((event_rows.correlation[::-1], recorder)), np.concatenate((event_rows.stream[::-1], stream))
        )
        """The stream's number by the correlation of the recording call, -1 for unknown."""
        awaited = self._call_of.of(recorder)
        self.awaited = np.unique(awaited[awaited >= 0])
        self._by_id = self._records_by_id(event_rows)

    def _records_by_id(self, rows: RecordedEvents) -> dict[int, list[tuple[int, int]]]:
        """Returns, for each event id, the (time, call) pairs of its event records, sorted by time."""
        records: dict[int, list[tuple[int, int]]] = {}
        for correlation, event in zip(rows.correlation.tolist(), rows.event.tolist(), strict=True):
            if (call := self._call_of.get(correlation)) >= 0:
                records.setdefault(event, []).append((int(self._calls.start[call]), call))
        return {event: sorted(pairs) for event, pairs in records.items()}

    def streams(self) -> dict[int, StreamKey]:
        """Returns the streams that the trace names for calls that record events, by call."""
        numbers, calls = self._stream_of.of(self._recorders), self._call_of.of(self._recorders)
        stream_of = {
            number: self._queues.find(-1, number) for number in _unique_in_order(numbers[numbers >= 0]).tolist()
        }
        both = (numbers >= 0) & (calls >= 0)
        streams = zip(calls[both].tolist(), map(stream_of.__getitem__, numbers[both].tolist()), strict=True)
        return {call: stream for call, stream in streams if stream is not None}

    def is_before_trace(self, record: SyncRecord | None) -> bool:
        """Returns whether the trace names the call that recorded the event, but does not hold that call."""
        return record is not None and record.record_correlation > 0 and record.record_correlation not in self._call_of

    def recorder(self, call: int, record: SyncRecord | None) -> int:
        """Returns the call that recorded the event that a call waits for, -1 where the trace does not name it."""
        if record is None:
            return -1
        time = int(self._calls.start[call])
        if record.record_correlation > 0:
            recorder = self._call_of.get(record.record_correlation)
            if recorder >= 0 and int(self._calls.start[recorder]) < time:
                return recorder
        of_event = self._by_id.get(record.event, [])
        position = bisect_left(of_event, (time, -1))
        return of_event[position - 1][1] if position else -1

    def event_record(
        self, recorder: int, record: SyncRecord, event_record_calls: EventRecordCalls
    ) -> EventRecord | None:
        """Returns the event record that a call made, None where its stream is unknown.

        The stream is the recorded one, else the one that its thread was using.
        """
        number = self._stream_of.get(int(self._calls.correlation[recorder]))
        if number < 0:
            number = record.wait_stream
        in_use = next(iter(event_record_calls.streams_in_use(recorder, None)), None)
        stream = self._queues.find(record.device, number) if number >= 0 else in_use
        if stream is None:
            return None
        return EventRecord(recorder, int(self._calls.start[recorder]), stream, Provenance.RECORD)


def _unique_in_order(numbers: Int64) -> Int64:
    """Returns each number once, in the order in which they first occur."""
    return numbers[np.sort(np.unique(numbers, return_index=True)[1])]
