"""What a blocking call costs if it waits and if it does not, however far the device's clock is off."""

import pytest
from execgraph.converter.timeline import slice_host
from execgraph.schema.graph import ExecutionGraph
from execgraph.schema.machine import LONGEST
from execgraph.tools.replay import parse_scale, replay
from support.builder import TraceBuilder
from support.references import Act, Call, linked_of
from support.runs import convert_run

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
