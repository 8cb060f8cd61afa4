"""When a call handed its work to the device, told by which took its usual time: the host in launching or the device in
starting.
"""

import pytest
from execgraph.converter.timeline.submit_times import submit_times
from execgraph.schema.columns import ABSENT
from support.builder import TraceBuilder
from support.builder.timeline import CALL_US
from support.runs import link_run

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
