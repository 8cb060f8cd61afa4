"""The host timeline of runs made by hand, on a machine whose launches take 2 µs: every node, and which ones launch and
wait.

When a call handed its work over, by which side took its usual time, and what a blocking call costs.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from execgraph.converter.timeline import IDLE, Timeline, names_of, slice_host
from execgraph.converter.timeline.timeline import submit_times
from execgraph.schema.columns import ABSENT, Categorical
from execgraph.schema.linked import LinkedTrace, ThreadHandoffs
from execgraph.schema.machine import LONGEST
from execgraph.tools.replay import parse_scale, replay
from support.builder.timeline import CALL_US, TraceBuilder
from support.references import Act, Call, Op, linked_of
from support.runs import convert_run, link_run

Sliced = list[tuple[str, int, int]]


def nodes(linked: LinkedTrace, shortest: int = 0) -> Sliced:
    timeline = slice_host(linked, shortest)
    names = names_of(linked, timeline)
    spans = zip(timeline.start.tolist(), timeline.end.tolist(), strict=True)
    return [(names[row], start, end) for row, (start, end) in enumerate(spans)]


def launchers(linked: LinkedTrace, shortest: int = 0) -> list[tuple[int, int]]:
    """Start and end of the slice that each call launches at the end of."""
    timeline: Timeline = slice_host(linked, shortest)
    return [(int(timeline.start[row]), int(timeline.end[row])) for row in timeline.launch_node.tolist()]


def with_communication(rows: list[int], *ops: Op) -> LinkedTrace:
    """A run of the host alone, in which these ops communicate."""
    linked = linked_of([], ops=[*ops])
    linked.ops.communication_row[rows] = np.arange(len(rows))
    return linked


def with_wait(act: Act, calls: list[Call], *ops: Op) -> LinkedTrace:
    """A run whose last call waits for the activity."""
    return linked_of([act], calls, [*ops], host_waits=[(len(calls) - 1, 0)])


SYNC, WAITED, LATER = "cudaStreamSynchronize", ("cudaStreamSynchronize", 8_000, 9_000), Op(5_000, 9_000, name="later")
SHORT_LAST = [Op(0, 1_000, name="a"), Op(1_000, 1_200, name="b")]
CUT_BY_COPIES = [
    Op(0, 1_000, name="gloo:send"), Op(1_000, 2_000, name="gloo:recv"), Op(700, 800, parent=0, name="copy"),
    Op(1_100, 1_200, parent=1, name="copy"), Op(2_000, 9_000, name="later"),
]  # fmt: skip
TIMELINES: dict[str, tuple[LinkedTrace, int, Sliced]] = {
    "a slice that is long enough stays": (linked_of([], ops=SHORT_LAST), 200, [("a", 0, 1_000), ("b", 1_000, 1_200)]),
    "the last one is folded into the one before": (linked_of([], ops=SHORT_LAST), 201, [("a", 0, 1_200)]),
    "others into the next one that is long enough": (
        linked_of([], ops=[*SHORT_LAST, Op(1_200, 1_300, name="c"), Op(1_300, 2_000, name="d")]),
        500,
        [("a", 0, 1_000), ("d", 1_000, 2_000)],
    ),
    "behind a launch nothing is folded into it": (
        linked_of([Act(3_500, 5_000, call=0)], [Call(0, 1_000, 0)], [Op(0, 1_200, name="a")]),
        500,
        [("a", 0, 1_000), ("a", 1_000, 1_200)],
    ),
    "nothing over time in which the thread waited": (
        with_wait(Act(3_500, 5_000, call=0), [Call(0, 1_000, 0), Call(1_200, 5_000, 0, SYNC)], Op(0, 5_100, name="a")),
        500,
        [("a", 0, 1_000), ("a", 1_000, 1_200), (SYNC, 5_000, 5_000), ("a", 5_000, 5_100)],
    ),
    "each op that communicates keeps its longest slice though another op cuts it": (
        with_communication([0, 1], *CUT_BY_COPIES),
        900,
        [("gloo:send", 0, 700), ("gloo:recv", 700, 2_000), ("later", 2_000, 9_000)],
    ),
    "a short op that communicates stays": (
        with_communication([0], Op(0, 300, name="gloo:send"), LATER),
        1_000,
        [("gloo:send", 0, 300), (IDLE, 300, 5_000), ("later", 5_000, 9_000)],
    ),
    "ops that communicate in no time have nodes of no length, in order": (
        with_communication([0, 1], Op(0, 0, name="gloo:all_reduce"), Op(0, 0, name="gloo:all_gather"), LATER),
        1_000,
        [("gloo:all_reduce", 0, 0), ("gloo:all_gather", 0, 0), (IDLE, 0, 5_000), ("later", 5_000, 9_000)],
    ),
    "as does one behind idle time": (
        with_communication([1], Op(0, 300, name="a"), Op(5_000, 5_000, name="gloo:barrier")),
        0,
        [("a", 0, 300), (IDLE, 300, 5_000), ("gloo:barrier", 5_000, 5_000)],
    ),
    "idle time is between work only": (
        linked_of([], ops=[Op(1_000, 2_000, name="a"), LATER]),
        0,
        [("a", 1_000, 2_000), (IDLE, 2_000, 5_000), ("later", 5_000, 9_000)],
    ),
    "a call outside ops is work, named as the call": (
        linked_of([], [Call(2_000, 3_000, name="cudaMalloc")], [Op(0, 2_000, name="a")]),
        0,
        [("a", 0, 2_000), ("cudaMalloc", 2_000, 3_000)],
    ),
    "a thread that begins with a wait is there from its call on": (
        with_wait(Act(3_000, 8_000), [Call(2_000, 9_000, name=SYNC)]),
        0,
        [(IDLE, 2_000, 2_000), WAITED],
    ),
    "a blocking call has work again once what it awaited has ended": (
        with_wait(Act(3_000, 8_000, call=0), [Call(0, 1_000, 0), Call(2_000, 9_000, 0, SYNC)], Op(0, 9_500, name="a")),
        0,
        [("a", 0, 1_000), ("a", 1_000, 2_000), WAITED, ("a", 9_000, 9_500)],
    ),
}


@pytest.mark.parametrize(("linked", "shortest", "expected"), TIMELINES.values(), ids=TIMELINES)
def test_a_threads_time_is_cut_and_short_slices_are_folded(linked, shortest, expected):
    assert nodes(linked, shortest) == expected


def test_slices_of_another_thread_take_nothing_and_folded_ones_are_counted() -> None:
    linked = linked_of([], ops=SHORT_LAST)
    assert [slice_host(linked, shortest).folded for shortest in (200, 201)] == [0, 1]
    linked.ops.thread[1] = 2
    assert nodes(linked, 201) == [("a", 0, 1_000), ("b", 1_000, 1_200)]
    blocking = TIMELINES["a blocking call has work again once what it awaited has ended"][0]
    assert slice_host(blocking, 0).sync_node.tolist() == [-1, 2]


def test_calls_of_one_op_that_launch_at_one_moment_share_its_slice() -> None:
    acts = [Act(4_000, 5_000, call=0), Act(6_000, 7_000, call=1)]
    linked = linked_of(acts, [Call(0, 1_000, 0), Call(500, 1_000, 0)], [Op(0, 2_000, name="a")])
    assert nodes(linked) == [("a", 0, 1_000), ("a", 1_000, 2_000)]
    assert launchers(linked) == [(0, 1_000), (0, 1_000)]


def test_a_launch_at_the_end_of_another_ops_slice_has_one_of_no_length() -> None:
    """The inner op's activity starts early: that call launched as the inner op began."""
    ops = [Op(0, 3_000, name="outer"), Op(1_000, 3_000, parent=0, name="inner")]
    linked = linked_of([Act(2_900, 9_000, call=0)], [Call(1_000, 3_000, 1)], ops)
    assert nodes(linked) == [("outer", 0, 1_000), ("inner", 1_000, 1_000), ("inner", 1_000, 3_000)]
    assert launchers(linked) == [(1_000, 1_000)]
    linked = linked_of(
        [Act(2_900, 9_000, call=0), Act(2_400, 9_000, call=1, stream=8)],
        [Call(1_000, 3_000, 1), Call(1_000, 2_500, 1)],
        ops,
    )
    assert launchers(linked) == [(1_000, 1_000)] * 2


def handed_over(*moments: tuple[int, int, int, int], until: int = 100, inner: Sequence[Op] = ()) -> LinkedTrace:
    """Two threads that each have an op from 0 ns on, and hand-offs: from which thread and when, to which and when.

    `inner` are ops on the second thread.
    """
    linked = linked_of([], ops=[Op(0, until, name="a"), Op(0, until, name="b"), *inner])
    linked.ops.thread[1:] = 2
    columns = [np.array(column, np.int64) for column in zip(*moments, strict=True)]
    none = np.full(len(moments), ABSENT)
    return replace(linked, handoffs=ThreadHandoffs(*columns, none, Categorical.of("record" for _ in moments)))


def test_a_thread_is_cut_where_it_hands_over_and_where_another_did_to_it() -> None:
    linked = handed_over((1, 40, 2, 50))
    assert nodes(linked) == [("a", 0, 40), ("a", 40, 100), ("b", 0, 50), ("b", 50, 100)]
    timeline = slice_host(linked, 0)
    assert (timeline.handoff_source_node.tolist(), timeline.handoff_target_node.tolist()) == ([0], [3])


@pytest.mark.parametrize(("giver", "taker"), [(1, 2), (2, 1)], ids=["first in the table", "second in the table"])
def test_before_its_first_node_no_thread_hands_over_and_after_its_last_none_resumes(giver: int, taker: int) -> None:
    timeline = slice_host(handed_over((giver, 0, taker, 100)), 0)
    assert (timeline.handoff_source_node.tolist(), timeline.handoff_target_node.tolist()) == ([-1], [-1])


def test_no_slice_is_folded_over_a_handoff_that_a_slice_takes_part_in() -> None:
    linked = handed_over((1, 900, 2, 100), until=1_000)
    assert nodes(linked, 500) == [("a", 0, 900), ("a", 900, 1_000), ("b", 0, 100), ("b", 100, 1_000)]
    linked = handed_over((1, 0, 2, 1_000), until=1_000, inner=[Op(0, 100, 1, "first"), Op(900, 1_000, 1, "last")])
    assert nodes(linked, 500) == [("a", 0, 1_000), ("b", 0, 1_000)]


def test_a_thread_is_idle_from_a_handoff_to_it_on_and_not_until_one_after_its_last_work() -> None:
    assert nodes(handed_over((1, 100, 2, -20))) == [("a", 0, 100), (IDLE, -20, 0), ("b", 0, 100)]
    assert nodes(handed_over((1, 100, 2, 150))) == [("a", 0, 100), ("b", 0, 100)]


LATENCIES_AND_GAPS = [(1, 0.5), (2.2, 1.1), (6, 20), (25, 1), (25, 20)]
COPY = "cudaMemcpyAsync"


def copies(latency, gap, *, held=0, branched=False, awaited=False, stalled=0, ready=None):
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
@pytest.mark.parametrize(
    ("held_up", "stalled"),
    [({"held": 400.4}, 0), ({"branched": True}, 0), ({"awaited": True}, 0), ({"stalled": 400}, 400)],
    ids=["behind a kernel", "behind a branch of a graph", "behind another stream", "stalled"],
)
def test_a_copy_that_the_device_held_up_was_launched_early_in_its_call_one_that_stalled_late(
    held_up: dict[str, Any], stalled: int, latency: float, gap: float
) -> None:
    found = last_copy_launched_after(copies(latency, gap, **held_up))
    assert found == pytest.approx(CALL_US + stalled, abs=0.01)


def test_a_copy_held_up_for_less_than_the_usual_gap_was_launched_early_and_one_whose_stream_had_been_free_late():
    assert last_copy_launched_after(copies(6, 20, held=10)) == pytest.approx(CALL_US, abs=0.01)
    assert last_copy_launched_after(copies(6, 20, stalled=3, ready=5)) == pytest.approx(CALL_US + 3, abs=0.01)


def test_a_kernel_is_launched_when_its_call_returns_at_the_latest_and_calls_that_launch_nothing_have_no_moment(t):
    with t.op("aten::mm"):
        t.launch("early", 7, 30, call_duration=20, latency=10)
        t.launch("queued", 7, 30)
        t.call("cudaGetDevice")
    linked = link_run(t)
    after = (submit_times(linked) - linked.calls.start) / 1000
    assert after.tolist()[:2] == [10 - 2, CALL_US]  # 2 µs, as on most machines
    assert submit_times(linked)[2] == ABSENT


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


def makespan_us(t: TraceBuilder, *scale: str) -> float:
    return replay(convert_run(t).graph, [parse_scale(spec) for spec in scale]).makespan_ns / 1000


@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("kernel_us", [KERNEL_US, SHORT_US], ids=["as measured", "nothing to wait for any more"])
def test_a_run_takes_as_long_as_if_it_had_run_so(kernel_us: float, offset: float) -> None:
    """A call that need not wait any more takes as long as one with nothing to wait for."""
    found = makespan_us(run(KERNEL_US, offset), f"gemm={kernel_us / KERNEL_US}")
    assert found == pytest.approx(run(kernel_us).makespan_us, abs=0.001)


FASTER, SLOWER = ("class:host=0.5",), (f"gemm={SHORT_US / KERNEL_US}", "class:host=2")


@pytest.mark.parametrize(("scale", "offset"), [*((FASTER, offset) for offset in OFFSETS if offset <= 0), (SLOWER, 1)])
def test_the_host_changes_the_cost_of_calls_and_not_what_a_return_takes_beyond(scale, offset):
    """Whatever the offset of the clocks."""
    right = makespan_us(run(KERNEL_US), *scale)
    assert makespan_us(run(KERNEL_US, offset), *scale) == pytest.approx(right, abs=0.001)


def test_calls_that_all_waited_do_not_tell_what_one_costs() -> None:
    graph = convert_run(run(KERNEL_US, -1, idle_calls=False)).graph
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
    # it cost no more than it took
    assert after_awaited_and_host(49_000) == (AWAITED, RETURNED, 0, AWAITED - BEGUN)


def test_only_calls_of_its_name_that_surely_did_not_wait_and_no_longer_than_on_any_machine_tell_what_one_costs():
    unknown = after_awaited_and_host(2_000, name="cudaDeviceSynchronize")
    assert unknown == (AWAITED, RETURNED, 0, 0)
    assert after_awaited_and_host(LONGEST, after=2 * LONGEST) != unknown
    assert after_awaited_and_host(LONGEST + 1, after=2 * LONGEST) == unknown
    assert after_awaited_and_host(2_000, after=9_000) != unknown
    assert after_awaited_and_host(9_000, after=9_000) == unknown
    assert after_awaited_and_host(9_000, after=9_001) != unknown
