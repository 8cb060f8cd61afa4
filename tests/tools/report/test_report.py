"""trace-report: what it reads, what it says about a run, and that its outputs agree with each other. The page is in test_page.py."""

import csv
import json
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from execgraph.converter import convert
from execgraph.linker import link, read_device_trace, read_host_trace
from execgraph.schema.graph import DependencyKind
from execgraph.schema.linked import write_linked
from execgraph.tools.analyses import ANALYSES, Column, Table, analyse, rank_of_graph
from execgraph.tools.commands import trace_report
from execgraph.tools.generate import simulate, write_traces
from execgraph.tools.replay import KINDS, parse_scale
from execgraph.tools.report import ReadOptions, ReportRequest, find_sources, overview, page, read_ranks, report_on
from execgraph.tools.report.rows import largest
from execgraph.tools.report.text import ROWS, as_text
from execgraph.tools.report.what_if import what_if
from execgraph.tools.report.words import WORDS
from execgraph.tools.sync_records_advice import sync_records_advice
from execgraph.tools.view import LOOKS
from support.builder import TraceBuilder
from support.databases import RPD_2, Api, Op, write_database
from support.graphs import EVENT_WAIT, STREAM_ORDER, GraphBuilder, rank_with_collective

from benchmarks.programs import build_job

needs_page = pytest.mark.skipif(find_spec("altair") is None, reason="needs the extra `report`")


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as end:
        trace_report.main([str(argument) for argument in arguments])
    return int(end.value.code or 0)


def small_run(kernels: int = 2) -> TraceBuilder:
    t = TraceBuilder(rank=0)
    for number in range(kernels):
        with t.op("aten::mm", inputs=[t.tensor()]):
            t.work(2)
            t.launch(f"gemm {number}", duration=50)
    t.device_synchronize()
    return t


@pytest.fixture
def given(tmp_path: Path) -> dict[str, Path]:
    """A pair in a folder, its linked trace and graph, and things that are none of these."""
    pair = tmp_path / "pair"
    pair.mkdir()
    host, device = small_run().write(pair)
    linked = link(read_host_trace(str(host)), read_device_trace(str(device)))
    write_linked(linked, str(tmp_path / "linked.json"))
    convert(linked).write(str(tmp_path / "graph.et"))
    (tmp_path / "empty.json").touch()
    (tmp_path / "text.json").write_text("hello")
    (tmp_path / "nothing").mkdir()
    copy = shutil.copy(device, tmp_path / "copy.json")
    names = ("linked.json", "graph.et", "empty.json", "text.json", "nothing", "missing.json")
    return {Path(name).stem: tmp_path / name for name in names} | {
        "pair": pair, "host": host, "device": device, "copy": Path(copy), "out": tmp_path / "out"
    }  # fmt: skip


def as_json(capfd: pytest.CaptureFixture[str], *arguments: object) -> dict[str, list[dict[str, Any]]]:
    assert run("-q", "--json", *arguments) == 0
    found: dict[str, list[dict[str, Any]]] = json.loads(capfd.readouterr().out)
    return found


# What it reads


def test_a_folder_its_files_and_the_linked_trace_say_the_same(
    given: dict[str, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    folder = as_json(capfd, given["pair"])
    assert [row["activities"] for row in folder["temporal_breakdown"]] == [2]
    assert as_json(capfd, given["host"], given["device"]) == folder
    linked = as_json(capfd, given["linked"])
    assert linked["critical_path"] == folder["critical_path"]
    assert linked["temporal_breakdown"] == folder["temporal_breakdown"]


def test_what_was_made_from_traces_is_found_in_folders_too(
    given: dict[str, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("linked", "graph"):
        (tmp_path / f"of {name}" / "below").mkdir(parents=True)
        shutil.copy(given[name], tmp_path / f"of {name}" / "below")
        shutil.copy(given["text"], tmp_path / f"of {name}")
        assert as_json(capfd, tmp_path / f"of {name}") == as_json(capfd, given[name])
    shutil.copy(given["linked"], tmp_path / "of graph")
    assert as_json(capfd, tmp_path / "of graph") == as_json(capfd, given["linked"])


def test_numbers_in_names_are_in_order_by_value(given: dict[str, Path]) -> None:
    for name in ("graph.10.et", "graph.9.et"):
        shutil.copy(given["graph"], given["nothing"] / name)
    assert [source.path.name for source in find_sources([given["nothing"]]).ranks] == ["graph.9.et", "graph.10.et"]


def test_a_graph_alone_tells_what_its_nodes_tell_and_says_what_they_do_not(
    given: dict[str, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    of_graph, of_traces = as_json(capfd, given["graph"]), as_json(capfd, given["pair"])
    for name in ("temporal_breakdown", "kernel_breakdown_kernels", "critical_path", "critical_path_nodes"):
        assert of_graph[name] == of_traces[name]
    empty = {analysis.name for analysis in ANALYSES if not of_graph[analysis.name]}
    assert empty - {analysis.name for analysis in ANALYSES if not of_traces[analysis.name]} == {
        "launch_statistics", "memory_timeline", "counters", "frequent_kernel_patterns", "per_op_device_time", "host_time_per_op",
    }  # fmt: skip
    assert run(given["graph"]) == 0
    said = capfd.readouterr()
    assert "  no activity has a launch call: Launch statistics\n" in said.out
    assert "an execution graph alone: launch calls and host ops are not known" in said.err


def test_collectives_of_graphs_meet_as_those_of_their_traces(data: Path) -> None:
    traces = list(read_ranks(find_sources([data / "training"]).ranks))
    graphs = [rank_of_graph(rank.graph) for rank in traces if rank.graph is not None]
    one, other = (analyse(ranks, ["collectives_over_ranks"])["collectives_over_ranks"] for ranks in (traces, graphs))
    assert len(one)
    for name in ("sequence", "present", "size", "latency", "start_skew", "straggler", "bus_bandwidth"):
        assert list(one[name]) == list(other[name])


def test_each_analysis_is_a_key_the_one_of_two_runs_without_rows(
    given: dict[str, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    found = as_json(capfd, given["pair"])
    assert {analysis.name for analysis in ANALYSES} | {"trace_diff"} <= found.keys()
    assert found["trace_diff"] == []


def test_a_device_trace_alone_is_enough(given: dict[str, Path], capfd: pytest.CaptureFixture[str]) -> None:
    found = as_json(capfd, given["device"])
    assert {analysis.name for analysis in ANALYSES} <= found.keys()
    assert [row["op"] is not None for row in found["per_op_device_time"]] == [True, True]


def test_a_rocpd_database_is_a_device_trace(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ops = [Op("gemm.kd", 1_000, 5_000, caller=1), Op("", 6_000, 7_500, type="CopyDeviceToHost")]
    write_database(tmp_path / "run.db", RPD_2, ops, [Api("hipLaunchKernel", 100, 600)])
    for given in (tmp_path, tmp_path / "run.db"):
        found = as_json(capfd, given)
        assert [row["busy"] for row in found["temporal_breakdown"]] == [5.5]
        assert [(row["api"], row["delay"]) for row in found["launch_statistics"]] == [("hipLaunchKernel", 0.4)]
        assert {row["class"] for row in found["kernel_breakdown"]} == {"computation", "memory"}
    assert run("-q", tmp_path, "--perfetto", tmp_path / "run.json") == 1
    assert "expected a Kineto device trace" in capfd.readouterr().err


@pytest.mark.parametrize("folder", ["traces", "run9ab/traces"])
def test_files_of_a_run_are_named_in_one_order_wherever_they_are(data: Path, tmp_path: Path, folder: str) -> None:
    there = shutil.copytree(data / "training", tmp_path / folder)
    sources = find_sources([there / f"{kind}_rank{rank}.json.gz" for rank in (1, 0) for kind in ("host", "device")])
    assert sources.title == "device_rank0.json.gz, device_rank1.json.gz, host_rank0.json.gz and 1 more"
    assert [source.known_rank for source in sources.ranks] == [0, 1]


def test_ranks_are_read_side_by_side_each_with_its_host_trace(data: Path) -> None:
    sources = find_sources(sorted((data / "training").iterdir()))
    assert [(one.path.name, one.host and one.host.name) for one in sources.ranks] == [
        ("device_rank0.json.gz", "host_rank0.json.gz"),
        ("device_rank1.json.gz", "host_rank1.json.gz"),
    ]
    assert [rank.rank for rank in read_ranks(sources.ranks, ReadOptions(graphs=False))] == [0, 1]


def test_a_host_trace_without_its_device_trace_is_said(
    given: dict[str, Path], data: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    stranger = data / "attention" / "host_rank0.json.gz"
    assert run("--only", "temporal_breakdown", "--csv", given["out"], given["copy"], stranger) == 0
    assert "host_rank0.json.gz: has no device trace; not used" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("inputs", "complaint"),
    [
        (["missing"], "cannot be read"),
        (["empty"], "is empty"),
        (["text"], "is a text file, not a trace or a graph"),
        (["nothing"], "holds no device trace"),
        (["host"], "has no device trace"),
        (["device", "copy"], "rank 0: 2 device traces of one process ("),
        (["device", "copy"], ", or compare two runs with --diff"),
        (["graph", "device"], "is of rank 0 like"),
    ],
)
def test_unusable_data_is_one_line_and_leaves_the_old_page(
    given: dict[str, Path], capfd: pytest.CaptureFixture[str], inputs: list[str], complaint: str
) -> None:
    given["out"].write_text("precious")
    assert run("--output", given["out"], *(given[name] for name in inputs)) == 1
    said = capfd.readouterr()
    assert said.out == "" and complaint in said.err
    assert said.err.startswith("trace-report: error: ") and said.err.count("\n") == 1
    assert given["out"].read_text() == "precious"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["d", "--diff", "a", "b"],
        ["--diff", "a"],
        ["--diff", "a", "b", "--only", "counters"],
        ["--diff", "a", "b", "--scale", "x=1"],
        ["d", "--only", "everything"],
        ["d", "--top", "0"],
        ["d", "--slow-call", "soon"],
        ["d", "--kernel-wait", "-1"],
        ["--diff", "a", "b", "--top", "3"],
        ["d", "--scale", "gemm"],
        ["d", "--scale", "class:disk=1"],
        ["d", "--json", "--output", "-"],
        ["d", "--perfetto", "-"],
        ["--diff", "a", "b", "--perfetto", "x.json"],
    ],
)
def test_wrong_usage_ends_with_2(capfd: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert run(*arguments) == 2
    assert "error" in capfd.readouterr().err


# What comes out


def test_csv_json_and_the_terminal_hold_the_same_tables(
    given: dict[str, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    found = as_json(capfd, given["pair"], "--csv", given["out"])
    for name, rows in found.items():
        with (given["out"] / f"{name}.csv").open(newline="") as file:
            read = list(csv.DictReader(file))
        assert len(read) == len(rows)
        for row, same in zip(rows, read, strict=True):
            assert {key: "" if value is None else str(value) for key, value in row.items()} == same
    assert run(given["pair"]) == 0
    assert "Temporal breakdown\n  rank  device  span [µs]" in capfd.readouterr().out


def test_only_the_analyses_asked_for(given: dict[str, Path], capfd: pytest.CaptureFixture[str]) -> None:
    assert list(as_json(capfd, given["pair"], "--only", "counters", "temporal_breakdown")) == [
        "temporal_breakdown",
        "counters",
        "counters_summary",
        "notes",
    ]


def test_a_run_without_a_device_says_so_once_and_shows_the_host(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    t = TraceBuilder(rank=0)
    t.leaf("aten::mm", 30)
    t.leaf("aten::add", 10)
    _, device = t.write(tmp_path)
    assert run(device) == 0
    said = capfd.readouterr().out
    assert said.count("no device activity was recorded") == 1
    assert "Host time per op name and thread\n" in said and "Temporal breakdown\n" not in said
    report = report_on(find_sources([device]))
    tables = report.tables | {"ranks": report.ranks}
    assert "The heaviest op is aten::mm with 75 % of the host's time in ops." in overview.findings(tables)
    assert ("none", "device activities", "") in overview.key_figures(tables)


def test_thresholds_the_operator_and_top_are_options(given: dict[str, Path], capfd: pytest.CaptureFixture[str]) -> None:
    usual = as_json(capfd, given["pair"])
    options = ("--slow-call", "0", "--long-delay", "0", "--top", "1", "--operator", "conv", "--kernel-wait", "0")
    found = as_json(capfd, given["pair"], *options)
    assert "slow call" not in str(usual["launch_statistics"]) and len(usual["frequent_kernel_patterns"]) == 2
    assert [row["flags"] for row in found["launch_statistics"]] == ["slow call", "slow call, long delay"]
    assert [row["name"] for row in found["kernel_breakdown_kernels"]] == ["gemm 0", "others"]
    assert found["frequent_kernel_patterns"] == []


def test_the_longest_kernel_wait_is_an_option(data: Path, capfd: pytest.CaptureFixture[str]) -> None:
    only = (data / "training", "--only", "idle_time_breakdown", "--kernel-wait")
    short, long = (as_json(capfd, *only, most)["idle_time_breakdown"] for most in ("0", "1e9"))
    assert {row["category"] for row in short} == {"other"}
    assert {row["category"] for row in long} == {"kernel wait"}


def test_notes_of_tables_are_a_table(given: dict[str, Path], capfd: pytest.CaptureFixture[str]) -> None:
    notes = {row["table"]: row["note"] for row in as_json(capfd, given["pair"])["notes"]}
    assert notes["critical_path"].startswith("the replay is +0.00 % off the measured run")


@pytest.mark.parametrize("ending", [".pdf", ".json", ".json.gz", ".et"])
def test_what_ends_like_another_kind_of_file_is_refused(given: dict[str, Path], ending: str) -> None:
    assert run(given["pair"], "--output", f"report{ending}") == 2


def test_stdin_is_refused_in_a_line(capfd: pytest.CaptureFixture[str]) -> None:
    assert run("-") == 2
    assert "give files or a folder, not stdin" in capfd.readouterr().err


def test_beside_a_page_the_terminal_says_what_was_written(
    given: dict[str, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(given["pair"], "--csv", given["out"]) == 0
    out, err = capfd.readouterr()
    assert out == ""
    assert f"tables      {given['out']}, " in err


def test_scale_says_what_each_change_brings_and_all_together(
    given: dict[str, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    changes = ["--scale", "gemm 0=0.5", "--scale", "gemm 1=0.5"]
    rows = as_json(capfd, given["pair"], "--only", "critical_path", *changes)["what_if"]
    assert [row["change"] for row in rows] == ["gemm 0=0.5", "gemm 1=0.5", "all of these"]
    assert [row["saved"] for row in rows] == pytest.approx([25, 25, 50])


def test_an_overlay_is_written_beside_the_analyses_one_for_each_rank(
    given: dict[str, Path], data: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("linked", "graph"):
        assert run("-q", given[name], "--perfetto", given["out"]) == 1
        assert "has no device trace to lay anything over" in capfd.readouterr().err
    assert run("-q", given["pair"], "--only", "counters", "--perfetto", given["out"]) == 0
    made, original = (json.loads(path.read_text())["traceEvents"] for path in (given["out"], given["device"]))
    assert made[-len(original) :] == original
    assert {event["ph"] for event in made[: -len(original)]} == {"C", "s", "f"}
    assert run("-q", data / "training", "--only", "counters", "--perfetto", given["nothing"] / "run.json.gz") == 0
    assert sorted(path.name for path in given["nothing"].iterdir()) == ["run.rank0.json.gz", "run.rank1.json.gz"]


def test_a_faster_rank_still_waits_for_the_others() -> None:
    graphs = [
        rank_with_collective(0, work=10, collective=20, clock=0),
        rank_with_collective(1, work=15, collective=15, clock=0),
    ]
    table = what_if(graphs, [parse_scale("gemm=0")])
    assert [table[name][0] * 1000 for name in ("before", "after")] == pytest.approx([15 + 15 + 5, 15 + 5])
    assert "2 ranks" in table.note
    assert len(what_if([], [parse_scale("gemm=0")])) == 0


def test_answers_are_ranges_where_waits_are_known_by_order_alone() -> None:
    g = GraphBuilder()
    copy = g.activity("Memcpy", 0, 40_000, stream=9)
    first = g.activity("first", 0, 40_000)
    g.activity("gemm", 40_000, 20_000, after=[(first, STREAM_ORDER), (copy, EVENT_WAIT | DependencyKind.CALL_ORDER)])
    table = what_if([g.build()], [parse_scale("Memcpy=2"), parse_scale("Memcpy=0")])
    reason = "1 wait is known only from the order of calls and delayed nothing when measured"
    assert table.note.endswith(f". Answers are ranges: {reason}")
    rows = [(row["after"], row["after_low"], row["after_high"]) for row in table.rows()]
    assert rows == [(100, 80, 100), (60, 60, 60), (60, 60, 60)]
    certain = what_if([g.build()], [parse_scale("Memcpy=0")])
    assert [column.name for column in certain.columns] == ["change", "before", "after", "saved", "saved_pct"]
    assert "order" not in certain.note


def test_diff_of_a_run_with_itself_finds_nothing_and_with_another_what_was_added(
    given: dict[str, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    same = as_json(capfd, "--diff", given["pair"], given["pair"])["trace_diff"]
    assert same and {row["category"] for row in same} == {"same"}
    other = tmp_path / "other"
    other.mkdir()
    small_run(kernels=3).write(other)
    changed = as_json(capfd, "--diff", given["pair"], other)["trace_diff"]
    added = [(row["name"], row["difference"]) for row in changed if row["category"] == "added"]
    assert added == [("gemm 2", 50)]


def test_a_folder_for_csv_that_cannot_be_made_is_said(
    given: dict[str, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    assert run("-q", given["pair"], "--csv", given["device"]) == 1
    assert "cannot be made a folder" in capfd.readouterr().err


@needs_page
def test_the_page_goes_to_stdout_alone(given: dict[str, Path], capfd: pytest.CaptureFixture[str]) -> None:
    assert run(given["pair"], "--output", "-") == 0
    text = capfd.readouterr().out
    assert text.lstrip().startswith("<!doctype html>") and text.rstrip().endswith("</html>")
    assert '<link rel="stylesheet"' not in text and 'src="http' not in text


def test_without_the_libraries_that_draw_it_the_page_is_refused_with_the_remedy(
    given: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "altair", None)
    # said before anything is read, so that nobody waits for it
    assert run(given["pair"] / "missing", "--output", given["out"]) == 2
    needs = "--output: the HTML page needs altair, which is not installed"
    assert capfd.readouterr().err == f"trace-report: error: {needs}; run: pip install 'execgraph[report]'\n"
    assert not given["out"].exists()
    assert run("-q", given["pair"], "--csv", given["out"]) == 0


# What the page is made of


def test_the_sentences_name_what_limits_the_run(data: Path) -> None:
    report = report_on(find_sources([data / "training"]))
    assert report.twice_as_fast is not None
    tables = report.tables | {"ranks": report.ranks}
    said = overview.findings(tables | {"twice_as_fast": report.twice_as_fast})
    assert said[0] == "116 kernels, 8 communications, 2 copies and sets ran on 2 devices, 400 host ops on 2 ranks."
    assert "33 % of the communication is hidden behind computation." in said
    limit = next(sentence for sentence in said if "limits" in sentence)
    assert limit.startswith("Computation limits the run most: twice as fast, it would shorten the run by 39 %")
    assert [figure.label for figure in overview.key_figures(tables)][:3] == ["ranks", "measured run", "device busy"]
    assert overview.findings({}) == overview.key_figures({}) == []


@needs_page
def test_a_long_series_is_drawn_by_its_highest_values() -> None:
    from altair.utils.schemapi import debug_mode
    from execgraph.tools.report.charts.lanes_of_values import SHOWN_STEPS, series

    time, value = np.arange(50_000.0), np.zeros(50_000)
    value[1::2], value[70] = 1, 9
    lanes = {"short": (np.array([0.0, 2.0, 3.0]), np.array([4.0, 0.0, 0.0])), "long": (time, value)}
    with debug_mode(False):
        chart = orjson.dumps(series(lanes, "work in the queue", "").to_dict(validate=False))
    rows = json.loads(chart)["data"]["values"]
    assert [(row["from"], row["to"], row["value"]) for row in rows if row["lane"] == "short"] == [(0, 2, 4)]
    own = [row for row in rows if row["lane"] == "long"]
    assert len(own) <= SHOWN_STEPS / 2 and max(row["value"] for row in own) == 9
    assert all(1 <= row["top"] < row["base"] == 2 and row["from"] < row["to"] for row in own)


def table_of(count: int) -> Table:
    times = np.array([float(number % 7) if number else np.nan for number in range(count)])
    return Table("t", "T", [Column("name", "", [f"n{number}" for number in range(count)]), Column("time", "µs", times)])


def test_long_tables_are_shown_in_part_and_say_so() -> None:
    assert [row["name"] for row in table_of(20).take(slice(2)).rows()] == ["n0", "n1"]
    assert [row["name"] for row in largest(table_of(20), "time", 3).rows()] == ["n6", "n13", "n5"]
    assert largest(table_of(3), "time", 9).rows()[-1] == {"name": "n0", "time": None}
    lines = as_text(table_of(20)).splitlines()
    assert lines[:4] == ["T", "  name  time [µs]", "  n0", "  n1          1.0"]
    assert len(lines) == 2 + ROWS + 1 and lines[-1] == "  … 8 more rows"


def test_the_page_says_what_its_words_mean(data: Path) -> None:
    assert {*KINDS, *LOOKS} <= set(WORDS)
    assert f"<dt>gap</dt><dd>{WORDS['gap']}</dd>" in page.render(report_on(find_sources([data / "training"])))


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks of two steps; in the second a kernel takes twice as long."""
    folder = tmp_path_factory.mktemp("steps")
    for rank in range(2):
        t = TraceBuilder(rank=rank, world_size=2, pid=1000 + rank)
        for number in range(2):
            with t.annotation(f"ProfilerStep#{number}"), t.op("aten::mm"):
                t.launch("gemm", duration=50 * (1 + number))
                t.device_synchronize()
        t.write(folder)
    return folder


@pytest.mark.parametrize(
    ("options", "busy"),
    [
        ([], [150, 150]),
        (["--steps", "1"], [100, 100]),
        (["--annotation", "ProfilerStep#0"], [50, 50]),
        (["--ranks", "1"], [150]),
        (["--ranks", "0-1", "--steps", "0"], [50, 50]),
    ],
)
def test_any_part_and_any_ranks_are_reported_on(
    steps: Path, capfd: pytest.CaptureFixture[str], options: list[str], busy: list[float]
) -> None:
    rows = as_json(capfd, steps, *options)
    assert [row["busy"] for row in rows["temporal_breakdown"]] == busy
    assert {row["rank"] for row in rows["critical_path"]} == (
        {1} if "1" in options and "--ranks" in options else {0, 1}
    )


def test_a_part_of_two_runs_is_compared(steps: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run("-q", "--json", "--diff", steps, steps, "--ranks", "0", "--steps", "1") == 0
    (kernel,) = [row for row in json.loads(capfd.readouterr().out)["trace_diff"] if row["kind"] == "kernel"]
    assert (kernel["count_a"], kernel["time_a"], kernel["difference"]) == (1, 100, 0)


def test_a_rank_that_is_not_there_is_refused(steps: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(steps, "--ranks", "1-3") == 2
    assert "rank 2, 3 is not among the ranks there, 0, 1" in capfd.readouterr().err


def test_of_a_linked_trace_no_part_is_taken(steps: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_linked(link(None, read_device_trace(str(steps / "device_rank0.json"))), str(tmp_path / "linked.json"))
    assert run(tmp_path / "linked.json", "--steps", "1") == 1
    assert "no part can be taken; give the traces, or link that part" in capfd.readouterr().err


@needs_page
def test_scripts_are_bundled_once_and_again_where_they_cannot_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import vl_convert
    from execgraph.tools.report.charts import drawing_library

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


# What the recording cannot tell


def waiting_run(sync_records: bool) -> TraceBuilder:
    t = TraceBuilder(rank=3, sync_records=sync_records)
    with t.op("aten::mm", inputs=[t.tensor()]):
        t.launch("gemm", duration=50)
    t.stream_synchronize(7)
    return t


@needs_page
def test_a_run_without_synchronisation_records_is_told_of_first(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    waiting_run(sync_records=False).write(tmp_path)
    assert run("-q", tmp_path) == 0
    advice = sync_records_advice("rank 3")
    assert capfd.readouterr().out.splitlines()[:4] == [*advice, ""]
    assert run("-q", tmp_path, "-o", tmp_path / "page.html") == 0
    html = (tmp_path / "page.html").read_text("utf-8")
    header = html[html.index("<header>") : html.index("</header>")]
    assert all(line.strip() in header for line in advice)


@needs_page
def test_a_run_with_synchronisation_records_gets_no_advice(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    waiting_run(sync_records=True).write(tmp_path)
    assert run("-q", tmp_path) == 0
    assert "synchronisation records" not in capfd.readouterr().out
    assert run("-q", tmp_path, "-o", tmp_path / "page.html") == 0
    assert 'id="advice"' not in (tmp_path / "page.html").read_text("utf-8")


def test_one_advice_names_all_ranks_without_synchronisation_records(tmp_path: Path) -> None:
    write_traces(simulate(build_job("ddp", ranks=2, steps=1, layers=1)), tmp_path, sync_records=False)
    report = report_on(find_sources([tmp_path]), ReportRequest(only=["temporal_breakdown"], page=False))
    assert report.advice == sync_records_advice("ranks 0, 1")
