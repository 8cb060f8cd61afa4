"""Event records: which one a wait is for, as the trace itself says, and the calls that made them.

A trace names an event record by the call that made it, else by the event's id. An id is reused: where event 9 was
recorded at 10 and at 30 µs, a wait for event 9 at 20 µs is for the first event record. From CUDA 12.9 on only the id is
recorded, and without cuda_sync records neither is. The trace seldom says on which stream a call recorded an event; a
program mostly records on the stream that it is using.
"""

from array import array
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import MutableSequence
from typing import NamedTuple

import numpy as np

from ...schema.columns import Int64, Interner, Lookup
from ...schema.linked import SYNC_RECORDS, Activities, Calls, Provenance, SyncCall, sync_calls
from ...schema.reasons import AnyReason
from ..communication import CollectiveOps
from ..readers import RecordedEvents, RecordedSyncs
from .submissions import CallSites, StreamKey, StreamQueues, ThreadLaunches

KINDS = {int(kind): kind for kind in SyncCall}
Findings = dict[AnyReason, MutableSequence[int]]
"""The calls by what was resolved, inferred or dropped, one entry per time."""


class RecordGroup(NamedTuple):
    """Event records of one thread that were made from the same ops after the same launch, in the order of time.

    `row` are their numbers, `time` their times in ns.
    """

    row: Int64
    time: Int64


class EventRecordCalls:
    """All event records in the order of time. The number of an event record is its position in `rows`, the calls.

    `kind` is the position of each one's group in `kinds`, `streams` are those that it may be on, the likeliest first.
    """

    def __init__(
        self,
        calls: Calls,
        kinds: Int64,
        activities: Activities,
        *,
        collectives: CollectiveOps,
        launches: ThreadLaunches,
        call_sites: CallSites,
        known_streams: dict[int, StreamKey],
    ) -> None:
        """`kinds` is what each call does, `known_streams` are the streams that the trace records, by call."""
        self._calls, self._collectives, self._launches, self._activities = calls, collectives, launches, activities
        self._kinds = kinds
        event_calls = np.flatnonzero(np.isin(kinds, (SyncCall.EVENT_RECORD, SyncCall.STREAM_WAIT, SyncCall.EVENT_SYNC)))
        rows = event_calls[kinds[event_calls] == SyncCall.EVENT_RECORD]
        rows = rows[np.argsort(calls.start[rows], kind="stable")]
        self.rows, self.time = rows.data, calls.start[rows].data
        self._number = Lookup(rows, np.arange(len(rows)))
        self._previous = _previous_on_thread(calls, event_calls, np.flatnonzero(kinds == SyncCall.EVENT_QUERY))
        self.in_collective: list[bool] = []
        self.streams: list[list[StreamKey]] = []
        self.kind: list[int] = []
        shared: dict[tuple[StreamKey, ...], list[StreamKey]] = {}
        kind_numbers = Interner[tuple[int, ...]]()
        for row in rows.tolist():
            self.in_collective.append(self.is_in_collective(row))
            streams = [known_streams[row]] if row in known_streams else self._likely_streams(row)
            self.streams.append(shared.setdefault(tuple(streams), streams))
            last, step, launched = self._last_launch(row), call_sites.step, -1
            if last >= 0 and step[int(activities.call_row[last])] == step[row]:
                launched = int(activities.name.codes[last])
            self.kind.append(kind_numbers[int(calls.thread[row]), call_sites.path(row), launched])
        kind, time = np.array(self.kind, np.int64), np.asarray(self.time)
        by_kind = np.argsort(kind, kind="stable")
        parts = np.split(by_kind, np.searchsorted(kind[by_kind], np.arange(1, len(kind_numbers))))
        self.kinds = [RecordGroup(part, time[part]) for part in parts]

    def _likely_streams(self, call: int) -> list[StreamKey]:
        """Returns the streams that a call may have recorded on, the likeliest first.

        A call right after another event record, with no launch between them, probably records on another stream.
        """
        streams, before = self.streams_in_use(call, None), self.previous_event_call(call)
        if before < 0 or self._kinds[before] != SyncCall.EVENT_RECORD or self.is_in_collective(call):
            return streams
        return [*streams[1:], *streams[:1]] if self._last_launch(call) == self._last_launch(before) else streams

    def _last_launch(self, call: int) -> int:
        """Returns the last activity that the thread of a call had launched before it, -1 for none."""
        return self._launches.last_launch(int(self._calls.thread[call]), int(self._calls.start[call]))

    def previous_event_call(self, call: int) -> int:
        """Returns the previous call on the thread that recorded an event or waited for one, -1 for none."""
        return self._previous.get(call)

    def is_event_sync(self, call: int) -> bool:
        """Returns whether a call makes the host wait for an event."""
        return call >= 0 and bool(self._kinds[call] == SyncCall.EVENT_SYNC)

    def right_before(self, call: int) -> int:
        """Returns the event record that is the previous call for events on the thread of a wait, -1 for none."""
        return self._number.get(self.previous_event_call(call))

    def enclosing_collective(self, call: int) -> int:
        """Returns the collective in whose op a call was made, -1 for none."""
        return self._collectives.enclosing_record(int(self._calls.op_row[call]))

    def is_in_collective(self, call: int) -> bool:
        """Returns whether a call was made by a collective's op."""
        return self.enclosing_collective(call) >= 0

    def streams_in_use(self, call: int, other_than: StreamKey | None) -> list[StreamKey]:
        """Returns the streams that the thread had been using at a call, the last used one first.

        In a collective that has launched this is the stream of that launch, elsewhere those that compute.
        """
        collective, last, activities = self.enclosing_collective(call), self._last_launch(call), self._activities
        launched_in = self._collectives.enclosing_record(int(activities.op_row[last])) if last >= 0 else -1
        if collective >= 0 and launched_in == collective:
            return [StreamKey.of(activities, last)]
        time, thread = int(self._calls.start[call]), int(self._calls.thread[call])
        return [stream for stream in self._launches.streams_before(thread, time) if stream != other_than]


def _previous_on_thread(calls: Calls, rows: Int64, queries: Int64) -> Lookup:
    """Returns, for each of `rows` and `queries`, the one of `rows` before it on its thread."""
    order = np.concatenate((rows, queries))
    order = order[np.lexsort((calls.start[order], calls.thread[order]))]
    position = np.where(np.isin(order, rows), np.arange(len(order)), -1)
    before = np.maximum.accumulate(np.append(-1, position))[: len(order)]
    follows = np.flatnonzero(before >= 0)
    follows = follows[calls.thread[order[follows]] == calls.thread[order[before[follows]]]]
    return Lookup(order[follows], order[before[follows]])


def no_findings() -> Findings:
    """Returns findings that can be appended to, none yet."""
    return defaultdict(lambda: array("q"))


class SyncRecord(NamedTuple):
    """What a cuda_sync row says of its call; -1 where unknown."""

    kind: SyncCall
    device: int
    stream: int
    wait_stream: int
    record_correlation: int
    event: int


class EventRecord(NamedTuple):
    """An event record: the call that made it, its time in ns, and the stream whose work so far it marks."""

    call_row: int
    time: int
    stream: StreamKey
    provenance: Provenance


class SyncRecords:
    """What the trace itself says of the calls that synchronise: cuda_sync rows, of several of a call the last one, and
    rows of events.

    `kinds` is what each call does, by its name, else by its row. `awaited` are the calls that made the event records
    that some row waits for.
    """

    def __init__(self, calls: Calls, syncs: RecordedSyncs, event_rows: RecordedEvents, queues: StreamQueues) -> None:
        self._calls, self._queues = calls, queues
        kinds = syncs.kind.numbers(lambda name: SYNC_RECORDS.get(name.lower(), SyncCall.NONE), SyncCall.NONE)
        columns = (kinds, syncs.device, syncs.stream, syncs.wait_stream, syncs.record_correlation, syncs.event)
        self._columns = [column.data for column in columns]
        row_of = Lookup(syncs.correlation, np.arange(len(syncs.start)))
        row_of_call = row_of.of(calls.correlation)
        self._row_of_call = row_of_call.data
        self.kinds = sync_calls(calls.name)
        unrecognised = (self.kinds == SyncCall.NONE) & (calls.correlation != 0)
        self.kinds[unrecognised] = np.append(kinds, SyncCall.NONE)[row_of_call[unrecognised]]
        rows = row_of.of(_unique_in_order(syncs.correlation))
        self.has_stream_waits = bool((kinds[rows] == SyncCall.STREAM_WAIT).any())
        rows = rows[syncs.record_correlation[rows] > 0]
        recorder, stream = syncs.record_correlation[rows], syncs.wait_stream[rows]
        self._recorders = _unique_in_order(np.concatenate((recorder, event_rows.correlation)))
        named_calls = np.flatnonzero(np.isin(calls.correlation, self._recorders))
        self._call_of = Lookup(calls.correlation[named_calls], named_calls)
        """The calls that the trace names, by correlation."""
        self._stream_of = Lookup(
            np.concatenate((event_rows.correlation[::-1], recorder)), np.concatenate((event_rows.stream[::-1], stream))
        )
        """The stream's number by the correlation of the recording call, -1 for unknown."""
        awaited = self._call_of.of(recorder)
        self.awaited = np.unique(awaited[awaited >= 0])
        self._by_id: dict[int, list[tuple[int, int]]] = defaultdict(list)
        """The (time, call) pairs of the event records of each event id, sorted by time."""
        for correlation, event in zip(event_rows.correlation.tolist(), event_rows.event.tolist(), strict=True):
            if (call := self._call_of.get(correlation)) >= 0:
                insort(self._by_id[event], (int(calls.start[call]), call))

    def of(self, call: int) -> SyncRecord | None:
        """Returns what the last row of a call says of it."""
        row = self._row_of_call[call]
        if row < 0:
            return None
        kind, *numbers = (column[row] for column in self._columns)
        return SyncRecord(KINDS[kind], *numbers)

    def streams(self) -> dict[int, StreamKey]:
        """Returns the streams that the trace names for calls that record events, by call."""
        numbers, calls = self._stream_of.of(self._recorders), self._call_of.of(self._recorders)
        stream_of = {number: self._queues.find(-1, number) for number in _unique_in_order(numbers).tolist()}
        streams = zip(calls.tolist(), map(stream_of.__getitem__, numbers.tolist()), strict=True)
        return {call: stream for call, stream in streams if call >= 0 and stream is not None}

    def is_before_trace(self, call: int) -> bool:
        """Returns whether the trace names the call that recorded what a call waits for, but does not hold it."""
        record = self.of(call)
        return record is not None and record.record_correlation > 0 and record.record_correlation not in self._call_of

    def recorder(self, call: int) -> int:
        """Returns the call that recorded the event that a call waits for, -1 where the trace does not name it."""
        record, time = self.of(call), int(self._calls.start[call])
        if record is None:
            return -1
        if record.record_correlation > 0:
            recorder = self._call_of.get(record.record_correlation)
            if recorder >= 0 and int(self._calls.start[recorder]) < time:
                return recorder
        of_event = self._by_id.get(record.event, [])
        position = bisect_left(of_event, (time, -1))
        return of_event[position - 1][1] if position else -1

    def event_record(self, call: int, event_record_calls: EventRecordCalls) -> EventRecord | None:
        """Returns the event record that the trace names for a call, None also where its stream is unknown.

        The stream is the recorded one, else the one that its thread was using.
        """
        record, recorder = self.of(call), self.recorder(call)
        if record is None or recorder < 0:
            return None
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
