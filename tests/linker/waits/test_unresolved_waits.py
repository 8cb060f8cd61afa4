"""No wait is lost silently: what blocked nothing, or could not be resolved, is counted by reason.

Which queries for an event are one loop, by rows made by hand.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from execgraph.linker.waits import Process
from execgraph.linker.waits.submissions import StreamKey
from execgraph.linker.waits.unresolved_waits import (
    HOST,
    MOST_BLOCKED,
    Loop,
    UnresolvedWait,
    event_query_loops,
    stream_syncs_behind,
    unresolved_waits,
)
from execgraph.schema.columns import ROUNDING
from execgraph.schema.machine import ENOUGH, LatencyStats, MachineCalibration
from execgraph.schema.reasons import Reason
from support.builder.records import Event
from support.builder.timeline import TraceBuilder
from support.runs import UNRECORDED, WITHOUT_EVENT, device_waits, host_waits, link_run, scripted
from support.tables import Called, Ran, Synced, process

EVENT_QUERY = "cudaEventQuery"
EXACT = MachineCalibration(sync_return={"": LatencyStats(0, 0, 9)})
"""Calls return right after what they waited for has ended, so that only rounding is left of the clocks' error."""


def queried(*starts: int, ended: int = 1_000, observers: tuple[int, ...] = ()) -> tuple[dict[int, Loop], list[int]]:
    """Of queries of 10 ns at these times for an event of stream 7, recorded by call 1, after work that `ended`."""
    called = [Called(0, 5), Called(10, 15, "cudaEventRecord"), *(Called(at, at + 10, EVENT_QUERY) for at in starts)]
    told = [Synced("Event Sync", 2 + row, awaited=7, recorded=1) for row in range(len(starts))]
    made = process([Ran(20, ended, 0)], called, *told, calibration=EXACT)
    loops, is_repeated = event_query_loops(made, np.isin(np.arange(len(called)), observers))
    return loops, np.flatnonzero(is_repeated).tolist()


def test_queries_that_follow_each_other_while_the_event_is_pending_are_a_loop() -> None:
    assert queried(100, 200, 300) == ({3: Loop(100, 100), 4: Loop(100, 200)}, [2, 3])


@pytest.mark.parametrize(("ended", "is_loop"), [(99 - ROUNDING, False), (100 - ROUNDING, True)])
def test_a_query_that_began_after_the_event_by_all_clocks_was_answered(ended: int, is_loop: bool) -> None:
    assert bool(queried(100, 200, ended=ended)[0]) == is_loop


def test_observers_query_for_themselves() -> None:
    assert queried(100, 200, observers=(2, 3)) == ({}, [])


def of_calls(*called: Called, ops: tuple[int, ...] | None = None) -> dict[int, Loop]:
    """The loops of calls of which no record tells."""
    made: Process = process([Ran(500, 600, 0)], called)
    if ops:
        made.calls = replace(made.calls, op_row=np.array(ops))
    return loops_of(made)


def loops_of(made: Process) -> dict[int, Loop]:
    return event_query_loops(made, np.zeros(len(made.calls), np.bool_))[0]


FIRST, SECOND = Called(10, 15, EVENT_QUERY), Called(20, 25, EVENT_QUERY)


def test_without_records_queries_of_one_op_right_after_each_other_are_a_loop() -> None:
    assert of_calls(Called(0, 5), FIRST, SECOND) == {2: Loop(10, 10)}
    assert of_calls(FIRST, SECOND, Called(0, 5)) == {1: Loop(10, 10)}
    assert of_calls(Called(0, 5), FIRST, Called(16, 18), SECOND) == {}
    assert of_calls(Called(0, 5), SECOND) == {}
    # a memory allocator queries in each op that allocates
    assert of_calls(Called(0, 5), FIRST, SECOND, ops=(-1, 4, 4)) == {2: Loop(10, 10)}
    assert of_calls(Called(0, 5), FIRST, SECOND, ops=(-1, 4, 5)) == {}
    # the last call of the table is no call before it
    assert of_calls(FIRST, Called(30, 35), Called(5, 6, EVENT_QUERY), ops=(1, 1, 2)) == {}


def test_an_event_of_a_stream_that_waited_for_another_is_pending_as_long_as_that() -> None:
    """Also where nothing ran on the stream that waited."""
    called = [
        Called(0, 5), Called(10, 15, "cudaEventRecord"), Called(20, 25, "cudaStreamWaitEvent"),
        Called(30, 35, "cudaEventRecord"), *(Called(at, at + 10, EVENT_QUERY) for at in (100, 200)),
    ]  # fmt: skip
    told = [
        Synced("Stream Wait Event", 2, stream=20, awaited=7, recorded=1),
        *(Synced("Event Sync", query, awaited=20, recorded=3) for query in (4, 5)),
    ]
    for ended, loops in ((1_000, {5: Loop(100, 100)}), (50, {})):
        made = process([Ran(40, ended, 0)], called, *told, calibration=EXACT)
        assert loops_of(made) == loops


@pytest.mark.parametrize("told", [{"stream": 20}, {"awaited": 7, "recorded": 1}], ids=["no event", "no stream"])
def test_a_stream_wait_that_is_recorded_in_part_tells_nothing(told: dict[str, int]) -> None:
    called = [
        Called(0, 5),
        Called(10, 15, "cudaEventRecord"),
        Called(20, 25, "cudaStreamWaitEvent"),
        *(Called(at, at + 10, EVENT_QUERY) for at in (100, 200)),
    ]
    queries = [Synced("Event Sync", query, awaited=7, recorded=1) for query in (3, 4)]
    made = process([Ran(40, 1_000, 0)], called, Synced("Stream Wait Event", 2, **told), *queries)
    assert loops_of(made) == {4: Loop(100, 100)}


def test_queries_for_different_recorded_events_are_no_loop() -> None:
    called = [
        *(Called(at, at + 5, "cudaEventRecord") for at in (0, 10)),
        *(Called(at, at + 5, EVENT_QUERY) for at in (100, 200)),
    ]
    for told in (
        [Synced("Event Sync", 2 + row, awaited=7, recorded=row) for row in range(2)],
        [Synced(kind, 2 + row) for row, kind in enumerate(("Event Sync", "Stream Sync"))],
    ):
        made = process([Ran(40, 1_000)], called, *told)
        assert loops_of(made) == {}


ELSEWHERE = Event(9, stream=24, correlation=9_999)
"""Recorded before the trace began."""


def begun(**known: bool) -> TraceBuilder:
    """A run that has an op and a kernel."""
    t = TraceBuilder(**known)  # type: ignore[arg-type]
    t.leaf("aten::empty", 1)
    t.launch("kernel", 7, 5)
    t.idle(50)
    return t


@pytest.mark.parametrize(
    "script", ["k@7; 7>7; next@7", "k@7; other@20; 7>20", "k@7; 20>7; next@7"], ids=["own", "no work", "for nothing"]
)
def test_a_stream_wait_that_held_nothing_back_is_noted(script: str) -> None:
    linked = link_run(scripted(script))
    assert linked.report.oddities[Reason.BLOCKS_NOTHING] == 1
    assert (device_waits(linked), linked.report.waits, linked.report.dropped) == (set(), {}, {})


def test_a_stream_wait_that_is_not_recorded_and_that_no_work_follows_is_lost() -> None:
    t = begun(**UNRECORDED)
    t.wait_event(t.record_event(stream=7), stream=20)
    assert link_run(t).report.dropped == {Reason.NO_WORK_FOLLOWED: 1}


def test_waits_for_what_was_recorded_before_the_trace_are_lost() -> None:
    t = begun()
    t.record_event(stream=7)
    t.wait_event(ELSEWHERE, stream=20)
    t.launch("next", 20, 5)
    t.event_synchronize(ELSEWHERE)
    t.event_query(ELSEWHERE)
    linked = link_run(t)
    expected = {Reason.STREAM_WAIT_WITHOUT_EVENT: 1, Reason.EVENT_SYNC_WITHOUT_EVENT: 1, Reason.QUERY_WITHOUT_EVENT: 1}
    assert linked.report.dropped == expected
    assert (device_waits(linked), linked.report.guessed) == (set(), {})
    assert host_waits(linked) == {("", "cudaEventSynchronize")}


@pytest.mark.parametrize("known", [WITHOUT_EVENT, UNRECORDED], ids=["number", "calls"])
def test_waits_where_nothing_was_recorded_are_lost(known: dict[str, bool]) -> None:
    t = begun(**known)
    t.event_synchronize(Event(9))
    t.event_query(Event(9))
    assert link_run(t).report.dropped == {Reason.EVENT_SYNC_WITHOUT_EVENT: 1, Reason.QUERY_WITHOUT_EVENT: 1}


@pytest.mark.parametrize("wait", ["stream_synchronize", "device_synchronize"])
def test_a_synchronisation_that_nothing_recorded_was_pending_for_is_noted(t: TraceBuilder, wait: str) -> None:
    t.leaf("aten::empty", 1)
    getattr(t, wait)()
    linked = link_run(t)
    assert linked.report.oddities[Reason.WAITS_FOR_NOTHING] == 1
    assert linked.report.waits == {}


def test_queries_of_a_thread_that_only_looks_on_are_noted() -> None:
    t = begun()
    event = t.record_event(stream=7)
    with t.thread(9):
        t.event_query(event)
    assert link_run(t).report.oddities[Reason.OBSERVER_QUERIES] == 1


def test_a_loop_of_queries_waits_from_its_first_one_on() -> None:
    t = begun()
    t.launch("long", 7, 100)
    event = t.record_event(stream=7)
    began, pending = t.now, 0
    while not t.event_query(event):
        t.work(20)
        pending += 1
    linked = link_run(t)
    assert [since - t.origin_ns for since in linked.host_waits.since.tolist()] == [1_000 * began]
    assert linked.report.waits[Reason.PENDING_QUERIES] == pending > 1


def test_waits_that_contradict_the_clock_are_lost() -> None:
    t = begun()
    for number in range(3):
        t.launch("early", 20 + number, 5, start=t.now + 4)
    t.launch("long", 7, 500)
    event = t.record_event(stream=7)
    t.syncs.clear()
    t.call("cudaStreamSynchronize", 5)
    t.stream_synchronize(7)
    t.syncs = [replace(t.syncs[-1], correlation=t.calls[-2].correlation)]
    t.wait_event(event, stream=24)
    t.launch("impossible", 24, 5, start=t.ready[7] / 1000 - 100)
    linked = link_run(t)
    assert linked.report.dropped[Reason.EVENT_WAIT_AGAINST_CLOCK] == 1
    assert linked.report.dropped[Reason.HOST_WAIT_AGAINST_CLOCK] == 1
    assert device_waits(linked) == set()


def test_the_first_call_of_a_trace_may_record_an_event(t: TraceBuilder) -> None:
    t.activity("before the trace", 7, 0, 50)
    t.wait_event(t.record_event(stream=7), stream=20)
    t.launch("waits", 20, 5)
    t.leaf("aten::add", 5)
    assert device_waits(link_run(t)) == {("before the trace", "waits")}


@pytest.mark.parametrize("second", [False, True])
def test_freeing_memory_waits_for_the_devices_whose_work_had_ended(second: bool) -> None:
    t = begun(**UNRECORDED)
    t.launch("here", 7, 100)
    t.launch("there", 20, 1_000 if second else 50)
    t.activities[-1].device = 1
    t.call("cudaFree", 200)
    awaited = {("here", "cudaFree")} if second else {("here", "cudaFree"), ("there", "cudaFree")}
    assert host_waits(link_run(t)) == awaited


@pytest.mark.parametrize(("event_records", "further_back"), [(64, 0), (65, 1)])
def test_a_wait_that_may_be_for_an_event_record_further_back_than_is_tried_is_noted(event_records, further_back):
    """All are on the stream that waits, none of which it can be for."""
    t = TraceBuilder(**UNRECORDED)
    for _ in range(event_records):
        t.launch("work", 7, 1)
        event = t.record_event(stream=7)
    t.wait_event(event, stream=7)
    t.launch("after", 7, 1)
    t.launch("other", 20, 1)
    t.leaf("aten::add", 5)
    noted = link_run(t).report.oddities
    assert noted.get(Reason.BEYOND_LAST_RECORDS.of("64"), 0) == further_back


# What a wait may block, and by when the blocked work goes on

RECORD, WAIT, SYNC, QUERY, STREAM_SYNC = (
    "cudaEventRecord", "cudaStreamWaitEvent", "cudaEventSynchronize", "cudaEventQuery", "cudaStreamSynchronize",
)  # fmt: skip
COLLECTIVE, WAIT_OP = "allreduce", "wait"


def on_streams(*streams: int, at: int = 100) -> tuple[list[Ran], list[Called]]:
    """Launches 10 apart from a time on, to one stream each; what is launched first runs last."""
    called = [Called(at + 10 * row, at + 10 * row + 5) for row in range(len(streams))]
    return [Ran(9_000 - 100 * row, 9_050 - 100 * row, row, stream) for row, stream in enumerate(streams)], called


def listed(made: Process) -> list[UnresolvedWait]:
    loops, is_repeated = event_query_loops(made, np.zeros(len(made.calls), np.bool_))
    calls_in_order = np.argsort(made.calls.start, kind="stable")
    return list(unresolved_waits(made, loops, calls_in_order[~is_repeated[calls_in_order]]))


def blocked_by(ran: list[Ran], called: list[Called], *synced: Synced, **more: Any) -> list[tuple[int, int]]:
    """(stream, activity) that the only unresolved wait may block."""
    [wait] = listed(process(ran, called, *synced, **more))
    return [(key.stream if key else -1, target) for key, target in wait.blocked.items()]


def test_a_stream_wait_may_block_the_stream_of_the_next_launch_and_all_others_that_go_on() -> None:
    ran, called = on_streams(20, 7, 24)
    ran.append(Ran(10, 20, 4, 28))  # which nothing follows
    called += [Called(50, 55, WAIT), Called(0, 5)]
    ran.reverse()
    assert blocked_by(ran, called) == [(20, 3), (7, 2), (24, 1)]
    ran.append(ran.pop(0))
    assert blocked_by(ran, called) == [(20, 2), (7, 1), (24, 0)]


def test_a_wait_blocks_its_recorded_stream_or_those_that_run_something_soonest_if_its_thread_goes_on() -> None:
    ran, called = on_streams(20, 7, 24)
    told = Synced("Stream Wait Event", 3, stream=7)
    assert blocked_by(ran, [*called, Called(50, 55, WAIT)], told) == [(7, 1)]
    ran, called = on_streams(*range(MOST_BLOCKED + 3))
    streams = [stream for stream, _ in blocked_by(ran, [*called, Called(50, 55, WAIT)])]
    assert streams == [0, *range(3, MOST_BLOCKED + 3)]
    ran, called = on_streams(20, 7, at=0)
    assert listed(process(ran, [*called, Called(50, 55, WAIT)])) == []


def test_where_waits_are_recorded_only_a_stream_without_work_has_waits_that_are_not() -> None:
    ran, called = on_streams(20, 7, 7)
    told = Synced("Stream Wait Event", 4, stream=7)
    called += [Called(50, 55, WAIT), Called(115, 116, WAIT)]
    first, other = listed(process(ran, called, told))
    assert [next(iter(wait.blocked.items())) for wait in (first, other)] == [((0, 20), 0), ((0, 7), 2)]
    called[3] = Called(108, 109, WAIT)
    ran[1] = ran[1]._replace(stream=20, start=9_100, end=9_200)
    assert [wait.call_row for wait in listed(process(ran, called, told))] == [4]


@pytest.mark.parametrize("inside", [{3: COLLECTIVE, 0: COLLECTIVE}, {3: COLLECTIVE}, {3: WAIT_OP}])
def test_a_wait_of_a_collective_blocks_the_stream_that_it_launches_to_next(inside: dict[int, str]) -> None:
    """The op that starts it blocks only its own stream; the one that waits for it, any launch that follows."""
    ran, called = on_streams(20, 7, 24)
    made = process(ran, [*called, Called(50, 55, WAIT)], inside=inside)
    waits = [[*wait.blocked.values()] for wait in listed(made)]
    assert waits == ([[0]] if inside == {3: WAIT_OP} else [])


def test_a_wait_of_the_op_that_launches_blocks_that_launch_and_resolved_ones_are_not_listed() -> None:
    ran, called = on_streams(20, 7, 24)
    made = process(ran, [*called, Called(50, 55, WAIT)], inside={3: COLLECTIVE})
    made.activities = replace(made.activities, op_row=np.array([0, -1, -1]))
    assert [wait.blocked for wait in listed(made)] == [{(0, 20): 0}]
    ran, called = on_streams(20, 7)
    waits = [Called(50, 55, WAIT), Called(60, 65, WAIT), Called(40, 45, RECORD), Called(70, 75, WAIT)]
    told = [Synced("Stream Wait Event", 3, 7, 20, 4), Synced("Stream Wait Event", 5, 7, 20, 999)]
    made = process(ran, [*called, *waits], *told, inside={2: WAIT_OP}, awaited={2: 0})
    assert listed(made) == []


MACHINE = MachineCalibration(sync_return={"": LatencyStats(1_000, 1_500, ENOUGH)})


def test_a_stream_wait_says_nothing_about_time() -> None:
    ran, called = on_streams(20)
    [wait] = listed(process(ran, [*called, Called(50, 55, WAIT)], calibration=MACHINE))
    assert wait == UnresolvedWait(1, -1, {StreamKey(0, 20): 0})


@pytest.mark.parametrize(("name", "of_stream"), [(SYNC, False), (STREAM_SYNC, True)])
def test_a_synchronisation_returns_as_soon_after_the_end_as_such_calls_usually_do(name: str, of_stream: bool) -> None:
    ran, called = on_streams(20, at=0)
    [wait] = listed(process(ran, [*called, Called(50, 9_999, name)], calibration=MACHINE))
    # times are rounded, and the launch 9 µs before the activity lets the device's clock be that much ahead
    error = 1_000 + ROUNDING
    assert wait == UnresolvedWait(1, -1, HOST, 50 + 1_500, 1_500 + error, error + 9_000, of_stream=of_stream)


def test_a_recorded_synchronisation_of_a_stream_is_resolved_and_a_single_query_says_nothing_about_time() -> None:
    ran, called = on_streams(20, at=0)
    assert listed(process(ran, [*called, Called(50, 99, STREAM_SYNC)], Synced("Stream Sync", 1, 20))) == []
    ran, called = on_streams(20, at=0)
    [wait] = listed(process(ran, [*called, Called(50, 99, QUERY)], calibration=MACHINE))
    assert (wait.expected_ns, wait.reaction_ns, wait.is_query) == (50, 1_000 + ROUNDING, True)


def test_a_loop_of_queries_ends_within_one_turn_after_the_event() -> None:
    """After the last query that found it pending had begun, and before the last one returned."""
    ran, called = on_streams(20, at=0)
    queries = [Called(at, at + 30, QUERY) for at in (100, 200, 300)]
    [wait] = listed(process(ran, [*called, *queries], calibration=MACHINE))
    assert (wait.call_row, wait.expected_ns, wait.is_query) == (3, 330 - 1, False)
    assert wait.reaction_ns == 330 - 200 - 1 + 1_000 + ROUNDING


# Which synchronisations of a stream still have an unresolved wait ahead


@pytest.mark.parametrize(
    ("synced_at", "launched_at", "is_behind"),
    [(200, 300, True), (200, 150, False), (100, 300, False), (101, 300, True), (200, 50, True)],
)
def test_a_synchronisation_is_behind_a_wait_until_the_stream_has_new_work(synced_at, launched_at, is_behind):
    """The stream waits at 100; work that follows it has honoured the wait."""
    ran = [Ran(9_000, 9_100, 0, 20), Ran(9_100, 9_200, 1, 20)]
    called = [
        Called(0, 5),
        Called(launched_at, launched_at + 5),
        Called(100, 101, WAIT),
        Called(synced_at, 999, STREAM_SYNC),
    ]
    told = Synced("Stream Wait Event", 2, stream=20), Synced("Stream Sync", 3, stream=20)
    made = process(ran, called, *told)
    waits = [UnresolvedWait(2, -1, {StreamKey(0, 20): 1, StreamKey(0, 7): 0})]
    assert stream_syncs_behind(made, waits).tolist() == [False, False, False, is_behind]
    on_another = [waits[0]._replace(blocked={StreamKey(0, 7): 1})]
    assert not stream_syncs_behind(made, on_another).any()


def test_the_last_wait_before_a_synchronisation_counts() -> None:
    ran = [Ran(9_000, 9_100, 0, 20), Ran(9_100, 9_200, 1, 20)]
    waits_at = 100, 200, 400
    called = [
        Called(0, 5),
        Called(150, 155),
        Called(300, 999, STREAM_SYNC),
        *(Called(at, at + 1, WAIT) for at in waits_at),
    ]
    made = process(ran, called, Synced("Stream Sync", 2, stream=20))
    waits = [UnresolvedWait(row, -1, {StreamKey(0, 20): 1}) for row in (3, 4, 5)]
    assert stream_syncs_behind(made, waits).tolist() == [False, False, True, False, False, False]
    assert not stream_syncs_behind(made, waits[:1]).any()


def test_synchronisations_of_unknown_streams_and_waits_of_the_host_have_nothing_ahead() -> None:
    ran, called = on_streams(20)
    made = process(ran, [*called, Called(200, 201, WAIT), Called(300, 999, STREAM_SYNC)])
    waits = [UnresolvedWait(1, -1, {StreamKey(0, 20): 1})]
    assert not stream_syncs_behind(made, waits).any()
    made = process(ran, [*called, Called(200, 999, STREAM_SYNC)], Synced("Stream Sync", 1, stream=20))
    assert not stream_syncs_behind(made, [UnresolvedWait(0, -1, HOST)]).any()
