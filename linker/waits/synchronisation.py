"""Resolves who waited for whom: from cuda_sync records where there are any, else from the order of the runtime calls.

It goes through the synchronising calls in host order, with the streams as queues. The sources of an event are fixed
when it is recorded: the last activity of its stream then, and the sources of waits that are still pending there. Every
wait says how it is known; impossible ones and those whose event cannot be found are dropped and counted.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...schema.columns import ABSENT, ActivityRows, CallRows, Categorical, Int64, RowBuilder
from ...schema.linked import DeviceWaits, HostWaits, Provenance, SyncCall
from ...schema.machine import MachineCalibration
from ...schema.reasons import Reason
from ..readers import DeviceTrace
from .candidates import TRIED
from .events import Findings, no_findings
from .implicit_waits import (
    ImplicitHostWaits,
    blocking_copies,
    full_queue,
    observer_waits,
    on_observer_threads,
    queue_waits,
    unexplained_waits,
)
from .inferred_sources import InferredSource, InferredSources
from .process import Process
from .submissions import MOST_STREAMS, StreamKey
from .unresolved_waits import EventQueryLoops, event_query_loops, stream_syncs_behind, unresolved_waits, waiting_stream

NAMES = [provenance.value for provenance in Provenance]
CODE = {provenance: code for code, provenance in enumerate(Provenance)}


@dataclass(slots=True)
class Synchronisation:
    """All waits, and the calls by finding: which waits were `resolved` and how, which were `guessed`, which blocked
    nothing (`oddities`), and which could not be resolved (`dropped`).
    """

    device_waits: DeviceWaits
    host_waits: HostWaits
    resolved: Findings
    guessed: Findings
    oddities: Findings
    dropped: Findings


def synchronise(process: Process, device: DeviceTrace, calibration: MachineCalibration) -> Synchronisation:
    """Returns all waits of one process. O(n log n) in the calls."""
    calls, activities = process.calls, process.activities
    queries = event_query_loops(process, on_observer_threads(calls, activities, device.ops.thread))
    rows = np.flatnonzero(process.kinds != SyncCall.NONE)
    rows = rows[np.argsort(calls.start[rows], kind="stable")]
    unresolved = list(unresolved_waits(process, queries, rows.tolist()))
    sources = InferredSources(process, unresolved)
    waits = _Waits(process, queries, sources.by_call())
    for row in rows.tolist():
        waits.resolve(row)
    for source, target in queue_waits(device.queue_events, process.queues, device.activities.start.tolist()):
        waits.add_queue_wait(source, target)
    waits.oddities[Reason.BEYOND_LAST_RECORDS.of(TRIED)].extend(sources.cut_off())
    waits.oddities[Reason.BEYOND_BUSIEST_STREAMS.of(MOST_STREAMS)].extend(sources.among_busiest())
    behind_unresolved = stream_syncs_behind(process, unresolved)
    unexplained = unexplained_waits(process, waits.host_waits_so_far(), calibration, behind_unresolved)
    waits.add_implicit(Reason.ENDED_RIGHT_BEFORE_RETURN, unexplained)
    sources.findings[Reason.ENDED_RIGHT_BEFORE_RETURN].extend(unexplained.call_row.tolist())
    waits.add_implicit(Reason.BLOCKING_COPIES, blocking_copies(activities, calls, calibration, process.call_sites))
    waits.add_implicit(Reason.FULL_QUEUE, full_queue(activities, calls))
    waits.add_implicit(Reason.OBSERVER_CALLS, observer_waits(calls, activities, queries.by_observer))
    return Synchronisation(
        waits.device_table(), waits.host_table(), waits.resolved, sources.findings, waits.oddities, waits.dropped
    )


class _Resolved(NamedTuple):
    """The activities that a wait is for."""

    sources: tuple[int, ...]
    provenance: Provenance


class _Waits:
    """The waits of a process that were found so far, and what became of each call.

    As rows of numbers, those of the device are (source, target, provenance), those of the host (call, source, since,
    provenance).
    """

    def __init__(self, process: Process, queries: EventQueryLoops, inferred: dict[int, InferredSource]) -> None:
        self._process, self._queries, self._inferred = process, queries, inferred
        self._of_device, self._of_host = RowBuilder(3), RowBuilder(4)
        self.resolved, self.oddities, self.dropped = no_findings(), no_findings(), no_findings()
        # other calls wait for nothing
        self._resolvers: dict[int, Callable[[int], None]] = {
            SyncCall.STREAM_WAIT: self._stream_wait,
            SyncCall.EVENT_SYNC: self._event_sync,
            SyncCall.STREAM_SYNC: self._stream_sync,
            SyncCall.DEVICE_SYNC: self._device_sync,
            SyncCall.EVENT_QUERY: self._event_query,
            SyncCall.FREE: self._free,
        }

    def resolve(self, row: int) -> None:
        """Adds the waits of a call, by what it does. Calls have to come in host order."""
        if resolve := self._resolvers.get(self._process.kinds[row]):
            resolve(row)

    def _stream_wait(self, row: int) -> None:
        process, inferred = self._process, self._inferred.get(row)
        waiting = inferred.waiting if inferred is not None else waiting_stream(process, row)
        if waiting is None:
            self.dropped[Reason.NO_WORK_FOLLOWED].append(row)
            return
        resolved = self._resolve_event(row)
        if resolved is None:
            self.dropped[Reason.STREAM_WAIT_WITHOUT_EVENT].append(row)
            return
        if inferred is None and process.sync_record(row) is None:
            waiting = self._stream_that_can_wait(row, waiting, resolved.sources)
        target = process.queues.add_wait(waiting, process.start(row), resolved.sources)
        elsewhere = [source for source in resolved.sources if process.launches.stream_of(source) != waiting]
        if target < 0 or not elsewhere:
            self.oddities[Reason.BLOCKS_NOTHING].append(row)
            return
        for source in elsewhere:
            self.add_device_wait(row, source, target, resolved.provenance)

    def _stream_that_can_wait(self, row: int, likeliest: StreamKey, sources: Sequence[int]) -> StreamKey:
        """Returns the likeliest stream, unless its next activity began before the awaited work had ended: then the last
        used one of those whose next activity did not.
        """
        process = self._process
        earliest = process.last_end(sources) - process.timing.timestamp_quantum_ns
        for stream in (likeliest, *process.event_record_calls.streams_in_use(row, likeliest)):
            target = process.queues.next(stream, process.start(row))
            if target >= 0 and process.activities.start[target] >= earliest:
                return stream
        return likeliest

    def _resolve_event(self, row: int) -> _Resolved | None:
        """Returns what an event wait is for: as recorded, else as the enclosing collective says, else as inferred."""
        process, inferred = self._process, self._inferred.get(row)
        awaited = process.awaited_by_collective(row)
        if process.is_named(row):
            event_record = process.named_record(row)
        elif awaited >= 0 and not process.sync_records.is_before_trace(row):
            return _Resolved((awaited,), Provenance.RECORD)
        else:
            event_record = inferred.event_record if inferred is not None else None
        if event_record is None:
            return None
        return _Resolved(process.queues.sources(event_record.stream, event_record.time), event_record.provenance)

    def _event_sync(self, row: int) -> None:
        resolved = self._resolve_event(row)
        if resolved is None:
            self.dropped[Reason.EVENT_SYNC_WITHOUT_EVENT].append(row)
            self._of_host.append(row, -1, ABSENT, CODE[Provenance.RECORD])
        else:
            self.add_host_waits(row, *resolved)

    def _event_query(self, row: int) -> None:
        is_answered, loop, end = self._queries.is_answered(row), self._queries.loops.get(row), self._process.end(row)
        if self._queries.by_observer[row]:
            self.oddities[Reason.OBSERVER_QUERIES].append(row)
            return
        # a loop ends only once the event has happened: clocks may be off; a single query may have found it pending
        latest = end + (self._process.timing.max_clock_lead_ns if loop is not None else 0)
        resolved = self._resolve_event(row) if is_answered else _Resolved((), Provenance.TIMING)
        if resolved is None:
            self.dropped[Reason.QUERY_WITHOUT_EVENT].append(row)
        elif not is_answered or self._process.last_end(resolved.sources) > latest:
            self.resolved[Reason.PENDING_QUERIES].append(row)
        else:
            self.add_host_waits(row, *resolved, since=loop.since if loop is not None else ABSENT)

    def _stream_sync(self, row: int) -> None:
        process, inferred = self._process, self._inferred.get(row)
        time, stream = process.start(row), process.recorded_stream(row)
        provenance = Provenance.RECORD if process.sync_record(row) is not None else Provenance.TIMING
        if inferred is not None:
            _, time, stream, provenance = inferred.event_record
        sources = process.queues.sources(stream, time) if stream is not None else ()
        self.add_host_waits(row, sources, provenance)

    def _device_sync(self, row: int) -> None:
        record = self._process.sync_record(row)
        sources = self._process.pending(record.device if record is not None else -1, row)
        self.add_host_waits(row, sources, Provenance.RECORD if record is not None else Provenance.CALL_ORDER)

    def _free(self, row: int) -> None:
        """Adds the waits of a call that frees memory: for all devices whose pending work had ended when it returned."""
        process = self._process
        for device in {key.device for key in process.queues.rows}:
            sources = process.pending(device, row)
            if sources and process.last_end(sources) <= process.end(row) + process.timing.clock_uncertainty_ns:
                self.add_host_waits(row, sources, Provenance.CALL_ORDER)

    def add_queue_wait(self, source: int, target: int) -> None:
        """Adds a wait that the device itself records; -1 for what is not recorded."""
        if source < 0 or target < 0:
            self.dropped[Reason.QUEUE_WAIT_WITHOUT_RECORD].append(-1)
        else:
            self.add_device_wait(int(self._process.activities.call_row[target]), source, target, Provenance.RECORD)

    def add_device_wait(self, call: int, source: int, target: int, provenance: Provenance) -> None:
        """Adds that a call lets the activity `target` wait for `source`."""
        activities = self._process.activities
        if activities.end[source] > activities.start[target] + self._process.timing.timestamp_quantum_ns:
            self.dropped[Reason.EVENT_WAIT_AGAINST_CLOCK].append(call)
            return
        self._of_device.append(source, target, CODE[provenance])
        self.resolved[Reason.STREAM_WAITS.of(provenance.value)].append(call)

    def add_host_waits(self, call: int, sources: Iterable[int], provenance: Provenance, since: int = ABSENT) -> None:
        """Adds that a call waits for activities.

        The call is kept even where nothing is pending (source -1): in a slower run the host would wait there.
        """
        pending = list(sources)
        limit = self._process.calls.end[call] + self._process.timing.max_clock_lead_ns
        possible = [source for source in pending if self._process.activities.end[source] <= limit]
        self.dropped[Reason.HOST_WAIT_AGAINST_CLOCK].extend([call] * (len(pending) - len(possible)))
        for source in possible or (-1,):
            self._of_host.append(call, source, since, CODE[provenance])
        if possible:
            self.resolved[Reason.HOST_WAITS.of(provenance.value)].append(call)
        elif not pending:
            self.oddities[Reason.WAITS_FOR_NOTHING].append(call)

    def add_implicit(self, reason: Reason, waits: ImplicitHostWaits) -> None:
        """Adds waits of the host that no synchronising call makes."""
        self._of_host.extend(*waits[:-1], np.full(len(waits.call_row), CODE[waits.provenance]))
        if len(waits.call_row):
            self.resolved[reason].extend(waits.call_row.data)

    def device_table(self) -> DeviceWaits:
        """Returns the waits between streams, in the order in which they were added."""
        source, target, code = self._of_device.columns()
        return DeviceWaits(ActivityRows(source), ActivityRows(target), _provenance_column(code))

    def host_waits_so_far(self) -> HostWaits:
        """Returns the waits of the host, in the order in which they were added."""
        call, source, since, code = self._of_host.columns()
        return HostWaits(CallRows(call), ActivityRows(source), since, _provenance_column(code))

    def host_table(self) -> HostWaits:
        """Returns the waits of the host without those for activities that were submitted after the call began.

        These are dropped: their stream or clock is wrong. To be called once, as it counts them.
        """
        waits = self.host_waits_so_far()
        submitted = np.append(self._process.queues.submitted_until, 0)
        possible = (waits.source_row < 0) | (submitted[waits.source_row] <= self._process.calls.start[waits.call_row])
        if not possible.all():
            self.dropped[Reason.HOST_WAIT_AGAINST_LAUNCHES].extend(waits.call_row[~possible].tolist())
        rows = CallRows(waits.call_row[possible]), ActivityRows(waits.source_row[possible])
        return HostWaits(*rows, waits.since[possible], waits.known_by.take(possible))


def _provenance_column(code: Int64) -> Categorical:
    return Categorical(code.astype(np.int32), NAMES)
