"""The calls that record events, and what encloses them: by rows made by hand."""

from dataclasses import replace

import pytest
from execgraph.linker.communication import CollectiveOps
from execgraph.linker.waits import CallSites, StreamKey
from execgraph.linker.waits.event_record_calls import EventRecordCalls
from execgraph.linker.waits.streams import ThreadLaunches
from execgraph.schema.linked import Communication, Communications, sync_calls
from support.tables import Called, Op, Ran, activities, calls, column, ops

RECORD, WAIT, SYNC, QUERY, LAUNCH = (
    "cudaEventRecord",
    "cudaStreamWaitEvent",
    "cudaEventSynchronize",
    "cudaEventQuery",
    "cudaLaunchKernel",
)
FIRST, SECOND = StreamKey(0, 7), StreamKey(0, 20)
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
    collectives = CollectiveOps(
        column(COLLECTIVE), Communications.of([Communication()]), parent, enclosing_ops, {}, parent
    )
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


def test_only_synchronisations_hold_the_host() -> None:
    records = event_records(SYNC, RECORD, WAIT, QUERY, SYNC)
    assert [records.is_event_sync(call) for call in (-1, 0, 1, 2, 3)] == [False, True, False, False, False]


def test_event_records_are_alike_after_the_same_launch_from_the_same_ops_of_one_thread() -> None:
    alike = event_records(LAUNCH, RECORD, LAUNCH, RECORD)
    assert alike.kind == [0, 0]
    assert [kind.row.tolist() for kind in alike.kinds] == [[0, 1]]
    assert [kind.time.tolist() for kind in alike.kinds] == [[100, 300]]
    for other in (
        event_records(LAUNCH, RECORD, LAUNCH, RECORD, kernels={2: "another"}),
        event_records(LAUNCH, RECORD, LAUNCH, RECORD, thread={2: 1, 3: 1}),
        event_records(LAUNCH, RECORD, LAUNCH, RECORD, inside=(3,)),
        event_records(RECORD, LAUNCH, RECORD),
    ):
        assert other.kind == [0, 1]
        assert [kind.row.tolist() for kind in other.kinds] == [[0], [1]]


def test_what_was_launched_in_another_step_is_no_launch_before() -> None:
    assert event_records(LAUNCH, RECORD, RECORD, RECORD, second=2).kind == [0, 1, 1]


def test_event_records_are_likely_on_the_stream_in_use() -> None:
    records = event_records(LAUNCH, LAUNCH, RECORD, LAUNCH, RECORD, on={1: 20})
    assert records.streams == [[SECOND, FIRST], [FIRST, SECOND]]


def test_an_event_record_right_after_another_one_is_likely_on_another_stream() -> None:
    records = event_records(LAUNCH, LAUNCH, RECORD, RECORD, WAIT, RECORD, on={1: 20})
    assert records.streams == [[SECOND, FIRST], [FIRST, SECOND], [SECOND, FIRST]]


def test_a_known_stream_is_taken() -> None:
    assert event_records(LAUNCH, RECORD, known={1: SECOND}).streams == [[SECOND]]


def test_a_collective_records_on_its_own_stream_once_it_has_launched() -> None:
    records = event_records(LAUNCH, RECORD, LAUNCH, RECORD, RECORD, on={2: 20}, inside=(1, 2, 3, 4))
    assert records.streams == [[FIRST], [SECOND], [SECOND]]
    assert records.in_collective == [True, True, True]
    assert [records.enclosing_collective(call) for call in records.rows] == [COLLECTIVE] * 3
    assert event_records(LAUNCH, RECORD).enclosing_collective(1) == -1


@pytest.mark.parametrize(("other_than", "streams"), [(None, [SECOND, FIRST]), (SECOND, [FIRST]), (FIRST, [SECOND])])
def test_streams_in_use_are_told_without_the_one_that_waits(
    other_than: StreamKey | None, streams: list[StreamKey]
) -> None:
    assert event_records(LAUNCH, LAUNCH, WAIT, on={1: 20}).streams_in_use(2, other_than) == streams


def test_the_first_activity_may_be_that_of_the_collective() -> None:
    other = {"on": {1: 20}, "thread": {1: 1}}
    assert event_records(LAUNCH, LAUNCH, RECORD, inside=(0, 2), **other).streams == [[FIRST]]  # type: ignore[arg-type]
    assert event_records(LAUNCH, LAUNCH, RECORD, inside=(2,), **other).streams == [[FIRST, SECOND]]  # type: ignore[arg-type]
