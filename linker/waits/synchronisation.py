"""Resolves who waited for whom: from cuda_sync records where there are any, else from the order of the runtime calls.

It goes through the synchronising calls in host order, with the streams as queues. The sources of an event are fixed
when it is recorded: the last activity of its stream then, and the sources of waits that are still pending there. Every
wait says how it is known; impossible ones and those whose event cannot be found are dropped and counted.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ...schema.columns import ABSENT, ActivityRows, CallRows, Categorical, RowBuilder
from ...schema.linked import NEVER, DeviceWaits, HostWaits, Provenance, SyncCall, select_rows
from ...schema.machine import MachineCalibration
from ...schema.reasons import Reason
from ..readers import DeviceTrace
from . import implicit_waits
from .inferred_sources import InferredSource, InferredSources
from .process import Findings, Process, no_findings
from .submissions import StreamKey
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
    queries = event_query_loops(process, implicit_waits.on_observer_threads(calls, activities, device.ops.thread))
    rows = np.flatnonzero(process.kinds != SyncCall.NONE)
    rows = rows[np.argsort(calls.start[rows], kind="stable")]
    unresolved = list(unresolved_waits(process, queries, rows.tolist()))
    sources = InferredSources(process, unresolved)
    waits = _Waits(process, queries, sources.by_call())
    for row in rows.tolist():
        waits.resolve(row)
    for source, target in implicit_waits.queue_waits(
        device.queue_events, process.queues, device.activities.start.tolist()
    ):
        if source < 0 or target < 0:
            waits.dropped[Reason.QUEUE_WAIT_WITHOUT_RECORD].append(-1)
        else:
            waits.add_device_wait(int(activities.call_row[target]), source, target, Provenance.RECORD)
    waits.oddities.update(sources.oddities)
    behind_unresolved = stream_syncs_behind(process, unresolved)
    unexplained = implicit_waits.unexplained_waits(process, waits.of_host(), calibration, behind_unresolved)
    sources.findings[Reason.ENDED_RIGHT_BEFORE_RETURN].extend(unexplained.call_row.tolist())
    for reason, implicit in (
        (Reason.ENDED_RIGHT_BEFORE_RETURN, unexplained),
        (Reason.BLOCKING_COPIES, implicit_waits.blocking_copies(activities, calls, calibration, process.call_sites)),
        (Reason.FULL_QUEUE, implicit_waits.full_queue(activities, calls)),
        (Reason.OBSERVER_CALLS, implicit_waits.observer_waits(calls, activities, queries.by_observer)),
    ):
        waits.add_implicit(reason, implicit)
    host_waits, submitted = waits.of_host(), np.append(process.queues.submitted_until, NEVER)
    # for what was submitted after the call began it did not wait: the stream or the clock is wrong
    possible = submitted[host_waits.source_row] <= calls.start[host_waits.call_row]
    waits.dropped[Reason.HOST_WAIT_AGAINST_LAUNCHES].extend(host_waits.call_row[~possible].tolist())
    return Synchronisation(
        waits.of_device(),
        select_rows(host_waits, possible),
        waits.resolved,
        sources.findings,
        waits.oddities,
        waits.dropped,
    )


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
            SyncCall.STREAM_SYNC: self._sync,
            SyncCall.DEVICE_SYNC: self._sync,
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
        event = self._event(row) if waiting is not None else None
        if waiting is None or event is None:
            reason = Reason.NO_WORK_FOLLOWED if waiting is None else Reason.STREAM_WAIT_WITHOUT_EVENT
            self.dropped[reason].append(row)
            return
        sources, provenance = event
        if inferred is None and process.sync_records.of(row) is None:
            waiting = self._stream_that_can_wait(row, waiting, sources)
        target = process.queues.add_wait(waiting, process.start(row), sources)
        elsewhere = [source for source in sources if StreamKey.of(process.activities, source) != waiting]
        if target < 0 or not elsewhere:
            self.oddities[Reason.BLOCKS_NOTHING].append(row)
            return
        for source in elsewhere:
            self.add_device_wait(row, source, target, provenance)

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

    def _event(self, row: int) -> tuple[tuple[int, ...], Provenance] | None:
        """Returns the activities that an event wait is for: as recorded, or by its collective, or as inferred."""
        process, inferred = self._process, self._inferred.get(row)
        awaited = process.awaited_by_collective(row)
        if process.sync_records.recorder(row) >= 0:
            event_record = process.named_record(row)
        elif awaited >= 0 and not process.sync_records.is_before_trace(row):
            return (awaited,), Provenance.RECORD
        else:
            event_record = inferred.event_record if inferred is not None else None
        if event_record is None:
            return None
        return process.queues.sources(event_record.stream, event_record.time), event_record.provenance

    def _event_sync(self, row: int) -> None:
        event = self._event(row)
        if event is None:
            self.dropped[Reason.EVENT_SYNC_WITHOUT_EVENT].append(row)
            self._of_host.append(row, -1, ABSENT, CODE[Provenance.RECORD])
        else:
            self._add_host_waits(row, *event)

    def _event_query(self, row: int) -> None:
        loop, process = self._queries.loops.get(row), self._process
        if self._queries.by_observer[row]:
            self.oddities[Reason.OBSERVER_QUERIES].append(row)
        elif row in self._queries.repeated:
            self.resolved[Reason.PENDING_QUERIES].append(row)
        elif (event := self._event(row)) is None:
            self.dropped[Reason.QUERY_WITHOUT_EVENT].append(row)
        # a loop ends only once the event has happened: clocks may be off; a single query may have found it pending
        elif process.last_end(event[0]) > process.end(row) + (process.timing.max_clock_lead_ns if loop else 0):
            self.resolved[Reason.PENDING_QUERIES].append(row)
        else:
            self._add_host_waits(row, *event, since=loop.since if loop else ABSENT)

    def _sync(self, row: int) -> None:
        """Adds the waits of a call that waits for a stream or a device."""
        process, inferred, record = self._process, self._inferred.get(row), self._process.sync_records.of(row)
        if process.kinds[row] == SyncCall.DEVICE_SYNC:
            sources = process.pending(record.device if record is not None else -1, row)
            self._add_host_waits(row, sources, Provenance.RECORD if record is not None else Provenance.CALL_ORDER)
            return
        time, stream = process.start(row), process.recorded_stream(row)
        provenance = Provenance.RECORD if record is not None else Provenance.TIMING
        if inferred is not None:
            _, time, stream, provenance = inferred.event_record
        self._add_host_waits(row, process.queues.sources(stream, time) if stream is not None else (), provenance)

    def _free(self, row: int) -> None:
        """Adds the waits of a call that frees memory: for all devices whose pending work had ended when it returned."""
        process = self._process
        for device in {key.device for key in process.queues.rows}:
            sources = process.pending(device, row)
            if sources and process.last_end(sources) <= process.end(row) + process.timing.clock_uncertainty_ns:
                self._add_host_waits(row, sources, Provenance.CALL_ORDER)

    def add_device_wait(self, call: int, source: int, target: int, provenance: Provenance) -> None:
        """Adds that a call lets the activity `target` wait for `source`."""
        activities = self._process.activities
        if activities.end[source] > activities.start[target] + self._process.timing.timestamp_quantum_ns:
            self.dropped[Reason.EVENT_WAIT_AGAINST_CLOCK].append(call)
            return
        self._of_device.append(source, target, CODE[provenance])
        self.resolved[Reason.STREAM_WAITS.of(provenance.value)].append(call)

    def _add_host_waits(self, call: int, pending: tuple[int, ...], provenance: Provenance, since: int = ABSENT) -> None:
        """Adds that a call waits for activities."""
        # the call is kept even where nothing is pending (source -1): in a slower run the host would wait there
        limit = self._process.calls.end[call] + self._process.timing.max_clock_lead_ns
        possible = [source for source in pending if self._process.activities.end[source] <= limit]
        self.dropped[Reason.HOST_WAIT_AGAINST_CLOCK].extend([call] * (len(pending) - len(possible)))
        for source in possible or (-1,):
            self._of_host.append(call, source, since, CODE[provenance])
        if possible:
            self.resolved[Reason.HOST_WAITS.of(provenance.value)].append(call)
        elif not pending:
            self.oddities[Reason.WAITS_FOR_NOTHING].append(call)

    def add_implicit(self, reason: Reason, waits: implicit_waits.ImplicitHostWaits) -> None:
        """Adds waits of the host that no synchronising call makes."""
        self._of_host.extend(*waits[:-1], np.full(len(waits.call_row), CODE[waits.provenance]))
        if len(waits.call_row):
            self.resolved[reason].extend(waits.call_row.data)

    def of_device(self) -> DeviceWaits:
        """Returns the waits between streams, in the order in which they were added."""
        source, target, code = self._of_device.columns()
        return DeviceWaits(ActivityRows(source), ActivityRows(target), Categorical(code.astype(np.int32), NAMES))

    def of_host(self) -> HostWaits:
        """Returns the waits of the host, in the order in which they were added."""
        call, source, since, code = self._of_host.columns()
        return HostWaits(CallRows(call), ActivityRows(source), since, Categorical(code.astype(np.int32), NAMES))
