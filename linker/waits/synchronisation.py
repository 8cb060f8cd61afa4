"""Resolves who waited for whom: from cuda_sync records where there are any, else from the order of the runtime calls.

It goes through the synchronising calls in host order, with the streams as queues. The sources of an event are fixed
when it is recorded: the last activity of its stream then, and the sources of waits that are still pending there. Every
wait says how it is known; a wait whose event cannot be found is counted.

Collects the waits of a process, drops impossible ones, and counts what was resolved, dropped and odd.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
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
class ResolvedWaits:
    """The waits found so far, as rows of numbers.

    Those of the device are (source, target, provenance), those of the host (call, source, since, provenance).
    """

    process: Process
    of_device: RowBuilder = field(default_factory=lambda: RowBuilder(3))
    of_host: RowBuilder = field(default_factory=lambda: RowBuilder(4))
    resolved: Findings = field(default_factory=no_findings)
    oddities: Findings = field(default_factory=no_findings)
    dropped: Findings = field(default_factory=no_findings)

    def add_device_wait(self, call: int, source: int, target: int, provenance: Provenance) -> None:
        """Adds that a call lets the activity `target` wait for `source`."""
        activities = self.process.activities
        if activities.end[source] > activities.start[target] + self.process.timing.timestamp_quantum_ns:
            self.dropped[Reason.EVENT_WAIT_AGAINST_CLOCK].append(call)
            return
        self.of_device.append(source, target, CODE[provenance])
        self.resolved[Reason.STREAM_WAITS.of(provenance.value)].append(call)

    def add_host_waits(self, call: int, sources: Iterable[int], provenance: Provenance, since: int = ABSENT) -> None:
        """Adds that a call waits for activities.

        The call is kept even where nothing is pending (source -1): in a slower run the host would wait there.
        """
        pending = list(sources)
        limit = self.process.calls.end[call] + self.process.timing.max_clock_lead_ns
        possible = [source for source in pending if self.process.activities.end[source] <= limit]
        self.dropped[Reason.HOST_WAIT_AGAINST_CLOCK].extend([call] * (len(pending) - len(possible)))
        for source in possible or (-1,):
            self.of_host.append(call, source, since, CODE[provenance])
        if possible:
            self.resolved[Reason.HOST_WAITS.of(provenance.value)].append(call)
        elif not pending:
            self.oddities[Reason.WAITS_FOR_NOTHING].append(call)

    def add_unknown(self, call: int) -> None:
        """Adds that a call waits for something unknown."""
        self.of_host.append(call, -1, ABSENT, CODE[Provenance.RECORD])

    def add_implicit(self, reason: Reason, waits: ImplicitHostWaits) -> None:
        """Adds waits of the host that no synchronising call makes."""
        self.of_host.extend(*waits[:-1], np.full(len(waits.call_row), CODE[waits.provenance]))
        if len(waits.call_row):
            self.resolved[reason].extend(waits.call_row.data)

    def device_table(self) -> DeviceWaits:
        """Returns the waits between streams, in the order in which they were added."""
        source, target, code = self.of_device.columns()
        return DeviceWaits(ActivityRows(source), ActivityRows(target), _provenance_column(code))

    def host_waits_so_far(self) -> HostWaits:
        """Returns the waits of the host, in the order in which they were added."""
        call, source, since, code = self.of_host.columns()
        return HostWaits(CallRows(call), ActivityRows(source), since, _provenance_column(code))

    def host_table(self) -> HostWaits:
        """Returns the waits of the host without those for activities that were submitted after the call began.

        These are dropped: their stream or clock is wrong. To be called once, as it counts them.
        """
        waits = self.host_waits_so_far()
        submitted = np.append(self.process.queues.submitted_until, 0)
        possible = (waits.source_row < 0) | (submitted[waits.source_row] <= self.process.calls.start[waits.call_row])
        if not possible.all():
            self.dropped[Reason.HOST_WAIT_AGAINST_LAUNCHES].extend(waits.call_row[~possible].tolist())
        rows = CallRows(waits.call_row[possible]), ActivityRows(waits.source_row[possible])
        return HostWaits(*rows, waits.since[possible], waits.known_by.take(possible))


def _provenance_column(code: Int64) -> Categorical:
    return Categorical(code.astype(np.int32), NAMES)


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


class _Resolved(NamedTuple):
    """The activities that a wait is for."""

    sources: tuple[int, ...]
    provenance: Provenance


class _Run(NamedTuple):
    """A process, its event queries and inferred sources, and the waits found so far."""

    process: Process
    queries: EventQueryLoops
    inferred: dict[int, InferredSource]
    waits: ResolvedWaits


def synchronise(process: Process, device: DeviceTrace, calibration: MachineCalibration) -> Synchronisation:
    """Returns all waits of one process. O(n log n) in the calls."""
    calls, activities = process.calls, process.activities
    queries = event_query_loops(process, on_observer_threads(calls, activities, device.ops.thread))
    rows = np.flatnonzero(process.kinds != SyncCall.NONE)
    rows = rows[np.argsort(calls.start[rows], kind="stable")]
    unresolved = list(unresolved_waits(process, queries, rows.tolist()))
    sources = InferredSources(process, unresolved)
    waits = ResolvedWaits(process)
    run = _Run(process, queries, sources.by_call(), waits)
    for row in rows.tolist():
        if resolve := RESOLVERS.get(process.kinds[row]):
            resolve(run, row)
    _add_queue_waits(device, run)
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


def _stream_wait(run: _Run, row: int) -> None:
    process, waits, inferred = run.process, run.waits, run.inferred.get(row)
    waiting = inferred.waiting if inferred is not None else waiting_stream(process, row)
    if waiting is None:
        waits.dropped[Reason.NO_WORK_FOLLOWED].append(row)
        return
    resolved = _resolve_event(run, row)
    if resolved is None:
        waits.dropped[Reason.STREAM_WAIT_WITHOUT_EVENT].append(row)
        return
    if inferred is None and process.sync_record(row) is None:
        waiting = _stream_that_can_wait(process, row, waiting, resolved.sources)
    target = process.queues.add_wait(waiting, process.start(row), resolved.sources)
    elsewhere = [source for source in resolved.sources if process.launches.stream_of(source) != waiting]
    if target < 0 or not elsewhere:
        waits.oddities[Reason.BLOCKS_NOTHING].append(row)
        return
    for source in elsewhere:
        waits.add_device_wait(row, source, target, resolved.provenance)


def _stream_that_can_wait(process: Process, row: int, likeliest: StreamKey, sources: Sequence[int]) -> StreamKey:
    """Returns the likeliest stream, unless its next activity began before the awaited work had ended: then the last
    used one of those whose next activity did not.
    """
    earliest = process.last_end(sources) - process.timing.timestamp_quantum_ns
    for stream in (likeliest, *process.event_record_calls.streams_in_use(row, likeliest)):
        target = process.queues.next(stream, process.start(row))
        if target >= 0 and process.activities.start[target] >= earliest:
            return stream
    return likeliest


def _resolve_event(run: _Run, row: int) -> _Resolved | None:
    """Returns what an event wait is for: as recorded, else as the enclosing collective says, else as inferred."""
    process, inferred = run.process, run.inferred.get(row)
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


def _event_sync(run: _Run, row: int) -> None:
    resolved = _resolve_event(run, row)
    if resolved is None:
        run.waits.dropped[Reason.EVENT_SYNC_WITHOUT_EVENT].append(row)
        run.waits.add_unknown(row)
    else:
        run.waits.add_host_waits(row, *resolved)


def _event_query(run: _Run, row: int) -> None:
    process, waits, is_answered = run.process, run.waits, run.queries.is_answered(row)
    if run.queries.by_observer[row]:
        waits.oddities[Reason.OBSERVER_QUERIES].append(row)
        return
    resolved = _resolve_event(run, row) if is_answered else _Resolved((), Provenance.TIMING)
    if resolved is None:
        waits.dropped[Reason.QUERY_WITHOUT_EVENT].append(row)
    elif not is_answered or process.last_end(resolved.sources) > _latest_answer(run, row):
        waits.resolved[Reason.PENDING_QUERIES].append(row)
    else:
        loop = run.queries.loops.get(row)
        waits.add_host_waits(row, *resolved, since=loop.since if loop is not None else ABSENT)


def _latest_answer(run: _Run, row: int) -> int:
    """Returns by when (ns) the work must have ended that a query found to be complete.

    A loop ends only once the event has happened, so that the error of the clocks is allowed for. A single query may
    have found the event pending.
    """
    return run.process.end(row) + (run.process.timing.max_clock_lead_ns if row in run.queries.loops else 0)


def _stream_sync(run: _Run, row: int) -> None:
    process, inferred = run.process, run.inferred.get(row)
    if inferred is None:
        key, time = process.recorded_stream(row), process.start(row)
        provenance = Provenance.RECORD if process.sync_record(row) is not None else Provenance.TIMING
    else:
        key, time, provenance = (
            inferred.event_record.stream,
            inferred.event_record.time,
            inferred.event_record.provenance,
        )
    sources = process.queues.sources(key, time) if key is not None else ()
    run.waits.add_host_waits(row, sources, provenance)


def _device_sync(run: _Run, row: int) -> None:
    record = run.process.sync_record(row)
    sources = run.process.pending(record.device if record is not None else -1, row)
    run.waits.add_host_waits(row, sources, Provenance.RECORD if record is not None else Provenance.CALL_ORDER)


def _free(run: _Run, row: int) -> None:
    """Adds the waits of a call that frees memory: for all devices whose pending work had ended when it returned."""
    process = run.process
    for device in {key.device for key in process.queues.rows}:
        sources = process.pending(device, row)
        if sources and process.last_end(sources) <= process.end(row) + process.timing.clock_uncertainty_ns:
            run.waits.add_host_waits(row, sources, Provenance.CALL_ORDER)


RESOLVERS: dict[int, Callable[[_Run, int], None]] = {
    SyncCall.STREAM_WAIT: _stream_wait,
    SyncCall.EVENT_SYNC: _event_sync,
    SyncCall.STREAM_SYNC: _stream_sync,
    SyncCall.DEVICE_SYNC: _device_sync,
    SyncCall.EVENT_QUERY: _event_query,
    SyncCall.FREE: _free,
}
"""The function that adds the waits of a call, by what the call does. Other calls wait for nothing."""


def _add_queue_waits(device: DeviceTrace, run: _Run) -> None:
    """Adds the waits that the device itself records."""
    for source, target in queue_waits(device.queue_events, run.process.queues, device.activities.start.tolist()):
        if source < 0 or target < 0:
            run.waits.dropped[Reason.QUEUE_WAIT_WITHOUT_RECORD].append(-1)
        else:
            run.waits.add_device_wait(int(run.process.activities.call_row[target]), source, target, Provenance.RECORD)
