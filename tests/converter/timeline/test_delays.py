"""Nodes that stand for nothing recorded, on runs made by hand.

What the rules look at: streams, callers, and when work whose launch is unknown was released.
"""

import numpy as np
import pytest
from execgraph.converter.edges import Edges
from execgraph.converter.timeline import Delays, GraphNodes
from execgraph.converter.timeline.context import ConversionContext
from execgraph.converter.timeline.delays import LOWEST
from execgraph.schema.columns import ABSENT, ActivityRows, NodeNumbers
from execgraph.schema.graph import Delay, DependencyKind
from execgraph.schema.machine import MachineCalibration
from support.graphs import run_of, sliced
from support.references import Op as ReferenceOp, linked_of
from support.tables import Called, Op, Ran, column, ops

LAUNCH, STREAM_ORDER = int(DependencyKind.LAUNCH), int(DependencyKind.STREAM_ORDER)
PROGRAM_ORDER = DependencyKind.PROGRAM_ORDER


def delayed() -> tuple[ConversionContext, GraphNodes]:
    """An activity with its launch, one without, a delay of each, and three rows of metadata."""
    ran = [Ran(3_000, 4_000, 0), Ran(9_000, 9_500, stream=8)]
    run = run_of(ran, [Called(0, 1_000)], ops=ops(*(Op(name) for name in ("a", "b", "c"))))
    late = Delays(
        activity=column(0, 1),
        after=column(0, -1),
        start=column(1_000, 0),
        length=column(2_000, 9_000),
        by_launch=np.array([True, False]),
        cause=column(Delay.UNEXPLAINED, Delay.START_OF_RECORDING),
    )
    return run, GraphNodes(run, late, column(0, 1, 2))


def test_delays_lie_between_what_released_their_activities_and_these_with_names_and_times_on_threads_of_their_own():
    run, added = delayed()
    first, (one, other) = run.node_count, run.activity_node(column(0, 1)).tolist()
    assert len(added) == first + 5
    edges = [(0, first, LAUNCH), (first, one, LAUNCH), (first + 1, other, STREAM_ORDER)]
    edges += [(row, row + 1, PROGRAM_ORDER) for row in (first + 2, first + 3)]
    assert sorted(zip(*(values.tolist() for values in added.edges()), strict=True)) == sorted(edges)
    run, added = delayed()
    names = added.names
    shown = [names[row] for row in range(run.node_count - 1, len(added))]
    assert shown == ["unrecorded host", "delay: unexplained", "carry-in", *"abc"]
    assert added.start[run.node_count :].tolist() == [1_000, 0, *[run.start_of_trace] * 3]
    assert added.end[run.node_count :].tolist() == [3_000, 9_000, *[run.start_of_trace] * 3]
    run, added = delayed()
    for lowest, below in ((0, 0), (5, 0), (-7, -7), (LOWEST - 9, LOWEST)):
        run.timeline.thread[:] = lowest
        assert added.threads[run.unrecorded_from :].tolist() == [below - 1, ABSENT, ABSENT, *[below - 2] * 3]


CHAIN = [Ran(1_000, 2_000), Ran(2_700, 3_000), Ran(3_701, 4_000)]
"""Without launch calls, 700 and 701 ns apart, where up to 700 are usual."""


def test_what_follows_right_behind_was_released_when_the_one_before_was_unless_its_launch_is_recorded():
    """Unrecorded launches are in the order in which they were due."""
    assert run_of(CHAIN).released.tolist() == [1_000, 1_000, 3_701]
    run = run_of([CHAIN[0], Ran(2_500, 2_700, 0), Ran(2_800, 3_000)], [Called(0, 500)])
    assert (run.released.tolist(), run.unrecorded.tolist()) == ([1_000, 2_500, 2_500], [0, 2])
    run = run_of([CHAIN[1], Ran(500, 5_000, stream=8), CHAIN[0]])
    assert run.unrecorded.tolist() == [1, 2, 0]
    assert run.end[run.unrecorded_from :].tolist() == [500, 1_000, 1_000]
    assert run.start[run.unrecorded_from :].tolist() == [500, 500, 1_000]


def test_nodes_are_the_hosts_then_the_activities_then_unrecorded_launches() -> None:
    run = run_of([Ran(3_000, 4_000, 0), *CHAIN[1:]], [Called(100, 900)])
    host = len(run.timeline)
    assert host > 0
    assert run.activity_node(ActivityRows(column(2, -1, 0))).tolist() == [host + 2, -1, host]
    assert run.unrecorded_node.tolist() == [host + 3, host + 4]
    assert run.node_count == host + 5


def test_a_dependency_has_both_ends() -> None:
    edges = Edges.of(NodeNumbers(column(0, 1, -1, 2)), NodeNumbers(column(1, 0, 3, -1)), 4)
    assert (edges.source.tolist(), edges.target.tolist(), edges.kind.tolist()) == ([0, 1], [1, 0], [4, 4])


def test_a_streams_activities_follow_each_other_by_start_then_end_and_end_before_the_next_one_starts():
    rows = [Ran(5, 9), Ran(1, 3), Ran(1, 2), Ran(0, 9, stream=8), Ran(2, 9, device=1), Ran(9, 9, stream=8)]
    run = run_of(rows)
    assert run.stream_next.tolist() == [-1, 0, 1, 5, -1, -1]
    assert run.stream_previous.tolist() == [1, 2, -1, -1, -1, 3]
    assert run_of([Ran(5, 8), Ran(0, 9), Ran(7, 20, stream=8)]).activity_end.tolist() == [8, 5, 20]


def test_a_trace_starts_with_its_first_host_work_or_activity_and_a_launch_with_its_call_or_activity():
    assert [run_of(*rows).start_of_trace for rows in ((CHAIN,), (CHAIN, [Called(100, 900)]), ([],))] == [1_000, 100, 0]
    assert run_of([Ran(3_000, 4_000, 0), Ran(9_000, 9_500)], [Called(100, 900)]).launched.tolist() == [100, 9_000]


@pytest.mark.parametrize(("resolution", "slack"), [(1, 2), (1_000, 2_000), (0, 2)])
def test_times_differ_by_what_start_and_length_are_rounded_by(resolution: int, slack: int) -> None:
    run = run_of(CHAIN)
    run.linked.info.machine = MachineCalibration(resolution_ns=resolution)
    assert run.slack == slack


@pytest.mark.parametrize(
    ("offset_ns", "until", "found"),
    [(0, {0: 1_000, 1: 1_001}, [-1, 1_001, -1]), (300, {0: 1_000, 1: 600}, [1_300, -1, -1])],
)
def test_a_backlog_ended_on_the_hosts_clock_and_what_ended_before_a_part_carried_nothing_into_it(
    offset_ns: int, until: dict[int, int], found: list[int]
) -> None:
    run = run_of(CHAIN)
    run.linked.info.machine = MachineCalibration(clock_offset_ns=offset_ns)
    run.linked.info.backlog_until = until
    assert run.backlog_until.tolist() == found
    assert run_of(CHAIN).backlog_until is None


def test_the_op_that_called_an_op_is_found_by_its_id() -> None:
    begun = [ReferenceOp(10 * row, 10 * row + 5) for row in range(5)]
    linked = linked_of([], ops=begun)
    linked.ops.id[:] = [50, 40, 30, 20, 10]
    linked.ops.parent_id[:] = [99, 50, 30, 40, 20]
    assert sliced(linked).op_tree.parent.tolist() == [-1, 0, -1, 1, 3]
    linked.ops.start[3] = ABSENT
    assert sliced(linked).op_tree.parent.tolist() == [-1, 0, -1, 1, -1]
