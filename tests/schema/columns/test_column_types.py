"""Columns are indexed as numpy arrays are, values numbered as they come; a large object shows itself in a few lines."""

from functools import cache
from typing import Any

import numpy as np
import pytest
from execgraph.linker.link import link
from execgraph.schema.columns import ABSENT, Categorical, Interner, Ragged, nullable, rows_of, to_pandas, to_polars
from execgraph.tools.analyses import Column, Table
from execgraph.tools.replay import replay
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
    numbering = Interner[str]()
    assert numbering.codes(["b", "a", "b"], 3).tolist() == [0, 1, 0]
    assert numbering.codes(["c", "a"], 2).tolist() == [2, 1]
    assert list(numbering) == ["b", "a", "c"]


def test_ids_are_found_in_the_last_row_that_has_them() -> None:
    ids = np.array([7, 3, 7, -5], np.int64)
    assert rows_of(ids, np.array([3, 7, -5, 4, 100, -6], np.int64)).tolist() == [1, 2, 3, -1, -1, -1]


def test_nothing_is_found_among_no_ids() -> None:
    none = np.empty(0, np.int64)
    assert rows_of(none, np.array([1], np.int64)).tolist() == [-1]
    assert rows_of(none, none).tolist() == []


ROWS, KERNELS = 300, 2
TABLES = ("ops", "activities")
SHOWN = (
    "host trace",
    "device trace",
    "linked",
    "waits",
    "graph",
    "names",
    "dependencies",
    "replay",
    "work",
)


@cache
def objects() -> dict[str, Any]:
    """Everything that a run of many kernels, after each of which the host waits, becomes."""
    t = TraceBuilder(rank=3, world_size=8)
    for row in range(ROWS // KERNELS):
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
        "work": replayed.work,
    }  # fmt: skip


@pytest.mark.parametrize("name", SHOWN)
def test_what_is_large_shows_itself_in_a_few_lines(name: str) -> None:
    text = repr(objects()[name])
    assert type(objects()[name]).__name__ in text
    assert len(text) < 600 and text.count("\n") < 6


@pytest.mark.parametrize("name", SHOWN)
def test_notebooks_get_the_same_as_a_table(name: str) -> None:
    html, lines = objects()[name]._repr_html_(), repr(objects()[name]).splitlines()
    assert html.count("<tr>") == len(lines) - 1
    assert "op <" not in html


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
    assert f"{ROWS:,} activities" in nodes and f"{ROWS:,} launch" in dependencies
    assert measured.split()[0] == "measured" and measured.endswith(" µs")


@pytest.mark.parametrize("frame", ["to_pandas", "to_polars"])
def test_a_graph_goes_to_data_frames(frame: str) -> None:
    pytest.importorskip(frame.removeprefix("to_"))
    graph, table = objects()["graph"], getattr(objects()["graph"], frame)()
    assert list(table["id"]) == graph.id.tolist()
    assert list(table["name"]) == [graph.name[row] for row in range(len(graph))]
    assert list(table["duration_ns"]) == graph.duration_ns.tolist()
    assert [list(ids) for ids in table["data_deps"]] == [graph.data_deps[row].tolist() for row in range(len(graph))]


@pytest.mark.parametrize("frame", ["to_pandas", "to_polars"])
def test_a_replay_goes_to_data_frames(frame: str) -> None:
    pytest.importorskip(frame.removeprefix("to_"))
    replayed, table = objects()["replay"], getattr(objects()["replay"], frame)()
    assert set(table["rank"]) == {3} and {"host", "computation"} <= set(table["class"])
    assert list(table["end_ns"]) == replayed.end_ns.tolist()


BIG = (1 << 62) + 1
COLUMNS = {
    "number": nullable(np.array([BIG, ABSENT])),
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
