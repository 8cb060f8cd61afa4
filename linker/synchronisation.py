"""Who waited for whom: from cuda_sync records where there are any, else from the order of the runtime calls.

Works through the synchronising calls in host order over the streams' queues. An event's sources are bound when it is recorded:
the last activity of its stream then, and what waits still pending there brought. Every edge says how it was found; a wait
whose event cannot be found is counted.
"""

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ..schema.columns import Int64, Strings
from ..schema.linked import Activities, Calls, DeviceWaits, Found, HostWaits
from .communication import CollectiveOps
from .device_trace import DeviceTrace
from .streams import StreamKey, StreamQueues, ThreadLaunches
from .sync_calls import SYNC_RECORDS, SyncCall, sync_calls

CLOCK_TOLERANCE = 1_000
"""ns by which a source may end after what waited for it: host and device clocks are aligned to about a µs."""

BINDING = 10_000
"""ns within which the end of a source and the start of what waited for it speak for a wait that was really waited on."""

CANDIDATES = 64


@dataclass(slots=True)
class Synchronisation:
    device_waits: DeviceWaits
    host_waits: HostWaits
    found: Counter[str] = field(default_factory=Counter)
    guessed: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)


class SyncRecord(NamedTuple):
    """What a cuda_sync row says of its call; -1 where unknown."""

    kind: SyncCall
    device: int
    stream: int
    wait_stream: int
    record_correlation: int
    event: int


class Recording(NamedTuple):
    """An event as it was recorded: the call's time and the stream whose work it marks."""

    call_row: int
    time: int
    stream: StreamKey
    found: Found


def synchronise(
    device: DeviceTrace, calls: Calls, activities: Activities, collectives: CollectiveOps, awaited: dict[int, int]
) -> Synchronisation:
    """All waits of one process; `awaited` is the activity that each wait op of a collective names. O(n log n) in the calls."""
    return _Synchroniser(device, calls, activities, collectives, awaited).run()


class _Synchroniser:
    def __init__(
        self,
        device: DeviceTrace,
        calls: Calls,
        activities: Activities,
        collectives: CollectiveOps,
        awaited: dict[int, int],
    ) -> None:
        self.calls, self.activities = calls, activities
        self.collectives, self.awaited = collectives, awaited
        self.kinds = sync_calls(calls.name)
        self.queues = StreamQueues(activities, calls)
        self.launches = ThreadLaunches(activities, calls)
        self.records = _records(device)
        self.has_wait_records = any(record.kind is SyncCall.STREAM_WAIT for record in self.records.values())
        self.events = _Events(device, calls, self.kinds, self.records, self.queues, self.launches, activities.end)
        self.result = Synchronisation(_no_device_waits(), _no_host_waits())
        self.device_edges: list[tuple[int, int, Found]] = []
        self.host_edges: list[tuple[int, int, Found]] = []

    def run(self) -> Synchronisation:
        recorded = np.isin(self.calls.correlation, np.fromiter(self.records, np.int64, len(self.records)))
        recorded &= self.calls.correlation != 0
        rows = np.flatnonzero((self.kinds != SyncCall.NONE) | recorded)
        steps = {
            SyncCall.STREAM_WAIT: self._stream_wait,
            SyncCall.EVENT_SYNC: self._event_sync,
            SyncCall.STREAM_SYNC: self._stream_sync,
            SyncCall.DEVICE_SYNC: self._device_sync,
            SyncCall.EVENT_QUERY: self._event_query,
        }
        for row in rows[np.argsort(self.calls.start[rows], kind="stable")].tolist():
            record = self.records.get(int(self.calls.correlation[row]))
            kind = SyncCall(int(self.kinds[row]))
            if kind is SyncCall.NONE and record is not None:
                kind = record.kind
            if kind in steps:
                steps[kind](row, record)
        self._blocking_copies()
        self.result.device_waits = DeviceWaits(*_columns(self.device_edges))
        target, source, found = _columns(self.host_edges)
        self.result.host_waits = HostWaits(target, source, found)
        self.result.guessed = self.events.guessed
        return self.result

    def _stream_wait(self, row: int, record: SyncRecord | None) -> None:
        time = int(self.calls.start[row])
        waiting = self.queues.find(record.device, record.stream) if record is not None else None
        if record is None:
            waiting = self._next_stream(row)
        if waiting is None:
            self.result.dropped["stream waits for which no work followed"] += 1
            return
        sources, found = self._awaited_by_stream(row, record, waiting)
        if found is None:
            self.result.dropped["stream waits whose event was not found"] += 1
            return
        target = self.queues.add_wait(waiting, time, sources)
        for source in sources if target >= 0 else ():
            same = (int(self.activities.device[source]), int(self.activities.stream[source])) == waiting
            if not same:
                self._device_edge(source, target, found)

    def _next_stream(self, row: int) -> StreamKey | None:
        """The stream that an unrecorded wait holds back: that of the thread's next launch, where this can be told."""
        time, thread = int(self.calls.start[row]), int(self.calls.thread[row])
        launch = self.launches.next_launch(thread, time)
        if launch < 0:
            return None
        waiting = self.launches.stream_of(launch)
        if self.has_wait_records and self.queues.position(waiting, time):
            # with records on, only waits of streams that nothing ran on yet go unrecorded
            return None
        around = self.collectives.around(int(self.calls.op_row[row]))
        inside = around >= 0 and not self.collectives.is_wait(around)
        if inside and self.collectives.around(int(self.activities.op_row[launch])) != around:
            # after its kernel a communication library synchronises streams of its own
            return None
        return waiting

    def _awaited_by_stream(
        self, row: int, record: SyncRecord | None, waiting: StreamKey
    ) -> tuple[tuple[int, ...], Found | None]:
        """What a stream wait is for: the event, or without a record of it what the collective around the call tells."""
        around = self.collectives.around(int(self.calls.op_row[row]))
        if record is None and around in self.awaited:
            return (self.awaited[around],), Found.RECORD
        position, rows = self.queues.position(waiting, int(self.calls.start[row])), self.queues.rows[waiting]
        deadline = int(self.activities.start[rows[position]]) if position < len(rows) else None
        event = self.events.awaited(row, record, waiting, deadline)
        if event is None and record is None and around >= 0 and not self.events.recordings:
            event = self.events.before_collective(row, waiting, deadline)
        if event is None:
            return (), None
        return self.queues.sources(event.stream, event.time), event.found

    def _event_sync(self, row: int, record: SyncRecord | None) -> None:
        event = self.events.awaited(row, record, None, int(self.calls.end[row]))
        if event is None:
            self.result.dropped["event synchronisations whose event was not found"] += 1
        self._host_edges(
            row, self.queues.sources(event.stream, event.time) if event else (), event.found if event else Found.RECORD
        )

    def _event_query(self, row: int, record: SyncRecord | None) -> None:
        """A query is a wait only if its source had ended; else the program went on without it."""
        event = self.events.awaited(row, record, None, int(self.calls.end[row])) if record is not None else None
        if event is None:
            self.result.dropped["event queries whose event was not found"] += 1
            return
        sources = self.queues.sources(event.stream, event.time)
        if all(self.activities.end[source] <= self.calls.end[row] for source in sources):
            self._host_edges(row, sources, event.found)
        else:
            self.result.dropped["event queries before the event"] += 1

    def _stream_sync(self, row: int, record: SyncRecord | None) -> None:
        time, found = int(self.calls.start[row]), Found.RECORD
        key = self.queues.find(record.device, record.stream) if record is not None else None
        if record is None:
            key, found = self._synchronised_stream(row)
        sources = self.queues.sources(key, time) if key is not None else ()
        self._host_edges(row, sources, found)

    def _synchronised_stream(self, row: int) -> tuple[StreamKey | None, Found]:
        """Without a record: the stream last launched to, unless only another's end explains the length of the call."""
        start, end = int(self.calls.start[row]), int(self.calls.end[row])
        likely = self.launches.last_stream(int(self.calls.thread[row]), start)
        ends = {key: self._last_end(self.queues.sources(key, start)) for key in self.queues.rows}
        if likely is not None and ends[likely] <= end + CLOCK_TOLERANCE and ends[likely] >= start:
            return likely, Found.CALL_ORDER
        bound = [key for key, last in ends.items() if start <= last <= end and end - last < BINDING]
        if bound:
            return max(bound, key=lambda key: ends[key]), Found.TIMING
        return (
            (likely, Found.CALL_ORDER)
            if likely is not None and ends[likely] <= end + CLOCK_TOLERANCE
            else (None, Found.TIMING)
        )

    def _last_end(self, sources: tuple[int, ...]) -> int:
        return max((int(self.activities.end[source]) for source in sources), default=0)

    def _device_sync(self, row: int, record: SyncRecord | None) -> None:
        keys = self.queues.on_device(record.device if record is not None else -1)
        time = int(self.calls.start[row])
        sources = {source for key in keys for source in self.queues.sources(key, time)}
        self._host_edges(row, tuple(sorted(sources)), Found.RECORD if record is not None else Found.CALL_ORDER)

    def _blocking_copies(self) -> None:
        """A copy that ended before its call did was waited for, unless its kind never is: from or to pinned memory, asynchronously."""
        activities, calls = self.activities, self.calls
        asynchronous = _table_mask(calls.name, lambda name: "Async" in name)
        unwaited = _table_mask(activities.name, lambda name: "Pinned" in name or "HtoD" in name or "DtoD" in name)
        rows = np.flatnonzero(
            (activities.call_row >= 0) & _table_mask(activities.category, lambda cat: "memcpy" in cat)
        )
        call = activities.call_row[rows]
        blocking = (activities.end[rows] <= calls.end[call]) & ~(asynchronous[call] & unwaited[rows])
        for row, source in zip(call[blocking].tolist(), rows[blocking].tolist(), strict=True):
            self.host_edges.append((row, source, Found.RECORD))
            self.result.found["blocking copies"] += 1

    def _device_edge(self, source: int, target: int, found: Found) -> None:
        if self.activities.end[source] > self.activities.start[target] + CLOCK_TOLERANCE:
            self.result.dropped["event waits that contradict the clock"] += 1
            return
        self.device_edges.append((source, target, found))
        self.result.found[f"device waits for device, by {found.value}"] += 1

    def _host_edges(self, row: int, sources: tuple[int, ...], found: Found) -> None:
        """A call that waits is kept even where nothing is pending: it is where the host would wait in a slower run."""
        kept = [s for s in sources if self.activities.end[s] <= self.calls.end[row] + CLOCK_TOLERANCE]
        self.result.dropped["host waits that contradict the clock"] += len(sources) - len(kept)
        self.host_edges += [(row, source, found) for source in kept or (-1,)]
        if kept:
            self.result.found[f"host waits for device, by {found.value}"] += 1


class _Events:
    """Which recording of an event a wait is for."""

    def __init__(
        self,
        device: DeviceTrace,
        calls: Calls,
        kinds: Int64,
        records: dict[int, SyncRecord],
        queues: StreamQueues,
        launches: ThreadLaunches,
        activity_end: Int64,
    ) -> None:
        self.calls, self.queues, self.launches = calls, queues, launches
        self.activity_end = activity_end
        self.guessed: Counter[str] = Counter()
        self.row_of = dict(zip(calls.correlation.tolist(), range(len(calls)), strict=True))
        rows = np.flatnonzero(np.isin(kinds, (SyncCall.EVENT_RECORD, SyncCall.STREAM_WAIT, SyncCall.EVENT_SYNC)))
        self.previous = _previous_on_thread(calls, rows)
        recording = rows[kinds[rows] == SyncCall.EVENT_RECORD]
        self.recordings = recording[np.argsort(calls.start[recording], kind="stable")].tolist()
        self.times = calls.start[self.recordings].tolist()
        self.is_recording = set(self.recordings)
        self.stream_of = {r.record_correlation: r.wait_stream for r in records.values() if r.record_correlation > 0}
        self.ids: dict[int, list[tuple[int, int]]] = {}
        pairs = zip(device.event_records.correlation.tolist(), device.event_records.stream.tolist(), strict=True)
        for (correlation, stream), event in zip(pairs, device.event_records.event.tolist(), strict=True):
            self.stream_of.setdefault(correlation, stream)
            if correlation in self.row_of:
                self.ids.setdefault(event, []).append(
                    (int(calls.start[self.row_of[correlation]]), self.row_of[correlation])
                )
        for recorded in self.ids.values():
            recorded.sort()
        self.used_marks: set[tuple[StreamKey, int]] = set()
        self.used: set[int] = {self.row_of[c] for c in self.stream_of if c in self.row_of} & self.is_recording

    def awaited(
        self, row: int, record: SyncRecord | None, waiting: StreamKey | None, deadline: int | None
    ) -> Recording | None:
        """The recording that call `row` waits for: as recorded, by event id, else by the order of calls.

        `deadline` is when the wait was over: no source may have ended later.
        """
        time = int(self.calls.start[row])
        if record is not None:
            known = self.row_of.get(record.record_correlation) if record.record_correlation > 0 else None
            if known is not None and self.calls.start[known] < time:
                return self._recording(known, record, waiting, Found.RECORD)
            if known is None and record.record_correlation > 0:
                return None
            by_id = self.ids.get(record.event, [])
            place = bisect_left(by_id, (time, -1))
            if place:
                return self._recording(by_id[place - 1][1], record, waiting, Found.RECORD)
        return self._by_order(row, record, waiting, deadline)

    def _by_order(
        self, row: int, record: SyncRecord | None, waiting: StreamKey | None, deadline: int | None
    ) -> Recording | None:
        """The recording right before on the same thread, else the oldest one that no wait used and the clock allows."""
        before = self.previous.get(row, -1)
        if before in self.is_recording and before not in self.used:
            recording = self._recording(before, record, waiting, Found.CALL_ORDER)
            if recording is not None and self._ended(recording, deadline):
                self.used.add(before)
                self.guessed["event waits resolved to the recording right before"] += 1
                return recording
        place = bisect_left(self.times, int(self.calls.start[row]))
        for candidate in self.recordings[max(0, place - CANDIDATES) : place]:
            recording = self._recording(candidate, record, None, Found.CALL_ORDER)
            if candidate in self.used or recording is None or recording.stream == waiting:
                continue
            mark = (recording.stream, self.queues.position(recording.stream, recording.time))
            if mark not in self.used_marks and self._ended(recording, deadline):
                # several events recorded at one place of a stream mark the same work
                self.used.add(candidate)
                self.used_marks.add(mark)
                self.guessed["event waits resolved to the oldest unused recording"] += 1
                return recording
        return None

    def before_collective(self, row: int, waiting: StreamKey, deadline: int | None) -> Recording | None:
        """Where event recordings were not traced: a communication stream waits for the stream that its thread was using."""
        time = int(self.calls.start[row])
        stream = self.launches.last_stream(int(self.calls.thread[row]), time, other_than=waiting)
        recording = Recording(row, time, stream, Found.CALL_ORDER) if stream is not None else None
        if recording is None or not self._ended(recording, deadline):
            return None
        self.guessed["waits before a collective resolved to the stream in use"] += 1
        return recording

    def _ended(self, recording: Recording, deadline: int | None) -> bool:
        if deadline is None:
            return True
        sources = self.queues.sources(recording.stream, recording.time)
        return all(self.activity_end[source] <= deadline + CLOCK_TOLERANCE for source in sources)

    def _recording(
        self, row: int, record: SyncRecord | None, waiting: StreamKey | None, found: Found
    ) -> Recording | None:
        """The stream of a recording: as recorded, else where its thread last launched to."""
        time, thread = int(self.calls.start[row]), int(self.calls.thread[row])
        number = record.wait_stream if record is not None and record.wait_stream >= 0 else -1
        if number < 0:
            number = self.stream_of.get(int(self.calls.correlation[row]), -1)
        stream = self.queues.find(record.device if record is not None else -1, number)
        if stream is None and number < 0:
            stream = self.launches.last_stream(thread, time, other_than=waiting)
        return Recording(row, time, stream, found) if stream is not None else None


def _records(device: DeviceTrace) -> dict[int, SyncRecord]:
    syncs = device.syncs
    kinds = [SYNC_RECORDS.get(kind.lower(), SyncCall.NONE) for kind in syncs.kind.table]
    columns = (
        syncs.correlation,
        syncs.kind.codes,
        syncs.device,
        syncs.stream,
        syncs.wait_stream,
        syncs.record_correlation,
    )
    return {
        correlation: SyncRecord(kinds[kind], device_id, stream, wait_stream, record, event)
        for correlation, kind, device_id, stream, wait_stream, record, event in zip(
            *(column.tolist() for column in columns), syncs.event.tolist(), strict=True
        )
    }


def _previous_on_thread(calls: Calls, rows: Int64) -> dict[int, int]:
    """For each of these calls the one before it on its thread."""
    order = rows[np.lexsort((calls.start[rows], calls.thread[rows]))]
    same = calls.thread[order[1:]] == calls.thread[order[:-1]]
    return dict(zip(order[1:][same].tolist(), order[:-1][same].tolist(), strict=True))


def _table_mask(names: Strings, test: "object") -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    mask = np.array([test(name) for name in names.table] + [False], np.bool_)  # type: ignore[operator]
    return mask[names.codes]


def _columns(edges: list[tuple[int, int, Found]]) -> tuple[Int64, Int64, Strings]:
    first = np.fromiter((edge[0] for edge in edges), np.int64, len(edges))
    second = np.fromiter((edge[1] for edge in edges), np.int64, len(edges))
    return first, second, Strings.of(edge[2].value for edge in edges)


def _no_device_waits() -> DeviceWaits:
    return DeviceWaits(*_columns([]))


def _no_host_waits() -> HostWaits:
    return HostWaits(*_columns([]))
