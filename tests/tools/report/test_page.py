"""What is on the page: figures and sentences, charts as Vega-Lite with the scripts that draw them, the rows of tables
as compact JSON, and the data flow of one step; and what a change would save.
"""

import math
import re
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from execgraph.tools.analyses import Column, RankTrace, Table, facts_of, graph_of, job_of, rank_of_graph
from execgraph.tools.analyses.findings import verdict
from execgraph.tools.generate import simulate, write_traces
from execgraph.tools.report import ReportRequest, find_sources, page, report_on
from execgraph.tools.report.bars import flow_boxes, step_flow
from execgraph.tools.report.cells import FEWEST, LONGEST, MAX_BYTES, embed_tables
from execgraph.tools.report.drawing import axis, hover, memory_timeline
from execgraph.tools.report.page import SCRIPTS
from execgraph.tools.report.report import Report
from execgraph.tools.report.statements import STATEMENTS, diff_verdict, facts, key_figures
from execgraph.tools.sync_records_advice import SETTING, sync_records_advice
from execgraph.tools.view import LOOKS
from support.builder.timeline import TraceBuilder
from support.graphs import STREAM_ORDER, GraphBuilder, training_step
from support.reports import needs_page, run, table
from support.runs import link_run

from benchmarks.programs import build_job


def test_a_run_without_a_device_says_so_once_and_shows_the_host(tmp_path, capfd):
    t = TraceBuilder(rank=0)
    t.leaf("aten::mm", 30)
    t.leaf("aten::add", 10)
    _, device = t.write(tmp_path)
    assert run(device, "--all") == 0
    said = capfd.readouterr().out
    assert said.startswith("All work is on the CPU: 100 % forward and other ops. aten::mm is the heaviest op")
    assert said.count("no device activity was recorded") == 1
    assert "Host time per op name and thread\n" in said and "Temporal breakdown\n" not in said
    report = report_on(find_sources([device]))
    tables = report.tables | {"ranks": report.ranks}
    assert "No device activity was recorded: the page shows the host alone." in facts(tables)
    assert ("none", "device activities", "") in key_figures(tables)


def test_the_sentences_name_what_limits_the_run(training_report: Report) -> None:
    report = training_report
    assert report.verdict.startswith("Computation limits the run: 78 % of the critical path. ")
    assert report.verdict.endswith("Hiding that communication would save up to 19 %.")
    tables = report.tables | {"ranks": report.ranks}
    said = facts(tables)
    assert said[0] == "116 kernels, 8 communications, 2 copies and sets ran on 2 devices, 400 host ops on 2 ranks."
    assert "33 % of the communication is hidden behind computation." in said
    assert said[-1].startswith("The critical path is 78 % computation, ")
    assert [figure.label for figure in key_figures(tables)][:3] == ["ranks", "run", "device busy"]
    assert facts({}) == [*key_figures({})] == []


def two_runs(ranks: int, loading_a: float) -> dict[str, Table]:
    """Steps of 100 and 20 ms, of which loading takes a part in the mean of the ranks."""
    runs = table(
        "trace_diff_runs", part=["step", "host: data loading"], a=[100e3, loading_a], b=[20e3, 10e3],
        difference=[-80e3, 10e3 - loading_a], change=[-80.0, -50.0],
    )  # fmt: skip
    work = table(
        "trace_diff", kind=["op"] * 3, name=["ProfilerStep#", "load batch", "aten::mm"], shape=["", "", "[[8]]"],
        category=["faster", "faster", "slower"], difference=[-240e3, -120e3, 40.0], count_a=[3, 3, 3], count_b=[3, 3, 3],
    )  # fmt: skip
    return runs | work | table("ranks", run=["A"] * ranks + ["B"] * ranks, activities=[5] * 2 * ranks)


@pytest.mark.parametrize(
    ("ranks", "loading_a", "sentence"),
    [
        (1, 80e3, "Most of that is host data loading, 10.00 ms instead of 80.00 ms."),
        (1, 30e3, "The largest part of that is host data loading, 10.00 ms instead of 30.00 ms."),
        (2, 80e3, "Most of that is host data loading, 10.00 ms instead of 80.00 ms in the mean of 2 ranks."),
    ],
)
def test_the_cause_of_a_difference_says_how_much_of_it_and_of_how_many_ranks(ranks, loading_a, sentence):
    assert diff_verdict(two_runs(ranks, loading_a)).endswith(sentence)


@pytest.mark.parametrize(("recorded", "without", "noise", "said"), [
    (-9.0, -12.0, 8.0, "Unprofiled, run B is faster than run A: a step takes 12.0 % less time"),
    (-4.0, -7.0, 8.0, "Run A and run B do not differ, as far as can be told: a step takes 93.0 µs instead of 100"),
    (-4.0, -28.0, 8.0, "Run A and run B may differ, but that is not certain: a step takes 72.0 µs instead of 100"),
    (9.0, -12.0, 8.0, "Run A and run B may differ, but that is not certain: "),
    (60.0, 95.6, 85.7, "Run A and run B may differ, but that is not certain: a step takes 195.6 µs "),
    (2.0, 3.0, 85.7, "Run A and run B may differ, but that is not certain: "),
    (0.0, -12.0, math.nan, "Unprofiled, run B is faster"),
])  # fmt: skip
def test_runs_differ_if_steps_do_in_both_windows_by_more_than_steps_of_one_run(recorded, without, noise, said):
    change = [recorded, without, recorded]
    runs = table(
        "trace_diff_runs", part=["step", "unprofiled step", "run"], a=[100.0] * 3, difference=change, change=change,
        b=[100 + percent for percent in change], noise=[math.nan, noise, math.nan],
    )  # fmt: skip
    assert diff_verdict(runs | table("ranks", run=["A", "B"])).startswith(said)


def test_idle_time_is_no_cause_where_the_host_does_less() -> None:
    """Loading that takes 50 ms less explains most of 60 ms of idle time, 20 ms less do not."""

    def said(loading_b: float) -> str:
        runs = table(
            "trace_diff_runs", part=["step", "device: idle", "host: data loading"], a=[100e3, 80e3, 60e3],
            b=[40e3, 20e3, loading_b], difference=[-60e3, -60e3, loading_b - 60e3], change=[-60.0, -75.0, -80.0],
        )  # fmt: skip
        return diff_verdict(runs | table("ranks", run=["A", "B"]))

    assert said(10e3).endswith("Most of that is host data loading, 10.00 ms instead of 60.00 ms.")
    assert said(40e3).endswith("Most of that is device idle, 20.00 ms instead of 80.00 ms.")


def test_work_that_differs_most_is_named_whoever_recorded_it_and_a_lack_of_devices_too() -> None:
    expected = ["load batch: −120.00 ms (faster, 3 → 3 of them).", "aten::mm [[8]]: +40.0 µs (slower, 3 → 3 of them)."]
    assert facts(two_runs(1, 80e3))[1:] == expected
    host_only = table("ranks", run=["A", "B"], activities=[0, 0])
    assert facts(two_runs(1, 80e3) | host_only)[0] == "No device activity was recorded: the page shows the host alone."


@needs_page
def test_the_page_says_what_is_missing_without_scripts(training_report: Report) -> None:
    made = page.render(training_report)
    said = made.partition("<noscript>")[2].partition("</noscript>")[0]
    assert all(what in said for what in ("charts", "timeline", "data flow", "tables"))


def waiting_run(sync_records: bool) -> TraceBuilder:
    t = TraceBuilder(rank=3, sync_records=sync_records)
    with t.op("aten::mm", inputs=[t.tensor()]):
        t.launch("gemm", duration=50)
    t.stream_synchronize(7)
    return t


@needs_page
def test_a_run_without_synchronisation_records_and_none_other_is_told_of(tmp_path, capfd):
    waiting_run(sync_records=False).write(tmp_path)
    assert run("-q", tmp_path) == 0
    advice = sync_records_advice("rank 3")
    assert "The traces of rank 3 do not record what calls waited for" in capfd.readouterr().out
    assert run("-q", tmp_path, "--only", "temporal_breakdown") == 0
    assert capfd.readouterr().out.splitlines()[:4] == [*advice, ""]
    assert run("-q", tmp_path, "-o", tmp_path / "page.html") == 0
    html = (tmp_path / "page.html").read_text("utf-8")
    assert "The traces of rank 3 do not record what calls waited for" in html and SETTING in html
    waiting_run(sync_records=True).write(tmp_path)
    assert run("-q", tmp_path, "-o", tmp_path / "page.html") == run("-q", tmp_path) == 0
    assert "synchronisation" not in capfd.readouterr().out
    assert "do not record what calls waited for" not in (tmp_path / "page.html").read_text("utf-8")


def test_one_advice_names_all_ranks_without_synchronisation_records(tmp_path: Path) -> None:
    write_traces(simulate(build_job("ddp", ranks=2, steps=1, layers=1)), tmp_path, sync_records=False)
    report = report_on(find_sources([tmp_path]), ReportRequest(only=["temporal_breakdown"], page=False))
    assert report.advice == sync_records_advice("ranks 0, 1")


def test_without_rows_no_section_proves_anything() -> None:
    assert {statement({}) for statement in STATEMENTS.values()} == {""}


@pytest.mark.parametrize(
    ("section", "tables", "sentence"),
    [
        ("critical_path", table("critical_path", kind=["host"], time=[3.0]), "All of the critical path is host time."),
        (
            "critical_path", table("critical_path", kind=["host", "communication"], time=[994.0, 6.0]),
            "99 % of the critical path is host time.",
        ),
    ],
)  # fmt: skip
def test_a_section_says_what_its_figures_prove(section: str, tables: dict[str, Table], sentence: str) -> None:
    assert STATEMENTS[section](tables) == sentence


def test_every_section_with_a_chart_proves_something(training_report: Report) -> None:
    tables = training_report.tables
    proved = {name for name, statement in STATEMENTS.items() if statement(tables)}
    assert proved == {name for name in STATEMENTS if name in tables and len(tables[name])}


def test_classes_of_work_are_each_twice_as_fast_and_a_delay_is_no_work() -> None:
    g = GraphBuilder()
    delay = g.delay(0, 5_000)
    g.activity("gemm", 5_000, 40_000, after=[(delay, STREAM_ORDER)])
    job = job_of([facts_of(rank_of_graph(g.build()))], {})
    rows = verdict(job, []).twice_as_fast.rows()
    assert [(row["change"], row["before"], row["after"]) for row in rows] == [("computation", 45, 25)]


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


@pytest.mark.parametrize(("allocated", "label", "align"), [
    ([16 << 10, 48 << 10, 16 << 10, 16 << 10], "peak 48.0 KiB", "left"),
    ([16 << 10, 16 << 10, 16 << 10, 48 << 10], "peak 48.0 KiB", "right"),
    ([1 << 20, 3 << 20, 1 << 20, 1 << 20], "peak 3.0 MiB", "left"),
    ([100, 100, 200, 100], "peak 0.2 KiB", "right"),
])  # fmt: skip
def test_the_peak_of_memory_is_given_in_a_unit_that_suits_it_beside_the_curve(allocated, label, align):
    of_rank = table(
        "memory", rank=[0] * 4, device=[-1] * 4, ts=[0.0, 10.0, 20.0, 30.0], allocated=allocated,
        reserved=[float("nan")] * 4, step=["a"] * 4,
    )  # fmt: skip
    (chart,) = memory_timeline(of_rank["memory"])
    peak = chart["layer"][-1]
    assert [row["label"] for row in peak["data"]["values"]] == [label]
    assert [layer["mark"].get("align") for layer in peak["layer"]] == [None, align]


@needs_page
def test_scripts_that_draw_charts_are_bundled_once_and_again_where_they_cannot_be_kept(tmp_path, monkeypatch):
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


def content(json: bytes) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(json)
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
    packed = embed_tables(tables, 400_000)
    assert sum(map(len, packed.values())) <= 400_000
    held = {name: content(json) for name, json in packed.items()}
    assert held["small"]["rows"] == 30
    assert held["one"]["rows"] == pytest.approx(held["other"]["rows"], rel=0.3) and held["one"]["rows"] > 5_000
    largest = held["one"]["columns"][1]["values"]
    assert (largest[0], len(largest)) == (49_999 / 8, held["one"]["rows"])
    assert held["other"]["columns"][1]["values"][:2] == [0, 0.125]


def test_some_rows_are_held_of_every_table_and_a_text_has_an_end() -> None:
    held = embed_tables({f"{number}": (table_of(1_000), "") for number in range(5)}, 100)
    assert [content(json)["rows"] for json in held.values()] == [FEWEST] * 5
    table = Table("t", "T", [Column("pattern", "", ["k" * 5_000])])
    assert len(embed_tables({"t": (table, "")})["t"]) < 2 * LONGEST + 200


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
    packed = content(re.search(r'"host_time_per_op":(\{.*?\})\}?(,"|</script>)', text)[1].encode())  # type: ignore[index]
    assert (packed["of"], packed["largest"]) == (150_000, "self") and FEWEST < packed["rows"] < 150_000


def rank_of(t: TraceBuilder) -> RankTrace:
    linked = link_run(t)
    return RankTrace(0, linked, graph_of(linked))


def titles(section: dict[str, Any]) -> list[list[str]]:
    return [[box["title"] for box in layer] for layer in section["layers"]]


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
    section = flow_boxes(flow)
    assert titles(section) == [["aten::relu"], ["aten::mm", "aten::sum"]]
    relu, mm, total = (box for layer in section["layers"] for box in layer)
    assert [arrow[:2] for arrow in section["arrows"]] == [[relu["number"], end["number"]] for end in (mm, total)]
    assert [box["share"] for box in (relu, mm, total)] == [0.25, 0.5, 0.25]


def test_one_step_is_shown() -> None:
    t = TraceBuilder(rank=0)
    for step in range(3):
        with t.annotation(f"ProfilerStep#{step}"), t.op(f"op of step {step}"):
            t.work(10 * (step + 1))
    flow = step_flow(rank_of(t))
    assert flow is not None and flow.title == "rank 0, step 1"
    assert titles(flow_boxes(flow)) == [["op of step 1"]]


def test_a_graph_alone_is_shown_by_its_dependencies_and_nothing_without_one(t: TraceBuilder) -> None:
    t.leaf("aten::mm", 5)
    assert step_flow(RankTrace(0, link_run(t))) is None
    flow = step_flow(rank_of_graph(training_step()))
    assert flow is not None
    assert flow_boxes(flow)["kinds"] == ["event wait", "host sync", "launch", "program order", "stream order"]


FRONTEND = files("execgraph.tools.report").joinpath("frontend")


def test_the_page_uses_every_file_of_its_front_end_and_every_rule_of_its_style() -> None:
    texts = {file.name: file.read_text("utf-8") for file in FRONTEND.iterdir()}
    assert texts.keys() == {*SCRIPTS, "page.css", "page.html"}
    style = texts.pop("page.css")
    selectors = re.sub(r"\{[^}]*\}", "{}", style[style.index("* {") :])
    # boxes are called as classes of work are
    used = "".join(texts.values()) + " ".join([*LOOKS, "box", "heavy", "on-path"])
    assert {name for name in re.findall(r"[.#]([A-Za-z][\w-]*)", selectors) if name not in used} == set()


def test_windows_without_steps_that_hold_different_work_are_not_compared_by_their_length() -> None:
    runs = table("trace_diff_runs", part=["run"], a=[100.0], b=[99.0], difference=[-1.0], change=[-1.0])
    work = table(
        "trace_diff", kind=["kernel"] * 3, name=["a", "b", "c"], count_a=[10, 20, 1], count_b=[9, 18, 1],
        time_a=[50.0, 30.0, 1.0], difference=[-5.0, -3.0, 0.0],
    )  # fmt: skip
    said = "run B does most of it 10 % less often. The run takes 99.0 µs instead of 100.0 µs, which for as much work is 10 % more"
    assert said in diff_verdict(runs | work | table("ranks", run=["A", "B"]))
