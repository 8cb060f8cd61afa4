"""Which recording of an event a wait is for: as recorded, by the event's id, else by the order of the calls.

CUDA tells of a wait which call recorded the event and where, but not always: from 12.9 on only the event's id is left, and without
cuda_sync records nothing is. Guesses are counted by how they were made.
"""

from bisect import bisect_left
from collections import defaultdict
from typing import NamedTuple

import numpy as np

from ..schema.columns import Int64
from ..schema.intervals import ROUNDING
from ..schema.linked import Activities, Calls, Found
from .communication import CollectiveOps
from .device_trace import EventRecordRows
from .streams import StreamKey, StreamQueues, ThreadLaunches
from .sync_calls import SyncCall

BINDING = 10_000
"""ns within which the end of a source explains the end of a call that waited."""

CANDIDATES = 64
"""Recordings tried per wait, so that the search stays constant."""

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


class Wait(NamedTuple):
    """A call that waits for an event. `waiting` is the stream held back, None for the host; no source ended after `deadline`."""

    call_row: int
    record: SyncRecord | None
    waiting: StreamKey | None
    deadline: int | None


class Events:
    """The recordings of one process, consumed in the order of the waits."""

    def __init__(
        self,
        calls: Calls,
        kinds: Int64,
        records: dict[int, SyncRecord],
        event_rows: EventRecordRows,
        activities: Activities,
        collectives: CollectiveOps,
        queues: StreamQueues,
    ) -> None:
        self._calls, self._activities, self._collectives, self._queues = calls, activities, collectives, queues
        self._launches = ThreadLaunches(activities, calls)
        self.guessed: Findings = defaultdict(list)
        self._row_of = dict(zip(calls.correlation.tolist(), range(len(calls)), strict=True))
        rows = np.flatnonzero(np.isin(kinds, (SyncCall.EVENT_RECORD, SyncCall.STREAM_WAIT, SyncCall.EVENT_SYNC)))
        self._previous = previous_on_thread(calls, rows)
        recording = rows[kinds[rows] == SyncCall.EVENT_RECORD]
        self.recordings = recording[np.argsort(calls.start[recording], kind="stable")].tolist()
        self._by_programs = [row for row in self.recordings if self._around(row) < 0]
        self._stream_of = {r.record_correlation: r.wait_stream for r in records.values() if r.record_correlation > 0}
        self._by_id = self._recorded_ids(event_rows)
        self._all = set(self.recordings)
        self._used = {self._row_of[c] for c in self._stream_of if c in self._row_of}
        self._used_marks: set[tuple[StreamKey, int]] = set()
        self._bound: dict[int, Recording] = {}

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

    def is_before_trace(self, wait: Wait) -> bool:
        """The event is known to have been recorded by a call that the trace does not hold."""
        record = wait.record
        return record is not None and record.record_correlation > 0 and record.record_correlation not in self._row_of

    def recorded(self, wait: Wait) -> Recording | None:
        """The recording that the trace itself names."""
        record, time = wait.record, int(self._calls.start[wait.call_row])
        if record is None:
            return None
        known = self._row_of.get(record.record_correlation) if record.record_correlation > 0 else None
        if known is not None and self._calls.start[known] < time:
            return self._recording(known, wait, Found.RECORD, self._stream_in_use(known, wait.waiting))
        by_id = self._by_id.get(record.event, [])
        place = bisect_left(by_id, (time, -1))
        if not place:
            return None
        call = by_id[place - 1][1]
        return self._recording(call, wait, Found.RECORD, self._stream_in_use(call, wait.waiting))

    def guess(self, wait: Wait) -> Recording | None:
        """The recording whose work held the host up; the one right before on the same thread; for an event met before its later
        recording or the same again; else the oldest one that no wait used. Never one whose work ended after the wait was over."""
        event = wait.record.event if wait.record is not None else -1
        known = self._bound.get(event)
        found = (
            self._explaining(wait)
            or self._right_before(wait)
            or self._oldest_unused(wait, known.time if known else None)
        )
        if found is None and known is not None and self._ended(known, wait.deadline):
            self.guessed["waits for an event that another wait had found"].append(wait.call_row)
            found = known
        if found is not None and event >= 0:
            self._bound[event] = found
        return found

    def before_collective(self, wait: Wait) -> Recording | None:
        """Where event recordings were not traced: a communication stream waits for the stream that its thread was using."""
        stream = self._stream_in_use(wait.call_row, wait.waiting)
        found = (
            Recording(wait.call_row, int(self._calls.start[wait.call_row]), stream, Found.CALL_ORDER)
            if stream
            else None
        )
        if found is None or not self._ended(found, wait.deadline):
            return None
        self.guessed["waits before a collective resolved to the stream in use"].append(wait.call_row)
        return found

    def _explaining(self, wait: Wait) -> Recording | None:
        """For a host that really waited the recording whose work ended right before the call did."""
        start = int(self._calls.start[wait.call_row])
        if wait.waiting is not None or wait.deadline is None or wait.deadline - start < BINDING:
            return None
        found: tuple[int, Recording] | None = None
        for candidate in self._unused_before(wait):
            recording = self._recording(candidate, wait, Found.CALL_ORDER, self._stream_in_use(candidate, None))
            end = self._end(recording) if recording is not None else 0
            explains = max(start, wait.deadline - BINDING) < end <= wait.deadline + ROUNDING
            if recording is not None and explains and (found is None or end >= found[0]):
                found = end, recording
        if found is None:
            return None
        self._used.add(found[1].call_row)
        self.guessed["waits of the host resolved to the recording whose end they met"].append(wait.call_row)
        return found[1]

    def _right_before(self, wait: Wait) -> Recording | None:
        before = self._previous.get(wait.call_row, -1)
        is_free = before in self._all and before not in self._used
        if not is_free or self._around(before) != self._around(wait.call_row):
            return None
        found = self._recording(before, wait, Found.CALL_ORDER, self._stream_in_use(before, wait.waiting))
        if found is None or not self._ended(found, wait.deadline):
            return None
        self._used.add(before)
        self.guessed["event waits resolved to the recording right before"].append(wait.call_row)
        return found

    def _oldest_unused(self, wait: Wait, after: int | None) -> Recording | None:
        for candidate in self._unused_before(wait):
            if after is not None and self._calls.start[candidate] <= after:
                continue
            found = self._recording(candidate, wait, Found.CALL_ORDER, self._stream_in_use(candidate, None))
            if found is None or found.stream == wait.waiting:
                continue
            # several events recorded at one place of a stream mark the same work
            mark = (found.stream, self._queues.position(found.stream, found.time))
            if mark not in self._used_marks and self._ended(found, wait.deadline):
                self._used.add(candidate)
                self._used_marks.add(mark)
                self.guessed["event waits resolved to the oldest unused recording"].append(wait.call_row)
                return found
        return None

    def _unused_before(self, wait: Wait) -> list[int]:
        """The recordings before a wait that no other one used; those of a collective are for waits of collectives, if there are others."""
        found: list[int] = []
        if self._around(wait.call_row) < 0:
            found = self._unused(self._by_programs, int(self._calls.start[wait.call_row]))
        return found or self._unused(self.recordings, int(self._calls.start[wait.call_row]))

    def _unused(self, recordings: list[int], time: int) -> list[int]:
        place = bisect_left(recordings, time, key=self._calls.start.__getitem__)
        return [row for row in recordings[max(0, place - CANDIDATES) : place] if row not in self._used]

    def _recording(self, row: int, wait: Wait, found: Found, in_use: StreamKey | None) -> Recording | None:
        """A call's recording: on the stream that is recorded for it, else on the one in use."""
        number = self._stream_of.get(int(self._calls.correlation[row]), -1)
        if number < 0 and wait.record is not None:
            number = wait.record.wait_stream
        device = wait.record.device if wait.record is not None else -1
        stream = self._queues.find(device, number) if number >= 0 else in_use
        return Recording(row, int(self._calls.start[row]), stream, found) if stream is not None else None

    def _stream_in_use(self, row: int, other_than: StreamKey | None) -> StreamKey | None:
        """The stream that a thread was working on at a call: its own in a collective that has launched, else the last one that computed."""
        time, thread = int(self._calls.start[row]), int(self._calls.thread[row])
        around, last = self._around(row), self._launches.last_launch(thread, time)
        if around >= 0 and last >= 0 and self._collectives.around(int(self._activities.op_row[last])) == around:
            return self._launches.stream_of(last)
        return self._launches.last_stream(thread, time, other_than)

    def _around(self, row: int) -> int:
        return self._collectives.around(int(self._calls.op_row[row]))

    def _ended(self, recording: Recording, deadline: int | None) -> bool:
        if deadline is None:
            return True
        return self._end(recording) <= deadline + ROUNDING

    def _end(self, recording: Recording) -> int:
        """When the work that a recording marks had ended."""
        sources = self._queues.sources(recording.stream, recording.time)
        return max((int(self._activities.end[source]) for source in sources), default=0)


def previous_on_thread(calls: Calls, rows: Int64) -> dict[int, int]:
    """For each of these calls the one of them before it on its thread."""
    order = rows[np.lexsort((calls.start[rows], calls.thread[rows]))]
    same = calls.thread[order[1:]] == calls.thread[order[:-1]]
    return dict(zip(order[1:][same].tolist(), order[:-1][same].tolist(), strict=True))
