"""What the trace itself says of events: which recording a wait is for, by the call that recorded the event, else by the
event's id.

An id is reused: where event 9 was recorded at 10 and at 30 µs, a wait for event 9 at 20 is for the first recording.
From CUDA 12.9 on only the id is recorded, and without cuda_sync records neither is.
"""

from bisect import bisect_left
from collections.abc import MutableSequence
from typing import NamedTuple

import numpy as np

from ...schema.columns import Int64, Lookup
from ...schema.linked import Calls, Provenance
from ..readers import SYNC_RECORDS, RecordedEvents, RecordedSyncs, SyncCall
from .event_records import EventRecords
from .streams import StreamKey, StreamQueues

KINDS = {int(kind): kind for kind in SyncCall}
Findings = dict[str, MutableSequence[int]]
"""By what was found, guessed or given up, the rows of the calls where that happened, a row for each time."""


class SyncRecord(NamedTuple):
    """What a cuda_sync row says of its call; -1 where unknown."""

    kind: SyncCall
    device: int
    stream: int
    wait_stream: int
    record_correlation: int
    event: int


class SyncRecords:
    """The cuda_sync rows by the correlation of their call; of several for one call the last one holds."""

    def __init__(self, syncs: RecordedSyncs) -> None:
        kinds = syncs.kind.numbers(lambda name: SYNC_RECORDS.get(name.lower(), SyncCall.NONE), SyncCall.NONE)
        self._row_of = Lookup(syncs.correlation, np.arange(len(syncs.start)))
        columns = (kinds, syncs.device, syncs.stream, syncs.wait_stream, syncs.record_correlation, syncs.event)
        self._columns = [column.data for column in columns]
        _, first = np.unique(syncs.correlation, return_index=True)
        self._rows = self._row_of.of(syncs.correlation[np.sort(first)])

    def of(self, correlation: int) -> SyncRecord | None:
        """Returns what is recorded of the call with this correlation."""
        row = self._row_of.get(correlation)
        if row < 0:
            return None
        kind, *numbers = (column[row] for column in self._columns)
        return SyncRecord(KINDS[kind], *numbers)

    def kinds(self, correlation: Int64) -> Int64:
        """Returns what the calls with these correlations do, NONE for those of which nothing is recorded."""
        row = self._row_of.of(correlation)
        return np.append(self._columns[0], SyncCall.NONE)[row]

    def recordings(self) -> tuple[Int64, Int64]:
        """Returns the recording call's correlation, and the number of the awaited stream, as each row names them."""
        stream, recorded = (np.asarray(column)[self._rows] for column in self._columns[3:5])
        return recorded, stream

    def tell_of(self, kind: SyncCall) -> bool:
        """Returns whether there is a row of that kind."""
        return bool((np.asarray(self._columns[0])[self._rows] == kind).any())


class EventRecord(NamedTuple):
    """An event as it was recorded: by which call, when, and on which stream, whose work so far it marks."""

    call_row: int
    time: int
    stream: StreamKey
    found: Provenance


class NamedEvents:
    """The recordings of one process that records name. `awaited` are the calls of those that some cuda_sync record
    names.
    """

    def __init__(self, calls: Calls, records: SyncRecords, event_rows: RecordedEvents, queues: StreamQueues) -> None:
        self._calls, self._queues = calls, queues
        recorded, waited = records.recordings()
        of_named = np.flatnonzero(np.isin(calls.correlation, np.concatenate((recorded, event_rows.correlation))))
        self._call_of = Lookup(calls.correlation[of_named], of_named)
        """The calls that records name, by correlation."""
        told = recorded > 0
        recorded, waited = recorded[told], waited[told]
        self._told = _distinct(np.concatenate((recorded, event_rows.correlation)))
        self._stream_of = Lookup(
            np.concatenate((event_rows.correlation[::-1], recorded)), np.concatenate((event_rows.stream[::-1], waited))
        )
        """The stream's number by the correlation of the recording call, -1 for unknown."""
        calls_awaited = self._call_of.of(recorded)
        self.awaited = np.unique(calls_awaited[calls_awaited >= 0])
        self._by_id = self._recordings_by_id(event_rows)

    def _recordings_by_id(self, rows: RecordedEvents) -> dict[int, list[tuple[int, int]]]:
        """Returns for each event id the (time, call) pairs of its recordings, by time."""
        found: dict[int, list[tuple[int, int]]] = {}
        for correlation, event in zip(rows.correlation.tolist(), rows.event.tolist(), strict=True):
            if (call := self._call_of.get(correlation)) >= 0:
                found.setdefault(event, []).append((int(self._calls.start[call]), call))
        return {event: sorted(recorded) for event, recorded in found.items()}

    def streams(self) -> dict[int, StreamKey]:
        """Returns the streams that are recorded for recording calls, by call."""
        number, call = self._stream_of.of(self._told), self._call_of.of(self._told)
        streams = {known: self._queues.find(-1, known) for known in _distinct(number[number >= 0]).tolist()}
        both = (number >= 0) & (call >= 0)
        found = zip(call[both].tolist(), map(streams.__getitem__, number[both].tolist()), strict=True)
        return {recorder: stream for recorder, stream in found if stream is not None}

    def is_before_trace(self, record: SyncRecord | None) -> bool:
        """Returns the event is known to have been recorded by a call that the trace does not hold."""
        return record is not None and record.record_correlation > 0 and record.record_correlation not in self._call_of

    def named(self, call: int, record: SyncRecord | None) -> int:
        """Returns the call that recorded what a call waits for, -1 where the trace does not name it."""
        if record is None:
            return -1
        time = int(self._calls.start[call])
        if record.record_correlation > 0:
            recorded = self._call_of.get(record.record_correlation)
            if recorded >= 0 and int(self._calls.start[recorded]) < time:
                return recorded
        of_event = self._by_id.get(record.event, [])
        place = bisect_left(of_event, (time, -1))
        return of_event[place - 1][1] if place else -1

    def recording(self, named: int, record: SyncRecord, recordings: EventRecords) -> EventRecord | None:
        """Returns a named call's recording: on the stream that is recorded for it, else on the one that its thread was
        using.
        """
        number = self._stream_of.get(int(self._calls.correlation[named]))
        if number < 0:
            number = record.wait_stream
        in_use = next(iter(recordings.streams_at(named, None)), None)
        stream = self._queues.find(record.device, number) if number >= 0 else in_use
        return (
            EventRecord(named, int(self._calls.start[named]), stream, Provenance.RECORD) if stream is not None else None
        )


def _distinct(numbers: Int64) -> Int64:
    """Returns each number once, in the order in which they first come."""
    return numbers[np.sort(np.unique(numbers, return_index=True)[1])]
