"""The device's clock against the host's: found from what cannot have been, believed where nothing speaks against it."""

from typing import Any

import numpy as np
import pytest
from execgraph.converter.timeline.delays import DELAY_NAMES
from execgraph.schema.columns import Int64
from execgraph.schema.graph import DependencyKind
from execgraph.schema.linked import LinkedTrace, on_host_clock
from execgraph.tools.replay import parse_scale, replay
from hypothesis import given, strategies as st
from support import runs
from support.builder.timeline import TraceBuilder
from support.runs import Nodes, Step, broken_rules, convert_linked, convert_run, go_on, link_run, one_thread

EARLIEST = 4.65
"""µs from the call's start to the activity's at least, of which the call takes 4."""
DELAYS = tuple(DELAY_NAMES.values())
Edges = set[tuple[str, str, DependencyKind]]


def steps(count: int = 20, **options: Any) -> TraceBuilder:
    """Steps of three kernels on two streams, each step awaited, and once more when nothing is left to await."""
    t = TraceBuilder(**options)
    for number in range(count):
        with t.op("aten::mm"):
            t.launch(f"first {number}", 7, 20.2, latency=EARLIEST)
            t.ready[7] += 1_150
            t.launch(f"second {number}", 7, 30.3, latency=EARLIEST)
        done = t.record_event(stream=7)
        t.wait_event(done, stream=20)
        with t.op("aten::add"):
            t.launch(f"third {number}", 20, 10.1, latency=EARLIEST)
        t.device_synchronize()
        t.work(90)
        t.device_synchronize()
    return t


def edges_of(nodes: Nodes) -> Edges:
    return {(source, target, kind) for target in nodes.labels for source, kind in nodes.follows(target).items()}


def true_starts(t: TraceBuilder) -> Int64:
    """When the activities really began, on the host's clock."""
    return np.sort([activity.start for activity in t.activities]) + t.origin_ns


def found_starts(linked: LinkedTrace) -> Int64:
    return np.sort(on_host_clock(linked.activities, linked.info.machine).start)


@pytest.mark.parametrize("offset", [-5, 3, 5, 12])
def test_a_device_clock_that_is_off_is_found(offset: float) -> None:
    """Exactly, as the calls that found nothing to await tell how long such a call takes."""
    t = steps(clock_offset=offset)
    linked = link_run(t)
    assert (found_starts(linked) - true_starts(t)).tolist() == [0] * len(t.activities)
    assert convert_linked(linked).graph.metadata["clock_offset_ns"] == -1000 * offset


def test_the_graph_keeps_the_recorded_device_times() -> None:
    nodes = convert_run(steps(clock_offset=5))
    assert nodes.time("first 0")[0] == EARLIEST + 5
    assert nodes.time("first 0")[1] == pytest.approx(EARLIEST + 5 + 20.2)


# Whatever the run


def after_calibration(program: list[Step], **options: Any) -> TraceBuilder:
    """The program after a few steps that tell the clocks apart, with times that are no whole µs."""
    t = TraceBuilder(**options)
    t.work(0.123)
    for number in range(4):
        with t.op("aten::mm"):
            t.launch(f"calibration {number}", 7, 20.2, latency=EARLIEST)
        t.device_synchronize()
        t.work(90)
        t.device_synchronize()
    return go_on(t, program)


def dependencies(nodes: Nodes) -> Edges:
    """Between ops, calls and activities, whatever the slices that launches cut ops into; without delays."""
    named = ((source.split("#")[0], target.split("#")[0], kind) for source, target, kind in edges_of(nodes))
    kept = ((source, target, kind & ~DependencyKind.PROGRAM_ORDER) for source, target, kind in named)
    return {edge for edge in kept if edge[2] and not (edge[0].startswith(DELAYS) or edge[1].startswith(DELAYS))}


@given(one_thread, st.floats(-6, 6), st.floats(-0.05, 0.05))
def test_no_clock_of_a_device_changes_any_runs_dependencies(steps: list[Step], offset: float, drift: float) -> None:
    """But whether a call waited for an upload that began as it returned is unknown where the clock is further off."""
    program = [step for step in steps if step.action != "upload"]
    true, shown = (
        convert_run(after_calibration(program, **clock))
        for clock in ({}, {"clock_offset": offset, "clock_drift": drift})
    )
    assert broken_rules(shown) == []
    assert dependencies(shown) == dependencies(true)
    assert abs(replay(shown.graph).error_pct or 0) <= 0.5


@given(one_thread, st.sampled_from(["2.1", "2.3"]), st.floats(0, 1))
def test_where_whole_microseconds_are_cut_changes_no_dependency(program: list[Step], torch: str, moved: float) -> None:
    uneven = [step._replace(us=1.37 * step.us) for step in program]  # type: ignore[arg-type]
    begun = TraceBuilder(torch), TraceBuilder(torch)
    begun[1].work(moved)
    cut_here, cut_there = (convert_run(go_on(t, uneven)) for t in begun)
    assert dependencies(cut_here) == dependencies(cut_there)
    for nodes in (cut_here, cut_there):
        assert broken_rules(nodes) == []


WHAT_IFS = ([], ["class:host=0.5"], ["class:computation=0.3"])
TINY = 1_000
"""ns: each blocking copy may pass on the one, and the latency that most launches show in the run may be another one."""


@given(runs.with_backwards, st.sampled_from([runs.MAIN, runs.WORKER]))
def test_a_nanosecond_on_the_clock_of_one_thread_changes_no_answer(program: list[Step], thread: int) -> None:
    """Such as whether a thread was idle before another one called it. Where several launches told how long work takes
    to start: of one that was called as the work before it ended, nothing else tells which of the two it followed.
    """
    recorded, early = (with_early_thread(after_launches(program), thread, ns) for ns in (0, 1))
    graphs = [convert_run(t).graph for t in (recorded, early)]
    for scale in WHAT_IFS:
        answers = [replay(graph, [*map(parse_scale, scale)]).makespan_ns for graph in graphs]
        assert abs(answers[0] - answers[1]) <= TINY, scale


def after_launches(program: list[Step]) -> TraceBuilder:
    """The program after pairs of kernels, of which the second waits for the first, with times that are no whole µs."""
    t = TraceBuilder()
    t.work(0.123)
    for number in range(4):
        with t.op("aten::mm"):
            t.launch(f"first {number}", 7, 20.2, latency=EARLIEST)
            t.launch(f"second {number}", 7, 20.2, latency=EARLIEST)
        t.device_synchronize()
        t.memcpy("DtoH", 7, 5)
        t.work(90)
    return go_on(t, program)


def with_early_thread(t: TraceBuilder, thread: int, ns: int) -> TraceBuilder:
    """The run as if the thread's clock were so many ns behind. Activities still begin after their calls."""
    for row in (*t.ops, *t.calls):
        if row.thread == thread:
            row.start, row.end = row.start - ns, row.end - ns
    return t
