"""The order around and inside launches of graphs whose branches run on several streams, by hand-made rows."""

import pytest
from execgraph.converter.dependencies.graph_launch import graph_launch
from execgraph.schema.graph import DependencyKind
from support.graphs import Named, edges_of, run_of
from support.tables import Called, Ran

CALLS = [Called(0, 100, "cudaGraphLaunch"), Called(200, 300), Called(400, 500, "cudaGraphLaunch")]
WAITS = DependencyKind.EVENT_WAIT
INFERRED = DependencyKind.EVENT_WAIT | DependencyKind.INFERRED


def on(stream: int, start: int, end: int, name: str, call: int = 0) -> Ran:
    return Ran(start, end, call, stream, name)


def order(*ran: Ran) -> Named:
    """On a machine on which gaps of up to 700 ns are usual; the graph is launched by call 0, call 1 launches what is
    beside it.
    """
    return edges_of(graph_launch, run_of(ran, CALLS))


@pytest.mark.parametrize(("start", "found"), [(2_000, True), (2_700, True), (2_701, False), (1_999, False)])
def test_a_branch_that_starts_right_after_another_has_ended_follows_it(start: int, found: bool) -> None:
    edges = order(on(7, 1_000, 2_000, "trunk"), on(8, start, 5_000, "branch"))
    assert edges == ({("trunk", "branch", INFERRED)} if found else set())


@pytest.mark.parametrize(("start", "found"), [(4_700, False), (4_701, True)])
def test_what_its_own_branch_explains_follows_no_other(start: int, found: bool) -> None:
    edges = order(on(7, 1_000, 4_100, "other"), on(8, 1_000, 4_000, "before"), on(8, start, 6_000, "next"))
    assert edges == ({("other", "next", INFERRED)} if found else set())


def test_of_several_branches_the_one_that_ended_last_is_followed() -> None:
    edges = order(
        on(7, 1_000, 4_000, "early"),
        on(8, 1_000, 4_300, "late"),
        on(9, 1_000, 4_100, "middle"),
        on(10, 4_400, 6_000, "join"),
    )
    assert edges == {("late", "join", INFERRED)}


def test_of_a_branch_its_latest_activity_is_followed() -> None:
    edges = order(on(7, 1_000, 4_000, "first"), on(7, 4_000, 4_300, "second"), on(8, 4_400, 6_000, "join"))
    assert edges == {("second", "join", INFERRED)}


def test_of_two_without_length_at_one_time_neither_follows_the_other() -> None:
    assert order(on(7, 1_000, 1_000, "one"), on(8, 1_000, 1_000, "other")) == set()


def test_every_branch_follows_what_the_stream_did_before() -> None:
    """That the first one does is stream order."""
    edges = order(on(7, 100, 1_000, "before", 1), on(7, 1_000, 9_000, "trunk"), on(8, 1_500, 8_500, "branch"))
    assert edges == {("before", "branch", WAITS)}


def test_without_anything_before_it_a_graph_follows_nothing() -> None:
    """The activity in the last row ran first, on another stream."""
    assert order(on(7, 1_000, 9_000, "trunk"), on(8, 1_500, 8_500, "branch"), on(9, 100, 200, "elsewhere", 1)) == set()


@pytest.mark.parametrize("start", [9_000, 12_000])
def test_what_the_stream_does_next_follows_the_end_of_every_branch(start: int) -> None:
    branches = [on(7, 1_000, 5_000, "trunk"), on(8, 1_100, 9_000, "branch"), on(9, 1_200, 9_100, "too long")]
    edges = order(*branches, on(7, start, 20_000, "after", 1))
    expected = {"branch"} if start == 9_000 else {"branch", "too long"}
    assert edges == {(name, "after", WAITS) for name in expected}


def test_after_the_end_of_a_graph_nothing_need_come() -> None:
    """The activity in the last row ran last, on another stream."""
    assert (
        order(on(7, 1_000, 5_000, "trunk"), on(8, 1_100, 6_000, "branch"), on(9, 9_000, 9_500, "elsewhere", 1)) == set()
    )


def test_each_launch_is_a_graph_of_its_own() -> None:
    edges = order(
        on(7, 1_000, 2_000, "first"),
        on(8, 2_000, 3_000, "branch"),
        on(7, 9_000, 9_500, "second", 2),
        on(8, 9_500, 9_900, "other", 2),
    )
    assert edges == {
        ("first", "branch", INFERRED),
        ("branch", "second", WAITS),
        ("first", "other", WAITS),
        ("second", "other", INFERRED),
    }


def test_activities_without_a_recorded_launch_are_no_graph() -> None:
    assert order(on(7, 1_000, 2_000, "one", -1), on(8, 2_000, 3_000, "other", -1)) == set()
