"""Launch latency and gaps apart: a changed run starts its activities when the machine would have."""

import pytest
from execgraph.tools.replay import parse_scale, replay
from support.builder import TraceBuilder
from support.builder.timeline import CALL_US, ns
from support.runs import convert_run

LATENCIES_AND_GAPS = [(1, 0.5), (2.2, 1.1), (6, 20), (25, 1), (25, 20)]


def bursts(kernel_us: float, latency: float, gap: float, *, torch: str = "2.13") -> TraceBuilder:
    """Six times four launches, 7 µs apart, then a wait: long kernels queue, short ones start a latency later."""
    t = TraceBuilder(torch)
    for burst in range(6):
        for number in range(4):
            with t.op("aten::mm"):
                t.work(3)
                t.launch(f"kernel {burst}.{number}", duration=kernel_us, latency=CALL_US + latency)
                t.ready[7] += ns(gap)
        t.ready[7] -= ns(gap)
        t.stream_synchronize(7)
    return t


@pytest.mark.parametrize(("latency", "gap"), LATENCIES_AND_GAPS)
def test_kernels_that_queued_are_launch_bound_once_they_are_short(latency: float, gap: float) -> None:
    graph = convert_run(bursts(60.3, latency, gap)).graph
    faster = replay(graph, [parse_scale("class:computation=0.01")])
    assert faster.makespan_ns / 1000 == pytest.approx(bursts(0.603, latency, gap).makespan_us, rel=0.01)


@pytest.mark.parametrize(("latency", "gap"), LATENCIES_AND_GAPS)
def test_kernels_that_were_launch_bound_queue_once_they_are_long(latency: float, gap: float) -> None:
    """The gap shows in no burst of short kernels where it is the shorter; then it is taken as on most machines."""
    graph = convert_run(bursts(1.1, latency, gap)).graph
    slower = replay(graph, [parse_scale("class:computation=100")])
    per_kernel = abs(2 - gap) if gap < 5 else 0
    assert slower.makespan_ns / 1000 == pytest.approx(
        bursts(110, latency, gap).makespan_us, rel=0.01 + per_kernel / 110
    )


@pytest.mark.parametrize(("latency", "gap"), LATENCIES_AND_GAPS)
def test_what_is_usual_is_no_delay(latency: float, gap: float) -> None:
    for kernel_us in (1.1, 60.3):
        assert convert_run(bursts(kernel_us, latency, gap)).report.delays == {}


@pytest.mark.parametrize("factor", [0.5, 4])
def test_durations_in_whole_microseconds_scale_without_bias(factor: float) -> None:
    graph = convert_run(bursts(20.6, 2.2, 1.1, torch="2.1")).graph
    scaled = replay(graph, [parse_scale(f"class:computation={factor}")])
    assert scaled.makespan_ns / 1000 == pytest.approx(bursts(20.6 * factor, 2.2, 1.1).makespan_us, rel=0.01)
