"""Who waited for whom: from cuda_sync records where there are any, else from the order of the runtime calls.

Works through the synchronising calls in host order over the streams' queues. An event's sources are bound when it is recorded:
the last activity of its stream then, and what waits still pending there brought. Every edge says how it was found; a wait
whose event cannot be found is counted.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..schema.columns import ABSENT, Int64, Strings
from ..schema.linked import Activities, Calls, DeviceWaits, Found, HostWaits
from ..schema.machine import Machine
from .communication import CollectiveOps
from .device_trace import DeviceTrace
from .events import BINDING, Events, Findings, SyncRecord, Wait
from .host_holds import HostEdge, blocking_copies, full_queue, looking_on, only_looking_on
from .queue_waits import queue_waits
from .streams import Neighbours, StreamKey, StreamQueues, ThreadLaunches
from .sync_calls import SYNC_RECORDS, SyncCall, sync_calls

CLOCK_TOLERANCE = 1_000
"""ns by which a source may end after what waited for it: host and device clocks are aligned to about a µs."""


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
        self.kinds = sync_calls(calls.name)
        self.queues = StreamQueues(activities, calls)
        self.launches = ThreadLaunches(activities, calls)
        self.records = _records(device)
        self.has_wait_records = any(record.kind is SyncCall.STREAM_WAIT for record in self.records.values())
        self.events = Events(
            calls, self.kinds, self.records, device.event_records, activities, collectives, self.queues
        )
        self.queue_events = device.queue_events
        self.device_start = device.activities.start
        self.neighbours = Neighbours(calls)
        self.looks_on = only_looking_on(calls, activities, device.ops.thread)
        self.polling_since: dict[int, int] = {}
        self.device_edges: list[tuple[int, int, Found]] = []
        self.host_edges: list[HostEdge] = []
        self.found: Findings = defaultdict(list)
        self.noted: Findings = defaultdict(list)
        self.dropped: Findings = defaultdict(list)

    def run(self) -> Synchronisation:
        recorded = np.isin(self.calls.correlation, np.fromiter(self.records, np.int64, len(self.records)))
        recorded &= self.calls.correlation != 0
        rows = np.flatnonzero((self.kinds != SyncCall.NONE) | recorded)
        steps: dict[SyncCall, Callable[[int, SyncRecord | None], None]] = {
            SyncCall.STREAM_WAIT: self._stream_wait,
            SyncCall.EVENT_SYNC: self._event_sync,
            SyncCall.STREAM_SYNC: self._stream_sync,
            SyncCall.DEVICE_SYNC: self._device_sync,
            SyncCall.EVENT_QUERY: self._event_query,
            SyncCall.FREE: self._free,
        }
        for row in rows[np.argsort(self.calls.start[rows], kind="stable")].tolist():
            record = self.records.get(int(self.calls.correlation[row]))
            kind = SyncCall(int(self.kinds[row]))
            if kind is SyncCall.NONE and record is not None:
                kind = record.kind
            if kind in steps:
                steps[kind](row, record)
            elif record is not None:
                self.dropped["synchronisation records of an unknown kind"].append(row)
        self._queue_waits()
        self._held("blocking copies", blocking_copies(self.activities, self.calls))
        self._held("launches held up by a full queue", full_queue(self.activities, self.calls))
        self._held("calls of threads that only look on", looking_on(self.calls, self.activities, self.looks_on))
        return Synchronisation(
            _device_waits(self.device_edges),
            _host_waits(self._possible(self.host_edges)),
            self.found,
            self.events.guessed,
            self.noted,
            self.dropped,
        )

    def _stream_wait(self, row: int, record: SyncRecord | None) -> None:
        waiting = self.queues.find(record.device, record.stream) if record is not None else self._next_stream(row)
        if waiting is None:
            self.dropped["stream waits for which no work followed"].append(row)
            return
        time = int(self.calls.start[row])
        position, rows = self.queues.position(waiting, time), self.queues.rows[waiting]
        deadline = int(self.activities.start[rows[position]]) if position < len(rows) else None
        resolved = self._resolved(Wait(row, record, waiting, deadline))
        if resolved is None:
            self.dropped["stream waits whose event was not found"].append(row)
            return
        target = self.queues.add_wait(waiting, time, resolved.sources)
        elsewhere = [source for source in resolved.sources if self.launches.stream_of(source) != waiting]
        if target < 0 or not elsewhere:
            self.noted["stream waits that held nothing back"].append(row)
            return
        for source in elsewhere:
            self._device_edge(row, source, target, resolved.found)

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

    def _resolved(self, wait: Wait) -> Resolved | None:
        """What an event wait is for: as recorded, as the collective around the call tells, else by the order of calls."""
        event = self.events.recorded(wait)
        if event is None and not self.events.is_before_trace(wait):
            around = self.collectives.around(int(self.calls.op_row[wait.call_row]))
            if around in self.awaited:
                return Resolved((self.awaited[around],), Found.RECORD)
            event = self.events.guess(wait)
            if event is None and around >= 0 and not self.events.recordings:
                event = self.events.before_collective(wait)
        return Resolved(self.queues.sources(event.stream, event.time), event.found) if event is not None else None

    def _event_sync(self, row: int, record: SyncRecord | None) -> None:
        resolved = self._resolved(Wait(row, record, None, int(self.calls.end[row])))
        if resolved is None:
            self.dropped["event synchronisations whose event was not found"].append(row)
            self.host_edges.append(HostEdge(row, -1, ABSENT, Found.RECORD))
        else:
            self._host_edges(row, resolved)

    def _event_query(self, row: int, record: SyncRecord | None) -> None:
        """A query is a wait only if its source had ended, and then the queries right before it that found it running are part of it.

        A loop of queries lies in one op; those of a memory allocator are spread over the ops that allocate.
        """
        before = self.neighbours.before(row)
        is_loop = before >= 0 and self.calls.op_row[before] == self.calls.op_row[row] and not self.looks_on[row]
        since = self.polling_since.get(before if is_loop else -1, int(self.calls.start[row]))
        event = self.events.recorded(Wait(row, record, None, None))
        if event is None:
            self._unnamed_query(row, record, since)
            return
        sources = self.queues.sources(event.stream, event.time)
        # what ended during a query may have ended too late for it, and then it is asked again
        limit = int((self.calls.start if record and self._is_asked_again(row, record) else self.calls.end)[row])
        if all(self.activities.end[source] <= limit for source in sources):
            self._host_edges(row, Resolved(sources, event.found), since)
        else:
            self.polling_since[row] = since
            self.found["event queries that found the event pending"].append(row)

    def _is_asked_again(self, row: int, record: SyncRecord) -> bool:
        following = self.neighbours.after(row)
        again = self.records.get(int(self.calls.correlation[following])) if following >= 0 else None
        return again is not None and again == record and self.calls.op_row[following] == self.calls.op_row[row]

    def _unnamed_query(self, row: int, record: SyncRecord | None, since: int) -> None:
        """Several queries in a row whose event is not recorded are a loop; its last one found the event, if one ended meanwhile."""
        if self.looks_on[row]:
            self.noted["event queries of threads that only look on"].append(row)
            return
        following = self.neighbours.after(row)
        is_query = following >= 0 and self.kinds[following] == SyncCall.EVENT_QUERY
        if is_query and self.calls.op_row[following] == self.calls.op_row[row]:
            self.polling_since[row] = since
            self.found["event queries followed by another one"].append(row)
            return
        resolved = (
            self._resolved(Wait(row, record, None, int(self.calls.end[row]))) if since < self.calls.start[row] else None
        )
        if resolved is not None and self._last_end(resolved.sources) > since:
            self._host_edges(row, resolved, since)
        else:
            self.dropped["event queries whose event was not found"].append(row)

    def _stream_sync(self, row: int, record: SyncRecord | None) -> None:
        key, found = (
            (self.queues.find(record.device, record.stream), Found.RECORD) if record else self._synchronised_stream(row)
        )
        sources = self.queues.sources(key, int(self.calls.start[row])) if key is not None else ()
        self._host_edges(row, Resolved(sources, found))

    def _synchronised_stream(self, row: int) -> tuple[StreamKey | None, Found]:
        """Without a record: the stream whose end explains the call's; else the one last launched to, if the clock allows."""
        start, end = int(self.calls.start[row]), int(self.calls.end[row])
        likely = self.launches.last_stream(int(self.calls.thread[row]), start)
        ends = {key: self._last_end(self.queues.sources(key, start)) for key in self.queues.rows}
        bound = [key for key, last in ends.items() if start <= last <= end + CLOCK_TOLERANCE and end - last < BINDING]
        if bound and likely not in bound:
            return max(bound, key=lambda key: ends[key]), Found.TIMING
        if likely is not None and ends[likely] <= end + CLOCK_TOLERANCE:
            return likely, Found.CALL_ORDER
        return None, Found.TIMING

    def _last_end(self, sources: tuple[int, ...]) -> int:
        return max((int(self.activities.end[source]) for source in sources), default=0)

    def _device_sync(self, row: int, record: SyncRecord | None) -> None:
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

    def _free(self, row: int, _: SyncRecord | None) -> None:
        """Freeing memory waits for a device, which is known by its work that was pending: all of it had ended when the call did."""
        time, limit = int(self.calls.start[row]), int(self.calls.end[row]) + CLOCK_TOLERANCE
        for device in {key.device for key in self.queues.rows}:
            sources = {source for key in self.queues.on_device(device) for source in self.queues.sources(key, time)}
            if sources and self._last_end(tuple(sources)) <= limit:
                self._host_edges(row, Resolved(tuple(sorted(sources)), Found.CALL_ORDER))

    def _held(self, what: str, edges: Iterable[HostEdge]) -> None:
        for edge in edges:
            self.host_edges.append(edge)
            self.found[what].append(edge.call_row)

    def _device_edge(self, row: int, source: int, target: int, found: Found) -> None:
        tolerance = CLOCK_TOLERANCE if found is Found.RECORD else 0
        if self.activities.end[source] > self.activities.start[target] + tolerance:
            self.dropped["event waits that contradict the clock"].append(row)
            return
        self.device_edges.append((source, target, found))
        self.found[f"device waits for device, by {found.value}"].append(row)

    def _host_edges(self, row: int, resolved: Resolved, since: int = ABSENT) -> None:
        """A call that waits is kept even where nothing is pending: it is where the host would wait in a slower run."""
        limit = self.calls.end[row] + CLOCK_TOLERANCE
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
