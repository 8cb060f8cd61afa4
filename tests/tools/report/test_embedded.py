"""The rows of tables on the page: as compact JSON, whole where there is room, the most telling ones elsewhere."""

from importlib.util import find_spec
from typing import Any

import numpy as np
import orjson
import pytest
from execgraph.tools.analyses import Column, Table
from execgraph.tools.report import page
from execgraph.tools.report.cells import LONGEST
from execgraph.tools.report.packing import FEWEST, MAX_BYTES, EmbeddedTable, embed_tables
from execgraph.tools.report.report import Report

UNKNOWN = np.nan


def table_of(rows: int, name: str = "t") -> Table:
    times = np.arange(rows, dtype=np.float64) / 8
    return Table(
        name, name, [Column("name", "", [f"kernel {row}" for row in range(rows)]), Column("time", "µs", times)]
    )


def content(held: EmbeddedTable) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(held.json)
    return found


def test_columns_are_numbers_and_texts_are_written_once() -> None:
    columns = [
        Column("name", "", ["void gemm<float>(int)", "hay", "void gemm<float>(int)"]),
        Column("stream", "", np.array([7, -1, 7])),
        Column("time", "µs", np.array([1.0000004, UNKNOWN, 3.25])),
        Column("share", "%", np.array([1 / 3, 100, 0])),
    ]
    name, stream, time, share = content(embed_tables({"t": (Table("t", "T", columns), "")})["t"])["columns"]
    assert (name["values"], name["texts"]) == ([0, 1, 0], [["gemm<float>(int)", "void gemm<float>(int)"], "hay"])
    assert (stream["kind"], stream["values"]) == ("identity", [7, -1, 7])
    assert (time["kind"], time["values"]) == ("number", [1, None, 3.25])
    assert share["values"] == [0.333333, 100, 0]


def test_small_tables_are_whole_and_large_ones_share_what_is_left() -> None:
    tables = {"small": (table_of(30), ""), "one": (table_of(50_000), "time"), "other": (table_of(60_000), "")}
    held = embed_tables(tables, 400_000)
    assert sum(len(one.json) for one in held.values()) <= 400_000
    assert held["small"].rows == 30
    assert held["one"].rows == pytest.approx(held["other"].rows, rel=0.3) and held["one"].rows > 5_000
    largest = content(held["one"])["columns"][1]["values"]
    assert (largest[0], len(largest)) == (49_999 / 8, held["one"].rows)
    assert content(held["other"])["columns"][1]["values"][:2] == [0, 0.125]


def test_some_rows_are_held_of_every_table() -> None:
    held = embed_tables({f"{number}": (table_of(1_000), "") for number in range(5)}, 100)
    assert [one.rows for one in held.values()] == [FEWEST] * 5


def test_a_text_has_an_end() -> None:
    table = Table("t", "T", [Column("pattern", "", ["k" * 5_000])])
    assert len(embed_tables({"t": (table, "")})["t"].json) < 2 * LONGEST + 200


@pytest.mark.skipif(find_spec("altair") is None, reason="needs the extra `report`")
def test_a_page_stays_below_ten_megabytes() -> None:
    facts = ("rank", "activities", "host_ops")
    ranks = Table("ranks", "Ranks", [Column(name, "", np.ones(1, np.int64)) for name in facts])
    columns = [
        Column("rank", "", np.zeros(150_000, np.int64)),
        Column("name", "", [f"kernel {row}" for row in range(150_000)]),
        Column("thread", "", np.zeros(150_000, np.int64)),
        *(Column(name, unit, np.arange(150_000) / 7) for name, unit in (("total", "µs"), ("self", "µs"))),
        Column("count", "", np.ones(150_000, np.int64)),
    ]
    table = Table("host_time_per_op", "Host", columns)
    text = page.render(Report("run", {table.name: table}, ranks, []))
    assert MAX_BYTES / 2 < len(text.encode()) < 10_000_000
    assert "of 150,000 rows with the largest self; --csv writes all" in text
