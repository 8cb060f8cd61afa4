"""Device time between activities: latency and gaps apart, delays by cause, full devices, events known by ids alone."""

import heapq
from pathlib import Path

import pytest
from execgraph.schema.graph import DependencyKind, ExecutionGraph
from execgraph.schema.reasons import Reason
from execgraph.tools.commands.trace_convert import summary
from execgraph.tools.replay import parse_scale, replay, summarise
from hypothesis import given
from support.builder.timeline import CALL_US, TraceBuilder, ns
from support.commands import status_of
from support.runs import Step, broken_rules, convert_run, device_waits, link_run, play, with_delays

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
def test_kernels_that_queued_are_launch_bound_once_they_are_short_and_others_queue_once_they_are_long(latency, gap):
    """The gap shows in no burst of short kernels where it is the shorter; then it is taken as on most machines."""
    queued, bound = (convert_run(bursts(kernel_us, latency, gap)) for kernel_us in (60.3, 1.1))
    assert (queued.report.delays, bound.report.delays) == ({}, {})
    faster = replay(queued.graph, [parse_scale("class:computation=0.01")])
    assert faster.makespan_ns / 1000 == pytest.approx(bursts(0.603, latency, gap).makespan_us, rel=0.01)
    slower, per_kernel = replay(bound.graph, [parse_scale("class:computation=100")]), abs(2 - gap) if gap < 5 else 0
    expected = pytest.approx(bursts(110, latency, gap).makespan_us, rel=0.01 + per_kernel / 110)
    assert slower.makespan_ns / 1000 == expected


@pytest.mark.parametrize("factor", [0.5, 4])
def test_durations_in_whole_microseconds_scale_without_bias(factor: float) -> None:
    graph = convert_run(bursts(20.6, 2.2, 1.1, torch="2.1")).graph
    scaled = replay(graph, [parse_scale(f"class:computation={factor}")])
    assert scaled.makespan_ns / 1000 == pytest.approx(bursts(20.6 * factor, 2.2, 1.1).makespan_us, rel=0.01)


def started_late(*, busy: bool = False, lost: bool = False, late: str = "late") -> TraceBuilder:
    """The last kernel starts 200 µs after the rest of its stream; `lost`: a call's kernel is missing."""
    t = TraceBuilder()
    with t.op("aten::mm"):
        for number in range(6):
            t.launch(f"kernel {number}", 7, 10.2, latency=CALL_US + 2.3)
        if busy:
            t.launch("long", 20, 400, latency=CALL_US + 2.3)
        if lost:
            t.call("cudaLaunchKernel")
        t.launch(late, 7, 10.2, start=t.ready[7] / 1000 + 200)
        t.work(500)
    return t


# What replays make of them


def test_delays_take_their_time_unless_asked_otherwise() -> None:
    graph = convert_run(started_late()).graph
    assert summarise(replay(graph)).critical_path_us.get("delay", 0) == 0  # the host takes longer
    fast = [parse_scale("class:host=0")]
    assert summarise(replay(graph, fast)).explained_pct < 40
    assert summarise(replay(graph, [*fast, parse_scale("class:delay=0")])).explained_pct == 100


def test_a_graph_without_its_host_keeps_the_time_of_delays_before_their_activities() -> None:
    nodes = convert_run(started_late(), host=False)
    assert not nodes.graph.is_delay.any()
    assert nodes.follows("late") == {"kernel 5": DependencyKind.STREAM_ORDER}
    waited = nodes.graph.integers("host_delay_ns", 0) + nodes.graph.integers("gap_ns", 0)
    assert waited[nodes.row("late")] == 200_000
    assert replay(nodes.graph).error_pct == 0


@pytest.mark.parametrize("options", [{}, {"promote": "all"}, {"host": False}], ids=["sync", "all", "no host"])
@given(with_delays)
def test_any_run_with_delays_is_sound_and_replays_as_measured(options: dict[str, str], program: list[Step]) -> None:
    t = play([*program, Step("launch", 7, 1, 5)])
    nodes = convert_run(t, **options)
    assert broken_rules(nodes) == []
    if "promote" not in options:
        assert abs(replay(nodes.graph).error_pct or 0) <= 0.5


@given(with_delays)
def test_without_delays_no_run_gets_longer(program: list[Step]) -> None:
    t = play(program)
    kept, left_out = (convert_run(t, delays=delays) for delays in (True, False))
    assert not left_out.graph.is_delay.any()
    assert left_out.report.delays == {}
    assert replay(left_out.graph).makespan_ns <= replay(kept.graph).makespan_ns


# What people are told


def lines_about_delays(t: TraceBuilder) -> list[str]:
    return [line for line in summary(convert_run(t).report).splitlines() if line.startswith("delays")]


def test_the_summary_tells_cause_time_share_and_what_to_do() -> None:
    (line,) = lines_about_delays(started_late(lost=True))
    assert line.startswith("delays      1 lost records, ")
    assert " % of the run; record fewer steps" in line
    t = TraceBuilder()
    with t.op("aten::mm"):
        t.launch("held", 7, 10.2, start=300)
    (line,) = lines_about_delays(t)
    assert line.startswith("delays      1 start of recording, 300.0 µs in all, ")
    assert "; synchronise before recording" in line


def test_the_summary_is_silent_without_delays(t: TraceBuilder) -> None:
    with t.op("aten::mm"):
        t.launch("kernel")
    assert lines_about_delays(t) == []


def test_a_small_share_of_the_run_is_not_told() -> None:
    t = started_late()
    t.leaf("aten::long", 100_000)
    (line,) = lines_about_delays(t)
    assert "unexplained" in line and "%" not in line


def test_delays_can_be_left_out_on_the_command_line(tmp_path: Path) -> None:
    host, device = started_late().write(tmp_path)
    linked, graph = tmp_path / "linked.json", str(tmp_path / "graph.et")
    assert status_of("trace-link", "--host-trace", host, "--device-trace", device, "--output", linked) == 0
    for option, delays in (((), 1), (("--no-delays",), 0)):
        assert status_of("trace-convert", "--input", linked, "--output", graph, *option) == 0
        assert ExecutionGraph.read(graph).is_delay.sum() == delays


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


@pytest.mark.parametrize("factor", [0.5, 2, 5])
@pytest.mark.parametrize("limit", [1, 2, None])
def test_what_if_answers_keep_the_limit(limit: int | None, factor: float) -> None:
    graph = convert_run(crowded(limit)).graph
    scaled = replay(graph, [parse_scale(f"class:computation={factor}")])
    assert scaled.makespan_ns / 1000 == pytest.approx(crowded(limit, factor).makespan_us, rel=0.03)


def group_ids() -> TraceBuilder:
    return TraceBuilder(event_rows=True)


def test_a_stream_waits_for_what_the_id_marked() -> None:
    t = group_ids()
    t.launch("marked", 7, 50)
    event = t.record_event(stream=7)
    t.launch("later", 7, 50)
    t.launch("elsewhere", 24, 5)
    t.record_event(stream=24)
    t.wait_event(event, stream=20)
    t.launch("waits", 20, 5)
    t.leaf("aten::add", 5)
    linked = link_run(t)
    assert device_waits(linked) == {("marked", "waits")}
    assert linked.report.waits == {Reason.STREAM_WAITS.of("record"): 1}
    assert linked.report.guessed == {}
    assert convert_run(t).follows("waits")["marked"] == DependencyKind.EVENT_WAIT
