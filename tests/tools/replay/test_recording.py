"""What recording did to a run: the factor for the host, and waits for data that are as they were measured."""

from dataclasses import replace

import numpy as np
import pytest
from execgraph import what_if
from execgraph.schema.graph import DependencyKind, ExecutionGraph
from execgraph.tools.replay import Cause, Recording, gather_job, makespan_ns, parse_scale, recording, without_profiler
from execgraph.tools.replay.recording import waits_for_data, with_measured_waits
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
def test_it_says_when_no_factor_for_the_host_tells(without_profiler_ns, cause, factor):
    found = known(steps(without_profiler_ns))
    assert found.cause is cause
    assert found.host_factor == pytest.approx(factor, abs=0.001) if factor is not None else found.host_factor is None
    assert found.is_known == (cause is Cause.DEVICES_LIMIT)


def test_a_step_of_several_ranks_takes_as_long_as_that_of_the_slowest() -> None:
    found = recording([steps(30_000), steps(60_000)])
    assert found is not None and found.step_without_profiler_us == 60
    # nothing is said of other numbers of steps, and of a run that was not measured
    assert recording([steps(30_000), steps(30_000, count=3)]) is None
    assert recording(steps(None)) is None


def test_a_change_is_answered_for_the_run_without_a_profiler_too() -> None:
    job = gather_job([steps(21_000)])
    known = recording(steps(21_000))
    said = without_profiler(job, known, [parse_scale("class:computation=0.5")])
    assert "Without a profiler (host work takes " in said and " % less." in said
    assert without_profiler(job, known, [parse_scale("class:host=0.5")]) == ""
    assert without_profiler(job, None, [parse_scale("class:computation=0.5")]) == ""


NEXT = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
HANDOFF = DependencyKind.HANDOFF


def loop(*, step_ns: int, wait_ns: int | None, pinning_ns: int = 0) -> ExecutionGraph:
    """Two steps of 100 ns: a slice of the loader, an op in it, another slice of it, 30 ns in all, and 70 ns of work.

    With `pinning_ns` a thread pins each batch, which the loader's last slice waits for.
    """
    g = GraphBuilder(rank=0, steps=2, step_without_profiler_ns=step_ns)
    before: list[tuple[int, DependencyKind]] = []
    for step in range(2):
        clock, op = 100 * step, 10 * step
        first = g.host(NEXT, clock, 10, after=before, op_id=op + 1)
        stack = g.host("aten::stack", clock + 10, 15, after=[(first, PROGRAM_ORDER)], op_id=op + 2)
        pinned = g.host("aten::pin_memory", clock, pinning_ns, thread=2, op_id=op + 3) if pinning_ns else None
        handed = [(pinned, HANDOFF)] if pinned else []
        last = g.host(NEXT, clock + 25, 5, after=[(stack, PROGRAM_ORDER), *handed], op_id=op + 1)
        before = [(g.host("aten::mm", clock + 30, 70, after=[(last, PROGRAM_ORDER)], op_id=op + 4), PROGRAM_ORDER)]
    graph = g.build()
    known = {} if wait_ns is None else {"data_wait_without_profiler_ns": wait_ns}
    return replace(graph, metadata={**graph.metadata, **known})


def test_they_are_the_calls_of_the_loader_and_what_their_thread_does_in_them() -> None:
    graph = loop(step_ns=100, wait_ns=60, pinning_ns=20)
    names = [graph.name.table[code] for code in graph.name.codes[waits_for_data(graph)].tolist()]
    assert names == [NEXT, "aten::stack", NEXT] * 2


def test_a_thread_that_pins_memory_is_part_of_the_wait() -> None:
    job = gather_job([loop(step_ns=100, wait_ns=60, pinning_ns=25)])
    work, _ = with_measured_waits(job)
    assert np.count_nonzero(job.kind & HANDOFF) == 2
    assert not np.count_nonzero(work.kind & HANDOFF)
    assert makespan_ns(work) == 2 * (60 + 70)


@pytest.mark.parametrize(("wait_ns", "slices"), [(60, [20, 30, 10]), (None, [10, 15, 5]), (0, [10, 15, 5])])
def test_they_take_as_long_as_was_measured_if_it_was(wait_ns: int | None, slices: list[int]) -> None:
    job = gather_job([loop(step_ns=100, wait_ns=wait_ns)])
    work, is_data = with_measured_waits(job)
    assert work.duration_ns.tolist() == [*slices, 70] * 2
    assert is_data.tolist() == [*[bool(wait_ns)] * 3, False] * 2
    assert (work is job) == (not wait_ns)


def test_the_factor_is_for_the_rest_of_the_host() -> None:
    # of 95 ns the loop waits for 60, so that its 70 ns of other work take 35
    found = recording(loop(step_ns=95, wait_ns=60))
    assert found is not None
    assert (found.cause, found.data_wait_us, found.steps) == (Cause.HOST_SLOWED, 0.06, 2)
    assert found.host_factor == pytest.approx(0.5, abs=0.02)
    assert f"class:host={found.host_factor:g} and 0.1 µs a step in the data loader" in found.text


def test_a_step_may_take_longer_without_a_profiler_as_nobody_loads_ahead_of_it() -> None:
    job = gather_job([loop(step_ns=130, wait_ns=60)])
    found = recording(loop(step_ns=130, wait_ns=60))
    assert found is not None
    assert (found.cause, found.host_factor) == (Cause.NOT_SLOWED, 1)
    assert makespan_ns(found.without_profiler(job)) == 2 * 130
