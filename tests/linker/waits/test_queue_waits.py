"""Waits that a device's own queues record, by rows made by hand; times are in ns."""

from typing import NamedTuple

from execgraph.linker.readers import RecordedQueueEvents
from execgraph.linker.waits import StreamQueues
from execgraph.linker.waits.queue_waits import queue_waits
from support.tables import Called, Ran, activities, calls, column

RAN = [Ran(100, 200, 0, stream=0), Ran(300, 400, 0, stream=0), Ran(350, 420, 0, stream=5), Ran(500, 600, 0, stream=5)]


class Queued(NamedTuple):
    """An event record of a stream, or its wait for the event record of that number on the stream `awaited`."""

    stream: int
    number: int
    start: int
    awaited: int = -1
    device: int = 0


def waits(*rows: Queued) -> list[tuple[int, int]]:
    start = column(*(row.start for row in rows))
    events = RecordedQueueEvents(
        device=column(*(row.device for row in rows)),
        stream=column(*(row.stream for row in rows)),
        awaited=column(*(row.awaited for row in rows)),
        sequence=column(*(row.number for row in rows)),
        start=start,
        end=start + 1,
    )
    queues = StreamQueues(activities(*RAN), calls(Called(0, 50)))
    return list(queue_waits(events, queues, [ran.start for ran in RAN]))


def test_a_stream_that_waits_follows_the_last_activity_before_the_event_record() -> None:
    assert waits(Queued(0, 3, 250), Queued(5, 3, 240, awaited=0)) == [(0, 2)]
    assert waits(Queued(0, 3, 301), Queued(5, 3, 400, awaited=0)) == [(1, 3)]


def test_what_began_before_the_event_record_was_made_is_not_blocked() -> None:
    assert waits(Queued(0, 3, 450), Queued(5, 3, 240, awaited=0)) == [(1, 3)]


def test_a_wait_may_be_for_nothing_or_block_nothing_that_was_recorded() -> None:
    assert waits(Queued(0, 3, 100), Queued(5, 3, 240, awaited=0)) == [(-1, 2)]
    assert waits(Queued(0, 3, 450), Queued(5, 3, 501, awaited=0)) == [(1, -1)]
    assert waits(Queued(0, 4, 250), Queued(5, 3, 240, awaited=0)) == [(-1, 2)]
    assert waits(Queued(0, 3, 250, device=1), Queued(5, 3, 240, awaited=0)) == [(-1, 2)]
    assert waits(Queued(7, 3, 250), Queued(9, 3, 240, awaited=7)) == [(-1, -1)]
