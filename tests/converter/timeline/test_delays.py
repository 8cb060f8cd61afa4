"""Nodes that stand for nothing recorded, and launches that block: on runs made by hand."""

import numpy as np
from execgraph.converter.dependencies import RULES, launching_node, with_synchronous_launches
from execgraph.converter.edges import Edges
from execgraph.converter.timeline import Delays, GraphNodes
from execgraph.converter.timeline.context import ConversionContext
from execgraph.converter.timeline.delays import LOWEST
from execgraph.schema.columns import ABSENT
from execgraph.schema.graph import Delay, DependencyKind
from support.graphs import run_of
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
