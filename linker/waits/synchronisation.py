"""Who waited for whom: from cuda_sync records where there are any, else from the order of the runtime calls.

Works through the synchronising calls in host order over the streams' queues. An event's sources are bound when it is
recorded: the last activity of its stream then, and what waits still pending there brought. Every edge says how it was
found; a wait whose event cannot be found is counted.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...schema.columns import ABSENT
from ...schema.linked import DeviceWaits, HostWaits, Provenance
from ...schema.machine import MachineCalibration
from ..readers import DeviceTrace, SyncCall
from ..submissions import MOST_STREAMS, EventQueryLoops, Findings, Process, event_query_loops
from .candidates import TRIED
from .implicit_host_waits import blocking_copies, full_queue, observer_waits, on_observer_threads
from .inferred_sources import InferredSource, InferredSources
from .queue_waits import queue_waits
from .resolved_waits import ResolvedWaits
from .unresolved_waits import unresolved_waits, waiting_stream

AT_ONCE = 1 << 10
ELSEWHERE = f"waits that may be for another stream than the {MOST_STREAMS} with most activities"
FURTHER_BACK = f"waits that may be for a recording before the last {TRIED}"


@dataclass(slots=True)
class Synchronisation:
    """All waits; how they were found, which guesses were made, which waits held nothing back, and what was not
    resolved.
    """

    device_waits: DeviceWaits
    host_waits: HostWaits
    found: Findings
    guessed: Findings
    noted: Findings
    dropped: Findings


class _Resolved(NamedTuple):
    """The activities that a wait is for."""

    sources: tuple[int, ...]
    found: Provenance


class _Run(NamedTuple):
    """A process that is worked through: what it asked and what is guessed of it, and the waits found so far."""

    process: Process
    queries: EventQueryLoops
    guesses: dict[int, InferredSource]
    waits: ResolvedWaits


def synchronise(process: Process, device: DeviceTrace, machine: MachineCalibration) -> Synchronisation:
    """Returns all waits of one process. O(n log n) in the calls."""
    calls, activities = process.calls, process.activities
    queries = event_query_loops(process, on_observer_threads(calls, activities, device.ops.thread))
    rows = np.flatnonzero(process.kinds != SyncCall.NONE)
    rows = rows[np.argsort(calls.start[rows], kind="stable")]
    guesses = InferredSources(process, list(unresolved_waits(process, queries, rows.tolist())))
    waits = ResolvedWaits(process)
    run = _Run(process, queries, guesses.by_call(), waits)
    for row in rows.tolist():
        STEPS.get(process.kinds[row], _go_on)(run, row)
    _wait_on_queues(device, run)
    waits.noted[FURTHER_BACK].extend(guesses.cut_off())
    waits.noted[ELSEWHERE].extend(guesses.among_busiest())
    waits.blocked("blocking copies", blocking_copies(activities, calls, machine, process.places))
    waits.blocked("launches held up by a full queue", full_queue(activities, calls))
    waits.blocked("calls of threads that only look on", observer_waits(calls, activities, queries.by_observer))
    return Synchronisation(
        waits.device_table(), waits.host_table(), waits.found, guesses.counted, waits.noted, waits.dropped
    )


def _go_on(_: _Run, __: int) -> None:
    """A call that waits for nothing."""


def _stream_wait(run: _Run, row: int) -> None:
    process, guess = run.process, run.guesses.get(row)
    waiting = guess.stream if guess is not None else waiting_stream(process, row)
    if waiting is None:
        run.waits.dropped["stream waits for which no work followed"].append(row)
        return
    resolved = _resolved(run, row)
    if resolved is None:
        run.waits.dropped["stream waits whose event was not found"].append(row)
        return
    target = process.queues.add_wait(waiting, process.start(row), resolved.sources)
    elsewhere = [source for source in resolved.sources if process.launches.stream_of(source) != waiting]
    if target < 0 or not elsewhere:
        run.waits.noted["stream waits that held nothing back"].append(row)
        return
    for source in elsewhere:
        run.waits.device_waits(row, source, target, resolved.found)


def _resolved(run: _Run, row: int) -> _Resolved | None:
    """Returns what an event wait is for: as recorded, as the collective around the call tells, else as guessed."""
    process, guess = run.process, run.guesses.get(row)
    awaited = process.named_by_collective(row)
    if process.is_named(row):
        recording = process.named(row)
    elif awaited >= 0 and not process.events.is_before_trace(process.record(row)):
        return _Resolved((awaited,), Provenance.RECORD)
    else:
        recording = guess.recording if guess is not None else None
    if recording is None:
        return None
    return _Resolved(process.queues.sources(recording.stream, recording.time), recording.found)


def _event_sync(run: _Run, row: int) -> None:
    resolved = _resolved(run, row)
    if resolved is None:
        run.waits.dropped["event synchronisations whose event was not found"].append(row)
        run.waits.unknown(row)
    else:
        run.waits.host_waits(row, *resolved)


def _event_query(run: _Run, row: int) -> None:
    process, waits = run.process, run.waits
    if run.queries.by_observer[row]:
        waits.noted["event queries of threads that only look on"].append(row)
        return
    resolved = _resolved(run, row) if run.queries.is_answered(row) else _Resolved((), Provenance.TIMING)
    if resolved is None:
        waits.dropped["event queries whose event was not found"].append(row)
    elif not run.queries.is_answered(row) or process.last_end(resolved.sources) > _latest_answer(run, row):
        waits.found["event queries that found the event pending"].append(row)
    else:
        loop = run.queries.loops.get(row)
        waits.host_waits(row, *resolved, since=loop.since if loop is not None else ABSENT)


def _latest_answer(run: _Run, row: int) -> int:
    """Returns by when what a query found over had ended. A loop goes on until something is over; a query by itself need
    not have found that.
    """
    return run.process.end(row) + (run.process.evidence.max_clock_lead_ns if row in run.queries.loops else 0)


def _stream_sync(run: _Run, row: int) -> None:
    process, guess = run.process, run.guesses.get(row)
    key, found = (
        process.recorded_stream(row),
        Provenance.RECORD if process.record(row) is not None else Provenance.TIMING,
    )
    if guess is not None:
        key, found = guess.recording.stream, guess.recording.found
    sources = process.queues.sources(key, process.start(row)) if key is not None else ()
    run.waits.host_waits(row, sources, found)


def _device_sync(run: _Run, row: int) -> None:
    record = run.process.record(row)
    sources = run.process.pending(record.device if record is not None else -1, row)
    run.waits.host_waits(row, sources, Provenance.RECORD if record is not None else Provenance.CALL_ORDER)


def _free(run: _Run, row: int) -> None:
    """Freeing memory waits for a device, which is known by its work that was pending: all of it had ended when the call
    did.
    """
    process = run.process
    for device in {key.device for key in process.queues.rows}:
        sources = process.pending(device, row)
        if sources and process.last_end(sources) <= process.end(row) + process.evidence.clock_uncertainty_ns:
            run.waits.host_waits(row, sources, Provenance.CALL_ORDER)


STEPS: dict[int, Callable[[_Run, int], None]] = {
    SyncCall.STREAM_WAIT: _stream_wait,
    SyncCall.EVENT_SYNC: _event_sync,
    SyncCall.STREAM_SYNC: _stream_sync,
    SyncCall.DEVICE_SYNC: _device_sync,
    SyncCall.EVENT_QUERY: _event_query,
    SyncCall.FREE: _free,
}


def _wait_on_queues(device: DeviceTrace, run: _Run) -> None:
    """The waits that the device itself records."""
    for source, target in queue_waits(device.queue_events, run.process.queues, device.activities.start.tolist()):
        if source < 0 or target < 0:
            run.waits.dropped["waits of device queues for nothing recorded"].append(-1)
        else:
            run.waits.device_waits(int(run.process.activities.call_row[target]), source, target, Provenance.RECORD)
