"""Waits of which the trace does not say what for: what each may hold up, and by when that goes on."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ...schema.traces import NEVER
from ..readers import SyncCall
from ..submissions import EventQueryLoops, Process, StreamKey


class BlockedWork(NamedTuple):
    """What a wait may hold up: the next activity of a stream, -1 for none; the host where `stream` is None."""

    stream: StreamKey | None
    target: int


HOST = BlockedWork(None, -1)
MOST_HELD = 16
"""Streams besides its own that a wait may hold up, those that run something soonest after it. Each of them is tried."""


class UnresolvedWait(NamedTuple):
    """A wait of which the trace does not say what for. `blocked` is what it may hold up, the likeliest first.

    The host waits from `since` on, and goes on within `max_reaction_ns`. A call that just asks (`is_query`) and goes on
    says nothing by its time; one `of_stream` waits for all that a stream was given so far.
    """

    call_row: int
    event: int
    blocked: tuple[BlockedWork, ...]
    since: int
    max_reaction_ns: int
    is_query: bool = False
    of_stream: bool = False

    def target(self, held: BlockedWork) -> int:
        """Returns the activity that this wait holds up on the stream that another one of its place does, -1 for none."""
        return next((one.target for one in self.blocked if one.stream == held.stream), -1)


def unresolved_waits(process: Process, queries: EventQueryLoops, calls: Iterable[int]) -> Iterator[UnresolvedWait]:
    """Yields those among `calls`, in their order."""
    busiest = process.queues.busiest()
    for row in calls:
        record, kind = process.record(row), process.kinds[row]
        event = record.event if record is not None else -1
        if kind == SyncCall.STREAM_SYNC and record is None:
            yield _on_host(process, queries, row, -1)._replace(of_stream=True)
        elif process.is_named(row) or process.events.is_before_trace(record):
            continue
        elif kind == SyncCall.STREAM_WAIT and process.named_by_collective(row) < 0:
            held = tuple(_held_up(process, row, busiest))
            if held:
                yield UnresolvedWait(row, event, held, NEVER, 0)
        elif kind == SyncCall.EVENT_SYNC or (kind == SyncCall.EVENT_QUERY and queries.is_answered(row)):
            yield _on_host(process, queries, row, event)


def waiting_stream(process: Process, row: int) -> StreamKey | None:
    """Returns the stream that waits: the one that is recorded, else that of what the thread launches next."""
    return process.recorded_stream(row) if process.record(row) is not None else _next_stream(process, row)


def _on_host(process: Process, queries: EventQueryLoops, row: int, event: int) -> UnresolvedWait:
    """Returns a wait of the host; that of a loop of queries is over within a turn of it."""
    loop, start = queries.loops.get(row), process.start(row)
    if process.kinds[row] != SyncCall.EVENT_QUERY:
        return UnresolvedWait(row, event, (HOST,), start, process.evidence.wake(row))
    if loop is None:
        return UnresolvedWait(row, event, (HOST,), start, 0, is_query=True)
    return UnresolvedWait(row, event, (HOST,), loop.pending, process.end(row) - loop.pending - 1)


def _held_up(process: Process, row: int, busiest: Sequence[StreamKey]) -> Iterator[BlockedWork]:
    """Yields what a stream wait may hold up: the next work of the stream that waits; where that is not recorded, of the
    `busiest` others, too.
    """
    waiting, queues = waiting_stream(process, row), process.queues
    if waiting is None:
        return
    yield BlockedWork(waiting, queues.next(waiting, process.start(row)))
    if process.record(row) is None and process.collective(row) < 0:
        others = [BlockedWork(key, queues.next(key, process.start(row))) for key in busiest if key != waiting]
        others = [held for held in others if held.target >= 0]
        soonest = {*sorted(others, key=lambda held: int(process.activities.start[held.target]))[:MOST_HELD]}
        yield from (held for held in others if held in soonest)


def _next_stream(process: Process, row: int) -> StreamKey | None:
    """Returns the stream that an unrecorded wait holds back: that of the thread's next launch, where this can be told."""
    time, collectives = process.start(row), process.collectives
    launch = process.launches.next_launch(int(process.calls.thread[row]), time)
    if launch < 0:
        return None
    waiting = process.launches.stream_of(launch)
    if process.has_wait_records and process.queues.position(waiting, time):
        # with records on, only waits of streams that nothing ran on yet go unrecorded
        return None
    around = process.collective(row)
    inside = around >= 0 and not collectives.is_wait(around)
    if inside and collectives.around(int(process.activities.op_row[launch])) != around:
        # after its kernel a communication library synchronises streams of its own
        return None
    return waiting
