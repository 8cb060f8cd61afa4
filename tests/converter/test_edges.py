"""Node numbers are a topological order that follows the measured times, and no unsound graph is ever written."""

from importlib import import_module
from itertools import pairwise

import numpy as np
import pytest
from execgraph.converter.edges import ROUNDS, Edges, check, deduplicated, order_through_circles, topological_order
from execgraph.schema.columns import Bool, Categorical, Int64
from execgraph.schema.errors import DataError
from execgraph.schema.graph import DependencyKind
from hypothesis import given, strategies as st
from support.builder.records import LAYOUTS
from support.builder.timeline import TraceBuilder
from support.runs import broken_rules, convert_run


def edges(*pairs: tuple[int, int], kind: int = 1) -> Edges:
    source, target = (np.array([pair[end] for pair in pairs], np.int64) for end in (0, 1))
    return Edges(source, target, np.full(len(pairs), kind, np.int64))


def starts(*times: int) -> Int64:
    return np.array(times, np.int64)


def order(start: Int64, *pairs: tuple[int, int]) -> list[int]:
    return list(topological_order(start, edges(*pairs)))


# The order


def test_nodes_are_numbered_as_they_started() -> None:
    assert order(starts(30, 10, 20)) == [1, 2, 0]


def test_of_nodes_that_started_together_a_source_comes_first() -> None:
    assert order(starts(10, 10, 10), (2, 1), (1, 0)) == [2, 1, 0]


def test_nodes_that_started_together_come_by_how_long_a_chain_of_them_is_before_each() -> None:
    assert order(starts(10, 10, 10, 10), (1, 0), (0, 2)) == [1, 3, 0, 2]


def test_a_node_measured_before_its_source_comes_after_it_all_the_same() -> None:
    assert order(starts(10, 12, 11), (1, 0)) == [2, 1, 0]


def test_a_node_measured_before_its_source_counts_as_started_with_it() -> None:
    assert order(starts(10, 12, 11, 12, 13), (1, 0)) == [2, 1, 3, 0, 4]


def test_a_long_chain_of_ties_is_settled() -> None:
    count = 3 * ROUNDS
    chain = [(node, node - 1) for node in range(1, count)]
    assert order(np.full(count, 7, np.int64), *chain) == list(reversed(range(count)))


@given(
    st.permutations(range(9)),
    st.sets(st.tuples(st.integers(0, 8), st.integers(0, 8))),
    st.lists(st.integers(0, 3), min_size=9, max_size=9),
)
def test_any_acyclic_graph_is_ordered(hidden: list[int], pairs: set[tuple[int, int]], times: list[int]) -> None:
    acyclic = [(hidden[a], hidden[b]) for a, b in pairs if a < b]
    found = order(starts(*times), *acyclic)
    assert sorted(found) == list(range(9))
    place = {node: at for at, node in enumerate(found)}
    assert all(place[source] < place[target] for source, target in acyclic)
    if all(times[source] < times[target] for source, target in acyclic):
        assert all(times[a] <= times[b] for a, b in pairwise(found))


@pytest.mark.parametrize("torch", LAYOUTS)
def test_ties_of_whole_microseconds_are_no_trouble(torch: str) -> None:
    """Launches of no length, activities of no length, ops that begin and end together."""
    t = TraceBuilder(torch=torch)
    for number in range(20):
        with t.op("aten::outer"), t.op("aten::inner"):
            t.launch(f"k{number}", (7, 20)[number % 2], duration=0, call_duration=0)
            t.wait_event(t.record_event(stream=7), stream=20)
        t.leaf("aten::view", 0)
    t.device_synchronize()
    t.leaf("aten::add", 1)
    nodes = convert_run(t)
    assert broken_rules(nodes) == []
    assert nodes.report.activities == 20


def test_branches_of_a_graph_that_take_no_time_do_not_wait_for_each_other() -> None:
    t = TraceBuilder(torch="2.3")
    t.launch("before", 7, 5)
    t.graph_launch([("a", 7, 0), ("b", 20, 0), ("c", 7, 0), ("d", 20, 0), ("e", 24, 0)])
    t.launch("after", 7, 5)
    t.leaf("aten::add", 5)
    assert broken_rules(convert_run(t)) == []


# What is refused


def test_a_cycle_is_refused_by_the_nodes_on_it() -> None:
    with pytest.raises(DataError, match=r"cycle: (2 -> 4 -> 5 -> 2|4 -> 5 -> 2 -> 4|5 -> 2 -> 4 -> 5);"):
        order(starts(0, 0, 0, 0, 0, 0), (1, 2), (2, 4), (4, 5), (5, 2), (5, 3))
    names = Categorical.of(["read", "mul", "add"])
    with pytest.raises(DataError, match=r"1 \(mul\) -> 2 \(add\) -> 1 \(mul\)|2 \(add\) -> 1 \(mul\) -> 2 \(add\)"):
        topological_order(starts(0, 0, 0), edges((0, 1), (1, 2), (2, 1)), lambda: names)


def test_a_self_dependency_is_a_cycle() -> None:
    with pytest.raises(DataError, match="cycle"):
        order(starts(0, 0), (1, 1))


NONE = edges()


@pytest.mark.parametrize(
    ("data", "control", "complaint"),
    [
        (edges((0, 3)), NONE, "1 data dependencies point to no node"),
        (edges((-1, 1)), NONE, "1 data dependencies point to no node"),
        (NONE, edges((0, 3)), "1 control dependencies point to no node"),
        (edges((2, 1)), NONE, "a data dependency points forward: node 2 on 3"),
        (edges((1, 1)), NONE, "a data dependency points forward: node 2 on 2"),
        (NONE, edges((2, 0)), "a control dependency points forward: node 1 on 3"),
        (edges((0, 1), (1, 2), (0, 1), (0, 1)), NONE, "2 dependencies are there twice"),
    ],
)
def test_an_unsound_graph_is_refused(data: Edges, control: Edges, complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        check(data, control, 3)


def test_a_sound_graph_passes() -> None:
    check(edges((0, 1), (0, 2), (1, 2)), edges((0, 2)), 3)
    check(NONE, NONE, 0)


def broken(start: Int64, *pairs: tuple[int, int], kind: DependencyKind) -> list[tuple[int, int]]:
    """The skipped edges: of weak ones, and of this kind between nodes that follow each other by number."""
    given = [(source, target, kind if target == source + 1 else DependencyKind.EVENT_WAIT) for source, target in pairs]
    columns = Edges(*(np.array(column, np.int64) for column in zip(*given, strict=True)))
    order, backward = order_through_circles(start, columns)
    assert sorted(order.tolist()) == [*range(len(start))]
    return [pair for pair, is_backward in zip(pairs, backward.tolist(), strict=True) if is_backward]


@pytest.mark.parametrize("kind", [DependencyKind.PROGRAM_ORDER, DependencyKind.LAUNCH, DependencyKind.STREAM_ORDER])
def test_in_a_circle_all_else_gives_way_to_the_order_of_calls(kind: DependencyKind) -> None:
    assert broken(starts(0, 0, 0), (0, 1), (1, 2), (2, 0), kind=kind) == [(2, 0)]
    assert broken(starts(9, 5, 0), (0, 1), (1, 2), (2, 0), kind=kind) == [(2, 0)]


def test_a_circle_of_unsure_dependencies_is_broken_at_its_earliest_node() -> None:
    assert broken(starts(5, 0, 9), (0, 2), (2, 1), (1, 0), kind=DependencyKind.LAUNCH) == [(2, 1)]


def test_a_circle_of_sure_dependencies_is_broken_too() -> None:
    assert len(broken(starts(0, 0), (0, 1), (1, 0), (0, 1), kind=DependencyKind.LAUNCH)) == 1


def test_what_is_behind_a_circle_keeps_its_dependencies() -> None:
    assert broken(starts(0, 0, 5), (0, 1), (1, 0), (1, 2), kind=DependencyKind.EVENT_WAIT) == [(1, 0)]


def test_convert_hands_out_no_unsound_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    def backwards(start: Int64, edges: Edges) -> tuple[Int64, Bool]:
        return np.arange(len(start))[::-1], np.zeros(len(edges.source), np.bool_)

    t = TraceBuilder()
    with t.op("aten::mm"):
        t.launch("k")
    monkeypatch.setattr(import_module("execgraph.converter.convert"), "order_through_circles", backwards)
    with pytest.raises(DataError, match="points forward"):
        convert_run(t)


def test_edges_between_the_same_nodes_become_one_with_all_reasons() -> None:
    several = Edges.joined([edges((0, 2), kind=2), edges((1, 2), kind=4), edges((0, 2), kind=8)])
    merged = deduplicated(several, 3)
    assert list(zip(*(column.tolist() for column in merged), strict=True)) == [(0, 2, 10), (1, 2, 4)]
