"""Time in PyTorch's data loader is as it was measured without a profiler, whatever recording did to other host work."""

from dataclasses import replace

import numpy as np
import pytest
from execgraph.schema.graph import DependencyKind, ExecutionGraph
from execgraph.tools.replay import Cause, gather_job, makespan_ns, recording
from execgraph.tools.replay.recording import waits_for_data, with_measured_waits
from support.graphs import PROGRAM_ORDER, GraphBuilder

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


def test_they_take_as_long_as_was_measured() -> None:
    work, is_data = with_measured_waits(gather_job([loop(step_ns=100, wait_ns=60)]).work)
    assert work.duration_ns.tolist() == [20, 30, 10, 70] * 2
    assert is_data.tolist() == [True, True, True, False] * 2


def test_a_thread_that_pins_memory_is_part_of_the_wait() -> None:
    job = gather_job([loop(step_ns=100, wait_ns=60, pinning_ns=25)])
    work, _ = with_measured_waits(job.work)
    assert np.count_nonzero(job.work.kind & HANDOFF) == 2
    assert not np.count_nonzero(work.kind & HANDOFF)
    assert makespan_ns(job._replace(work=work)) == 2 * (60 + 70)


@pytest.mark.parametrize("wait_ns", [None, 0])
def test_a_run_that_was_not_measured_is_left_as_it_is(wait_ns: int | None) -> None:
    job = gather_job([loop(step_ns=100, wait_ns=wait_ns)])
    work, is_data = with_measured_waits(job.work)
    assert work is job.work
    assert not is_data.any()


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
