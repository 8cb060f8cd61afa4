"""Concurrency limits: how many activities a full device runs at once is measured, and what-if answers keep it."""

import heapq

import pytest
from execgraph.tools.replay import parse_scale, replay
from support.builder import TraceBuilder
from support.builder.timeline import CALL_US
from support.runs import broken_rules, convert_run

STREAMS, LATENCY, GAP = 4, 2.3, 1.1


def crowded(limit: int | None, factor: float = 1, kernels: int = 40) -> TraceBuilder:
    """Kernels of four streams, launched in turn, on a device that runs so many at once, any number if that is None."""
    t = TraceBuilder()
    places = [0.0] * (limit or 10**3)
    for number in range(kernels):
        stream, duration = number % STREAMS, (30.3 + number % 7) * factor
        with t.op("aten::mm"):
            ready = max(t.now + CALL_US + LATENCY, t.ready[stream] / 1000 + GAP if t.ready[stream] else 0)
            start = max(ready, heapq.heappop(places))
            t.launch(f"kernel {number}", stream, duration, start=start)
            heapq.heappush(places, start + duration)
    t.device_synchronize()
    return t


@pytest.mark.parametrize("limit", [1, 2])
def test_the_concurrency_limit_of_a_full_device_is_found(limit: int) -> None:
    nodes = convert_run(crowded(limit))
    assert nodes.graph.metadata["concurrency_limit_of_device_0"] == limit
    assert set(nodes.report.delays) == {"contention"}
    assert broken_rules(nodes) == []
    assert abs(replay(nodes.graph).error_pct or 0) <= 0.5


def test_two_activities_that_waited_for_a_slot_show_the_limit() -> None:
    nodes = convert_run(crowded(2, kernels=4))
    assert nodes.graph.metadata["concurrency_limit_of_device_0"] == 2
    assert nodes.report.delays == {"contention": 2}


@pytest.mark.parametrize("limit", [STREAMS, None])
def test_no_limit_is_claimed_where_streams_overlap_freely(limit: int | None) -> None:
    nodes = convert_run(crowded(limit))
    assert not any(key.startswith("concurrency_limit_of_device") for key in nodes.graph.metadata)
    assert nodes.report.delays == {}


@pytest.mark.parametrize("factor", [0.5, 2, 5])
@pytest.mark.parametrize("limit", [1, 2, None])
def test_what_if_answers_keep_the_limit(limit: int | None, factor: float) -> None:
    graph = convert_run(crowded(limit)).graph
    scaled = replay(graph, [parse_scale(f"class:computation={factor}")])
    assert scaled.makespan_ns / 1000 == pytest.approx(crowded(limit, factor).makespan_us, rel=0.03)


def test_a_single_wait_for_another_stream_is_no_full_device() -> None:
    t = TraceBuilder()
    for stream in range(2):
        with t.op("aten::mm"):
            t.launch(f"kernel {stream}", stream, 30.3, latency=CALL_US + LATENCY)
    with t.op("aten::mm"):
        t.launch("late", 2, 10.2, start=t.ready[1] / 1000)
    assert "concurrency_limit_of_device_0" not in convert_run(t).graph.metadata
