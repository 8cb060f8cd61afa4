"""One host thread starts another and is blocked until it is done: known from sequence numbers, else from timing."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from execgraph.schema.graph import DependencyKind
from execgraph.schema.linked import LinkedTrace
from hypothesis import given, strategies as st
from support.builder.records import LAYOUTS
from support.builder.timeline import TraceBuilder
from support.runs import BACKWARD, STEPS, VERSIONS, Step, broken_rules, convert_linked, convert_run, link_run, play

MAIN, WORKER = 1000, 1001
HANDOFF, INFERRED = DependencyKind.HANDOFF, DependencyKind.INFERRED
BACKWARD_OP = "autograd::engine::evaluate_function: MmBackward0"


@contextmanager
def backward(t: TraceBuilder, *, sequence: int = 0, recorded: bool = True, delay: float = 2) -> Iterator[None]:
    """A backward op on a worker thread, which the current thread waits for."""
    described = {"seq_id": sequence, "fw_thread": 1} if recorded else {}
    with t.thread(2, start=t.now + delay), t.op(BACKWARD_OP if recorded else "aten::sum", **described):
        yield
    t.join_thread(2)


def training_step(torch: str = "2.13", *, recorded: bool = True) -> TraceBuilder:
    """9 µs of forward; in `## backward ##` 3 µs, 2 µs until the worker starts, its 8 µs, 6 µs; 10 µs of optimiser."""
    t = TraceBuilder(torch=torch)
    with t.op("aten::mm", seq_id=0 if recorded else -1):
        t.work(5)
        t.launch("forward", duration=20)
    with t.annotation("## backward ##"):
        t.work(3)
        with backward(t, recorded=recorded):
            t.work(4)
            t.launch("backward", duration=30)
        t.work(6)
    t.leaf("Optimizer.step", 10)
    return t


def found(linked: LinkedTrace) -> list[str]:
    return [linked.handoffs.known_by[row] for row in range(len(linked.handoffs.source_thread))]


# An autograd worker


@pytest.mark.parametrize("torch", LAYOUTS)
def test_backward_runs_because_the_main_thread_called_it_and_waits(torch: str) -> None:
    t = training_step(torch)
    nodes = convert_run(t)
    assert nodes.times(MAIN) == [
        ("aten::mm", 0, 9),
        ("## backward ##", 9, 14),
        ("## backward ##", 22, 28),
        ("Optimizer.step", 28, 38),
    ]
    assert nodes.follows(BACKWARD_OP) == {"## backward ###0": HANDOFF}
    assert nodes.follows("## backward ###1")[BACKWARD_OP] == HANDOFF
    assert nodes.replay_error() == 0


def test_a_slower_worker_delays_the_main_thread() -> None:
    nodes = convert_run(training_step())
    before = nodes.earliest_start_makespan_ns()
    duration = nodes.graph.attributes["duration_ns"]
    assert isinstance(duration, np.ndarray)
    duration[nodes.row(BACKWARD_OP)] += 100_000
    host_end = 38 + 100
    assert before == 59_000
    assert nodes.earliest_start_makespan_ns() == max(host_end, 14 + 108 + 30) * 1000


def test_the_main_thread_may_wait_outside_any_annotation() -> None:
    t = TraceBuilder()
    t.leaf("aten::mm", 9, seq_id=0)
    with backward(t):
        t.work(8)
    t.leaf("Optimizer.step", 10)
    nodes = convert_run(t)
    assert nodes.times(MAIN) == [("aten::mm", 0, 9), ("host idle", 9, 11), ("Optimizer.step", 19, 29)]
    assert nodes.follows(BACKWARD_OP) == {"host idle": HANDOFF}


def test_several_bursts_are_handed_over_one_by_one() -> None:
    t = TraceBuilder()
    for sequence in range(3):
        t.leaf("aten::mm", 9, seq_id=sequence)
        with backward(t, sequence=sequence):
            t.work(8)
        t.leaf(f"step {sequence}", 5)
    nodes = convert_run(t)
    resumed = {target for _, target in nodes.edges(HANDOFF)}
    assert resumed == {f"{BACKWARD_OP}#{k}" for k in range(3)} | {f"step {k}" for k in range(3)}
    assert sum(end - start for _, start, end in nodes.times(WORKER)) == 3 * 8
    assert nodes.replay_error() == 0


@pytest.mark.parametrize("torch", LAYOUTS)
def test_recorded_sequence_numbers_make_it_certain(torch: str) -> None:
    assert found(link_run(training_step(torch))) == ["record", "record"]
    assert not any(kind & INFERRED for kind in convert_run(training_step(torch)).follows("## backward ###1").values())


def test_two_threads_that_ran_backward_for_each_other() -> None:
    """As where checkpoints run forward ops again on the autograd thread: the larger thread is the caller."""
    t = training_step()
    with t.thread(2), t.op("aten::mm", seq_id=7):
        t.work(5)
    with t.op(BACKWARD_OP, seq_id=7, fw_thread=2):
        t.work(5)
    t.leaf("aten::add", 5)
    nodes = convert_run(t)
    assert broken_rules(nodes) == []
    assert nodes.replay_error() == 0


def test_forward_and_backward_on_one_thread_hand_nothing_over() -> None:
    t = TraceBuilder()
    t.leaf("aten::mm", 9, seq_id=0)
    t.leaf(BACKWARD_OP, 9, seq_id=0, fw_thread=1)
    assert found(link_run(t)) == []


# Timing as the last resort


def test_a_worker_without_sequence_numbers_is_found_by_timing_and_marked() -> None:
    t = training_step(recorded=False)
    assert found(link_run(t)) == ["timing", "timing"]
    assert convert_run(t).follows("aten::sum") == {"## backward ###0": HANDOFF | INFERRED}


def test_inferred_handoffs_can_be_left_out() -> None:
    assert convert_run(training_step(recorded=False), inferred=False).edges(HANDOFF) == set()


def test_without_its_inferred_handoffs_a_thread_keeps_its_time() -> None:
    t = TraceBuilder()
    t.leaf("aten::mm", 9)
    with backward(t, recorded=False):
        t.work(80)
    t.leaf("Optimizer.step", 10)
    assert convert_run(t, inferred=False).replay_error() == 0


def test_threads_that_work_at_the_same_time_hand_nothing_over() -> None:
    t = TraceBuilder()
    with t.thread(2, start=3):
        for _ in range(5):
            t.leaf("aten::embedding", 9)
    for _ in range(20):
        t.leaf("aten::mm", 5)
    assert found(link_run(t)) == []


@pytest.mark.parametrize("torch", ["2.1", "2.13"])
def test_work_right_before_a_handoff_is_no_waiting(torch: str) -> None:
    """The worker's first op begins while the main thread is busy, the second one while that thread is blocked."""
    t = TraceBuilder(torch=torch)
    with t.thread(2, start=5):
        for _ in range(2):
            t.leaf(BACKWARD_OP, 7, seq_id=0, fw_thread=1)
    t.leaf("aten::mm", 10, seq_id=0)
    t.join_thread(2)
    t.leaf("Optimizer.step", 10)
    assert sum(end - start for _, start, end in convert_run(t).times(WORKER)) == 14


# Whatever the run


@given(st.lists(BACKWARD | STEPS, min_size=3, max_size=15), VERSIONS)
def test_any_run_with_handoffs_replays_as_measured(steps: list[Step], torch: str) -> None:
    t = play(steps, torch=torch)
    nodes = convert_linked(link_run(t), t.origin_ns)
    assert broken_rules(nodes) == []
    assert nodes.replay_error() <= 0.005


def test_a_worker_whose_only_op_ends_as_the_caller_falls_quiet_is_linked() -> None:
    t = TraceBuilder()
    with t.thread(2, start=4.2):
        t.leaf(BACKWARD_OP, 0.5, seq_id=0, fw_thread=1)
    t.leaf("aten::mm", 5, seq_id=0)
    with t.annotation("## backward ##"):
        t.work(6)
    assert convert_run(t).replay_error() == 0
