"""Leaving rows out of a graph and putting others in: dependencies stay what they were, against references that walk
every path.
"""

import numpy as np
import pytest
from execgraph.converter.context import Edges
from execgraph.converter.rewiring import (
    control_edges,
    data_edges,
    edited_graph,
    rows_of_graph,
    spliced,
    take_rows,
    used,
)
from execgraph.schema.columns import ABSENT, BytesColumn, Categorical, Int64, Ragged
from execgraph.schema.errors import DataError
from execgraph.schema.graph import ExecutionGraph, TensorText
from hypothesis import given, strategies as st
from support.graphs import LAUNCH, PROGRAM_ORDER, STREAM_ORDER, GraphBuilder

Pairs = list[tuple[int, int]]


def integers(values: object) -> Int64:
    return np.array(values, np.int64)


def edges_of(pairs: Pairs, kinds: list[int] | None = None) -> Edges:
    source, target = (integers([pair[end] for pair in pairs]) for end in (0, 1))
    return Edges(source, target, integers(kinds if kinds is not None else [1] * len(pairs)))


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
    forward = edited_graph(graph, every[1:], edges_of([(1, 2)], [4]), edges_of([]))
    assert [forward.name[row] for row in range(2)] == ["second", "third"]
    assert (forward.id.tolist(), forward.data_deps[1].tolist()) == ([1, 2], [1])
    backward = edited_graph(graph, every, edges_of([(2, 0)], [4]), edges_of([(2, 1)]))
    place = {backward.name[row]: row for row in range(3)}
    assert place["third"] < place["first"] and place["third"] < place["second"]
    assert backward.data_deps[place["first"]].tolist() == [place["third"] + 1]
    assert backward.ctrl_deps[place["second"]].tolist() == [place["third"] + 1]
    kinds = backward.attributes["data_dep_kinds"]
    assert isinstance(kinds, Ragged) and kinds[place["first"]].tolist() == [4]
    with pytest.raises(DataError, match=r"cycle: .*first"):
        edited_graph(graph, every, edges_of([(0, 1), (1, 0)]), edges_of([]))


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
