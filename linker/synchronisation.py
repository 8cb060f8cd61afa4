"""Who waited for whom: from cuda_sync records where there are any, else from the order of the runtime calls.

Works through the synchronising calls in host order over the streams' queues. An event's sources are bound when it is recorded:
the last activity of its stream then, and what waits still pending there brought. Every edge says how it was found; a wait
whose event cannot be found is counted.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..schema.columns import ABSENT, Int64, Strings
from ..schema.linked import Activities, Calls, DeviceWaits, Found, HostWaits
from ..schema.machine import Machine
from .communication import CollectiveOps
from .data_origins import DataOrigins
from .device_trace import DeviceTrace
from .events import Findings, NamedEvents, SyncRecord
from .evidence import NEVER, Evidence
from .guesses import Guess, Guesses, Held, Unnamed
from .host_holds import HostEdge, blocking_copies, full_queue, looking_on, only_looking_on
from .places import Places
from .queue_waits import queue_waits
from .recordings import Recordings
from .streams import Neighbours, StreamKey, StreamQueues, ThreadLaunches
from .sync_calls import SYNC_RECORDS, SyncCall, sync_calls

HOST = Held(None, -1)
WAITS = (SyncCall.STREAM_WAIT, SyncCall.EVENT_SYNC, SyncCall.EVENT_QUERY, SyncCall.STREAM_SYNC)


class Loop(NamedTuple):
    """Queries for one event right after each other: when the first one began, and when the last that found it pending did."""

    since: int
    pending: int


@dataclass(slots=True)
class Synchronisation:
    """All waits; how they were found, which guesses were made, which waits held nothing back, and what was not resolved."""

    device_waits: DeviceWaits
    host_waits: HostWaits
    found: Findings
    guessed: Findings
    noted: Findings
    dropped: Findings


class Resolved(NamedTuple):
    """The activities that a wait is for."""

    sources: tuple[int, ...]
    found: Found


def synchronise(
    device: DeviceTrace,
    calls: Calls,
    activities: Activities,
    collectives: CollectiveOps,
    awaited: dict[int, int],
    machine: Machine,
) -> Synchronisation:
    """All waits of one process. O(n log n) in the calls.

    `activities` have their times on the host's clock, `awaited` is the activity that each wait op of a collective names.
    """
    return _Synchroniser(device, calls, activities, collectives, awaited, machine).run()


class _Synchroniser:
    def __init__(
        self,
        device: DeviceTrace,
        calls: Calls,
        activities: Activities,
        collectives: CollectiveOps,
        awaited: dict[int, int],
        machine: Machine,
    ) -> None:
        self.calls, self.activities, self.machine = calls, activities, machine
        self.collectives, self.awaited = collectives, awaited
        self.evidence = Evidence(activities, calls, machine)
        self.queues = StreamQueues(activities, calls)
        self.launches = ThreadLaunches(activities, calls)
        self.places = Places(calls, collectives.ops, collectives.parent)
        self.records = _records(device)
        self.kinds = self._kinds()
        self.has_wait_records = any(record.kind is SyncCall.STREAM_WAIT for record in self.records.values())
        self.events = NamedEvents(calls, self.records, device.event_records, self.queues)
        self.recordings = Recordings(
            calls, self.kinds, activities, collectives, self.launches, self.places, self.events.streams()
        )
        origins = DataOrigins(collectives.ops, activities, calls)
        self.guesses = Guesses(
            calls,
            activities,
            self.queues,
            self.recordings,
            self.evidence,
            origins,
            self.events.awaited,
            self.launches.streams(),
        )
        self.queue_events = device.queue_events
        self.device_start = device.activities.start
        self.looks_on = only_looking_on(calls, activities, device.ops.thread)
        self.loops = self._loops()
        self.device_edges: list[tuple[int, int, Found]] = []
        self.host_edges: list[HostEdge] = []
        self.found: Findings = defaultdict(list)
        self.noted: Findings = defaultdict(list)
        self.dropped: Findings = defaultdict(list)

    def _kinds(self) -> Int64:
        """What each call does; where its name does not tell, its record does."""
        kinds = sync_calls(self.calls.name)
        for row in np.flatnonzero((kinds == SyncCall.NONE) & (self.calls.correlation != 0)).tolist():
            record = self._record(row)
            kinds[row] = record.kind if record is not None else SyncCall.NONE
        return kinds

    def _record(self, row: int) -> SyncRecord | None:
        return self.records.get(int(self.calls.correlation[row]))

    def run(self) -> Synchronisation:
        rows = np.flatnonzero(self.kinds != SyncCall.NONE)
        rows = rows[np.argsort(self.calls.start[rows], kind="stable")]
        guesses = self.guesses.of(list(self._unnamed(rows.tolist())), self.places)
        steps: dict[SyncCall, Callable[[int, SyncRecord | None, Guess | None], None]] = {
            SyncCall.STREAM_WAIT: self._stream_wait,
            SyncCall.EVENT_SYNC: self._event_sync,
            SyncCall.STREAM_SYNC: self._stream_sync,
            SyncCall.DEVICE_SYNC: self._device_sync,
            SyncCall.EVENT_QUERY: self._event_query,
            SyncCall.FREE: self._free,
        }
        for row in rows.tolist():
            kind = SyncCall(int(self.kinds[row]))
            if kind in steps:
                steps[kind](row, self._record(row), guesses.get(row))
        self._queue_waits()
        self._held("blocking copies", blocking_copies(self.activities, self.calls, self.machine, self.places))
        self._held("launches held up by a full queue", full_queue(self.activities, self.calls))
        self._held("calls of threads that only look on", looking_on(self.calls, self.activities, self.looks_on))
        return Synchronisation(
            _device_waits(self.device_edges),
            _host_waits(self._possible(self.host_edges)),
            self.found,
            self.guesses.counted,
            self.noted,
            self.dropped,
        )

    # waits of which the trace does not say what for

    def _unnamed(self, rows: list[int]) -> Iterator[Unnamed]:
        for row in rows:
            record, kind = self._record(row), SyncCall(int(self.kinds[row]))
            if kind not in WAITS:
                continue
            if kind == SyncCall.STREAM_SYNC and record is None:
                yield self._on_host(row, -1)._replace(of_stream=True)
            if self.events.named(row, record) >= 0 or self.events.is_before_trace(record):
                continue
            event = record.event if record is not None else -1
            if (
                kind == SyncCall.STREAM_WAIT
                and self.collectives.around(int(self.calls.op_row[row])) not in self.awaited
            ):
                held = tuple(self._held_up(row, record))
                if held:
                    yield Unnamed(row, event, held, NEVER, 0)
            elif kind == SyncCall.EVENT_SYNC or (kind == SyncCall.EVENT_QUERY and self._is_answered(row)):
                yield self._on_host(row, event)

    def _on_host(self, row: int, event: int) -> Unnamed:
        """A wait of the host; that of a loop of queries is over within a turn of it."""
        loop, start = self.loops.get(row), int(self.calls.start[row])
        if self.kinds[row] != SyncCall.EVENT_QUERY:
            return Unnamed(row, event, (HOST,), start, self.evidence.wake(row))
        if loop is None:
            return Unnamed(row, event, (HOST,), start, 0, asks=True)
        return Unnamed(row, event, (HOST,), loop.pending, int(self.calls.end[row]) - loop.pending - 1)

    def _held_up(self, row: int, record: SyncRecord | None) -> Iterator[Held]:
        """What a stream wait may hold up: what its record names, else what the thread launches next; else the next of other streams."""
        waiting = self.queues.find(record.device, record.stream) if record is not None else self._next_stream(row)
        if waiting is None:
            return
        streams = [waiting]
        if record is None and self.collectives.around(int(self.calls.op_row[row])) < 0:
            streams += [key for key in self.queues.rows if key != waiting]
        for key in streams:
            position = self.queues.position(key, int(self.calls.start[row]))
            if key == waiting or position < len(self.queues.rows[key]):
                yield Held(key, self.queues.rows[key][position] if position < len(self.queues.rows[key]) else -1)

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

    # each kind of call

    def _resolved(self, row: int, record: SyncRecord | None, guess: Guess | None) -> Resolved | None:
        """What an event wait is for: as recorded, as the collective around the call tells, else as guessed."""
        named = self.events.named(row, record)
        if named >= 0 and record is not None:
            recording = self.events.recording(named, record, self.recordings)
        else:
            around = self.collectives.around(int(self.calls.op_row[row]))
            if around in self.awaited and not self.events.is_before_trace(record):
                return Resolved((self.awaited[around],), Found.RECORD)
            recording = guess.recording if guess is not None else None
        if recording is None:
            return None
        return Resolved(self.queues.sources(recording.stream, recording.time), recording.found)

    def _stream_wait(self, row: int, record: SyncRecord | None, guess: Guess | None) -> None:
        waiting = self.queues.find(record.device, record.stream) if record is not None else self._next_stream(row)
        waiting = guess.stream if guess is not None else waiting
        if waiting is None:
            self.dropped["stream waits for which no work followed"].append(row)
            return
        resolved = self._resolved(row, record, guess)
        if resolved is None:
            self.dropped["stream waits whose event was not found"].append(row)
            return
        target = self.queues.add_wait(waiting, int(self.calls.start[row]), resolved.sources)
        elsewhere = [source for source in resolved.sources if self.launches.stream_of(source) != waiting]
        if target < 0 or not elsewhere:
            self.noted["stream waits that held nothing back"].append(row)
            return
        for source in elsewhere:
            self._device_edge(row, source, target, resolved.found)

    def _event_sync(self, row: int, record: SyncRecord | None, guess: Guess | None) -> None:
        resolved = self._resolved(row, record, guess)
        if resolved is None:
            self.dropped["event synchronisations whose event was not found"].append(row)
            self.host_edges.append(HostEdge(row, -1, ABSENT, Found.RECORD))
        else:
            self._host_edges(row, resolved)

    def _event_query(self, row: int, record: SyncRecord | None, guess: Guess | None) -> None:
        """A query is a wait only if its source had ended, and then the queries right before it that found it running are part of it."""
        if self.looks_on[row]:
            self.noted["event queries of threads that only look on"].append(row)
            return
        if not self._is_answered(row):
            self.found["event queries that found the event pending"].append(row)
            return
        resolved = self._resolved(row, record, guess)
        if resolved is None:
            self.dropped["event queries whose event was not found"].append(row)
        elif self._last_end(resolved.sources) > self.calls.end[row] + self.evidence.ahead:
            self.found["event queries that found the event pending"].append(row)
        else:
            self._host_edges(row, resolved, self.loops[row].since if row in self.loops else ABSENT)

    def _is_answered(self, row: int) -> bool:
        """Whether a query is the last of its loop, and none of a thread that only looks on."""
        return not self.looks_on[row] and row not in self.asked_again

    def _loops(self) -> dict[int, Loop]:
        """Queries for one event that follow each other in one op are a loop: by its last query where it began.

        Those of a memory allocator are spread over the ops that allocate, and what is known to have happened is not asked for again.
        """
        neighbours, loops = Neighbours(self.calls), dict[int, Loop]()
        self.asked_again: set[int] = set()
        queries = np.flatnonzero((self.kinds == SyncCall.EVENT_QUERY) & ~self.looks_on)
        for row in queries[np.argsort(self.calls.start[queries], kind="stable")].tolist():
            before = neighbours.before(row)
            if before >= 0 and self._is_asked_again(before, row):
                self.asked_again.add(before)
                since = loops[before].since if before in loops else int(self.calls.start[before])
                loops[row] = Loop(since, int(self.calls.start[before]))
        return loops

    def _is_asked_again(self, row: int, following: int) -> bool:
        """Whether a call is a query that found its event pending, for which the following one asks again."""
        if self.kinds[row] != SyncCall.EVENT_QUERY or self.calls.op_row[row] != self.calls.op_row[following]:
            return False
        record = self._record(row)
        if record != self._record(following):
            return False
        named = self._resolved(row, record, None) if self.events.named(row, record) >= 0 else None
        return named is None or self._last_end(named.sources) + self.evidence.doubt >= self.calls.start[row]

    def _stream_sync(self, row: int, record: SyncRecord | None, guess: Guess | None) -> None:
        key = self.queues.find(record.device, record.stream) if record else guess.recording.stream if guess else None
        found = Found.RECORD if record else guess.recording.found if guess else Found.TIMING
        sources = self.queues.sources(key, int(self.calls.start[row])) if key is not None else ()
        self._host_edges(row, Resolved(sources, found))

    def _last_end(self, sources: tuple[int, ...]) -> int:
        return max((int(self.activities.end[source]) for source in sources), default=NEVER)

    def _device_sync(self, row: int, record: SyncRecord | None, _: Guess | None) -> None:
        keys = self.queues.on_device(record.device if record is not None else -1)
        time = int(self.calls.start[row])
        sources = {source for key in keys for source in self.queues.sources(key, time)}
        found = Found.RECORD if record is not None else Found.CALL_ORDER
        self._host_edges(row, Resolved(tuple(sorted(sources)), found))

    def _queue_waits(self) -> None:
        for source, target in queue_waits(self.queue_events, self.queues, self.device_start.tolist()):
            if source < 0 or target < 0:
                self.dropped["waits of device queues for nothing recorded"].append(-1)
            else:
                self._device_edge(int(self.activities.call_row[target]), source, target, Found.RECORD)

    def _possible(self, edges: list[HostEdge]) -> list[HostEdge]:
        """Without waits for an activity that followed one submitted after the call: its stream, or the clock, is not what it seems."""
        kept = []
        for edge in edges:
            if edge.source < 0 or self.queues.submitted_until[edge.source] <= self.calls.start[edge.call_row]:
                kept.append(edge)
            else:
                self.dropped["host waits that contradict the order of launches"].append(edge.call_row)
        return kept

    def _free(self, row: int, _: SyncRecord | None, __: Guess | None) -> None:
        """Freeing memory waits for a device, which is known by its work that was pending: all of it had ended when the call did."""
        time, limit = int(self.calls.start[row]), int(self.calls.end[row]) + self.evidence.doubt
        for device in {key.device for key in self.queues.rows}:
            sources = {source for key in self.queues.on_device(device) for source in self.queues.sources(key, time)}
            if sources and self._last_end(tuple(sources)) <= limit:
                self._host_edges(row, Resolved(tuple(sorted(sources)), Found.CALL_ORDER))

    def _held(self, what: str, edges: Iterable[HostEdge]) -> None:
        for edge in edges:
            self.host_edges.append(edge)
            self.found[what].append(edge.call_row)

    def _device_edge(self, row: int, source: int, target: int, found: Found) -> None:
        if self.activities.end[source] > self.activities.start[target] + self.evidence.rounding:
            self.dropped["event waits that contradict the clock"].append(row)
            return
        self.device_edges.append((source, target, found))
        self.found[f"device waits for device, by {found.value}"].append(row)

    def _host_edges(self, row: int, resolved: Resolved, since: int = ABSENT) -> None:
        """A call that waits is kept even where nothing is pending: it is where the host would wait in a slower run."""
        limit = self.calls.end[row] + self.evidence.ahead
        kept = [source for source in resolved.sources if self.activities.end[source] <= limit]
        self.dropped["host waits that contradict the clock"] += [row] * (len(resolved.sources) - len(kept))
        self.host_edges += [HostEdge(row, source, since, resolved.found) for source in kept or (-1,)]
        if kept:
            self.found[f"host waits for device, by {resolved.found.value}"].append(row)
        elif not resolved.sources:
            self.noted["host waits for which nothing recorded was pending"].append(row)


def _records(device: DeviceTrace) -> dict[int, SyncRecord]:
    syncs = device.syncs
    kinds = [SYNC_RECORDS.get(kind.lower(), SyncCall.NONE) for kind in syncs.kind.table]
    columns = (
        syncs.correlation, syncs.kind.codes, syncs.device, syncs.stream, syncs.wait_stream, syncs.record_correlation, syncs.event,
    )  # fmt: skip
    return {
        correlation: SyncRecord(kinds[kind], device_id, stream, wait_stream, record, event)
        for correlation, kind, device_id, stream, wait_stream, record, event in zip(
            *(column.tolist() for column in columns), strict=True
        )
    }


def _device_waits(edges: list[tuple[int, int, Found]]) -> DeviceWaits:
    source: Int64 = np.fromiter((edge[0] for edge in edges), np.int64, len(edges))
    target: Int64 = np.fromiter((edge[1] for edge in edges), np.int64, len(edges))
    return DeviceWaits(source, target, Strings.of(edge[2].value for edge in edges))


def _host_waits(edges: list[HostEdge]) -> HostWaits:
    return HostWaits(
        call_row=np.fromiter((edge.call_row for edge in edges), np.int64, len(edges)),
        source_row=np.fromiter((edge.source for edge in edges), np.int64, len(edges)),
        since=np.fromiter((edge.since for edge in edges), np.int64, len(edges)),
        found=Strings.of(edge.found.value for edge in edges),
    )
