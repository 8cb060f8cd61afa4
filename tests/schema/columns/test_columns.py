"""Columns are indexed as numpy arrays are, values numbered as they come; a large object shows itself in a few lines.

Columns come together from pieces, and are as the lists, dicts and byte strings that they stand for. Columns become data
frames, Arrow streams and HTML tables, without losing which values are null.
"""

from functools import cache
from itertools import chain
from typing import Any

import numpy as np
import pytest
from execgraph.linker.link import link
from execgraph.schema import columns
from execgraph.schema.columns import BytesColumn, Categorical, Frame, Ragged, nullable, rows_of, to_pandas, to_polars
from execgraph.schema.graph.spans import Spans, join
from execgraph.tools.analyses import Column, Table
from execgraph.tools.replay import replay
from hypothesis import given, settings, strategies as st
from support.builder.timeline import TraceBuilder
from support.runs import convert_linked, read_pair

NAMES = Categorical.of(["mm", "add", "mm"])
LISTS = Ragged.of([[1, 2], [], [3]])


@pytest.mark.parametrize(
    "rows", [slice(2), slice(None, None, -1), [2, 0], [], np.array([1, 1]), np.array([True, False, True]), [-1]]
)
def test_several_rows_are_a_list_of_what_each_row_is(rows: slice | list[int]) -> None:
    chosen = np.arange(3)[rows].tolist()
    assert NAMES[rows] == [NAMES[row] for row in chosen]
    assert [values.tolist() for values in LISTS[rows]] == [LISTS[row].tolist() for row in chosen]


def test_a_row_without_a_text_is_an_empty_one_and_all_are_a_list() -> None:
    assert Categorical.nulls(2)[:] == ["", ""] == [Categorical.nulls(2)[0]] * 2
    assert NAMES.tolist() == [*NAMES] == ["mm", "add", "mm"]


def test_rows_beyond_the_end_are_refused_and_negative_ones_count_from_there() -> None:
    assert (NAMES[-1], LISTS[-1].tolist()) == ("mm", [3])
    for column in (NAMES, LISTS):
        for row in (3, -4):
            with pytest.raises(IndexError):
                _ = column[row]


def test_equal_values_have_one_number_in_the_order_of_their_first_appearance() -> None:
    numbering = columns.Interner[str]()
    assert numbering.codes(["b", "a", "b"], 3).tolist() == [0, 1, 0]
    assert numbering.codes(["c", "a"], 2).tolist() == [2, 1]
    assert list(numbering) == ["b", "a", "c"]


def test_ids_are_found_in_the_last_row_that_has_them_and_nothing_among_no_ids() -> None:
    ids = np.array([7, 3, 7, -5], np.int64)
    assert rows_of(ids, np.array([3, 7, -5, 4, 100, -6], np.int64)).tolist() == [1, 2, 3, -1, -1, -1]
    none = np.empty(0, np.int64)
    assert rows_of(none, np.array([1], np.int64)).tolist() == [-1]
    assert rows_of(none, none).tolist() == []


RUN_ROWS, KERNELS = 300, 2
TABLES = ("ops", "activities", "device activities")
SHOWN = "host trace", "device trace", "linked", "waits", "graph", "names", "dependencies", "replay", "work"


@cache
def objects() -> dict[str, Any]:
    """Everything that a run of many kernels, after each of which the host waits, becomes."""
    t = TraceBuilder(rank=3, world_size=8)
    for row in range(RUN_ROWS // KERNELS):
        with t.op(f"op <{row}>"):
            for kernel in range(KERNELS):
                t.launch(f"gemm {kernel}", duration=10)
        t.stream_synchronize(7)
    host, device = read_pair(t)
    linked = link(host, device)
    graph = convert_linked(linked).graph
    replayed = replay(graph)
    return {
        "host trace": host, "device trace": device, "linked": linked, "ops": linked.ops, "activities": linked.activities,
        "waits": linked.host_waits, "graph": graph, "names": graph.name, "dependencies": graph.data_deps, "replay": replayed,
        "work": replayed.work, "device activities": device.activities,
    }  # fmt: skip


@pytest.mark.parametrize("name", SHOWN)
def test_what_is_large_shows_itself_in_a_few_lines_and_in_notebooks_as_a_table_of_them(name: str) -> None:
    text, html = repr(objects()[name]), objects()[name]._repr_html_()
    assert type(objects()[name]).__name__ in text
    assert len(text) < 600 and text.count("\n") < 6
    assert html.count("<tr>") == text.count("\n") and "op <" not in html


@pytest.mark.parametrize("name", TABLES)
def test_a_large_table_shows_its_first_rows_and_names_all_columns(name: str) -> None:
    table, text = objects()[name], repr(objects()[name])
    assert text.startswith(f"{type(table).__name__}: {len(table.name):,} rows\n")
    assert text.count("\n") < 16 and all(column in text for column in table.frame_columns())


def test_a_table_of_an_analysis_shows_units_and_its_note() -> None:
    table = Table(
        "gaps", "Gaps", [Column("cause", "", ["launch"]), Column("time", "µs", np.array([1234.56]))], "of one rank"
    )
    assert repr(table).splitlines() == [
        "Gaps (gaps): 1 rows", "  cause   time [µs]", "  launch    1,234.6", "  of one rank"
    ]  # fmt: skip


def test_a_graph_says_what_it_is_of() -> None:
    title, nodes, dependencies, measured = repr(objects()["graph"]).splitlines()
    assert title == "ExecutionGraph: rank 3, generic"
    assert f"{RUN_ROWS:,} activities" in nodes and f"{RUN_ROWS:,} launch" in dependencies
    assert measured.split()[0] == "measured" and measured.endswith(" µs")


@pytest.mark.parametrize("frame", ["to_pandas", "to_polars"])
def test_a_graph_and_its_replay_go_to_data_frames(frame: str) -> None:
    pytest.importorskip(frame.removeprefix("to_"))
    graph, table = objects()["graph"], getattr(objects()["graph"], frame)()
    assert list(table["id"]) == graph.id.tolist()
    assert list(table["name"]) == [graph.name[row] for row in range(len(graph))]
    assert list(table["duration_ns"]) == graph.duration_ns.tolist()
    assert [list(ids) for ids in table["data_deps"]] == [graph.data_deps[row].tolist() for row in range(len(graph))]
    replayed, table = objects()["replay"], getattr(objects()["replay"], frame)()
    assert set(table["rank"]) == {3} and {"host", "computation"} <= set(table["class"])
    assert list(table["end_ns"]) == replayed.end_ns.tolist()


BIG = (1 << 62) + 1
COLUMNS = {
    "number": nullable(np.array([BIG, columns.ABSENT])),
    "text": Categorical(np.array([-1, 0], np.int32), ["mm"]),
    "list": Ragged.of([[1, 2], []]),
}
EMPTY = {"number": nullable(np.empty(0, np.int64)), "text": Categorical.of([]), "list": Ragged.of([])}


def test_polars_keeps_whole_numbers_and_what_is_missing() -> None:
    pytest.importorskip("polars")
    assert to_polars(COLUMNS).rows() == [(BIG, None, [1, 2]), (None, "mm", [])]
    assert to_polars(EMPTY).shape == (0, 3)


def test_pandas_keeps_whole_numbers_and_what_is_missing() -> None:
    pytest.importorskip("pandas")
    table = to_pandas(COLUMNS)
    assert table.isna().values.tolist() == [[False, True, False], [True, False, False]]
    assert (int(table["number"][0]), table["text"][1], table["list"][0].tolist()) == (BIG, "mm", [1, 2])
    assert to_pandas(EMPTY).shape == (0, 3)


TEXTS = st.lists(st.sampled_from([b"", b"a", b"bc", b"[1,2]"]), max_size=12)
TEXT = st.binary(max_size=3) | st.sampled_from([b"a" * 40, b"a" * 39 + b"b", b"a" * 5000, b"12345678", b"123456789"])
COLUMN = st.lists(TEXT, min_size=1, max_size=100)


@given(TEXTS, TEXTS)
def test_a_column_of_texts_is_like_a_list(some: list[bytes], more: list[bytes]) -> None:
    column, both = BytesColumn.of(some), BytesColumn.joined([BytesColumn.of(some), BytesColumn.of(more)])
    assert column == some and both == some + more and both[:] == some + more
    assert [both[row] for row in range(len(both))] == some + more
    backwards = np.arange(len(both))[::-1]
    assert both.at(backwards) == both.take(backwards) == (some + more)[::-1]
    assert both.differ(b"a").tolist() == [text != b"a" for text in some + more]


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 9)), max_size=8))
def test_numbers_are_looked_up_as_in_a_dict(pairs: list[tuple[int, int]]) -> None:
    keys, values = np.array(pairs, np.int64).reshape(-1, 2).T
    found, asked = dict(pairs), range(-4, 5)
    numbers = columns.Lookup(keys, values)
    assert numbers.of(np.array(asked)).tolist() == [found.get(key, -1) for key in asked]


@given(st.lists(TEXTS, max_size=4))
def test_texts_come_together_from_pieces(pieces: list[list[bytes]]) -> None:
    builder = columns.BytesColumnBuilder()
    for piece in pieces:
        builder.add(piece)
    assert builder.column() == [*chain.from_iterable(pieces)]


@given(st.lists(st.lists(st.integers(-(2**62), 2**62), max_size=5), max_size=5))
def test_numbers_come_together_from_pieces(pieces: list[list[int]]) -> None:
    builder = columns.IntegerBuilder()
    for piece in pieces:
        builder.add(np.array(piece, np.int64))
    column = builder.column()
    assert column.tolist() == [*chain.from_iterable(pieces)]
    column[:] = 0  # a column may be changed


@given(first=COLUMN, data=st.data())
@settings(deadline=None)
def test_rows_are_joined_in_the_order_of_the_parts(first: list[bytes], data: st.DataObject) -> None:
    count = len(first)
    rows = np.array(sorted(data.draw(st.sets(st.integers(0, count - 1)))), np.int64)
    column = Spans.of(first)
    parts = [(np.arange(count), column), (rows, column.take(rows)), (rows, column.take(rows[::-1]))]
    expected = list(first)
    for row, other in zip(rows.tolist(), rows[::-1].tolist(), strict=True):
        expected[row] += first[row] + first[other]
    joined = join(parts, count)
    ends = joined.starts + joined.lengths
    assert [bytes(joined.source[start:end]) for start, end in zip(joined.starts, ends, strict=True)] == expected


FRAME = Frame(
    "nodes",
    {
        "id": np.array([1, 2, 3]),
        "stream": nullable(np.array([7, columns.ABSENT, 8])),
        "name": Categorical(np.array([1, -1, 0], np.int32), ["mm", "ädd"]),
        "deps": Ragged.of([[], [1], [1, 2]]),
        "busy": np.array([True, False, True]),
        "share": np.array([0.5, 1.0, np.nan]),
        "label": ["a", "b", "<c>"],
    },
)
ROWS = {
    "id": [1, 2, 3], "stream": [7, None, 8], "name": ["ädd", None, "mm"], "deps": [[], [1], [1, 2]],
    "busy": [True, False, True], "label": ["a", "b", "<c>"],
}  # fmt: skip


@pytest.mark.parametrize("way", ["polars", "arrow"])
def test_a_table_has_the_same_rows_in_every_library(way: str) -> None:
    polars = pytest.importorskip("polars")
    if way == "arrow":
        pytest.importorskip("nanoarrow")
    made: Any = FRAME.to_polars() if way == "polars" else polars.DataFrame(FRAME)
    assert made.drop("share").to_dict(as_series=False) == ROWS
    assert made["share"][:2].to_list() == [0.5, 1.0]


def test_a_table_without_rows_keeps_its_columns() -> None:
    polars = pytest.importorskip("polars")
    pytest.importorskip("nanoarrow")
    empty = Frame("none", {"id": np.zeros(0, np.int64), "name": Categorical.nulls(0), "deps": Ragged.of([])})
    assert polars.DataFrame(empty).columns == ["id", "name", "deps"] and len(empty) == 0


def test_notebooks_show_the_first_rows_and_how_many_more_there_are() -> None:
    html = Frame("ranks", {"rank": np.arange(1200)})._repr_html_()
    assert html.count("<tr>") == 11 and "<p>1,190 more rows</p>" in html
    shown = FRAME._repr_html_()
    assert "<td>&lt;c&gt;</td>" in shown and "<td>1, 2</td>" not in shown and "<td>[1, 2]</td>" in shown
    assert "more rows" not in shown and "nan" not in shown


def test_rows_are_dicts_of_python_values() -> None:
    shares = [0.5, 1.0, None]
    rows = [dict(zip([*ROWS, "share"], row, strict=True)) for row in zip(*ROWS.values(), shares, strict=True)]
    assert FRAME.rows() == rows


def test_the_first_rows_are_printed_no_wider_than_a_terminal_each_in_one_line_and_columns_left_out_are_named() -> None:
    title, head, first, *_ = repr(FRAME).splitlines()
    assert title == "nodes: 3 rows"
    assert head == "  id  stream  name    deps   busy  share  label"
    assert first == "   1       7  ädd       []   True    0.5  a"
    ranks = repr(Frame("ranks", {"rank": np.arange(1200)})).splitlines()
    assert len(ranks) == 13 and ranks[-1] == "  … 1,190 more rows"
    wide = Frame("wide", {f"column_{number}": ["x" * 50] for number in range(40)})
    head, row, *below = repr(wide).splitlines()[1:]
    assert max(map(len, (head, row, *below))) <= 100
    assert head.split() == ["column_0", "column_1"] and row.split() == 2 * ["x" * 16 + "…" + "x" * 15]
    assert " ".join(map(str.strip, below)) == f"further columns: {', '.join([*wide.columns][2:])}"
    assert repr(Frame("ops", {"name": ["a\nb\x1b[31m"]})).splitlines()[2:] == ["  a\\nb\\x1b[31m"]


@pytest.mark.parametrize("key", [0, slice(3), ["id", "name"]])
def test_what_is_no_name_of_a_column_is_answered_with_the_way_to_rows(key: Any) -> None:
    answer = r'nodes: a table is indexed by column, as table\["id"\]; for rows, table.rows\(\) has a dict of each'
    with pytest.raises(TypeError, match=answer):
        _ = FRAME[key]
    with pytest.raises(TypeError, match=answer):
        _ = [*FRAME]


def test_a_column_is_found_by_its_name() -> None:
    assert FRAME["id"] is FRAME.columns["id"]
    with pytest.raises(KeyError, match=f"{FRAME.title}: no column 'missing'; there are id, "):
        _ = FRAME["missing"]
