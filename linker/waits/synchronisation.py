"""Resolves who waited for whom: from cuda_sync records where there are any, else from the order of the runtime calls.
The sources of an event are fixed when it is recorded: the last activity of its stream, and what that waits for. Every
wait says how it is known; impossible ones and those whose event cannot be found are dropped and counted.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ...schema import linked
from ...schema.columns import ABSENT, ActivityRows, Bool, CallRows, Categorical, Int64, RowBuilder, isin, rows_of_each
from ...schema.linked import FOREVER, NEVER, Activities, Calls, HostWaits, Provenance, SyncCall
from ...schema.machine import MachineCalibration, latency_stats, of_each, of_name
from ...schema.reasons import Reason
from ..readers import RecordedQueueEvents, within_launches
from .inferred_sources import InferredSources
from .process import EventRecord, Findings, Process
from .submissions import CallSites, StreamKey, StreamQueues
from .unresolved_waits import Loop, event_query_loops, stream_syncs_behind, unresolved_waits, waiting_stream

NO_ROWS = np.empty(0, np.int64)
NAMES = [provenance.value for provenance in Provenance]
CODE = {provenance: code for code, provenance in enumerate(Provenance)}
STREAM_WAITS = {provenance: Reason.STREAM_WAITS.of(provenance.value) for provenance in Provenance}
STREAM_WAIT, EVENT_QUERY, STREAM_SYNC = map(int, (SyncCall.STREAM_WAIT, SyncCall.EVENT_QUERY, SyncCall.STREAM_SYNC))
DEVICE_SYNC, FREE = int(SyncCall.DEVICE_SYNC), int(SyncCall.FREE)
WITHOUT_EVENT = {
    SyncCall.STREAM_WAIT: Reason.STREAM_WAIT_WITHOUT_EVENT,
    SyncCall.EVENT_SYNC: Reason.EVENT_SYNC_WITHOUT_EVENT,
    SyncCall.EVENT_QUERY: Reason.QUERY_WITHOUT_EVENT,
}
"""As what a call counts whose event is unknown, by what it does."""
FULL_QUEUE = 500
"""Launches in flight above which one more may wait for a slot: drivers queue about a thousand, event calls too."""


def queue_waits(rows: RecordedQueueEvents, queues: StreamQueues, start: list[int]) -> Iterator[tuple[int, int]]:
    """Yields for each wait the last activity before its event record and the first one after the wait, -1 for none."""
    columns = (rows.device, rows.stream, rows.awaited, rows.sequence, rows.start, rows.end)
    events = list(zip(*(column.tolist() for column in columns), strict=True))
    recorded = {(device, stream, number): time for device, stream, awaited, number, time, _ in events if awaited < 0}
    for device, stream, awaited, number, wait_start, _ in events:
        if awaited < 0:
            continue
        time = recorded.get((device, awaited, number), NEVER)
        before, after = (queues.rows.get(StreamKey(device, key), NO_ROWS.data) for key in (awaited, stream))
        last = bisect_left(before, time, key=start.__getitem__) - 1
        # the blocked stream goes on while the event record that it waited for is still being made
        first = bisect_left(after, max(wait_start, time), key=start.__getitem__)
        yield before[last] if last >= 0 else -1, after[first] if first < len(after) else -1


class ImplicitHostWaits(NamedTuple):
    """Calls that do not return before the activities `source` have ended; their threads wait from `since` (ns) on."""

    call_row: Int64
    source: Int64
    since: Int64
    provenance: Provenance = Provenance.TIMING


def blocking_copies(
    activities: Activities, calls: Calls, calibration: MachineCalibration, call_sites: CallSites
) -> ImplicitHostWaits:
    """Returns the copies that their calls waited for, decided for each call site by the median. A call that waits
    returns soon after the copy has ended, one that does not before it is launched. Asynchronous copies of pinned memory
    or within the device are never waited for.
    """
    asynchronous = calls.name.where(lambda name: "Async" in name)
    unwaited = activities.name.where(lambda name: "Pinned" in name or "DtoD" in name)
    rows = np.flatnonzero((activities.call_row >= 0) & activities.category.where(lambda cat: "memcpy" in cat))
    rows = rows[~(asynchronous[activities.call_row[rows]] & unwaited[rows])]
    rows = rows[np.argsort(calls.start[activities.call_row[rows]], kind="stable")]
    call = activities.call_row[rows]
    # both latencies were measured on the clocks of the trace, so that a clock error cancels out
    blocking_return = activities.end[rows] + of_each(calibration.sync_return, calls.name.take(call)).median
    latency = of_each(calibration.launch, calls.name.take(call)).median
    is_measured = calls.name.where(lambda name: of_name(calibration.launch, name).count > 0)[call]
    launching = np.unique(activities.call_row[(activities.call_row >= 0) & activities.category.equal("kernel")])
    usual_launch = latency_stats((calls.end - calls.start)[launching]).median if len(launching) else 0
    before_copy, launched = activities.start[rows] - latency, calls.start[call] + usual_launch
    may_have_waited = calls.end[call] + calibration.time_error_ns >= activities.end[rows]
    earlier = np.where(may_have_waited, np.minimum(before_copy, launched), before_copy)
    lateness = calls.end[call] - (blocking_return + np.where(is_measured, earlier, launched)) / 2
    sites = call_sites.groups(call.tolist(), activities.name.codes[rows].tolist())
    blocking = np.array([copy for site in sites if np.median(lateness[site]) > 0 for copy in site], np.int64)
    return ImplicitHostWaits(call[blocking], rows[blocking], np.full(len(blocking), ABSENT), Provenance.RECORD)


def full_queue(activities: Activities, calls: Calls) -> ImplicitHostWaits:
    """Returns launches that waited as the queue was full, each for the activity whose end left time to launch."""
    # when the first activity of each call started, and when the last one ended
    first_start, last_end = np.full(len(calls), FOREVER, np.int64), np.full(len(calls), NEVER, np.int64)
    called = activities.call_row >= 0
    np.minimum.at(first_start, activities.call_row[called], activities.start[called])
    np.maximum.at(last_end, activities.call_row[called], activities.end[called])
    rows = np.flatnonzero(first_start < FOREVER)
    start, end = calls.start[rows], calls.end[rows]
    in_flight = np.searchsorted(np.sort(start), start) - np.searchsorted(np.sort(last_end[rows]), start, side="right")
    if not len(rows) or in_flight.max() < FULL_QUEUE:
        return ImplicitHostWaits(NO_ROWS, NO_ROWS, NO_ROWS)
    median, longest = np.zeros((2, len(rows)), np.int64)
    for alike in rows_of_each(calls.name.codes[rows].astype(np.int64)).values():
        unhindered = alike[in_flight[alike] < FULL_QUEUE // 2]
        stats = latency_stats((end - start)[unhindered if len(unhindered) else alike])
        median[alike], longest[alike] = stats.median, stats.upper
    source = linked.last_ended(activities.end, np.minimum(end - median // 2, first_start[rows]))
    blocked = (in_flight >= FULL_QUEUE) & (end - start > longest) & (np.append(activities.end, NEVER)[source] > start)
    return ImplicitHostWaits(rows[blocked], source[blocked], start[blocked])


def unexplained_waits(process: Process, waits: HostWaits, behind_unresolved: Bool) -> ImplicitHostWaits:
    """Returns synchronising calls that lasted on after all that they are known to await, with what ended last before.
    Where a record names no work, only what is seen to have ended before the return explains it, not by the clocks'
    error.
    """
    calls, activities, timing = process.calls, process.activities, process.timing
    known_end, activity_end = np.full(len(calls), NEVER, np.int64), np.append(activities.end, NEVER)
    has_source, is_recorded = waits.source_row >= 0, waits.known_by.equal(Provenance.RECORD.value)
    np.maximum.at(known_end, waits.call_row, activity_end[waits.source_row])
    is_blocking = isin(process.kinds, (SyncCall.STREAM_SYNC, SyncCall.EVENT_SYNC, SyncCall.DEVICE_SYNC))
    is_named = has_source & is_recorded & ~behind_unresolved[waits.call_row]
    is_blocking[waits.call_row[is_named]] = False
    max_return_ns = np.asarray(timing.max_sync_return_ns) + np.asarray(timing.return_error_ns)
    rows = np.flatnonzero(is_blocking & (calls.end - np.maximum(calls.start, known_end) > max_return_ns))
    max_lead_ns = np.asarray(timing.max_return_lead_ns).copy()
    max_lead_ns[waits.call_row[~has_source & is_recorded]] = 0
    source = linked.last_ended(activities.end, (calls.end + max_lead_ns)[rows])
    submitted = np.append(process.queues.submitted_until, NEVER)[source]
    since = np.maximum(calls.start, calls.end - max_return_ns)[rows]
    is_prompt = (submitted <= calls.start[rows]) & (activity_end[source] > since)
    rows, source = rows[is_prompt], source[is_prompt]
    return ImplicitHostWaits(rows, source, np.full(len(rows), ABSENT))


def on_observer_threads(calls: Calls, activities: Activities, thread_of_ops: Int64) -> Bool:
    """Returns which calls are of threads that run no op and launch nothing, such as NCCL's watchdog."""
    launching = calls.thread[activities.call_row[activities.call_row >= 0]]
    return ~isin(calls.thread, np.concatenate((launching, thread_of_ops)))


def observer_waits(calls: Calls, activities: Activities, by_observer: Bool) -> ImplicitHostWaits:
    """Returns a wait for each call of an observer thread, for what ended last since the thread's previous call."""
    # an observer would make the call at the same point of a faster or slower run, too
    rows = np.flatnonzero(by_observer)
    rows = rows[np.lexsort((calls.start[rows], calls.thread[rows]))]
    follows = np.flatnonzero(calls.thread[rows[1:]] == calls.thread[rows[:-1]])
    row, since = rows[follows + 1], calls.end[rows[follows]]
    source = linked.last_ended(activities.end, calls.start[row])
    is_new = np.append(activities.end, NEVER)[source] > since
    return ImplicitHostWaits(row[is_new], source[is_new], since[is_new])


def synchronise(process: Process) -> tuple[linked.DeviceWaits, HostWaits, Findings]:
    """Returns all waits of one process, and what became of its calls. O(n log n) in the calls."""
    device, calls, activities, findings = process.device, process.calls, process.activities, Findings()
    by_observer = on_observer_threads(calls, activities, device.ops.thread)
    loops, is_pending = event_query_loops(process, by_observer)
    is_observing = by_observer & (process.kinds == SyncCall.EVENT_QUERY)
    rows = np.flatnonzero(process.kinds > SyncCall.EVENT_RECORD)
    rows = rows[np.argsort(calls.start[rows], kind="stable")]
    unresolved = list(unresolved_waits(process, loops, rows[~(is_observing | is_pending)[rows]]))
    sources = InferredSources(process, unresolved, findings.guessed)
    waits = _Waits(process, loops, sources.by_call(), findings)
    for row in rows.tolist():
        if is_observing[row]:
            findings.oddities[Reason.OBSERVER_QUERIES].append(row)
        elif is_pending[row]:
            findings.resolved[Reason.PENDING_QUERIES].append(row)
        else:
            waits.resolve(row)
    for source, target in queue_waits(device.queue_events, process.queues, device.activities.start.tolist()):
        if source < 0 or target < 0:
            findings.dropped[Reason.QUEUE_WAIT_WITHOUT_RECORD].append(-1)
        else:
            waits.add_device_wait(int(activities.call_row[target]), source, target, Provenance.RECORD)
    waits.add_within_launches(*within_launches(device.dependencies, activities))
    findings.oddities.update(sources.untried)
    behind_unresolved = stream_syncs_behind(process, unresolved)
    unexplained = unexplained_waits(process, waits.of_host(), behind_unresolved)
    findings.guessed[Reason.ENDED_RIGHT_BEFORE_RETURN].extend(unexplained.call_row.tolist())
    for reason, implicit in (
        (Reason.ENDED_RIGHT_BEFORE_RETURN, unexplained),
        (Reason.BLOCKING_COPIES, blocking_copies(activities, calls, process.calibration, process.call_sites)),
        (Reason.FULL_QUEUE, full_queue(activities, calls)),
        (Reason.OBSERVER_CALLS, observer_waits(calls, activities, by_observer)),
    ):
        waits.add_implicit(reason, implicit)
    host_waits, submitted = waits.of_host(), np.append(process.queues.submitted_until, NEVER)
    # for what was submitted after the call began it did not wait: the stream or the clock is wrong
    possible = submitted[host_waits.source_row] <= calls.start[host_waits.call_row]
    findings.dropped[Reason.HOST_WAIT_AGAINST_LAUNCHES].extend(host_waits.call_row[~possible].tolist())
    return waits.of_device(), linked.select_rows(host_waits, possible), findings


class _Waits:
    """The waits found so far: on the device (source, target, provenance), else (call, source, since, provenance)."""

    def __init__(
        self, process: Process, loops: dict[int, Loop], inferred: dict[int, EventRecord], findings: Findings
    ) -> None:
        self._process, self._loops, self._inferred, self._findings = process, loops, inferred, findings
        self._of_device, self._of_host, self._kinds = RowBuilder(3), RowBuilder(4), process.kinds.data
        self._start, self._end = process.activities.start.data, process.activities.end.data

    def resolve(self, row: int) -> None:
        """Adds the waits of a call that waits. Calls have to come in host order."""
        process, inferred, kind = self._process, self._inferred.get(row), self._kinds[row]
        waiting, loop = None, self._loops.get(row)
        if kind == STREAM_WAIT:
            waiting = inferred.waiting if inferred is not None else waiting_stream(process, row)
        if kind == FREE:
            self._free(row)
        elif kind == STREAM_WAIT and waiting is None:
            self._findings.dropped[Reason.NO_WORK_FOLLOWED].append(row)
        elif (awaited := self._awaited(row)) is None:
            self._findings.dropped[WITHOUT_EVENT[SyncCall(kind)]].append(row)
            if kind == SyncCall.EVENT_SYNC:
                self._of_host.append(row, -1, ABSENT, CODE[Provenance.RECORD])
        elif waiting is not None:
            self._add_stream_wait(row, waiting, *awaited)
        elif kind == EVENT_QUERY and self._found_pending(row, awaited[0]):
            self._findings.resolved[Reason.PENDING_QUERIES].append(row)
        else:
            self._add_host_waits(row, *awaited, since=loop.since if loop else ABSENT)

    def _found_pending(self, row: int, sources: Sequence[int]) -> bool:
        """Returns whether a query found its event pending, after which the thread went on."""
        # a loop ends only once the event has happened: clocks may be off; a single query may have found it pending
        lead_ns = self._process.timing.max_clock_lead_ns if row in self._loops else 0
        return self._process.last_end(sources) > self._process.end[row] + lead_ns

    def _awaited(self, row: int) -> tuple[tuple[int, ...], Provenance] | None:
        """Returns the activities that a call waits for (recorded, its collective's, or inferred), None if unknown."""
        process, record, kind = self._process, self._process.sync_records.of(row), self._kinds[row]
        if kind == DEVICE_SYNC:
            pending = process.pending(record.device if record is not None else -1, row)
            return pending, Provenance.RECORD if record is not None else Provenance.CALL_ORDER
        if kind != STREAM_SYNC and (awaited := process.awaited_by_collective[row]) >= 0:
            return (awaited,), Provenance.RECORD
        if (event_record := self._inferred.get(row) or process.named_record(row)) is not None:
            return process.queues.sources(event_record.stream, event_record.time), event_record.provenance
        known_by = Provenance.RECORD if record is not None else Provenance.TIMING
        return ((), known_by) if kind == STREAM_SYNC else None

    def _add_stream_wait(self, row: int, waiting: StreamKey, sources: tuple[int, ...], provenance: Provenance) -> None:
        """Adds that a call lets a stream wait for activities."""
        process = self._process
        if row not in self._inferred and process.sync_records.of(row) is None:
            waiting = self._stream_that_can_wait(row, waiting, sources)
        target = process.queues.add_wait(waiting, process.start[row], sources)
        elsewhere = [source for source in sources if process.queues.of(source) != waiting]
        if target < 0 or not elsewhere:
            self._findings.oddities[Reason.BLOCKS_NOTHING].append(row)
            return
        for source in elsewhere:
            self.add_device_wait(row, source, target, provenance)

    def _stream_that_can_wait(self, row: int, likeliest: StreamKey, sources: Sequence[int]) -> StreamKey:
        """Returns the likeliest stream, unless its next activity began too early: then the last used one that fits."""
        process = self._process
        earliest = process.last_end(sources) - process.timing.timestamp_quantum_ns
        for stream in (likeliest, *process.streams_in_use(row, likeliest)):
            target = process.queues.next(stream, process.start[row])
            if target >= 0 and process.activities.start[target] >= earliest:
                return stream
        return likeliest

    def _free(self, row: int) -> None:
        """Adds the waits of a call that frees memory: for all devices whose pending work had ended when it returned."""
        process = self._process
        for device in {key.device for key in process.queues.rows}:
            sources = process.pending(device, row)
            if sources and process.last_end(sources) <= process.end[row] + process.timing.clock_uncertainty_ns:
                self._add_host_waits(row, sources, Provenance.CALL_ORDER)

    def add_device_wait(self, call: int, source: int, target: int, provenance: Provenance) -> None:
        """Adds that a call lets the activity `target` wait for `source`."""
        if self._end[source] > self._start[target] + self._process.timing.timestamp_quantum_ns:
            self._findings.dropped[Reason.EVENT_WAIT_AGAINST_CLOCK].append(call)
            return
        self._of_device.append(source, target, CODE[provenance])
        self._findings.resolved[STREAM_WAITS[provenance]].append(call)

    def add_within_launches(self, source: Int64, target: Int64) -> None:
        """Adds dependencies between activities of a launched graph."""
        activities = self._process.activities
        latest = activities.start[target] + self._process.timing.timestamp_quantum_ns
        call, is_possible = activities.call_row[target], activities.end[source] <= latest
        code = np.full(int(is_possible.sum()), CODE[Provenance.GRAPH])
        self._of_device.extend(source[is_possible], target[is_possible], code)
        self._findings.resolved[Reason.WITHIN_GRAPHS].extend(call[is_possible].tolist())
        self._findings.dropped[Reason.GRAPH_AGAINST_CLOCK].extend(call[~is_possible].tolist())

    def _add_host_waits(self, call: int, pending: tuple[int, ...], provenance: Provenance, since: int = ABSENT) -> None:
        """Adds that a call waits for activities."""
        # the call is kept even where nothing is pending (source -1): in a slower run the host would wait there
        limit = self._process.calls.end[call] + self._process.timing.max_clock_lead_ns
        possible = [source for source in pending if self._process.activities.end[source] <= limit]
        self._findings.dropped[Reason.HOST_WAIT_AGAINST_CLOCK].extend([call] * (len(pending) - len(possible)))
        for source in possible or (-1,):
            self._of_host.append(call, source, since, CODE[provenance])
        if possible:
            self._findings.resolved[Reason.HOST_WAITS.of(provenance.value)].append(call)
        elif not pending:
            self._findings.oddities[Reason.WAITS_FOR_NOTHING].append(call)

    def add_implicit(self, reason: Reason, waits: ImplicitHostWaits) -> None:
        """Adds waits of the host that no synchronising call makes."""
        count = len(waits.call_row)
        self._of_host.extend(waits.call_row, waits.source, waits.since, np.full(count, CODE[waits.provenance]))
        self._findings.resolved[reason].extend(waits.call_row.data)

    def of_device(self) -> linked.DeviceWaits:
        """Returns the waits between streams, in the order in which they were added."""
        source, target, code = self._of_device.columns()
        return linked.DeviceWaits(ActivityRows(source), ActivityRows(target), Categorical(code.astype(np.int32), NAMES))

    def of_host(self) -> HostWaits:
        """Returns the waits of the host, in the order in which they were added."""
        call, source, since, code = self._of_host.columns()
        return HostWaits(CallRows(call), ActivityRows(source), since, Categorical(code.astype(np.int32), NAMES))
