"""Nodes that stand for nothing recorded, and launches that block: on runs made by hand.

What the rules look at: streams, callers, and when work whose launch is unknown was released.
"""

import numpy as np
import pytest
from execgraph.converter.dependencies import RULES, launching_node, with_synchronous_launches
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


def pairs(edges: Edges) -> list[tuple[int, int, int]]:
    columns = (values.tolist() for values in edges)
    return sorted(zip(*columns, strict=True))


# Synthetic nodes


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


def test_a_delay_lies_between_what_released_its_activity_and_that() -> None:
    run, added = delayed()
    first, (one, other) = run.node_count, run.activity_node(column(0, 1)).tolist()
    assert len(added) == first + 5
    assert pairs(added.edges()) == sorted(
        [
            (0, first, LAUNCH),
            (first, one, LAUNCH),
            (first + 1, other, STREAM_ORDER),
            (first + 2, first + 3, PROGRAM_ORDER),
            (first + 3, first + 4, PROGRAM_ORDER),
        ]
    )


def test_synthetic_nodes_have_names_and_times() -> None:
    run, added = delayed()
    names = added.names
    assert [names[row] for row in range(run.node_count - 1, len(added))] == [
        "unrecorded host",
        "delay: unexplained",
        "carry-in",
        "a",
        "b",
        "c",
    ]
    assert added.start[run.node_count :].tolist() == [1_000, 0, *[run.start_of_trace] * 3]
    assert added.end[run.node_count :].tolist() == [3_000, 9_000, *[run.start_of_trace] * 3]


def test_threads_of_their_own_lie_below_all_recorded_ones() -> None:
    run, added = delayed()
    for lowest, below in ((0, 0), (5, 0), (-7, -7), (LOWEST - 9, LOWEST)):
        run.timeline.thread[:] = lowest
        assert added.threads[run.unrecorded_from :].tolist() == [below - 1, ABSENT, ABSENT, *[below - 2] * 3]


# Launches that block


def blocking(ran: list[Ran], called: list[Called]) -> tuple[set[str], set[str]]:
    """What dependencies are gone and which are new, where launches block: calls are 0, 1, … by their launches,
    activities k0, k1, …
    """
    run = run_of(ran, called)
    edges = Edges.joined([rule(run) for rule in RULES])
    name = {node: f"k{row}" for row, node in enumerate(run.activity_node(np.arange(len(ran))).tolist())}
    name |= {node: f"{row}" for row, node in enumerate(launching_node(run).tolist())}
    host = Edges.of(launching_node(run)[:-1], launching_node(run)[1:], PROGRAM_ORDER)

    def named(found: Edges) -> set[str]:
        return {f"{name[source]} > {name[target]}" for source, target, _ in pairs(found)}

    before = Edges.joined([edges, host])
    after = with_synchronous_launches(run, before)
    return named(before) - named(after), named(after) - named(before)


CALLS = [Called(1_000 * n, 1_000 * (n + 1)) for n in range(3)]


def test_the_next_launch_follows_the_activity_of_the_one_before() -> None:
    ran = [Ran(2_000 * n + 1_200, 2_000 * n + 1_900, n) for n in range(3)]
    assert blocking(ran, CALLS) == ({"0 > 1", "1 > 2"}, {"k0 > 1", "k1 > 2"})


def test_an_activity_that_followed_one_launched_later_blocks_nobody() -> None:
    ran = [Ran(5_000, 6_000, 0), Ran(3_000, 4_000, 1), Ran(8_000, 9_000, 2)]
    assert blocking(ran, CALLS) == ({"1 > 2"}, {"k1 > 2"})


CHAIN = [Ran(1_000, 2_000), Ran(2_700, 3_000), Ran(3_701, 4_000)]
"""Without launch calls, 700 and 701 ns apart, where up to 700 are usual."""


def test_what_follows_right_behind_was_with_the_device_when_the_one_before_was() -> None:
    assert run_of(CHAIN).released.tolist() == [1_000, 1_000, 3_701]


def test_a_recorded_launch_says_nothing_of_when_others_were_released_before_it() -> None:
    run = run_of([CHAIN[0], Ran(2_500, 2_700, 0), Ran(2_800, 3_000)], [Called(0, 500)])
    assert run.released.tolist() == [1_000, 2_500, 2_500]
    assert run.unrecorded.tolist() == [0, 2]


def test_unrecorded_launches_are_in_the_order_in_which_they_were_due() -> None:
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


def test_a_streams_activities_follow_each_other_by_start_then_end() -> None:
    rows = [Ran(5, 9), Ran(1, 3), Ran(1, 2), Ran(0, 9, stream=8), Ran(2, 9, device=1), Ran(9, 9, stream=8)]
    run = run_of(rows)
    assert run.stream_next.tolist() == [-1, 0, 1, 5, -1, -1]
    assert run.stream_previous.tolist() == [1, 2, -1, -1, -1, 3]


def test_an_activity_ends_at_the_latest_when_the_next_one_of_its_stream_starts() -> None:
    assert run_of([Ran(5, 8), Ran(0, 9), Ran(7, 20, stream=8)]).activity_end.tolist() == [8, 5, 20]


def test_the_time_of_a_launch_is_its_calls_start_or_the_activitys_own() -> None:
    assert run_of([Ran(3_000, 4_000, 0), Ran(9_000, 9_500)], [Called(100, 900)]).launched.tolist() == [100, 9_000]


@pytest.mark.parametrize(("resolution", "slack"), [(1, 2), (1_000, 2_000), (0, 2)])
def test_times_differ_by_what_start_and_length_are_rounded_by(resolution: int, slack: int) -> None:
    run = run_of(CHAIN)
    run.linked.info.machine = MachineCalibration(resolution_ns=resolution)
    assert run.slack == slack


def test_a_trace_starts_with_its_first_host_work_or_activity() -> None:
    assert run_of(CHAIN).start_of_trace == 1_000
    assert run_of(CHAIN, [Called(100, 900)]).start_of_trace == 100
    assert run_of([]).start_of_trace == 0


def test_in_a_part_what_had_ended_when_it_began_carried_nothing_into_it() -> None:
    run = run_of(CHAIN)
    assert run.backlog_until is None
    run = run_of(CHAIN)
    run.linked.info.backlog_until = {0: 1_000, 1: 1_001}
    assert run.backlog_until is not None
    assert run.backlog_until.tolist() == [-1, 1_001, -1]


def test_when_a_backlog_ended_is_on_the_hosts_clock() -> None:
    run = run_of(CHAIN)
    run.linked.info.machine = MachineCalibration(clock_offset_ns=300)
    run.linked.info.backlog_until = {0: 1_000, 1: 600}
    assert run.backlog_until is not None
    assert run.backlog_until.tolist() == [1_300, -1, -1]


def test_the_op_that_called_an_op_is_found_by_its_id() -> None:
    linked = linked_of(
        [],
        ops=[
            ReferenceOp(0, 100),
            ReferenceOp(10, 20, 0),
            ReferenceOp(30, 40, 1),
            ReferenceOp(50, 60, 2),
            ReferenceOp(70, 80),
        ],
    )
    linked.ops.id[:] = [50, 40, 30, 20, 10]
    linked.ops.parent_id[:] = [99, 50, 30, 40, 20]
    assert sliced(linked).op_parent.tolist() == [-1, 0, -1, 1, 3]
    linked.ops.start[3] = ABSENT
    assert sliced(linked).op_parent.tolist() == [-1, 0, -1, 1, -1]


@pytest.mark.parametrize(("recorded", "unrecorded"), [(5, -1), (0, -1), (-7, -8), (-(1 << 63), -(1 << 62) - 1)])
def test_the_thread_of_unrecorded_launches_has_a_number_below_zero_and_all_others(
    recorded: int, unrecorded: int
) -> None:
    """But for absurd ones."""
    run = run_of(CHAIN, [Called(0, 10)])
    run.timeline.thread[:] = recorded
    nodes = GraphNodes(run, Delays(*(column() for _ in Delays.__slots__)), column(0))
    assert nodes.threads[run.unrecorded_from :].tolist() == [unrecorded] * 3 + [unrecorded - 1]
