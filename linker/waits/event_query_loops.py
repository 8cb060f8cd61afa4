"""Event queries of a process: which of them are waits, and which queries make up one polling loop.

A query is a wait only if the event had happened. The queries right before it that found the event pending are then part
of the wait.
"""

from typing import NamedTuple

import numpy as np

from ...schema.columns import Bool
from ...schema.linked import SyncCall
from .named_events import EventRecord
from .process import Process
from .streams import StreamKey, StreamQueues, calls_before


class Loop(NamedTuple):
    """Queries for one event right after each other. Times in ns.

    `since` is when the first query began, `pending` when the last one began that found the event pending.
    """

    since: int
    pending: int


class EventQueryLoops(NamedTuple):
    """The loops by their last query, the queries that another one of their loop follows, and the calls of observers.

    An observer is a thread that runs no op and launches nothing; `by_observer` says which calls are of observers.
    """

    loops: dict[int, Loop]
    repeated: set[int]
    by_observer: Bool

    def is_answered(self, row: int) -> bool:
        """Returns whether a query is the last of its loop, and not of an observer."""
        return not self.by_observer[row] and row not in self.repeated


def event_query_loops(process: Process, by_observer: Bool) -> EventQueryLoops:
    """Returns the loops: queries for one event that follow each other in one op.

    Queries of a memory allocator are spread over the ops that allocate. A query after an event is known to have
    happened starts a new loop.
    """
    call_before, loops, repeated = calls_before(process.calls), dict[int, Loop](), set[int]()
    queries = np.flatnonzero((process.kinds == SyncCall.EVENT_QUERY) & ~by_observer)
    queues = _with_named_waits(process) if len(queries) else process.queues
    for row in queries[np.argsort(process.calls.start[queries], kind="stable")].tolist():
        before = int(call_before[row])
        if before >= 0 and _is_repeated(process, queues, before, row):
            repeated.add(before)
            pending = process.start(before)
            loops[row] = Loop(loops[before].since if before in loops else pending, pending)
    return EventQueryLoops(loops, repeated, by_observer)


def _with_named_waits(process: Process) -> StreamQueues:
    """Returns the queues with the stream waits whose event the trace names.

    An event that is recorded on a stream later covers what the stream waited for.
    """
    queues = StreamQueues(process.activities, process.calls)
    waits = np.flatnonzero(process.kinds == SyncCall.STREAM_WAIT)
    for row in waits[np.argsort(process.calls.start[waits], kind="stable")].tolist():
        event_record, waiting = process.named_record(row), process.recorded_stream(row)
        if event_record is not None and waiting is not None:
            queues.add_wait(_with_queue(queues, waiting), process.start(row), _sources(queues, event_record))
    return queues


def _is_repeated(process: Process, queues: StreamQueues, row: int, following: int) -> bool:
    """Returns whether a call is a query that found its event pending, and the following call queries it again."""
    op = process.calls.op_row
    if process.kinds[row] != SyncCall.EVENT_QUERY or op[row] != op[following]:
        return False
    if process.sync_record(row) != process.sync_record(following):
        return False
    event_record = process.named_record(row)
    if event_record is None:
        return True
    ended = process.last_end(_sources(queues, event_record))
    return bool(ended + process.timing.clock_uncertainty_ns >= process.start(row))


def _sources(queues: StreamQueues, event_record: EventRecord) -> tuple[int, ...]:
    return queues.sources(_with_queue(queues, event_record.stream), event_record.time)


def _with_queue(queues: StreamQueues, stream: StreamKey) -> StreamKey:
    """Returns the stream, which gets an empty queue if nothing ran on it."""
    queues.find(*stream)
    return stream
