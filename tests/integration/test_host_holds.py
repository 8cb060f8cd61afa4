"""What blocks the host besides synchronising calls: memory that is freed, a full launch queue; and observer threads."""

from typing import Any

import pytest
from execgraph.schema.graph import DependencyKind, ExecutionGraph
from execgraph.schema.linked import LinkedTrace
from execgraph.tools.replay import parse_scale, replay
from support.builder import TraceBuilder
from support.runs import convert_run, link_run

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


def test_a_launch_that_finds_the_queue_full_waits_for_room() -> None:
    t = crowded()
    held = host_waits(link_run(t))
    assert {call for _, call in held} == {"cudaLaunchKernel"}
    assert 395 <= len(held) <= 405
    nodes = convert_run(t)
    assert nodes.replay_error() == 0


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


def test_a_shorter_queue_is_never_full() -> None:
    t = TraceBuilder(sync_records=False)
    for number in range(400):
        t.launch(f"kernel {number}", 7, KERNEL_US, call_duration=60 if number % 50 == 49 else LAUNCH_US)
    t.leaf("aten::add", 5)
    assert host_waits(link_run(t)) == set()


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


def test_without_guesses_a_watchdog_keeps_its_own_time() -> None:
    nodes = convert_run(watched(), inferred=False)
    assert not any(kind & DependencyKind.INFERRED for label in nodes.labels for kind in nodes.follows(label).values())
    assert nodes.replay_error() == 0


def test_queries_in_several_ops_are_no_loop() -> None:
    """An allocator queries its events at each allocation; the query that finds one is a wait, the rest is work."""
    t = TraceBuilder(sync_records=False)
    t.launch("kernel", 7, 100)
    event = t.record_event(stream=7)
    for _ in range(2):
        with t.op("aten::empty"):
            t.event_query(event)
        t.leaf("aten::work", 150)
    t.leaf("aten::add", 5)
    assert host_waits(link_run(t)) == {("kernel", "cudaEventQuery")}
    assert makespan_us(convert_run(t).graph, "kernel=0.1") == pytest.approx(t.makespan_us)
