"""Which queries for an event are one loop, by rows made by hand."""

from dataclasses import replace

import numpy as np
import pytest
from execgraph.linker.waits import EventQueryLoops, Process, event_query_loops
from execgraph.linker.waits.event_query_loops import Loop
from execgraph.schema.columns import ROUNDING
from execgraph.schema.machine import LatencyStats, MachineCalibration
from support.tables import Called, Ran, Synced, process

QUERY = "cudaEventQuery"
EXACT = MachineCalibration(sync_return={"": LatencyStats(0, 0, 9)})
"""Calls return right after what they waited for has ended, so that only rounding is left of the clocks' error."""


def queried(*starts: int, ended: int = 1_000, observers: tuple[int, ...] = ()) -> EventQueryLoops:
    """Queries of 10 ns at these times for an event of stream 7, recorded by call 1, after work that `ended`."""
    called = [Called(0, 5), Called(10, 15, "cudaEventRecord"), *(Called(at, at + 10, QUERY) for at in starts)]
    told = [Synced("Event Sync", 2 + row, awaited=7, recorded=1) for row in range(len(starts))]
    made = process([Ran(20, ended, 0)], called, *told, calibration=EXACT)
    return event_query_loops(made, np.isin(np.arange(len(called)), observers))


def test_queries_that_follow_each_other_while_the_event_is_pending_are_a_loop() -> None:
    found = queried(100, 200, 300)
    assert found.loops == {3: Loop(100, 100), 4: Loop(100, 200)}
    assert found.repeated == {2, 3}
    assert [found.is_answered(call) for call in (2, 3, 4)] == [False, False, True]


@pytest.mark.parametrize(("ended", "is_loop"), [(99 - ROUNDING, False), (100 - ROUNDING, True)])
def test_a_query_that_began_after_the_event_by_all_clocks_was_answered(ended: int, is_loop: bool) -> None:
    assert bool(queried(100, 200, ended=ended).loops) == is_loop


def test_observers_query_for_themselves() -> None:
    found = queried(100, 200, observers=(2, 3))
    assert (found.loops, found.repeated) == ({}, set())
    assert [found.is_answered(call) for call in (2, 3)] == [False, False]


def of_calls(*called: Called, ops: tuple[int, ...] | None = None) -> EventQueryLoops:
    """The loops of calls of which no record tells."""
    made: Process = process([Ran(500, 600, 0)], called)
    rows = replace(made.calls, op_row=np.array(ops)) if ops else made.calls
    return event_query_loops(replace(made, calls=rows), np.zeros(len(called), np.bool_))


FIRST, SECOND = Called(10, 15, QUERY), Called(20, 25, QUERY)


def test_without_records_queries_right_after_each_other_are_a_loop() -> None:
    assert of_calls(Called(0, 5), FIRST, SECOND).loops == {2: Loop(10, 10)}
    assert of_calls(FIRST, SECOND, Called(0, 5)).loops == {1: Loop(10, 10)}


def test_any_other_call_ends_a_loop() -> None:
    assert of_calls(Called(0, 5), FIRST, Called(16, 18), SECOND).loops == {}
    assert of_calls(Called(0, 5), SECOND).loops == {}


def test_queries_of_different_ops_are_no_loop() -> None:
    """A memory allocator queries in each op that allocates."""
    assert of_calls(Called(0, 5), FIRST, SECOND, ops=(-1, 4, 4)).loops == {2: Loop(10, 10)}
    assert of_calls(Called(0, 5), FIRST, SECOND, ops=(-1, 4, 5)).loops == {}


def test_the_first_call_of_a_thread_has_none_before_it() -> None:
    """The last call of the table is no call before it."""
    assert of_calls(FIRST, Called(30, 35), Called(5, 6, QUERY), ops=(1, 1, 2)).loops == {}


def test_an_event_of_a_stream_that_waited_for_another_is_pending_as_long_as_that() -> None:
    """Also where nothing ran on the stream that waited."""
    called = [
        Called(0, 5),
        Called(10, 15, "cudaEventRecord"),
        Called(20, 25, "cudaStreamWaitEvent"),
        Called(30, 35, "cudaEventRecord"),
        *(Called(at, at + 10, QUERY) for at in (100, 200)),
    ]
    told = [
        Synced("Stream Wait Event", 2, stream=20, awaited=7, recorded=1),
        *(Synced("Event Sync", query, awaited=20, recorded=3) for query in (4, 5)),
    ]
    for ended, loops in ((1_000, {5: Loop(100, 100)}), (50, {})):
        made = process([Ran(40, ended, 0)], called, *told, calibration=EXACT)
        assert event_query_loops(made, np.zeros(len(called), np.bool_)).loops == loops


@pytest.mark.parametrize("told", [{"stream": 20}, {"awaited": 7, "recorded": 1}], ids=["no event", "no stream"])
def test_a_stream_wait_that_is_recorded_in_part_tells_nothing(told: dict[str, int]) -> None:
    called = [
        Called(0, 5),
        Called(10, 15, "cudaEventRecord"),
        Called(20, 25, "cudaStreamWaitEvent"),
        *(Called(at, at + 10, QUERY) for at in (100, 200)),
    ]
    queries = [Synced("Event Sync", query, awaited=7, recorded=1) for query in (3, 4)]
    made = process([Ran(40, 1_000, 0)], called, Synced("Stream Wait Event", 2, **told), *queries)
    assert event_query_loops(made, np.zeros(len(called), np.bool_)).loops == {4: Loop(100, 100)}


def test_queries_for_different_events_are_no_loop() -> None:
    called = [
        *(Called(at, at + 5, "cudaEventRecord") for at in (0, 10)),
        *(Called(at, at + 5, QUERY) for at in (100, 200)),
    ]
    told = [Synced("Event Sync", 2 + row, awaited=7, recorded=row) for row in range(2)]
    made = process([Ran(40, 1_000)], called, *told)
    assert event_query_loops(made, np.zeros(len(called), np.bool_)).loops == {}
