"""What is on the page: charts as Vega-Lite with the scripts that draw them, the rows of tables as compact JSON, and the
data flow of one step.
"""

import json
import re
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from execgraph.tools.analyses import Column, RankTrace, Table, graph_of, rank_of_graph
from execgraph.tools.report import page
from execgraph.tools.report.cells import FEWEST, LONGEST, MAX_BYTES, EmbeddedTable, embed_tables
from execgraph.tools.report.drawing import MOST_STEPS, axis, hover, memory_timeline, value_lanes
from execgraph.tools.report.nested import FlowSection, step_flow
from execgraph.tools.report.page import SCRIPTS
from execgraph.tools.report.report import Report
from execgraph.tools.view import LOOKS
from support.builder.timeline import TraceBuilder
from support.graphs import training_step
from support.reports import needs_page, table
from support.runs import link_run


def test_units_become_the_format_of_axes_and_tooltips_where_the_page_chooses_them() -> None:
    time = axis("time [µs]", "time, logarithmic", axis={"tickCount": 6})
    assert time["title"] == "time, logarithmic"
    assert time["axis"] == {"tickCount": 6, "formatType": "quantity", "format": "µs"}
    assert axis("size [B]", "size")["axis"] == {"formatType": "quantity", "format": "B"}
    assert axis("share [%]", "share")["title"] == "share [%]"
    name, ops, share = hover("name", "ops []", "idle_pct [%]")
    assert (name["title"], "format" in name) == ("name", False)
    assert (ops["title"], ops["formatType"], ops["format"]) == ("ops", "quantity", "count")
    assert (share["title"], share["format"]) == ("idle [%]", ",.1f")


def test_a_long_series_is_drawn_by_its_highest_values() -> None:
    time, value = np.arange(50_000.0), np.zeros(50_000)
    value[1::2], value[70] = 1, 9
    lanes = {"short": (np.array([0.0, 2.0, 3.0]), np.array([4.0, 0.0, 0.0])), "long": (time, value)}
    rows = value_lanes(lanes, "work in the queue", "")["data"]["values"]
    assert [(row["from"], row["to"], row["value"]) for row in rows if row["lane"] == "short"] == [(0, 2, 4)]
    own = [row for row in rows if row["lane"] == "long"]
    assert len(own) <= MOST_STEPS / 2 and max(row["value"] for row in own) == 9
    assert all(1 <= row["top"] < row["base"] == 2 and row["from"] < row["to"] for row in own)


@pytest.mark.parametrize(
    ("allocated", "label", "align"),
    [
        ([16 << 10, 48 << 10, 16 << 10, 16 << 10], "peak 48.0 KiB", "left"),
        ([16 << 10, 16 << 10, 16 << 10, 48 << 10], "peak 48.0 KiB", "right"),
        ([1 << 20, 3 << 20, 1 << 20, 1 << 20], "peak 3.0 MiB", "left"),
        ([100, 100, 200, 100], "peak 0.2 KiB", "right"),
    ],
)
def test_the_peak_of_memory_is_given_in_a_unit_that_suits_it_beside_the_curve(
    allocated: list[object], label: str, align: str
) -> None:
    of_rank = table(
        "memory", rank=[0] * 4, device=[-1] * 4, ts=[0.0, 10.0, 20.0, 30.0], allocated=allocated,
        reserved=[float("nan")] * 4, step=["a"] * 4,
    )  # fmt: skip
    (chart,) = memory_timeline(of_rank["memory"])
    peaks = [layer for layer in chart["layer"] if "data" in layer]
    assert [row["label"] for layer in peaks for row in layer["data"]["values"]] == [label, label]
    assert [layer["mark"]["align"] for layer in peaks if layer["mark"]["type"] == "text"] == [align]


@needs_page
def test_scripts_that_draw_charts_are_bundled_once_and_again_where_they_cannot_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import vl_convert
    from execgraph.tools.report.page import drawing_library

    bundled: list[str] = []
    monkeypatch.setattr(vl_convert, "javascript_bundle", lambda script: bundled.append(script) or "drawn")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "kept"))
    assert [drawing_library(), drawing_library()] == ["drawn", "drawn"] and len(bundled) == 1
    [kept] = tmp_path.rglob("*.js")
    kept.write_text("alert(1)")
    assert drawing_library() == "drawn" and kept.read_text() == "drawn"
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert drawing_library() == "drawn" and len(bundled) == 3


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


def rank_of(t: TraceBuilder) -> RankTrace:
    linked = link_run(t)
    return RankTrace(0, linked, graph_of(linked))


def titles(section: FlowSection) -> list[list[str]]:
    return [[box.title for box in layer] for layer in section.layers(section.flow.root)]


def test_an_op_lies_below_the_one_that_made_what_it_reads() -> None:
    t = TraceBuilder(rank=0)
    made = t.tensor()
    with t.op("aten::relu", outputs=[made]):
        t.launch("relu_kernel", duration=50)
    with t.op("aten::mm", inputs=[made]):
        t.launch("gemm", duration=100)
    with t.op("aten::sum", inputs=[made]):
        t.launch("reduce", duration=50)
    flow = step_flow(rank_of(t))
    assert flow is not None
    section = FlowSection(flow)
    assert titles(section) == [["aten::relu"], ["aten::mm", "aten::sum"]]
    relu, mm, total = (box for layer in section.layers(flow.root) for box in layer)
    arrows = [arrow[:2] for arrow in json.loads(section.arrows)["arrows"]]
    assert arrows == [[section.number[relu], section.number[end]] for end in (mm, total)]
    assert [flow.share(box) for box in (relu, mm, total)] == [0.25, 0.5, 0.25]


def test_one_step_is_shown() -> None:
    t = TraceBuilder(rank=0)
    for step in range(3):
        with t.annotation(f"ProfilerStep#{step}"), t.op(f"op of step {step}"):
            t.work(10 * (step + 1))
    flow = step_flow(rank_of(t))
    assert flow is not None and flow.title == "rank 0, step 1"
    assert titles(FlowSection(flow)) == [["op of step 1"]]


def test_a_graph_alone_is_shown_by_its_dependencies() -> None:
    flow = step_flow(rank_of_graph(training_step()))
    assert flow is not None
    assert FlowSection(flow).kinds == ["event wait", "host sync", "launch", "program order", "stream order"]


def test_without_a_graph_there_is_no_data_flow() -> None:
    t = TraceBuilder()
    t.leaf("aten::mm", 5)
    assert step_flow(RankTrace(0, link_run(t))) is None


FRONTEND = files("execgraph.tools.report").joinpath("frontend")


def test_the_page_uses_every_file_of_its_front_end_and_every_rule_of_its_style() -> None:
    texts = {file.name: file.read_text("utf-8") for file in FRONTEND.iterdir()}
    assert texts.keys() == {*SCRIPTS, "page.css", "page.html", "flow.html"}
    style = texts.pop("page.css")
    selectors = re.sub(r"\{[^}]*\}", "{}", style[style.index("* {") :])
    # boxes are called as classes of work are
    used = "".join(texts.values()) + " ".join([*LOOKS, "heavy", "on-path"])
    assert {name for name in re.findall(r"[.#]([A-Za-z][\w-]*)", selectors) if name not in used} == set()
