"""Lists the waits whose event the trace does not name: what each may block, and by when the blocked work goes on."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ...schema.columns import Bool, Int64, isin, previous_in_group
from ...schema.linked import NEVER, SyncCall
from .process import Process
from .submissions import StreamKey, StreamQueues, StreamTails

UNRESOLVED_KINDS = SyncCall.STREAM_WAIT, SyncCall.EVENT_SYNC, SyncCall.STREAM_SYNC, SyncCall.EVENT_QUERY
"""Calls that wait for an event or a stream, which the trace need not name."""
MOST_BLOCKED = 16
"""Streams besides the likeliest one that a wait may block, those that run something soonest after it. All are tried."""


class Loop(NamedTuple):
    """Queries for one event right after each other, and when (ns) the last one began that found it pending."""

    since: int
    pending: int


def event_query_loops(process: Process, by_observer: Bool) -> tuple[dict[int, Loop], Bool]:
    """Returns polling loops by last query, and which queries another of their loop follows, without `by_observer`."""
    loops, thread = dict[int, Loop](), process.calls.thread
    is_repeated = np.zeros(len(thread), np.bool_)
    call_before = previous_in_group(np.lexsort((process.calls.start, thread)), thread)
    queries = np.flatnonzero((process.kinds == SyncCall.EVENT_QUERY) & ~by_observer)
    queues = _with_named_waits(process) if len(queries) else process.queues
    for row in queries[np.argsort(process.calls.start[queries], kind="stable")].tolist():
        before = int(call_before[row])
        if before >= 0 and _is_repeated(process, queues, before, row):
            is_repeated[before] = True
            pending = process.start[before]
            loops[row] = Loop(loops[before].since if before in loops else pending, pending)
    return loops, is_repeated


def _with_named_waits(process: Process) -> StreamQueues:
    """Returns the queues with the stream waits whose event the trace names."""
    # an event that is recorded on a stream later covers what the stream waited for
    queues = StreamQueues(process.activities, process.calls)
    waits = np.flatnonzero(process.kinds == SyncCall.STREAM_WAIT)
    for row in waits[np.argsort(process.calls.start[waits], kind="stable")].tolist():
        event_record, waiting = process.named_record(row), process.recorded_stream(row)
        if event_record is not None and waiting is not None:
            sources = queues.sources(event_record.stream, event_record.time)
            queues.add_wait(waiting, process.start[row], sources)
    return queues


def _is_repeated(process: Process, queues: StreamQueues, row: int, following: int) -> bool:
    """Returns whether a call is a query that found its event pending, and the following call queries it again."""
    op = process.calls.op_row
    if process.kinds[row] != SyncCall.EVENT_QUERY or op[row] != op[following]:
        return False
    if process.sync_records.of(row) != process.sync_records.of(following):
        return False
    event_record = process.named_record(row)
    if event_record is None:
        return True
    ended = process.last_end(queues.sources(event_record.stream, event_record.time))
    return bool(ended + process.timing.clock_uncertainty_ns >= process.start[row])


BlockedWork = Mapping[StreamKey | None, int]
"""What a wait may block: the next activity of each stream, -1 for none, the likeliest first; None is the host."""
HOST: BlockedWork = {None: -1}


class UnresolvedWait(NamedTuple):
    """A wait whose event the trace does not name, and what it may block. In ns: the call returns after `expected_ns`,
    within `reaction_ns` after the awaited end, or, as clocks differ, up to `lead_ns` before it; a single query tells
    nothing.
    """

    call_row: int
    event: int
    blocked: BlockedWork
    expected_ns: int = NEVER
    reaction_ns: int = 0
    lead_ns: int = 0
    is_query: bool = False
    of_stream: bool = False

    @property
    def waiting(self) -> StreamKey | None:
        """The likeliest stream that waits, None for the host."""
        return next(iter(self.blocked))


def unresolved_waits(process: Process, loops: dict[int, Loop], calls: Int64) -> Iterator[UnresolvedWait]:
    """Yields the unresolved ones among the waits of `calls`, in their order."""
    records, kinds, tails = process.sync_records, process.kinds[calls], StreamTails(process.queues)
    is_named = (records.recorder[calls] >= 0) | records.is_before_trace[calls]
    is_named = np.where(kinds == SyncCall.STREAM_SYNC, records.is_recorded[calls], is_named)
    of_collective = (kinds == SyncCall.STREAM_WAIT) & (np.asarray(process.awaited_by_collective)[calls] >= 0)
    calls = calls[isin(kinds, UNRESOLVED_KINDS) & ~is_named & ~of_collective]
    following = tails.before(process.calls.start[calls], following=1)
    is_of_stream = process.kinds[calls] == SyncCall.STREAM_WAIT
    columns = (column.tolist() for column in (calls, is_of_stream, records.event[calls], following))
    for row, blocks_stream, event, targets in zip(*columns, strict=True):
        if not blocks_stream:
            yield _host_wait(process, loops.get(row), row, event)
        elif blocked := _blocked_work(process, row, tails, targets):
            yield UnresolvedWait(row, event, blocked)


def stream_syncs_behind(process: Process, waits: Sequence[UnresolvedWait]) -> Bool:
    """Returns, by call, synchronisations of a stream that itself still has to honour one of these waits, by time."""
    wait_times: dict[StreamKey, list[int]] = defaultdict(list)
    for wait in waits:
        if wait.waiting is not None:
            wait_times[wait.waiting].append(process.start[wait.call_row])
    is_behind = np.zeros(len(process.calls), np.bool_)
    for row in np.flatnonzero(process.kinds == SyncCall.STREAM_SYNC).tolist() if wait_times else ():
        stream, time = process.recorded_stream(row), process.start[row]
        if stream is not None and (before := bisect_left(wait_times.get(stream, ()), time)):
            last_wait = wait_times[stream][before - 1]
            is_behind[row] = process.queues.position(stream, last_wait) == process.queues.position(stream, time)
    return is_behind


def waiting_stream(process: Process, row: int) -> StreamKey | None:
    """Returns the stream that waits: the recorded one, else that of the next launch of the thread; None for unknown."""
    if process.sync_records.of(row) is not None:
        return process.recorded_stream(row)
    time, collectives = process.start[row], process.collectives
    launch = process.next_launch[row]
    if launch < 0:
        return None
    waiting = StreamKey.of(process.activities, launch)
    if process.sync_records.has_stream_waits and process.queues.position(waiting, time):
        # if waits are recorded at all, only those of streams that nothing ran on yet are missing
        return None
    collective = process.collective[row]
    is_launching = collective >= 0 and not collectives.is_wait(collective)
    if is_launching and collectives.enclosing_record(int(process.activities.op_row[launch])) != collective:
        # after its kernel a communication library synchronises internal streams
        return None
    return waiting


def _host_wait(process: Process, loop: Loop | None, row: int, event: int) -> UnresolvedWait:
    """Returns a wait of the host. A loop of queries ends within one iteration after the event."""
    timing, kind, since = process.timing, int(process.kinds[row]), loop.pending if loop else process.start[row]
    clock_error_ns, lead_ns = timing.clock_uncertainty_ns, timing.max_clock_lead_ns
    max_reaction_ns = process.end[row] - since - 1 if loop else 0
    if kind != SyncCall.EVENT_QUERY:
        clock_error_ns, lead_ns = timing.return_error_ns[row], timing.max_return_lead_ns[row]
        max_reaction_ns = timing.max_sync_return_ns[row]
    times = since + max_reaction_ns, max_reaction_ns + clock_error_ns, lead_ns
    is_query = kind == SyncCall.EVENT_QUERY and loop is None
    return UnresolvedWait(row, event, HOST, *times, is_query, kind == SyncCall.STREAM_SYNC)


def _blocked_work(process: Process, row: int, tails: StreamTails, targets: list[int]) -> BlockedWork:
    """Returns what a stream wait may block: the next work of the stream that waits, among the `targets` by stream."""
    # where the stream is not recorded, this is followed by the next work of the other streams
    waiting, start = waiting_stream(process, row), process.activities.start
    if waiting is None:
        return {}
    number = tails.number.get(waiting, -1)
    target = targets[number] if number >= 0 else process.queues.next(waiting, process.start[row])
    blocked: dict[StreamKey | None, int] = {waiting: target}
    if process.sync_records.of(row) is not None or process.collective[row] >= 0:
        return blocked
    soonest = [(key, at) for key, at in zip(tails.streams, targets, strict=True) if at >= 0 and key != waiting]
    if len(soonest) > MOST_BLOCKED:
        latest = sorted(start[at] for _, at in soonest)[MOST_BLOCKED - 1]
        soonest = [each for each in soonest if start[each[1]] <= latest][:MOST_BLOCKED]
    blocked.update(soonest)
    return blocked
