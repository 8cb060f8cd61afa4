"""The host timeline of runs made by hand, on a machine whose launches take 2 µs: every node, and which ones launch and
wait.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from execgraph.converter.timeline import IDLE, Timeline, names_of, slice_host
from execgraph.schema.columns import ABSENT, Categorical
from execgraph.schema.linked import LinkedTrace, ThreadHandoffs
from support.references import Act, Call, Op, linked_of

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


# Short slices


@pytest.mark.parametrize(("shortest", "folded"), [(200, False), (201, True)])
def test_a_threads_last_slice_is_folded_into_the_one_before(shortest: int, folded: bool) -> None:
    linked = linked_of([], ops=[Op(0, 1_000, name="a"), Op(1_000, 1_200, name="b")])
    assert nodes(linked, shortest) == ([("a", 0, 1_200)] if folded else [("a", 0, 1_000), ("b", 1_000, 1_200)])
    assert slice_host(linked, shortest).folded == folded


def test_others_are_folded_into_the_next_one_that_is_long_enough() -> None:
    ops = [Op(0, 1_000, name="a"), Op(1_000, 1_200, name="b"), Op(1_200, 1_300, name="c"), Op(1_300, 2_000, name="d")]
    assert nodes(linked_of([], ops=ops), 500) == [("a", 0, 1_000), ("d", 1_000, 2_000)]


def test_behind_a_launch_nothing_is_folded_into_it() -> None:
    linked = linked_of([Act(3_500, 5_000, call=0)], [Call(0, 1_000, 0)], [Op(0, 1_200, name="a")])
    assert nodes(linked, 500) == [("a", 0, 1_000), ("a", 1_000, 1_200)]


def test_nothing_is_folded_over_time_in_which_the_thread_waited() -> None:
    """Of the call from 1,500 on until the activity's end the thread only waited; what ends before it and begins after
    it is short.
    """
    linked = linked_of(
        [Act(3_500, 5_000, call=0)],
        [Call(0, 1_000, 0), Call(1_200, 5_000, 0, "cudaStreamSynchronize")],
        [Op(0, 5_100, name="a")],
        host_waits=[(1, 0)],
    )
    assert nodes(linked, 500) == [
        ("a", 0, 1_000),
        ("a", 1_000, 1_200),
        ("cudaStreamSynchronize", 5_000, 5_000),
        ("a", 5_000, 5_100),
    ]


def test_threads_are_folded_each_on_its_own() -> None:
    linked = linked_of([], ops=[Op(0, 1_000, name="a"), Op(1_000, 1_200, name="b")])
    linked.ops.thread[1] = 2
    assert nodes(linked, 500) == [("a", 0, 1_000), ("b", 1_000, 1_200)]


# Communication of the host


def communicating(*ops: Op) -> LinkedTrace:
    linked = linked_of([], ops=[*ops, Op(5_000, 9_000, name="later")])
    linked.ops.communication_row[: len(ops)] = np.arange(len(ops))
    return linked


def test_an_op_that_communicates_keeps_the_longest_of_its_slices() -> None:
    linked = communicating(Op(0, 300, name="gloo:send"))
    assert nodes(linked, 1_000) == [("gloo:send", 0, 300), (IDLE, 300, 5_000), ("later", 5_000, 9_000)]


def test_each_op_that_communicates_keeps_its_longest_slice_though_another_op_cuts_it() -> None:
    ops = [Op(0, 1_000, name="gloo:send"), Op(1_000, 2_000, name="gloo:recv")]
    inner = [Op(700, 800, parent=0, name="copy"), Op(1_100, 1_200, parent=1, name="copy")]
    linked = linked_of([], ops=[*ops, *inner, Op(2_000, 9_000, name="later")])
    linked.ops.communication_row[:2] = 0, 1
    assert nodes(linked, 900) == [("gloo:send", 0, 700), ("gloo:recv", 700, 2_000), ("later", 2_000, 9_000)]


def test_ops_that_communicate_and_take_no_time_have_nodes_in_the_order_of_their_launches() -> None:
    linked = communicating(Op(0, 0, name="gloo:all_reduce"), Op(0, 0, name="gloo:all_gather"))
    assert nodes(linked, 1_000)[:2] == [("gloo:all_reduce", 0, 0), ("gloo:all_gather", 0, 0)]


def test_only_an_op_that_communicates_in_no_time_has_a_node_of_no_length() -> None:
    assert nodes(communicating(Op(0, 300, name="gloo:send")))[:2] == [("gloo:send", 0, 300), (IDLE, 300, 5_000)]
    linked = linked_of([], ops=[Op(0, 300, name="a"), Op(5_000, 5_000, name="gloo:barrier")])
    linked.ops.communication_row[1] = 0
    assert nodes(linked) == [("a", 0, 300), (IDLE, 300, 5_000), ("gloo:barrier", 5_000, 5_000)]


# Launches


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


# Waiting and idle time


def test_idle_time_is_between_work_only() -> None:
    linked = linked_of([], ops=[Op(1_000, 2_000, name="a"), Op(5_000, 6_000, name="b")])
    assert nodes(linked) == [("a", 1_000, 2_000), (IDLE, 2_000, 5_000), ("b", 5_000, 6_000)]


def test_a_call_outside_ops_is_work_named_as_the_call() -> None:
    linked = linked_of([], [Call(2_000, 3_000, name="cudaMalloc")], [Op(0, 2_000, name="a")])
    assert nodes(linked) == [("a", 0, 2_000), ("cudaMalloc", 2_000, 3_000)]


def test_a_blocking_call_has_work_again_once_what_it_awaited_has_ended() -> None:
    linked = linked_of(
        [Act(3_000, 8_000, call=0)],
        [Call(0, 1_000, 0), Call(2_000, 9_000, 0, "cudaStreamSynchronize")],
        [Op(0, 9_500, name="a")],
        host_waits=[(1, 0)],
    )
    assert nodes(linked) == [
        ("a", 0, 1_000),
        ("a", 1_000, 2_000),
        ("cudaStreamSynchronize", 8_000, 9_000),
        ("a", 9_000, 9_500),
    ]
    assert slice_host(linked, 0).sync_node.tolist() == [-1, 2]


def test_a_thread_that_begins_with_a_wait_is_there_from_its_call_on() -> None:
    linked = linked_of([Act(3_000, 8_000)], [Call(2_000, 9_000, name="cudaStreamSynchronize")], host_waits=[(0, 0)])
    assert nodes(linked) == [(IDLE, 2_000, 2_000), ("cudaStreamSynchronize", 8_000, 9_000)]


# Hand-offs


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


def test_before_its_first_node_no_thread_hands_over_and_after_its_last_none_resumes() -> None:
    """Whichever of the two threads comes first in the table."""
    for giver, taker in ((1, 2), (2, 1)):
        timeline = slice_host(handed_over((giver, 0, taker, 100)), 0)
        assert (timeline.handoff_source_node.tolist(), timeline.handoff_target_node.tolist()) == ([-1], [-1])


def test_no_slice_is_folded_over_a_handoff() -> None:
    linked = handed_over((1, 900, 2, 100), until=1_000)
    assert nodes(linked, 500) == [("a", 0, 900), ("a", 900, 1_000), ("b", 0, 100), ("b", 100, 1_000)]


def test_a_handoff_that_no_slice_takes_part_in_keeps_none() -> None:
    linked = handed_over((1, 0, 2, 1_000), until=1_000, inner=[Op(0, 100, 1, "first"), Op(900, 1_000, 1, "last")])
    assert nodes(linked, 500) == [("a", 0, 1_000), ("b", 0, 1_000)]


def test_a_thread_is_idle_from_a_handoff_to_it_on_and_not_until_one_after_its_last_work() -> None:
    assert nodes(handed_over((1, 100, 2, -20))) == [("a", 0, 100), (IDLE, -20, 0), ("b", 0, 100)]
    assert nodes(handed_over((1, 100, 2, 150))) == [("a", 0, 100), ("b", 0, 100)]
