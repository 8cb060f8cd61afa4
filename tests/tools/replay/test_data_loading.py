"""How loops wait for PyTorch's data loader: as recorded, without a profiler, and in changed runs."""

import re
from dataclasses import replace

import numpy as np
import pytest
from execgraph import what_if
from execgraph.schema.graph import DependencyKind, ExecutionGraph
from execgraph.tools.replay import Cause, gather_job, makespan_ns, parse_scale, recording, replay
from execgraph.tools.replay.data_loading import waits_for_data, waits_of, with_measured_waits
from execgraph.tools.replay.summary import answer
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


def test_a_thread_that_pins_memory_is_part_of_the_wait() -> None:
    job = gather_job([loop(step_ns=100, wait_ns=60, pinning_ns=25)])
    work, _ = with_measured_waits(job)
    assert np.count_nonzero(job.kind & HANDOFF) == 2
    assert not np.count_nonzero(work.kind & HANDOFF)
    assert makespan_ns(work) == 2 * (60 + 70)


@pytest.mark.parametrize(("wait_ns", "slices"), [(60, [40, 15, 5]), (None, [10, 15, 5]), (0, [10, 15, 5])])
def test_they_take_as_long_as_was_measured_if_it_was(wait_ns: int | None, slices: list[int]) -> None:
    job = gather_job([loop(step_ns=100, wait_ns=wait_ns)])
    work, is_data = with_measured_waits(job)
    assert work.duration_ns.tolist() == [*slices, 70] * 2
    assert is_data.tolist() == [*[bool(wait_ns)] * 3, False] * 2
    assert (work is job) == (not wait_ns)


def batches(waits: list[int]) -> ExecutionGraph:
    """A loop that waits so long for batches, and works for 30 µs on each."""
    g, clock, before = GraphBuilder(rank=0), 0, list[tuple[int, DependencyKind]]()
    for op, wait in enumerate(waits):
        taken = g.host(NEXT, clock, wait, after=before, op_id=2 * op + 1)
        work = g.host("aten::mm", clock + wait, 30_000, after=[(taken, PROGRAM_ORDER)], op_id=2 * op + 2)
        before, clock = [(work, PROGRAM_ORDER)], clock + wait + 30_000
    return g.build()


@pytest.mark.parametrize("has_host_trace", [True, False])
def test_a_call_that_waits_in_two_slices_waits_for_one_batch(has_host_trace: bool) -> None:
    # the loader's process answers late, too, when the second tensor of a batch is fetched; a batch comes every 100 ms
    g, clock, before, ms = GraphBuilder(rank=0), 0, list[tuple[int, DependencyKind]](), 1_000_000
    for op in range(0, 40, 4):
        for name, duration, number in ((NEXT, 40, 1), ("aten::set_", 1, 2), (NEXT, 29, 1), ("aten::mm", 30, 3)):
            ids = {"op_id": op + number} if has_host_trace else {}
            before = [(g.host(name, clock, duration * ms, after=before, **ids), PROGRAM_ORDER)]
            clock += duration * ms
    # at four times the speed batches come every 25 ms, and the loop needs more
    answer = what_if(g.build(), {re.escape(NEXT): 0.25})
    assert answer.before.makespan_us == 1_000_000 and answer.after.makespan_us == pytest.approx(330_000, rel=0.03)


def test_a_batch_of_another_process_is_there_when_it_is_there() -> None:
    # the first batch is there, the next four come every 100 µs
    graph, waits = batches([1_000] + [70_000] * 4), re.escape(NEXT)
    assert replay(graph).makespan_ns == 431_000
    changes = "aten::mm=2", "aten::mm=0", "aten::mm=4", f"{waits}=0", f"{waits}=2", f"{waits}=0.5", f"{waits}=0.1ms"
    found = [replay(graph, [change]).makespan_ns for change in changes]
    assert found == [461_000, 401_000, 605_000, 150_000, 832_000, 230_500, 650_000]
    said = [answer(replay(graph, [change]), [parse_scale(change)]) for change in changes]
    assert ["This assumes that the factor applies to all of the time" in text for text in said] == [False] * 4 + [
        True,
        True,
        False,
    ]
    # where all calls wait, the shortest one is no time of taking a batch
    assert waits_of(gather_job([batches([85_000_000, 40_000_000, 85_000_000])]))[3].all()
    # of 30 µs that each step has less to do it waits 29 longer
    assert "The loop then waits longer for its data" in answer(
        replay(graph, ["aten::mm=0"]), [parse_scale("aten::mm=0")]
    )


def test_the_factor_is_for_the_rest_of_the_host() -> None:
    # of 95 ns the loop waits for 60, so that its 70 ns of other work take 35
    found = recording(loop(step_ns=95, wait_ns=60))
    assert found is not None
    assert (found.cause, found.data_wait_us, found.steps) == (Cause.HOST_SLOWED, 0.06, 2)
    assert found.models[0].host_factor == pytest.approx(0.5, abs=0.02)


def test_what_processes_of_a_loader_leave_of_the_cores_widens_the_range() -> None:
    """A step of 100 ns keeps 2 cores busy for 110 ns by its loop and for 80 ns by others, which may take half of it."""
    graph = loop(step_ns=100, wait_ns=None)
    assert "cores" not in what_if(graph, {"DataLoader": 0}).after.describe()
    graph.metadata.update({"cores": 2, "own_cpu_ns": 110, "others_cpu_ns": 80})
    found, faster = (what_if(graph, {name: factor}).after for name, factor in (("DataLoader", 0.2), ("aten::mm", 0.5)))
    assert found.range is not None and found.range.low_ns == pytest.approx(2 * (50 + 10), abs=1)
    assert " kept 0.8 of 2 cores busy" in found.describe()
    assert "he loader's processes share 2 cores with the loop" in found.describe()
    # what other processes take stays as it is: only the loop's own half is halved
    assert faster.range is not None and faster.range.high_ns == pytest.approx(2 * (25 + 50), abs=1)
    graph.metadata["others_cpu_ns"] = 30
    assert "cores" not in what_if(graph, {"DataLoader": 0.25}).after.describe()


def test_a_slower_machine_leaves_waits_for_data_as_they_were_measured() -> None:
    graph = loop(step_ns=150, wait_ns=60)
    graph = replace(graph, metadata={**graph.metadata, "recorded_alone": 1, "recorded_op_ns": 2})
    job, found = gather_job([graph]), recording(graph)
    assert found is not None and found.models[0].machine_factor == pytest.approx(90 / 70, abs=0.02)
    work = found.without_profiler(job)
    assert work.duration_ns[with_measured_waits(job)[1]].sum() == 2 * 60
    assert makespan_ns(work) == 2 * 150


def test_a_step_may_take_longer_without_a_profiler_as_nobody_loads_ahead_of_it() -> None:
    job = gather_job([loop(step_ns=130, wait_ns=60)])
    found = recording(loop(step_ns=130, wait_ns=60))
    assert found is not None
    assert (found.cause, found.models[0].host_factor) == (Cause.NOT_SLOWED, 1)
    assert makespan_ns(found.without_profiler(job)) == 2 * 130
