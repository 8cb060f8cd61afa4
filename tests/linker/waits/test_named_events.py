"""Which event record a wait is for, as cuda_sync records say: by the call that recorded the event, else by the event's
id. By rows made by hand.
"""

import numpy as np
import pytest
from execgraph.linker.communication import CollectiveOps
from execgraph.linker.readers import RecordedEvents, RecordedSyncs
from execgraph.linker.waits import CallSites, EventRecord, StreamKey, StreamQueues
from execgraph.linker.waits.event_record_calls import EventRecordCalls
from execgraph.linker.waits.named_events import NamedEvents, SyncRecord, SyncRecords
from execgraph.linker.waits.streams import ThreadLaunches
from execgraph.schema.columns import Categorical, Int64
from execgraph.schema.linked import Communications, Provenance, SyncCall, sync_calls
from support.tables import FIRST, Called, Ran, activities, calls, column, ops

CALLED = calls(
    Called(0, 50, "cudaEventRecord"),
    Called(100, 150, "cudaEventRecord"),
    Called(200, 250, "cudaStreamWaitEvent"),
    Called(300, 350, "cudaEventRecord"),
    Called(400, 450, "cudaLaunchKernel"),
    Called(500, 550, "cudaStreamWaitEvent"),
    Called(410, 450, "cudaLaunchKernel"),
)
RAN = activities(Ran(600, 700, 4), Ran(600, 700, 6, stream=20))
LATER, WAIT = 5, 2
"""The calls that wait."""
UNKNOWN = -1
FIRST_STREAM, SECOND_STREAM = StreamKey(0, 7), StreamKey(0, 20)


def record(recorded: int = -1 - FIRST, stream: int = -1, event: int = -1) -> SyncRecord:
    """That a call waits for what the call of a row recorded on a stream."""
    return SyncRecord(SyncCall.STREAM_WAIT, 0, 24, stream, FIRST + recorded, event)


def event_rows(*rows: tuple[int, int, int]) -> RecordedEvents:
    """(call, stream, event id) of event records."""
    call, stream, event = (column(*values) for values in (zip(*rows, strict=True) if rows else ((), (), ())))
    return RecordedEvents(0 * call, FIRST + call, stream, event)


def named_events(*records: SyncRecord, rows: RecordedEvents | None = None) -> NamedEvents:
    call = FIRST + np.arange(len(records))
    none, kind = np.zeros(len(records), np.int64), Categorical.of("Stream Wait Event" for _ in records)
    columns = (column(*(getattr(one, name) for one in records)) for name in SyncRecord._fields[1:])
    device, stream, awaited, recorded, event = columns
    syncs = SyncRecords(RecordedSyncs(kind, none, none, none, device, call, stream, awaited, recorded, event))
    return NamedEvents(CALLED, syncs, rows or event_rows(), StreamQueues(RAN, CALLED))


def event_records() -> EventRecordCalls:
    kinds: Int64 = sync_calls(CALLED.name)
    none, op = column(), ops()
    collectives = CollectiveOps(none, Communications.of([]), none, op, {}, none)
    return EventRecordCalls(
        CALLED,
        kinds,
        RAN,
        collectives=collectives,
        launches=ThreadLaunches(RAN, CALLED),
        call_sites=CallSites(CALLED, op, none),
        known_streams={},
    )


def test_a_wait_is_for_what_the_call_recorded_that_its_record_names() -> None:
    events = named_events(record(1), record(0))
    assert events.recorder(LATER, record(1)) == 1
    assert events.recorder(LATER, record(0)) == 0
    assert named_events().recorder(LATER, None) == UNKNOWN
    assert named_events().recorder(LATER, record()) == UNKNOWN


@pytest.mark.parametrize("recorded", [WAIT, 3, 77])
def test_no_wait_is_for_a_later_event_record_or_for_one_that_the_trace_does_not_hold(recorded: int) -> None:
    assert named_events(record(recorded)).recorder(WAIT, record(recorded)) == UNKNOWN


def test_an_event_recorded_before_the_trace_is_known_to_be() -> None:
    events = named_events(record(77), record(1), record(0))
    assert events.is_before_trace(record(77))
    assert not events.is_before_trace(record(1))
    assert not events.is_before_trace(record())
    assert not events.is_before_trace(record(-FIRST))
    assert not events.is_before_trace(None)
    assert events.awaited.tolist() == [0, 1]


def test_an_id_means_its_latest_event_record_before_the_wait() -> None:
    events = named_events(rows=event_rows((3, 7, 9), (0, 7, 9), (1, 7, 9), (0, 7, 8)))
    assert events.recorder(WAIT, record(event=9)) == 1
    assert events.recorder(LATER, record(event=9)) == 3
    assert events.recorder(LATER, record(event=8)) == 0
    assert events.recorder(0, record(event=9)) == UNKNOWN
    assert events.recorder(LATER, record(0, event=9)) == 0


def test_rows_of_calls_that_the_trace_does_not_hold_name_nothing() -> None:
    events = named_events(rows=event_rows((77, 7, 9), (0, 7, 8), (77, 7, 8)))
    assert events.recorder(LATER, record(event=9)) == UNKNOWN
    assert events.recorder(LATER, record(event=8)) == 0
    assert events.streams() == {0: FIRST_STREAM}


def test_the_stream_of_an_event_record_is_told_by_the_records_of_its_waits_else_by_its_row() -> None:
    events = named_events(record(1, stream=20), record(3), record(), rows=event_rows((0, 7, 9), (1, 7, 9)))
    assert events.streams() == {0: FIRST_STREAM, 1: SECOND_STREAM}


def test_a_named_event_record_marks_the_stream_that_is_recorded_for_it_else_that_of_the_wait_else_the_one_in_use() -> (
    None
):
    rows = event_records()
    events = named_events(record(1, stream=20))
    assert events.event_record(1, record(1, stream=7), rows) == EventRecord(1, 100, SECOND_STREAM, Provenance.RECORD)
    assert named_events().event_record(1, record(1, stream=7), rows) == EventRecord(
        1, 100, FIRST_STREAM, Provenance.RECORD
    )
    used = named_events().event_record(LATER, record(LATER), rows)
    assert used == EventRecord(LATER, 500, SECOND_STREAM, Provenance.RECORD)
    assert named_events().event_record(1, record(1), rows) is None


def test_an_event_record_on_the_default_stream_is_told() -> None:
    assert named_events(rows=event_rows((0, 0, 9))).streams() == {0: StreamKey(-1, 0)}
    default = named_events(record(1, stream=0)).event_record(1, record(1, stream=7), event_records())
    assert default is not None and default.stream.stream == 0
    assert named_events().event_record(1, record(1, stream=0), event_records()) == EventRecord(
        1, 100, StreamKey(0, 0), Provenance.RECORD
    )
