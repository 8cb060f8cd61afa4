"""Event queries of a process: which are answered, and which make up one loop.

A query is a wait only if the event had happened, and then the queries right before it that found it pending are part of
the wait.
"""

from typing import NamedTuple

import numpy as np

from ...schema.columns import Bool
from ..readers import SyncCall
from .events import EventRecord
from .process import Process
from .streams import StreamKey, StreamQueues, calls_before


class Loop(NamedTuple):
    """Queries for one event right after each other: when the first one began, and when the last that found it pending
    did.
    """

    since: int
    pending: int


class EventQueryLoops(NamedTuple):
    """The loops by their last query, the queries that others of their loop follow, and which calls are of threads that
    only look on.
    """

    loops: dict[int, Loop]
    asked_again: set[int]
    by_observer: Bool

    def is_answered(self, row: int) -> bool:
        """Returns whether a query is the last of its loop, and none of a thread that only looks on."""
        return not self.by_observer[row] and row not in self.asked_again


def event_query_loops(process: Process, looks_on: Bool) -> EventQueryLoops:
    """Queries for one event that follow each other in one op are a loop.

    Those of a memory allocator are spread over the ops that allocate, and what is known to have happened is not asked
    for again.
    """
    call_before, loops, asked_again = calls_before(process.calls), dict[int, Loop](), set[int]()
    queries = np.flatnonzero((process.kinds == SyncCall.EVENT_QUERY) & ~looks_on)
    queues = _with_named_waits(process) if len(queries) else process.queues
    for row in queries[np.argsort(process.calls.start[queries], kind="stable")].tolist():
        before = int(call_before[row])
        if before >= 0 and _is_asked_again(process, queues, before, row):
            asked_again.add(before)
            pending = process.start(before)
            loops[row] = Loop(loops[before].since if before in loops else pending, pending)
    return EventQueryLoops(loops, asked_again, looks_on)


def _with_named_waits(process: Process) -> StreamQueues:
    """Returns the queues with the stream waits that records name: what a stream waited for is part of an event recorded
    there later.
    """
    queues = StreamQueues(process.activities, process.calls)
    waits = np.flatnonzero(process.kinds == SyncCall.STREAM_WAIT)
    for row in waits[np.argsort(process.calls.start[waits], kind="stable")].tolist():
        recording, waiting = process.named(row), process.recorded_stream(row)
        if recording is not None and waiting is not None:
            queues.add_wait(_known(queues, waiting), process.start(row), _sources(queues, recording))
    return queues


def _is_asked_again(process: Process, queues: StreamQueues, row: int, following: int) -> bool:
    """Returns whether a call is a query that found its event pending, for which the following one asks again."""
    op = process.calls.op_row
    if process.kinds[row] != SyncCall.EVENT_QUERY or op[row] != op[following]:
        return False
    if process.record(row) != process.record(following):
        return False
    named = process.named(row)
    if named is None:
        return True
    ended = process.last_end(_sources(queues, named))
    return bool(ended + process.evidence.clock_uncertainty_ns >= process.start(row))


def _sources(queues: StreamQueues, recording: EventRecord) -> tuple[int, ...]:
    return queues.sources(_known(queues, recording.stream), recording.time)


def _known(queues: StreamQueues, stream: StreamKey) -> StreamKey:
    """Returns the stream, which has a queue from now on though nothing ran on it."""
    return queues.find(*stream) or stream
