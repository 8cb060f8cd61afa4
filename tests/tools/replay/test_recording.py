"""What recording did to a run: the factor for the host that replays a step as long as it is without a profiler."""

from dataclasses import replace

import pytest
from execgraph import what_if
from execgraph.schema.graph import DependencyKind, ExecutionGraph
from execgraph.tools.replay import Cause, Recording, gather_job, parse_scale, recording, without_profiler
from support.graphs import LAUNCH, PROGRAM_ORDER, GraphBuilder

HOST_NS, KERNEL_NS = 80_000, 20_000


def steps(without_profiler_ns: int | None, *, count: int = 2) -> ExecutionGraph:
    """Steps in which the host works for 80 µs, then launches a kernel of 20 µs that it does not wait for."""
    g = GraphBuilder(rank=0, steps=count)
    before: list[tuple[int, DependencyKind]] = []
    for step in range(count):
        op = g.host("aten::mm", HOST_NS * step, HOST_NS, after=before)
        before, clock = [(op, PROGRAM_ORDER)], HOST_NS * (step + 1)
        g.activity("gemm", clock, KERNEL_NS, stream=op, after=[(op, LAUNCH)])
    graph = g.build()
    known = {} if without_profiler_ns is None else {"step_without_profiler_ns": without_profiler_ns}
    return replace(graph, metadata={**graph.metadata, **known})


def known(graph: ExecutionGraph) -> Recording:
    found = recording(graph)
    assert found is not None
    return found


def test_the_factor_replays_the_step_as_it_is_without_a_profiler() -> None:
    graph = steps(30_000)
    found = known(graph)
    assert (found.step_us, found.step_without_profiler_us, found.cause) == (90, 30, Cause.HOST_SLOWED)
    assert found.host_factor is not None
    assert what_if(graph, {"class:host": found.host_factor}).after.makespan_ns / 2 == pytest.approx(30_000, rel=0.01)
    assert found.text == (
        f"90.0 µs a step, 30.0 µs without a profiler: ops are slowed; class:host={found.host_factor:g} replays the step "
        "as it is without"
    )


@pytest.mark.parametrize(
    ("without_profiler_ns", "cause", "factor"),
    [
        (10_050, Cause.DEVICES_LIMIT, 0.002),
        (5_000, Cause.NOT_THE_HOST, None),
        (89_000, Cause.NOT_SLOWED, 1.0),
        (95_000, Cause.SLOWER_BEFORE, None),
    ],
)
def test_it_says_when_no_factor_for_the_host_tells(
    without_profiler_ns: int, cause: Cause, factor: float | None
) -> None:
    found = known(steps(without_profiler_ns))
    assert found.cause is cause
    assert found.host_factor == pytest.approx(factor, abs=0.001) if factor is not None else found.host_factor is None
    assert found.is_known == (cause is Cause.DEVICES_LIMIT)


def test_nothing_is_said_of_a_run_that_was_not_measured() -> None:
    assert recording(steps(None)) is None


def test_a_step_of_several_ranks_takes_as_long_as_that_of_the_slowest() -> None:
    found = recording([steps(30_000), steps(60_000)])
    assert found is not None and found.step_without_profiler_us == 60
    assert recording([steps(30_000), steps(30_000, count=3)]) is None


def test_a_change_is_answered_for_the_run_without_a_profiler_too() -> None:
    job = gather_job([steps(21_000)])
    known = recording(steps(21_000))
    said = without_profiler(job, known, [parse_scale("class:computation=0.5")])
    assert "Without a profiler (host work takes " in said and " % less." in said
    assert without_profiler(job, known, [parse_scale("class:host=0.5")]) == ""
    assert without_profiler(job, None, [parse_scale("class:computation=0.5")]) == ""
