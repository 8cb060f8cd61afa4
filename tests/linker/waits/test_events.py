"""The calls that record events, and what encloses them: by rows made by hand.

Which event record a wait is for, as cuda_sync records say: by the call that recorded the event, else by the event's
id. By rows made by hand.
"""

from dataclasses import replace

import numpy as np
import pytest
from execgraph.linker.communication import CollectiveOps
from execgraph.linker.readers import RecordedEvents, RecordedSyncs
from execgraph.linker.waits.process import EventRecord, EventRecordCalls, SyncRecord, SyncRecords
from execgraph.linker.waits.submissions import CallSites, StreamKey, StreamQueues, ThreadLaunches
from execgraph.schema.columns import Categorical, Int64
from execgraph.schema.linked import Activities, Communication, Provenance, SyncCall, sync_calls
from support.tables import FIRST, Called, Op, Ran, activities, calls, column, ops

RECORD, WAIT, SYNC, QUERY, LAUNCH = (
    "cudaEventRecord",
    "cudaStreamWaitEvent",
    "cudaEventSynchronize",
    "cudaEventQuery",
    "cudaLaunchKernel",
)
NEAR, FAR = StreamKey(0, 7), StreamKey(0, 20)
COLLECTIVE = 2
"""The op that is one, after two that mark steps."""


def event_records(
    *names: str, on: dict[int, int] | None = None, thread: dict[int, int] | None = None, inside: tuple[int, ...] = (),
    second: int = 99, known: dict[int, StreamKey] | None = None, kernels: dict[int, str] | None = None,
) -> EventRecordCalls:  # fmt: skip
    """The event records of calls 100 apart; launches go to stream 7, or to that in `on`, by call.

    `inside` are the calls in the collective, `second` is the call at which the second step begins.
    """
    rows = replace(
        calls(*(Called(100 * row, 100 * row + 50, name) for row, name in enumerate(names))),
        thread=column(*((thread or {}).get(row, 0) for row in range(len(names)))),
        op_row=column(*(COLLECTIVE if row in inside else -1 for row in range(len(names)))),
    )
    launches = [row for row, name in enumerate(names) if name == LAUNCH]
    named = kernels or {}
    ran = [Ran(10_000 + row, 10_500 + row, row, (on or {}).get(row, 7), named.get(row, "kernel")) for row in launches]
    device = replace(activities(*ran), op_row=rows.op_row[launches])
    enclosing_ops = ops(Op("ProfilerStep#1", 0), Op("ProfilerStep#2", 100 * second), Op("record_param_comms"))
    parent = column(-1, -1, -1)
    collectives = CollectiveOps(column(COLLECTIVE), [Communication()], parent, enclosing_ops, {}, parent)
    call_sites, kinds = CallSites(rows, enclosing_ops, parent), sync_calls(rows.name)
    return EventRecordCalls(
        rows,
        kinds,
        device,
        collectives=collectives,
        launches=ThreadLaunches(device, rows),
        call_sites=call_sites,
        known_streams=known or {},
    )


def test_event_records_are_in_the_order_of_time() -> None:
    records = event_records(RECORD, WAIT, RECORD, QUERY, RECORD)
    assert (records.rows.tolist(), records.time.tolist()) == ([0, 2, 4], [0, 200, 400])


def test_before_a_call_comes_the_last_one_for_events_of_its_thread() -> None:
    records = event_records(RECORD, LAUNCH, WAIT, QUERY, RECORD, QUERY, SYNC, QUERY, thread={4: 1})
    assert [records.previous_event_call(call) for call in range(8)] == [-1, -1, 0, 2, -1, 2, 2, 6]
    assert [records.right_before(call) for call in (2, 3)] == [0, -1]


def test_an_event_record_right_before_is_told_by_its_number() -> None:
    records = event_records(LAUNCH, RECORD, RECORD, WAIT, WAIT)
    assert [records.right_before(call) for call in (1, 2, 3, 4)] == [-1, 0, 1, -1]


def test_event_records_are_alike_after_the_same_launch_from_the_same_ops_of_one_thread() -> None:
    alike = event_records(LAUNCH, RECORD, LAUNCH, RECORD)
    assert alike.kind == [0, 0]
    assert [row.tolist() for row, _ in alike.kinds] == [[0, 1]]
    assert [time.tolist() for _, time in alike.kinds] == [[100, 300]]
    for other in (
        event_records(LAUNCH, RECORD, LAUNCH, RECORD, kernels={2: "another"}),
        event_records(LAUNCH, RECORD, LAUNCH, RECORD, thread={2: 1, 3: 1}),
        event_records(LAUNCH, RECORD, LAUNCH, RECORD, inside=(3,)),
        event_records(RECORD, LAUNCH, RECORD),
    ):
        assert other.kind == [0, 1]
        assert [row.tolist() for row, _ in other.kinds] == [[0], [1]]


def test_what_was_launched_in_another_step_is_no_launch_before() -> None:
    assert event_records(LAUNCH, RECORD, RECORD, RECORD, second=2).kind == [0, 1, 1]


def test_event_records_are_likely_on_the_stream_in_use() -> None:
    records = event_records(LAUNCH, LAUNCH, RECORD, LAUNCH, RECORD, on={1: 20})
    assert records.streams == [[FAR, NEAR], [NEAR, FAR]]


def test_an_event_record_right_after_another_one_is_likely_on_another_stream() -> None:
    records = event_records(LAUNCH, LAUNCH, RECORD, RECORD, WAIT, RECORD, on={1: 20})
    assert records.streams == [[FAR, NEAR], [NEAR, FAR], [FAR, NEAR]]


def test_a_known_stream_is_taken() -> None:
    assert event_records(LAUNCH, RECORD, known={1: FAR}).streams == [[FAR]]


def test_a_collective_records_on_its_own_stream_once_it_has_launched() -> None:
    records = event_records(LAUNCH, RECORD, LAUNCH, RECORD, RECORD, on={2: 20}, inside=(1, 2, 3, 4))
    assert records.streams == [[NEAR], [FAR], [FAR]]
    assert records.in_collective == [True, True, True]
    assert [records.enclosing_collective(call) for call in records.rows] == [COLLECTIVE] * 3
    assert event_records(LAUNCH, RECORD).enclosing_collective(1) == -1


@pytest.mark.parametrize(("other_than", "streams"), [(None, [FAR, NEAR]), (FAR, [NEAR]), (NEAR, [FAR])])
def test_streams_in_use_are_told_without_the_one_that_waits(
    other_than: StreamKey | None, streams: list[StreamKey]
) -> None:
    assert event_records(LAUNCH, LAUNCH, WAIT, on={1: 20}).streams_in_use(2, other_than) == streams


def test_the_first_activity_may_be_that_of_the_collective() -> None:
    other = {"on": {1: 20}, "thread": {1: 1}}
    assert event_records(LAUNCH, LAUNCH, RECORD, inside=(0, 2), **other).streams == [[NEAR]]  # type: ignore[arg-type]
    assert event_records(LAUNCH, LAUNCH, RECORD, inside=(2,), **other).streams == [[NEAR, FAR]]  # type: ignore[arg-type]


CALLED = calls(
    Called(0, 50, "cudaEventRecord"),
    Called(100, 150, "cudaEventRecord"),
    Called(200, 250, "cudaStreamWaitEvent"),
    Called(300, 350, "cudaEventRecord"),
    Called(400, 450, "cudaLaunchKernel"),
    Called(500, 550, "cudaStreamWaitEvent"),
    Called(410, 450, "cudaLaunchKernel"),
    Called(600, 650, "cudaStreamWaitEvent"),
)
RAN = activities(Ran(600, 700, 4), Ran(600, 700, 6, stream=20))
LATER, WAITED = 5, 2
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


def named_events(
    records: dict[int, SyncRecord] | None = None, rows: RecordedEvents | None = None, ran: Activities = RAN
) -> SyncRecords:
    """What the trace says of calls, by their rows."""
    records = records or {}
    call = FIRST + column(*records)
    none, kind = np.zeros(len(records), np.int64), Categorical.of("Stream Wait Event" for _ in records)
    columns = (column(*(getattr(one, name) for one in records.values())) for name in SyncRecord._fields[1:])
    device, stream, awaited, recorded, event = columns
    syncs = RecordedSyncs(kind, none, none, none, device, call, stream, awaited, recorded, event)
    return SyncRecords(CALLED, syncs, rows or event_rows(), StreamQueues(ran, CALLED))


def named_event_records() -> EventRecordCalls:
    kinds: Int64 = sync_calls(CALLED.name)
    none, op = column(), ops()
    collectives = CollectiveOps(none, [], none, op, {}, none)
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
    assert named_events({LATER: record(1), WAITED: record(0)}).recorder(LATER) == 1
    assert named_events({LATER: record(0), WAITED: record(1)}).recorder(LATER) == 0
    assert named_events().recorder(LATER) == UNKNOWN
    assert named_events({LATER: record()}).recorder(LATER) == UNKNOWN


@pytest.mark.parametrize("recorded", [WAITED, 3, 77])
def test_no_wait_is_for_a_later_event_record_or_for_one_that_the_trace_does_not_hold(recorded: int) -> None:
    assert named_events({WAITED: record(recorded)}).recorder(WAITED) == UNKNOWN


def test_an_event_recorded_before_the_trace_is_known_to_be() -> None:
    events = named_events({2: record(77), 3: record(1), 4: record(0), 5: record(), 6: record(-FIRST)})
    assert [call for call in range(len(CALLED)) if events.is_before_trace(call)] == [2]
    assert events.awaited.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("call", "said", "recorder"),
    [
        (WAITED, record(event=9), 1),
        (LATER, record(event=9), 3),
        (LATER, record(event=8), 0),
        (0, record(event=9), UNKNOWN),
        (LATER, record(0, event=9), 0),
    ],
)
def test_an_id_means_its_latest_event_record_before_the_wait(call: int, said: SyncRecord, recorder: int) -> None:
    rows = event_rows((3, 7, 9), (0, 7, 9), (1, 7, 9), (0, 7, 8))
    assert named_events({call: said}, rows).recorder(call) == recorder


def test_rows_of_calls_that_the_trace_does_not_hold_name_nothing() -> None:
    events = named_events(
        {WAITED: record(event=8), LATER: record(event=9)}, event_rows((77, 7, 9), (0, 7, 8), (77, 7, 8))
    )
    assert (events.recorder(LATER), events.recorder(WAITED)) == (UNKNOWN, 0)
    assert events.streams() == {0: FIRST_STREAM}


def test_the_stream_of_an_event_record_is_told_by_the_records_of_its_waits_else_by_its_row() -> None:
    records = {2: record(1, stream=20), 4: record(3), 5: record()}
    events = named_events(records, event_rows((0, 7, 9), (1, 7, 9)))
    assert events.streams() == {0: FIRST_STREAM, 1: SECOND_STREAM}


def named_record(said: SyncRecord, *others: SyncRecord) -> EventRecord | None:
    """The event record that the row of the last call names, where other waits have rows, too."""
    last = len(CALLED) - 1
    return named_events({last: said} | dict(enumerate(others, 2))).event_record(last, named_event_records())


def test_a_named_event_record_marks_the_stream_that_is_recorded_for_it_else_that_of_the_wait_else_the_one_in_use() -> (
    None
):
    known = EventRecord(1, 100, SECOND_STREAM, Provenance.RECORD)
    assert named_record(record(1, stream=20)) == known
    assert named_record(record(1, stream=7)) == known._replace(stream=FIRST_STREAM)
    assert named_record(record(1, stream=7), record(1, stream=20)) == known
    assert named_record(record(LATER)) == EventRecord(LATER, 500, SECOND_STREAM, Provenance.RECORD)
    assert named_record(record(1)) is None


def test_an_event_record_on_the_default_stream_is_told() -> None:
    assert named_events(rows=event_rows((0, 0, 9))).streams() == {0: StreamKey(-1, 0)}
    assert named_record(record(1, stream=0)) == EventRecord(1, 100, StreamKey(0, 0), Provenance.RECORD)


def test_an_unknown_stream_is_not_that_of_activities_whose_own_is_unknown() -> None:
    ran = activities(Ran(600, 700, 4, stream=UNKNOWN, device=UNKNOWN))
    assert named_events(rows=event_rows((0, UNKNOWN, 9), (1, 7, 9)), ran=ran).streams() == {1: StreamKey(-1, 7)}
