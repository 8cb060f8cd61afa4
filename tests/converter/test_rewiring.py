"""Graph edits and lanes keep dependencies and times, by references that walk every path and every nanosecond."""

from collections import defaultdict
from itertools import accumulate

import numpy as np
import pytest
from execgraph.converter.edges import Edges
from execgraph.converter.rewiring import (
    control_edges,
    data_edges,
    edited_graph,
    joined,
    known_after,
    lanes_of,
    rows_of_graph,
    spliced,
    take_rows,
    used,
    whole_microseconds,
)
from execgraph.converter.targets.astra_sim import implied, widest_ready_set
from execgraph.converter.targets.times import uncovered
from execgraph.schema.columns import (
    ABSENT,
    BytesColumn,
    Categorical,
    Int64,
    Intervals,
    Ragged,
    group_ids,
    previous_in_group,
)
from execgraph.schema.errors import DataError
from execgraph.schema.graph import ExecutionGraph, TensorText
from hypothesis import given, strategies as st
from support.graphs import LAUNCH, PROGRAM_ORDER, STREAM_ORDER, GraphBuilder

LANES = st.lists(st.integers(0, 2), min_size=1, max_size=8)
SPANS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 6)).map(lambda span: (span[0], sum(span))), max_size=6)
Pairs = list[tuple[int, int]]


def integers(values: object) -> Int64:
    return np.array(values, np.int64)


def edges_of(pairs: Pairs, kinds: list[int] | None = None) -> Edges:
    source, target = (integers([pair[end] for pair in pairs]) for end in (0, 1))
    return Edges(source, target, integers(kinds if kinds is not None else [1] * len(pairs)))


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[int], list[tuple[int, int]]]:
    """Lanes of some rows (-1: none), and edges that point forward."""
    lane = draw(st.lists(st.integers(-1, 2), min_size=2, max_size=8))
    pairs = st.tuples(st.integers(0, len(lane) - 1), st.integers(0, len(lane) - 1)).filter(
        lambda pair: pair[0] < pair[1]
    )
    return lane, sorted(draw(st.sets(pairs)), key=lambda pair: pair[::-1])


def before(row: int, pairs: list[tuple[int, int]]) -> set[int]:
    """A row and all that it depends on, however far."""
    return {row}.union(*(before(source, pairs) for source, target in pairs if target == row))


# Lanes


def test_threads_and_streams_are_lanes_whatever_their_numbers() -> None:
    g = GraphBuilder()
    for thread in (7, 8, 7):
        g.host("op", 0, 1, thread=thread)
    for device, stream in ((0, 7), (0, 8), (1, 7), (0, 7), (7, 0)):
        g.activity("kernel", 0, 1, device=device, stream=stream)
    lanes = lanes_of(g.build()).tolist()
    assert sorted(set(lanes)) == list(range(6))
    assert lanes[0] == lanes[2] and lanes[3] == lanes[6]
    assert len(set(lanes)) == 6


NEAR_OR_FAR = st.integers(-2, 2) | st.sampled_from([-(2**63), 2**63 - 1])


@given(st.lists(st.tuples(NEAR_OR_FAR, NEAR_OR_FAR)))
def test_rows_are_numbered_as_they_are_sorted(rows: list[tuple[int, int]]) -> None:
    found = group_ids(*(integers([row[column] for row in rows]) for column in (0, 1)))
    assert found.tolist() == [sorted(set(rows)).index(row) for row in rows]


@given(LANES)
def test_the_row_before_on_the_lane(lane: list[int]) -> None:
    earlier = [[at for at in range(row) if lane[at] == lane[row]] for row in range(len(lane))]
    assert previous_in_group(np.argsort(lane, kind="stable"), integers(lane)).tolist() == [
        found[-1] if found else -1 for found in earlier
    ]


# Time along lanes


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3000)), min_size=1))
def test_whole_microseconds_keep_the_total_of_each_lane_at_every_row(rows: list[tuple[int, int]]) -> None:
    lane, duration = (integers([row[column] for row in rows]) for column in (0, 1))
    whole = whole_microseconds(duration, lane)
    exact, rounded = defaultdict[int, int](int), defaultdict[int, int](int)
    for row, (number, ns) in enumerate(rows):
        exact[number] += ns
        rounded[number] += int(whole[row])
        assert abs(1000 * rounded[number] - exact[number]) <= 1000
    assert (whole >= 0).all()
    first = whole_microseconds(duration[lane == lane.min()], lane[lane == lane.min()])
    assert np.cumsum(first).tolist() == [(ns + 500) // 1000 for ns in accumulate(duration[lane == lane.min()].tolist())]


@given(SPANS, SPANS)
def test_a_span_alone_is_the_time_without_others_and_without_own_ones_that_ended_sooner(
    spans: list[tuple[int, int]], others: list[tuple[int, int]]
) -> None:
    found = uncovered(
        *(Intervals(*(integers([span[end] for span in some]) for end in (0, 1))) for some in (spans, others))
    )
    taken = {time for other in others for time in range(*other)}
    for row in sorted(range(len(spans)), key=lambda row: (spans[row][1], -spans[row][0])):
        free = set(range(*spans[row])) - taken
        assert found[row] == len(free)
        taken |= free


@given(graphs(), st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), min_size=8, max_size=8))
def test_nodes_are_ready_from_the_end_of_what_they_follow_to_their_own(
    graph: tuple[list[int], list[tuple[int, int]]], times: list[tuple[int, int]]
) -> None:
    lane, pairs = graph
    g = GraphBuilder()
    for row, (start, duration) in enumerate(times[: len(lane)]):
        after = [(source + 1, STREAM_ORDER) for source, target in pairs if target == row]
        g.activity("kernel", start, duration, after=after)
    times = times[: len(lane)]
    zero = min(start for start, _ in times)
    released = [max([zero, *(sum(times[a]) for a, b in pairs if b == row)]) for row in range(len(lane))]
    spans = [(begin, max(sum(times[row]), begin + 1)) for row, begin in enumerate(released)]
    widest = max(sum(begin <= moment < end for begin, end in spans) for moment in range(20))
    assert widest_ready_set(g.build(), edges_of(pairs)) == widest


def test_in_no_graph_nothing_is_ready() -> None:
    assert widest_ready_set(GraphBuilder().build(), edges_of([])) == 0


# Order along lanes


@given(graphs())
def test_a_row_knows_how_far_every_lane_has_come(graph: tuple[list[int], list[tuple[int, int]]]) -> None:
    lane, pairs = graph
    found = known_after(edges_of(pairs), integers(lane), 3)
    for row, clock in enumerate(found):
        known = before(row, pairs)
        assert clock == tuple(max((at for at in known if lane[at] == number), default=-1) for number in range(3))


def test_a_clock_that_adds_nothing_is_shared() -> None:
    first, second = (3, -1), (2, -1)
    assert joined(first, second) is joined(second, first) is first
    assert joined((3, 1), (2, 5)) == (3, 5)


@given(graphs(), st.data())
def test_control_dependencies_that_are_kept_follow_from_data_dependencies(
    graph: tuple[list[int], list[tuple[int, int]]], data: st.DataObject
) -> None:
    lane, pairs = graph
    rows = st.integers(0, len(lane) - 1)
    control = [(a, b) for a, b in data.draw(st.lists(st.tuples(rows, rows).map(sorted))) if a < b]
    kept = implied(edges_of(control), edges_of(pairs), integers(lane))
    for (source, target), keeps in zip(control, kept.tolist(), strict=True):
        assert not keeps or source in before(target, pairs)
        assert keeps or (source, target) not in pairs


def test_control_dependencies_along_a_chain_are_kept() -> None:
    """Rows 0, 1, 2 and 4 are a thread, 3 another one between them; 5 begins anew."""
    lane, pairs = [0, 0, 0, 1, 0, 0], [(0, 1), (1, 2), (2, 3), (3, 4)]
    control = [(0, 2), (0, 4), (2, 4), (1, 3), (0, 5), (4, 5)]
    assert implied(edges_of(control), edges_of(pairs), integers(lane)).tolist() == [
        True,
        True,
        True,
        False,
        False,
        False,
    ]


def as_dict(edges: Edges) -> dict[tuple[int, int], int]:
    columns = (column.tolist() for column in edges)
    return {(source, target): kind for source, target, kind in zip(*columns, strict=True)}


@given(st.sets(st.tuples(st.integers(0, 7), st.integers(0, 7)).filter(lambda pair: pair[0] < pair[1])), st.data())
def test_who_followed_a_removed_row_follows_what_that_followed(
    pairs: set[tuple[int, int]], data: st.DataObject
) -> None:
    kinds = {pair: data.draw(st.sampled_from([1, 2, 4, 8])) for pair in sorted(pairs, key=lambda pair: pair[::-1])}
    removed = data.draw(st.sets(st.integers(0, 7)))
    wanted: dict[tuple[int, int], int] = {}

    def walk(target: int, row: int, kind: int) -> None:
        for (source, after), own in kinds.items():
            if after == row and source in removed:
                walk(target, source, kind | own)
            elif after == row:
                wanted[source, target] = wanted.get((source, target), 0) | kind | own

    for row in set(range(8)) - removed:
        walk(row, row, 0)
    gone = np.isin(np.arange(8), list(removed))
    found = spliced(edges_of(list(kinds), list(kinds.values())), gone)
    assert as_dict(found) == wanted
    assert len(found.source) == len(wanted)


@given(st.lists(st.lists(st.integers(0, 9)), min_size=1, max_size=5), st.data())
def test_rows_of_lists_are_taken_in_any_order_and_any_number(lists: list[list[int]], data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, len(lists) - 1)))
    taken = take_rows(Ragged.of(lists), integers(rows))
    assert [taken[row].tolist() for row in range(len(rows))] == [lists[row] for row in rows]


def chain() -> ExecutionGraph:
    g = GraphBuilder()
    first = g.host("first", 0, 5, op_id=1)
    second = g.host("second", 5, 5, after=[(first, PROGRAM_ORDER), (first, LAUNCH)])
    g.activity("third", 10, 5, comm_size=8, after=[(first, LAUNCH), (second, STREAM_ORDER)])
    return g.build()


def test_edges_of_one_pair_are_one_with_all_their_kinds() -> None:
    assert as_dict(data_edges(chain())) == {
        (0, 1): PROGRAM_ORDER | LAUNCH,
        (0, 2): LAUNCH,
        (1, 2): STREAM_ORDER,
    }


def test_a_graph_without_kinds_or_with_too_few_has_edges_without_kind() -> None:
    graph = chain()
    graph.attributes["data_dep_kinds"] = Ragged.of([[], [1], []])
    assert set(as_dict(data_edges(graph)).values()) == {0}
    del graph.attributes["data_dep_kinds"]
    assert set(as_dict(data_edges(graph)).values()) == {0}


@pytest.mark.parametrize("side", ["data_deps", "ctrl_deps"])
def test_an_edge_to_no_node_is_refused_by_both_ids(side: str) -> None:
    graph = chain()
    setattr(graph, side, Ragged.of([[], [77], [78]]))
    with pytest.raises(DataError, match="node 2 depends on node 77, which the graph does not have"):
        data_edges(graph) if side == "data_deps" else control_edges(graph)


def test_kept_rows_keep_their_order_where_edges_point_forward_else_follow_their_start() -> None:
    graph, every = chain(), np.arange(3)
    forward = edited_graph(graph, edges_of([(1, 2)], [4]), kept_rows=every[1:])
    assert [forward.name[row] for row in range(2)] == ["second", "third"]
    assert (forward.id.tolist(), forward.data_deps[1].tolist()) == ([1, 2], [1])
    backward = edited_graph(graph, edges_of([(2, 0)], [4]), edges_of([(2, 1)]))
    place = {backward.name[row]: row for row in range(3)}
    assert place["third"] < place["first"] and place["third"] < place["second"]
    assert backward.data_deps[place["first"]].tolist() == [place["third"] + 1]
    assert backward.ctrl_deps[place["second"]].tolist() == [place["third"] + 1]
    kinds = backward.attributes["data_dep_kinds"]
    assert isinstance(kinds, Ragged) and kinds[place["first"]].tolist() == [4]
    with pytest.raises(DataError, match=r"cycle: .*first"):
        edited_graph(graph, edges_of([(0, 1), (1, 0)]))


def test_attributes_of_no_row_are_left_out() -> None:
    graph = chain()
    assert "comm_size" not in rows_of_graph(graph, integers([0, 1])).attributes
    assert rows_of_graph(graph, integers([2, 0])).attributes["comm_size"].tolist() == [8, ABSENT]  # type: ignore[union-attr]
    columns = {"lists": Ragged.of([[], []]), "texts": Categorical(np.array([-1, -1], np.int32), ["a"])}
    assert used({**columns, "numbers": integers([ABSENT, ABSENT])}) == {}


def test_tensors_stay_with_the_first_row_that_is_taken_of_a_node() -> None:
    graph = chain()
    texts = [BytesColumn.of([b"of first", b"of third"])] * 6
    graph.tensors = TensorText(integers([0, 2]), *texts)
    taken = rows_of_graph(graph, integers([2, 1, 2, 0])).tensors
    assert taken is not None
    assert (taken.rows.tolist(), taken.input_values) == ([0, 3], [b"of third", b"of first"])
    nothing = rows_of_graph(graph, integers([1])).tensors
    assert nothing is not None and len(nothing.rows) == len(nothing.output_types) == 0
