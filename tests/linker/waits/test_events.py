"""The calls that record events, and what encloses them: by rows made by hand.

Which event record a wait is for, as cuda_sync records say: by the call that recorded the event, else by the event's
id. By rows made by hand.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from execgraph.linker.communication import CollectiveOps
from execgraph.linker.readers import RecordedEvents, RecordedSyncs
from execgraph.linker.waits.process import EventRecord, Process, SyncRecord, SyncRecords
from execgraph.linker.waits.submissions import StreamKey, StreamQueues
from execgraph.schema.columns import Categorical, Lookup
from execgraph.schema.linked import Activities, Calls, Communication, Provenance
from execgraph.schema.machine import MachineCalibration
from support.tables import FIRST, Called, Op, Ran, activities, calls, column, device_trace, ops

RECORD, WAIT, SYNC, QUERY, LAUNCH = (
    "cudaEventRecord", "cudaStreamWaitEvent", "cudaEventSynchronize", "cudaEventQuery", "cudaLaunchKernel",
)  # fmt: skip
NEAR, FAR = StreamKey(0, 7), StreamKey(0, 20)
COLLECTIVE = 2
"""The op that is one, after two that mark steps."""


def process(called: Calls, ran: Activities, second: int = 99, **tables: Any) -> Process:
    """A process with a collective, and with tables of its device trace; at call `second` the second step begins."""
    enclosing_ops = ops(Op("ProfilerStep#1", 0), Op("ProfilerStep#2", 100 * second), Op("record_param_comms"))
    parent, recorded = column(-1, -1, -1), [Communication()]
    return Process(
        replace(device_trace(), **tables),
        called,
        ran,
        collectives=CollectiveOps(column(COLLECTIVE), recorded, parent, enclosing_ops, {}, parent),
        awaited=Lookup(column(), column()),
        calibration=MachineCalibration(),
    )


def submitted(
    *names: str, on: dict[int, int] | None = None, thread: dict[int, int] | None = None, inside: tuple[int, ...] = (),
    second: int = 99, known: tuple[tuple[int, int, int], ...] = (), kernels: dict[int, str] | None = None,
) -> Process:  # fmt: skip
    """A process with calls 100 apart; launches go to stream 7, or to that in `on`, by call.

    `inside` are the calls in the collective, `known` the rows of event records.
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
    return process(rows, device, second, event_records=event_rows(*known))


def event_rows(*rows: tuple[int, int, int]) -> RecordedEvents:
    """(call, stream, event id) of event records."""
    call, stream, event = (column(*values) for values in (zip(*rows, strict=True) if rows else ((), (), ())))
    return RecordedEvents(0 * call, FIRST + call, stream, event)


def test_event_records_are_in_order_and_the_last_call_for_events_of_a_thread_comes_before_a_call() -> None:
    records = submitted(RECORD, WAIT, RECORD, QUERY, RECORD).event_records
    assert (records.rows.tolist(), records.time.tolist()) == ([0, 2, 4], [0, 200, 400])
    calls_of = submitted(RECORD, LAUNCH, WAIT, QUERY, RECORD, QUERY, SYNC, QUERY, thread={4: 1})
    assert calls_of.previous_event_call.tolist() == [-1, 0, 0, 2, -1, 2, 2, 6]
    assert [calls_of.record_right_before[call] for call in (2, 3)] == [0, -1]
    calls_of = submitted(LAUNCH, RECORD, RECORD, WAIT, WAIT)
    assert [calls_of.record_right_before[call] for call in (1, 2, 3, 4)] == [-1, 0, 1, -1]


def test_event_records_are_alike_after_the_same_launch_from_the_same_ops_of_one_thread() -> None:
    alike = submitted(LAUNCH, RECORD, LAUNCH, RECORD).event_records
    assert alike.kind.tolist() == [0, 0]
    assert [row.tolist() for row, _ in alike.kinds] == [[0, 1]]
    assert [time.tolist() for _, time in alike.kinds] == [[100, 300]]
    for other in (
        submitted(LAUNCH, RECORD, LAUNCH, RECORD, kernels={2: "another"}),
        submitted(LAUNCH, RECORD, LAUNCH, RECORD, thread={2: 1, 3: 1}),
        submitted(LAUNCH, RECORD, LAUNCH, RECORD, inside=(3,)),
        submitted(RECORD, LAUNCH, RECORD),
    ):
        assert sorted(other.event_records.kind) == [0, 1]
        assert sorted(row.tolist() for row, _ in other.event_records.kinds) == [[0], [1]]


def test_what_was_launched_in_another_step_is_no_launch_before() -> None:
    assert submitted(LAUNCH, RECORD, RECORD, RECORD, second=2).event_records.kind.tolist() == [1, 0, 0]


def test_event_records_are_on_the_known_stream_or_likely_on_that_in_use_or_right_after_another_on_another() -> None:
    records = submitted(LAUNCH, LAUNCH, RECORD, LAUNCH, RECORD, on={1: 20}).event_records
    assert records.streams == [[FAR, NEAR], [NEAR, FAR]]
    records = submitted(LAUNCH, LAUNCH, RECORD, RECORD, WAIT, RECORD, on={1: 20}).event_records
    assert records.streams == [[FAR, NEAR], [NEAR, FAR], [FAR, NEAR]]
    assert submitted(LAUNCH, RECORD, LAUNCH, on={2: 20}, known=((1, 20, 9),)).event_records.streams == [[FAR]]


def test_a_collective_records_on_its_own_stream_once_it_has_launched() -> None:
    of_collective = submitted(LAUNCH, RECORD, LAUNCH, RECORD, RECORD, on={2: 20}, inside=(1, 2, 3, 4))
    records = of_collective.event_records
    assert records.streams == [[NEAR], [FAR], [FAR]]
    assert records.in_collective == [True, True, True]
    assert [of_collective.collective[call] for call in records.rows] == [COLLECTIVE] * 3
    assert submitted(LAUNCH, RECORD).collective[1] == -1


@pytest.mark.parametrize(("other_than", "streams"), [(None, [FAR, NEAR]), (FAR, [NEAR]), (NEAR, [FAR])])
def test_streams_in_use_are_told_without_the_one_that_waits(other_than, streams):
    assert submitted(LAUNCH, LAUNCH, WAIT, on={1: 20}).streams_in_use(2, other_than) == streams


def test_the_first_activity_may_be_that_of_the_collective() -> None:
    other = {"on": {1: 20}, "thread": {1: 1}}
    assert submitted(LAUNCH, LAUNCH, RECORD, inside=(0, 2), **other).event_records.streams == [[NEAR]]  # type: ignore[arg-type]
    assert submitted(LAUNCH, LAUNCH, RECORD, inside=(2,), **other).event_records.streams == [[NEAR, FAR]]  # type: ignore[arg-type]


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
    return SyncRecord(0, 24, stream, FIRST + recorded, event, 0)


def sync_rows(records: dict[int, SyncRecord]) -> RecordedSyncs:
    """These records of calls, by their rows."""
    none, kind = np.zeros(len(records), np.int64), Categorical.of("Stream Wait Event" for _ in records)
    device, *others = (column(*(getattr(one, name) for one in records.values())) for name in SyncRecord._fields[:-1])
    return RecordedSyncs(kind, none, none, none, device, FIRST + column(*records), *others)


def named_events(records=None, rows=None, ran=RAN):
    """What the trace says of calls, by their rows."""
    return SyncRecords(CALLED, sync_rows(records or {}), rows or event_rows(), StreamQueues(ran, CALLED))


def test_a_wait_is_for_what_the_call_recorded_that_its_record_names() -> None:
    assert named_events({LATER: record(1), WAITED: record(0)}).recorder[LATER] == 1
    assert named_events({LATER: record(0), WAITED: record(1)}).recorder[LATER] == 0
    assert named_events().recorder[LATER] == UNKNOWN
    assert named_events({LATER: record()}).recorder[LATER] == UNKNOWN


@pytest.mark.parametrize("recorded", [WAITED, 3, 77])
def test_no_wait_is_for_a_later_event_record_or_for_one_that_the_trace_does_not_hold(recorded: int) -> None:
    assert named_events({WAITED: record(recorded)}).recorder[WAITED] == UNKNOWN


def test_an_event_recorded_before_the_trace_is_known_to_be() -> None:
    events = named_events({2: record(77), 3: record(1), 4: record(0), 5: record(), 6: record(-FIRST)})
    assert [call for call in range(len(CALLED)) if events.is_before_trace[call]] == [2]
    assert events.awaited.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("call", "said", "recorder"),
    [
        (WAITED, record(event=9), 1), (LATER, record(event=9), 3), (LATER, record(event=8), 0),
        (0, record(event=9), UNKNOWN), (LATER, record(0, event=9), 0), (LATER, record(), UNKNOWN),
    ],
)  # fmt: skip
def test_an_id_means_its_latest_event_record_before_the_wait(call: int, said: SyncRecord, recorder: int) -> None:
    rows = event_rows((3, 7, 9), (0, 7, 9), (1, 7, 9), (0, 7, 8), (1, 7, -1))
    assert named_events({call: said}, rows).recorder[call] == recorder


def test_rows_of_calls_that_the_trace_does_not_hold_name_nothing() -> None:
    events = named_events(
        {WAITED: record(event=8), LATER: record(event=9)}, event_rows((77, 7, 9), (0, 7, 8), (77, 7, 8))
    )
    assert (events.recorder[LATER], events.recorder[WAITED]) == (UNKNOWN, 0)
    assert events.streams() == {0: FIRST_STREAM}


def test_the_stream_of_an_event_record_is_told_by_the_records_of_its_waits_else_by_its_row() -> None:
    records = {2: record(1, stream=20), 4: record(3), 5: record()}
    events = named_events(records, event_rows((0, 7, 9), (1, 7, 9)))
    assert events.streams() == {0: FIRST_STREAM, 1: SECOND_STREAM}


def named_record(said: SyncRecord, *others: SyncRecord) -> EventRecord | None:
    """The event record that the row of the last call names, where other waits have rows, too."""
    last = len(CALLED) - 1
    return process(CALLED, RAN, syncs=sync_rows({last: said} | dict(enumerate(others, 2)))).named_record(last)


def test_a_named_event_record_marks_the_stream_recorded_for_it_else_that_of_the_wait_else_the_one_in_use() -> None:
    known = EventRecord(100, SECOND_STREAM, Provenance.RECORD)
    assert named_record(record(1, stream=20)) == known
    assert named_record(record(1, stream=7)) == known._replace(stream=FIRST_STREAM)
    assert named_record(record(1, stream=7), record(1, stream=20)) == known
    assert named_record(record(LATER)) == EventRecord(500, SECOND_STREAM, Provenance.RECORD)
    assert named_record(record(1)) is None
    assert named_events(rows=event_rows((0, 0, 9))).streams() == {0: StreamKey(-1, 0)}
    assert named_record(record(1, stream=0)) == EventRecord(100, StreamKey(-1, 0), Provenance.RECORD)
    ran = activities(Ran(600, 700, 4, stream=UNKNOWN, device=UNKNOWN))
    assert named_events(rows=event_rows((0, UNKNOWN, 9), (1, 7, 9)), ran=ran).streams() == {1: StreamKey(-1, 7)}
