"""A device that is full runs no more at once than it did in the trace, in the run as it was and in changed ones."""

import pytest
from execgraph.schema.graph import Delay, ExecutionGraph
from execgraph.tools.replay import replay
from support.graphs import LAUNCH, GraphBuilder
from support.runs import path_ns, scaled


def on_streams(count: int, **metadata: int) -> ExecutionGraph:
    """Kernels of 10 ns, one on each stream, launched at once."""
    g = GraphBuilder(**metadata)
    op = g.host("op", 0, 5)
    for stream in range(count):
        g.activity(f"kernel {stream}", 5, 10, stream=stream, after=[(op, LAUNCH)])
    return g.build()


@pytest.mark.parametrize(("limit", "makespan"), [(1, 85), (2, 45), (3, 45), (4, 25), (9, 25)])
def test_a_device_with_a_concurrency_limit_runs_no_more_at_once(limit: int, makespan: int) -> None:
    assert scaled(on_streams(4, concurrency_limit_of_device_0=limit), "kernel=2").makespan_ns == makespan
    assert scaled(on_streams(4, concurrency_limit_of_device_1=limit), "kernel=2").makespan_ns == 25


def test_what_is_ready_first_gets_the_slot_first_and_the_path_leads_through_it() -> None:
    replayed = scaled(on_streams(3, concurrency_limit_of_device_0=1), "kernel 1=5")
    assert replayed.start_ns.tolist() == [0, 5, 15, 65]
    assert path_ns(replayed) == {"computation": 70, "host": 5}


def test_communication_takes_no_slot() -> None:
    g = GraphBuilder(concurrency_limit_of_device_0=1)
    op = g.host("op", 0, 5)
    g.activity("kernel", 5, 10, stream=7, after=[(op, LAUNCH)])
    g.collective(5, 10, ranks=[0], stream=8, after=[(op, LAUNCH)])
    assert scaled(g.build(), "kernel=2").makespan_ns == 25


def one_after_the_other() -> ExecutionGraph:
    """Two kernels of 10 ns, ready at once, on a device that has one slot."""
    g = GraphBuilder(concurrency_limit_of_device_0=1)
    op = g.host("op", 0, 5)
    g.activity("first", 5, 10, stream=7, after=[(op, LAUNCH)])
    delay = g.delay(5, 10, Delay.CONTENTION, after=[(op, LAUNCH)])
    g.activity("second", 15, 10, stream=8, after=[(op, LAUNCH), (delay, LAUNCH)])
    return g.build()


def test_what_waited_for_a_slot_waits_as_measured_in_the_run_as_it_was() -> None:
    assert replay(one_after_the_other()).makespan_ns == 25


@pytest.mark.parametrize(("factor", "makespan"), [("0.2", 17), ("3", 45)])
def test_what_waited_for_a_slot_waits_for_that_in_a_changed_run(factor: str, makespan: int) -> None:
    assert scaled(one_after_the_other(), f"first={factor}").makespan_ns == makespan
