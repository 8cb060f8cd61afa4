"""Columns become data frames, Arrow streams and HTML tables, without losing which values are null."""

from typing import Any

import numpy as np
import pytest
from execgraph.schema.columns import ABSENT, Categorical, Frame, Ragged, nullable

FRAME = Frame(
    "nodes",
    {
        "id": np.array([1, 2, 3]),
        "stream": nullable(np.array([7, ABSENT, 8])),
        "name": Categorical(np.array([1, -1, 0], np.int32), ["mm", "ädd"]),
        "deps": Ragged.of([[], [1], [1, 2]]),
        "busy": np.array([True, False, True]),
        "share": np.array([0.5, 1.0, np.nan]),
        "label": ["a", "b", "<c>"],
    },
)
ROWS = {
    "id": [1, 2, 3],
    "stream": [7, None, 8],
    "name": ["ädd", None, "mm"],
    "deps": [[], [1], [1, 2]],
    "busy": [True, False, True],
    "label": ["a", "b", "<c>"],
}


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


def test_the_first_rows_are_printed() -> None:
    title, head, first, *_ = repr(FRAME).splitlines()
    assert title == "nodes: 3 rows"
    assert head == "  id  stream  name    deps   busy  share  label"
    assert first == "   1       7  ädd       []   True    0.5  a"
    ranks = repr(Frame("ranks", {"rank": np.arange(1200)})).splitlines()
    assert len(ranks) == 13 and ranks[-1] == "  … 1,190 more rows"


def test_a_print_is_no_wider_than_a_terminal_and_says_which_columns_are_left_out() -> None:
    wide = Frame("wide", {f"column_{number}": ["x" * 50] for number in range(40)})
    head, row, *below = repr(wide).splitlines()[1:]
    assert max(map(len, (head, row, *below))) <= 100
    assert head.split() == ["column_0", "column_1"] and row.split() == 2 * ["x" * 31 + "…"]
    assert " ".join(map(str.strip, below)) == f"further columns: {', '.join([*wide.columns][2:])}"


def test_a_text_with_control_characters_is_printed_in_one_line() -> None:
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
