"""When a call handed its work over, by which side took its usual time, and what a blocking call costs."""

import pytest
from execgraph.converter.timeline import slice_host
from execgraph.converter.timeline.timeline import submit_times
from execgraph.schema.columns import ABSENT
from execgraph.schema.graph import ExecutionGraph
from execgraph.schema.machine import LONGEST
from execgraph.tools.replay import parse_scale, replay
from support.builder.timeline import CALL_US, TraceBuilder
from support.references import Act, Call, linked_of
from support.runs import convert_run, link_run

LATENCIES_AND_GAPS = [(1, 0.5), (2.2, 1.1), (6, 20), (25, 1), (25, 20)]
COPY = "cudaMemcpyAsync"


def copies(
    latency: float,
    gap: float,
    *,
    held: float = 0,
    branched: bool = False,
    awaited: bool = False,
    stalled: float = 0,
    ready: float | None = None,
) -> TraceBuilder:
    """Six blocking copies on a free stream, then one that a kernel held up for so long, or a graph's other branch, or
    another stream, or whose call took so much longer to launch it, `ready` µs before which a kernel had ended.
    """
    t = TraceBuilder()
    for number in range(6):
        with t.op("aten::mm"):
            first = t.launch(f"first {number}", 7, 40.4, latency=CALL_US + latency)
            t.launch(f"second {number}", 7, 20.2, start=first.end / 1000 + gap)
        t.stream_synchronize(7)
        t.idle(200)
        with t.op("aten::item"):
            t.memcpy("DtoH", 7, 5.5, latency=CALL_US + latency)
        t.idle(200)
    with t.op("aten::item"):
        if held:
            kernel = t.launch("kernel", 7, held, latency=CALL_US + latency)
            t.memcpy("DtoH", 7, 5.5, start=kernel.end / 1000 + gap)
        if branched:
            _, branch = t.graph_launch([("own", 7, 20.4), ("branch", 9, 400.4)], latency=latency)
            t.idle(200)
            t.memcpy("DtoH", 7, 5.5, start=branch.end / 1000 + gap)
        if awaited:
            kernel = t.launch("kernel", 9, 400.4, latency=CALL_US + latency)
            t.wait_event(t.record_event(stream=9), stream=7)
            t.memcpy("DtoH", 7, 5.5, start=kernel.end / 1000 + gap)
        if stalled:
            start = t.now + CALL_US + stalled + latency
            if ready is not None:
                t.activity("graph", 7, start - ready - gap - 20, 20)
            t.memcpy("DtoH", 7, 5.5, start=start)
    return t


def last_copy_launched_after(t: TraceBuilder) -> float:
    """µs from the start of the last copy's call to its launch."""
    linked = link_run(t)
    calls, moments = linked.calls, submit_times(linked)
    row = max(row for row in range(len(calls)) if calls.name[row] == COPY)
    return float(moments[row] - calls.start[row]) / 1000


@pytest.mark.parametrize(("latency", "gap"), LATENCIES_AND_GAPS)
def test_a_copy_that_the_device_held_up_was_launched_early_in_its_call(latency: float, gap: float) -> None:
    assert last_copy_launched_after(copies(latency, gap, held=400.4)) == pytest.approx(CALL_US, abs=0.01)


@pytest.mark.parametrize(("latency", "gap"), LATENCIES_AND_GAPS)
def test_a_copy_that_a_branch_of_a_graph_held_up_was_launched_early_in_its_call(latency: float, gap: float) -> None:
    assert last_copy_launched_after(copies(latency, gap, branched=True)) == pytest.approx(CALL_US, abs=0.01)


@pytest.mark.parametrize(("latency", "gap"), LATENCIES_AND_GAPS)
def test_a_copy_that_another_stream_held_up_was_launched_early_in_its_call(latency: float, gap: float) -> None:
    assert last_copy_launched_after(copies(latency, gap, awaited=True)) == pytest.approx(CALL_US, abs=0.01)


def test_a_copy_held_up_for_less_than_the_devices_usual_gap_was_launched_early_too() -> None:
    assert last_copy_launched_after(copies(6, 20, held=10)) == pytest.approx(CALL_US, abs=0.01)


def test_a_copy_whose_stream_had_been_free_for_longer_than_its_call_stalled_was_launched_late() -> None:
    assert last_copy_launched_after(copies(6, 20, stalled=3, ready=5)) == pytest.approx(CALL_US + 3, abs=0.01)


@pytest.mark.parametrize(("latency", "gap"), LATENCIES_AND_GAPS)
def test_a_copy_whose_call_stalled_was_launched_late_in_it(latency: float, gap: float) -> None:
    assert last_copy_launched_after(copies(latency, gap, stalled=400)) == pytest.approx(CALL_US + 400, abs=0.01)


def test_a_kernel_is_launched_when_its_call_returns_at_the_latest() -> None:
    t = TraceBuilder()
    with t.op("aten::mm"):
        t.launch("early", 7, 30, call_duration=20, latency=10)
        t.launch("queued", 7, 30)
    linked = link_run(t)
    after = (submit_times(linked) - linked.calls.start) / 1000
    assert after.tolist() == [10 - 2, CALL_US]  # 2 µs, as on most machines


def test_calls_that_launch_nothing_have_no_moment() -> None:
    t = TraceBuilder()
    with t.op("aten::mm"):
        t.call("cudaGetDevice")
        t.launch("kernel")
    assert submit_times(link_run(t)).tolist()[0] == ABSENT


STEPS, KERNEL_US, SHORT_US = 10, 50, 1
OFFSETS = [-1.5, -1, 0, 1, 1.5]
"""µs. Calls return 2 µs after what they awaited, kernels start 8 µs after their calls: none of these is impossible."""


def run(kernel_us: float, clock_offset: float = 0, idle_calls: bool = True) -> TraceBuilder:
    t = TraceBuilder(clock_offset=clock_offset)
    t.work(0.123)
    for _ in range(STEPS):
        with t.op("aten::mm"):
            t.launch("gemm", 7, kernel_us, latency=8)
        t.leaf("aten::view", 20)
        t.device_synchronize()
        t.leaf("aten::add", 30)
        if idle_calls:
            t.device_synchronize()
    return t


def graph_of(t: TraceBuilder) -> ExecutionGraph:
    return convert_run(t).graph


def makespan_us(graph: ExecutionGraph, *scale: str) -> float:
    return replay(graph, [parse_scale(spec) for spec in scale]).makespan_ns / 1000


@pytest.mark.parametrize("offset", OFFSETS)
def test_as_measured_a_run_takes_as_long_as_it_did(offset: float) -> None:
    assert makespan_us(graph_of(run(KERNEL_US, offset))) == pytest.approx(run(KERNEL_US).makespan_us, abs=0.001)


@pytest.mark.parametrize("offset", OFFSETS)
def test_a_call_that_need_not_wait_any_more_takes_as_long_as_one_with_nothing_to_wait_for(offset: float) -> None:
    changed = makespan_us(graph_of(run(KERNEL_US, offset)), f"gemm={SHORT_US / KERNEL_US}")
    assert changed == pytest.approx(run(SHORT_US).makespan_us, abs=0.001)


@pytest.mark.parametrize("offset", [offset for offset in OFFSETS if offset <= 0])
def test_what_a_return_takes_beyond_such_a_call_does_not_change_with_the_host(offset: float) -> None:
    right = makespan_us(graph_of(run(KERNEL_US)), "class:host=0.5")
    assert makespan_us(graph_of(run(KERNEL_US, offset)), "class:host=0.5") == pytest.approx(right, abs=0.001)


def test_a_slower_host_makes_calls_that_need_not_wait_slower() -> None:
    scale = (f"gemm={SHORT_US / KERNEL_US}", "class:host=2")
    right = makespan_us(graph_of(run(KERNEL_US)), *scale)
    assert makespan_us(graph_of(run(KERNEL_US, 1)), *scale) == pytest.approx(right, abs=0.001)


def test_calls_that_all_waited_do_not_tell_what_one_costs() -> None:
    graph = graph_of(run(KERNEL_US, -1, idle_calls=False))
    waits = graph.name.equal("cudaDeviceSynchronize")
    assert graph.duration_ns[waits].tolist() == [3_000] * STEPS
    assert (graph.integers("gap_ns", 0)[waits] == 0).all()


# to the nanosecond

AWAITED, BEGUN, RETURNED = 50_000, 10_000, 58_000
IDLE_FROM = 100_000


def after_awaited_and_host(idle: int, name: str = "cudaStreamSynchronize", after: int | None = None) -> tuple[int, ...]:
    """Start, end, and the least times before the start of a wait, where another call takes `idle` ns that has nothing
    to wait for and begins `after` what it awaited has ended.
    """
    begin = IDLE_FROM if after is None else AWAITED + after
    calls = [Call(0, 1_000), Call(BEGUN, RETURNED, name="cudaStreamSynchronize"), Call(begin, begin + idle, name=name)]
    timeline = slice_host(linked_of([Act(3_000, AWAITED, call=0)], calls, host_waits=[(1, 0), (2, 0)]), 0)
    row = timeline.sync_node[1]
    return tuple(int(column[row]) for column in (timeline.start, timeline.end, timeline.return_ns, timeline.call_ns))


def test_a_return_is_split_into_its_latency_and_the_cost_of_a_call() -> None:
    assert after_awaited_and_host(2_000) == (RETURNED - 2_000, RETURNED, 6_000, 0)
    assert after_awaited_and_host(7_999) == (RETURNED - 7_999, RETURNED, 1, 0)
    assert after_awaited_and_host(8_000) == (AWAITED, RETURNED, 0, 0)
    assert after_awaited_and_host(8_001) == (AWAITED, RETURNED, 0, 1)


def test_calls_that_took_longer_than_on_any_machine_do_not_tell_what_one_costs() -> None:
    assert after_awaited_and_host(LONGEST, after=2 * LONGEST) != (AWAITED, RETURNED, 0, 0)
    assert after_awaited_and_host(LONGEST + 1, after=2 * LONGEST) == (AWAITED, RETURNED, 0, 0)


def test_a_call_that_waited_cost_no_more_than_it_took() -> None:
    assert after_awaited_and_host(49_000) == (AWAITED, RETURNED, 0, AWAITED - BEGUN)


def test_calls_of_another_name_and_calls_that_may_have_waited_do_not_tell() -> None:
    unknown = (AWAITED, RETURNED, 0, 0)
    assert after_awaited_and_host(2_000, name="cudaDeviceSynchronize") == unknown
    assert after_awaited_and_host(2_000, after=9_000) != unknown
    assert after_awaited_and_host(9_000, after=9_000) == unknown
    assert after_awaited_and_host(9_000, after=9_001) != unknown
