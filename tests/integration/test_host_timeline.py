"""The host timeline is cut where something begins, ends, launches or waits; no time is lost and waiting is no work.

What blocks the host besides synchronising calls: memory that is freed, a full launch queue; and observer threads.
"""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from execgraph.schema.graph import DependencyKind, ExecutionGraph
from execgraph.schema.linked import LinkedTrace
from execgraph.tools.replay import parse_scale, replay
from hypothesis import given, strategies as st
from support.builder.timeline import TraceBuilder
from support.runs import VERSIONS, Nodes, Step, convert_linked, convert_run, link_run, one_thread, play, two_threads

MAIN, WORKER = 1000, 1001


# Where it is cut


def test_step_marks_own_no_time(t: TraceBuilder) -> None:
    with t.annotation("ProfilerStep#3"):
        t.leaf("aten::add", 5)
        t.work(10)
        t.leaf("aten::mul", 5)
    assert [name for name, _, _ in convert_run(t).times(MAIN)] == ["aten::add", "host idle", "aten::mul"]


def test_a_blocking_copy_launches_and_waits(t: TraceBuilder) -> None:
    with t.op("aten::item"):
        t.work(2)
        t.memcpy("DtoH", duration=20)
    nodes = convert_run(t)
    copy = "Memcpy DtoH (Device -> Pageable)"
    assert nodes.times(MAIN) == [("aten::item", 0, 4), ("cudaMemcpyAsync", 26, 30)]
    assert nodes.follows(copy) == {"aten::item": DependencyKind.LAUNCH}
    assert nodes.follows("cudaMemcpyAsync")[copy] == DependencyKind.HOST_SYNC


# Folding of short slices


OF_HOST = 1
"""Of the lanes of nodes those of host threads; a delay has a lane of its own."""


def thread_totals(nodes: Nodes) -> Counter[int]:
    totals = Counter[int]()
    for (of, thread, _), duration in zip(nodes.lanes(), nodes.graph.duration_ns.tolist(), strict=True):
        totals[thread] += duration * (of == OF_HOST)
    return totals


def launch_times(nodes: Nodes) -> dict[str, float]:
    return {activity: nodes.time(launcher)[1] for launcher, activity in nodes.edges(DependencyKind.LAUNCH)}


@given(one_thread, VERSIONS, st.sampled_from([500, 2_500, 6_000, 1_000_000_000]))
def test_folding_keeps_every_threads_total_and_every_launch(steps: list[Step], torch: str, shortest: int) -> None:
    linked = link_run(play(steps, torch=torch))
    exact, folded = (convert_linked(linked, shortest_slice=length) for length in (0, shortest))
    assert thread_totals(folded) == thread_totals(exact)
    assert launch_times(folded) == launch_times(exact)
    assert len(folded.graph) <= len(exact.graph)


# Whole microseconds


def off_by(nodes: Nodes) -> float:
    """By how many µs the running total of any lane's whole-µs durations is off."""
    gap = nodes.graph.integers("gap_ns", 0)
    lanes = np.array([hash(lane) for lane in nodes.lanes()])
    worst = 0.0
    for lane in np.unique(lanes):
        mine = lanes == lane
        exact = np.cumsum(nodes.graph.duration_ns[mine] + gap[mine]) / 1000
        worst = max(worst, float(np.abs(np.cumsum(nodes.graph.duration_micros[mine]) - exact).max()))
    return worst


@given(two_threads, VERSIONS)
def test_whole_microseconds_stay_within_one_of_the_exact_total(steps: list[Step], torch: str) -> None:
    assert off_by(convert_run(play(steps, threads=2, torch=torch))) <= 1


ROOM, KERNELS, LAUNCH_US, KERNEL_US = 600, 1200, 5, 20


def host_waits(linked: LinkedTrace) -> set[tuple[str, str]]:
    """(awaited activity, call that waited)."""
    waits, name, call = linked.host_waits, linked.activities.name, linked.calls.name
    return {(name[s], call[c]) for s, c in zip(waits.source_row.tolist(), waits.call_row.tolist(), strict=True)}


def makespan_us(graph: ExecutionGraph, *scale: str) -> float:
    return replay(graph, [parse_scale(one) for one in scale]).makespan_ns / 1000


@pytest.mark.parametrize("call", ["cudaFree", "cudaFreeHost", "cuMemFree_v2", "hipFree"])
def test_freeing_memory_waits_for_the_device(call: str) -> None:
    t = TraceBuilder(sync_records=False)
    t.launch("long", 7, 400)
    t.call(call, 450)
    t.leaf("aten::add", 20)
    assert host_waits(link_run(t)) == {("long", call)}
    nodes = convert_run(t)
    assert nodes.replay_error() == 0
    assert makespan_us(nodes.graph, "long=0.1") == pytest.approx(t.makespan_us - 360)


@pytest.mark.parametrize("call", ["cudaFree", "cudaFreeAsync", "cudaMalloc"])
def test_a_call_that_returns_while_the_device_works_waits_for_nothing(call: str) -> None:
    t = TraceBuilder(sync_records=False)
    t.launch("long", 7, 400)
    t.call(call, 50)
    t.leaf("aten::add", 20)
    assert host_waits(link_run(t)) == set()


def crowded() -> TraceBuilder:
    """Launches four times as fast as the device, until ROOM are under way; then each waits until one has ended."""
    t = TraceBuilder(sync_records=False)
    with t.op("aten::many"):
        for number in range(KERNELS):
            room = t.activities[number - ROOM].end / 1000 if number >= ROOM else 0
            t.launch(f"kernel {number}", 7, KERNEL_US, call_duration=max(room - t.now, 0) + LAUNCH_US)
    return t


@pytest.mark.parametrize(
    ("scale", "expected"),
    [
        ("class:computation=0.1", KERNELS * LAUNCH_US + KERNEL_US * 0.1),
        ("class:computation=2", KERNELS * KERNEL_US * 2 + LAUNCH_US),
        ("^aten::=2", KERNELS * KERNEL_US + 2 * LAUNCH_US),
    ],
)
def test_with_faster_kernels_the_queue_is_never_full(scale: str, expected: float) -> None:
    assert makespan_us(convert_run(crowded()).graph, scale) == pytest.approx(expected, rel=0.01)


def watched(**options: Any) -> TraceBuilder:
    """A run of 2 ms that a watchdog asks every 500 µs about its last event."""
    t = TraceBuilder(**options)
    with t.op("aten::many"):
        for number in range(100):
            t.launch(f"kernel {number}", 7, KERNEL_US)
    event = t.record_event(stream=7)
    with t.thread(2, start=20):
        for _ in range(4):
            t.event_query(event)
            t.idle(500)
    t.device_synchronize()
    return t


@pytest.mark.parametrize("options", [{"sync_records": True}, {"sync_records": False}], ids=["records", "calls"])
def test_a_thread_that_only_looks_on_holds_nothing_up(options: dict[str, Any]) -> None:
    graph = convert_run(watched(**options)).graph
    measured = makespan_us(graph)
    assert measured == pytest.approx(watched(**options).makespan_us)
    assert makespan_us(graph, "class:computation=0.5") == pytest.approx(measured / 2, rel=0.03)
