"""What comes out of trace-report: tables as text, CSV and JSON that agree with each other, overlays, and the page.

All that is said of a job comes from one replay of all its ranks, says which run it is of, as recorded or without a
profiler, and says nothing that cannot be.
"""

import csv
import json
import re
import sys
from html import escape
from pathlib import Path

import msgspec
import numpy as np
import pytest
from execgraph import what_if
from execgraph.schema.columns import time_text
from execgraph.schema.graph import ExecutionGraph, read_et
from execgraph.tools.analyses import ANALYSES, Column, Finding, RankTrace, Table, analyse, read_rank
from execgraph.tools.analyses.finding_words import Found
from execgraph.tools.commands import trace_replay
from execgraph.tools.job import BuildOptions, build
from execgraph.tools.replay import (
    Recording,
    describe,
    gather_job,
    makespan_ns,
    parse_scale,
    recording,
    replay_ranks,
    summarise,
)
from execgraph.tools.report import (
    Report,
    ReportRequest,
    find_sources,
    page,
    read_ranks,
    render,
    report_on,
    report_on_diff,
)
from execgraph.tools.report.cells import largest
from execgraph.tools.report.output import ROWS, as_text
from execgraph.tools.report.sections import OF_NO_RECORDING, SECTIONS
from execgraph.tools.report.statements import key_figures
from hypothesis import settings
from support.builder.timeline import TraceBuilder
from support.folders import ROOT
from support.generated import here
from support.graphs import GraphBuilder
from support.reports import as_json, needs_page, run, small_run
from support.runs import link_run


def test_csv_json_and_the_terminal_hold_the_same_tables(given, capfd):
    found = as_json(capfd, given["pair"], "--csv", given["out"])
    # each analysis is a key, the one of two runs without rows
    assert {analysis.name for analysis in ANALYSES} | {"trace_diff"} <= found.keys() and found["trace_diff"] == []
    notes = {row["table"]: row["note"] for row in found["notes"]}
    assert notes["critical_path"].startswith("the replay is +0.00 % off the measured run")
    for name, rows in found.items():
        with (given["out"] / f"{name}.csv").open(newline="") as file:
            read = list(csv.DictReader(file))
        assert len(read) == len(rows)
        for row, same in zip(rows, read, strict=True):
            assert {key: "" if value is None else str(value) for key, value in row.items()} == same
    assert run(given["pair"], "--all") == 0
    said = capfd.readouterr().out.partition("Temporal breakdown (a device's span is")[2]
    assert said.splitlines()[1].startswith("  rank  device  span [µs]")


@pytest.mark.parametrize("sample", ["training", "compiled"])
def test_the_terminal_says_first_what_limits_the_run_and_what_to_do_in_100_columns(sample, data, capfd):
    assert run("-q", data / sample) == 0
    lines = capfd.readouterr().out.splitlines()
    report = report_on(find_sources([data / sample]), ReportRequest(page=False))
    assert lines[0].split()[:6] == report.verdict.split()[:6]
    assert report.findings[0].title.split()[:4] == lines[lines.index("") + 1].split()[1:5]
    assert max(map(len, lines)) <= 100 and len(lines) < 45
    assert sum(line.startswith("  rank  ") for line in lines) == 1


def test_findings_are_a_table_with_the_verdict_as_its_note(data: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found = as_json(capfd, data / "training")
    assert found["findings"][0]["gain_pct"] == pytest.approx(19.2, abs=0.1)
    notes = {row["table"]: row["note"] for row in found["notes"]}
    assert notes["findings"].startswith("Computation limits the run: 78 % of the critical path.")
    assert run(data / "training", "--all", "--only", "counters") == 2
    assert "--all prints every table, --only some" in capfd.readouterr().err


def test_only_the_analyses_asked_for(given: dict[str, Path], capfd: pytest.CaptureFixture[str]) -> None:
    found = as_json(capfd, given["pair"], "--only", "counters", "temporal_breakdown")
    assert [*found] == ["temporal_breakdown", "counters", "counters_summary", "notes"]


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


@pytest.mark.parametrize("ending", [".txt", ".md", ".pdf", ".json", ".json.gz", ".et"])
def test_what_ends_like_another_kind_of_file_is_refused(given, ending, capfd):
    page = given["out"].with_name(f"report{ending}")
    assert run(given["pair"], "--output", page) == 2
    assert f"{page} would hold an HTML page: name a file that ends in .html or .htm" in capfd.readouterr().err
    assert not page.exists()


def test_beside_a_page_the_terminal_says_what_was_written(given, capfd):
    assert run(given["pair"], "--csv", given["out"]) == 0
    out, err = capfd.readouterr()
    assert out == ""
    assert f"tables      {given['out']}, " in err


def test_an_overlay_is_written_beside_the_analyses_one_for_each_rank(given, data, capfd):
    for name in ("linked", "graph"):
        assert run("-q", given[name], "--perfetto", given["out"]) == 1
        assert "has no device trace to lay anything over" in capfd.readouterr().err
    assert run("-q", given["pair"], "--only", "counters", "--perfetto", given["out"]) == 0
    made, original = (json.loads(path.read_text())["traceEvents"] for path in (given["out"], given["device"]))
    assert made[-len(original) :] == original
    assert {event["ph"] for event in made[: -len(original)]} == {"C", "s", "f"}
    assert run("-q", data / "training", "--only", "counters", "--perfetto", given["nothing"] / "run.json.gz") == 0
    assert sorted(path.name for path in given["nothing"].iterdir()) == ["run.rank0.json.gz", "run.rank1.json.gz"]


def test_diff_of_a_run_with_itself_finds_nothing_and_with_another_what_was_added(given, tmp_path, capfd):
    same = as_json(capfd, "--diff", given["pair"], given["pair"])["trace_diff"]
    assert same and {row["category"] for row in same} == {"same"}
    other = tmp_path / "other"
    other.mkdir()
    small_run(kernels=3).write(other)
    changed = as_json(capfd, "--diff", given["pair"], other)["trace_diff"]
    assert run("-q", "--diff", given["pair"], other) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].startswith("Run B is slower than run A: the run takes ") and max(map(len, lines)) <= 100
    assert run("-q", "--diff", given["pair"], given["pair"]) == 0
    assert re.match(r"Run B is as fast as run A: the run takes \S+ µs in both\.\n", capfd.readouterr().out)
    added = [(row["name"], row["difference"]) for row in changed if row["category"] == "added"]
    assert added == [("gemm 2", 50)]


def test_graphs_without_times_are_not_compared(tmp_path, capfd):
    g = GraphBuilder(rank=0)
    g.host("op", 0, 1_000)
    g.build().write(tmp_path / "run.0.et")
    assert run("-q", "--diff", tmp_path, tmp_path) == 1
    assert "hold no times of ops or activities, which a comparison needs" in capfd.readouterr().err


def test_a_folder_for_csv_that_cannot_be_made_is_said(given, capfd):
    assert run("-q", given["pair"], "--csv", given["device"]) == 1
    assert "cannot be made a folder" in capfd.readouterr().err


@needs_page
def test_the_page_goes_to_stdout_alone(given: dict[str, Path], capfd: pytest.CaptureFixture[str]) -> None:
    assert run(given["pair"], "--output", "-") == 0
    text = capfd.readouterr().out
    assert text.lstrip().startswith("<!doctype html>") and text.rstrip().endswith("</html>")
    assert '<link rel="stylesheet"' not in text and 'src="http' not in text


def test_without_the_libraries_that_draw_it_the_page_is_refused_with_the_remedy(given, monkeypatch, capfd):
    monkeypatch.setitem(sys.modules, "altair", None)
    # said before anything is read, so that nobody waits for it
    assert run(given["pair"] / "missing", "--output", given["out"]) == 2
    needs = "--output: the HTML page needs altair, which is not installed"
    found = capfd.readouterr().err
    assert found == f"trace-report: error: {needs}; run: pip install altair jinja2 vl-convert-python platformdirs\n"
    assert not given["out"].exists()
    assert run("-q", given["pair"], "--csv", given["out"]) == 0


@needs_page
def test_the_page_opens_with_the_verdict_findings_lead_to_their_details(training_report):
    report = training_report
    html = page.render(report).replace("\u00a0", " ")
    # no step was measured without a profiler
    assert "recorded run" not in html
    assert html.index(escape(report.verdict)) < html.index("<nav>")
    findings = html[html.index('<ol class="findings">') : html.index("</ol>")]
    assert findings.count("<li>") == len(report.findings)
    sections = re.findall(r'href="#(\w+)"', findings)
    assert sections and all(f'<section id="{section}">' in html for section in sections)


def table_of(count: int) -> Table:
    times = np.array([float(number % 7) if number else np.nan for number in range(count)])
    return Table("t", "T", [Column("name", "", [f"n{number}" for number in range(count)]), Column("time", "µs", times)])


def test_long_tables_are_shown_in_part_and_say_so() -> None:
    assert [row["name"] for row in table_of(20).take(slice(2)).rows()] == ["n0", "n1"]
    assert [row["name"] for row in largest(table_of(20), "time", 3).rows()] == ["n6", "n13", "n5"]
    assert largest(table_of(3), "time", 9).rows()[-1] == {"name": "n0", "time": None}
    lines = as_text(table_of(20)).splitlines()
    assert lines[:4] == ["T", "  name  time [µs]", "  n0", "  n1          1.0"]
    assert len(lines) == 2 + ROWS + 1 and lines[-1] == "  … 8 more rows (write_csv(folder))"


SAYS = "of the recorded run; an unprofiled step takes 3.66 ms"


@pytest.fixture(scope="module")
def small_report(data: Path) -> Report:
    """What is said of a run whose steps were measured without a profiler, too."""
    return report_on(find_sources([data / "gpu" / "small"]))


@needs_page
def test_each_section_of_the_page_says_which_run_its_times_are_of(small_report: Report) -> None:
    report = small_report
    html = render(report).replace("\u00a0", " ")
    sections = {section.name for group in SECTIONS.values() for section in group} - OF_NO_RECORDING
    shown = {name for name in sections if len(report.tables.get(name, Table("", "", [])))}
    of_each = dict(re.findall(r'<section id="(\w+)">(.*?)</section>', html, re.DOTALL))
    assert len(shown) > 10 and {analysis.name for analysis in ANALYSES} <= {*sections, *OF_NO_RECORDING}
    assert {name for name, text in of_each.items() if f"Times in this section are {SAYS}." in text} == shown
    assert f"These figures are {SAYS}." in html and f"Times are {SAYS}." in of_each["run"]
    assert "Gains are about the unprofiled run." in of_each["overview"]
    assert "If it were twice as fast <small>the unprofiled run</small>" in of_each["overview"]
    assert "What limits it: the critical path <small>the recorded run</small>" in of_each["overview"]


def test_the_terminal_csv_and_json_say_it_too(data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    traces = data / "gpu" / "small"
    assert run("-q", traces) == 0
    said = capfd.readouterr().out
    assert "How each device spent the recorded run of 48.93 ms\n" in said
    assert run("-q", traces, "--only", "temporal_breakdown") == 0
    assert capfd.readouterr().out.startswith(f"Times in the tables are {SAYS}.\n\nTemporal breakdown\n")
    only = (traces, "--only", "temporal_breakdown")
    notes = as_json(capfd, *only)["notes"]
    assert {"table": "all tables", "note": f"Times in the tables are {SAYS}."} in notes
    assert run("-q", *only, "--csv", tmp_path) == 0
    with (tmp_path / "notes.csv").open(newline="") as file:
        assert [*csv.DictReader(file)] == notes


def test_what_no_factor_for_the_host_gives_is_as_recorded_everywhere(data, capfd):
    report = report_on(find_sources([data / "gpu" / "nccl"]), ReportRequest(["temporal_breakdown"], page=False))
    assert report.is_of_recording and "an unprofiled step takes 4.92 ms" in report.as_recorded
    assert run("-q", data / "gpu" / "nccl") == 0
    assert "How each device spent the run of 43.97 ms\n" in capfd.readouterr().out


def test_a_difference_is_told_without_a_profiler_first_where_both_runs_know(data: Path) -> None:
    """By the recording both take as long: the reads that cost 0.7 ms a step are hidden behind its slower host."""
    small, reading, unknown = (
        find_sources([data / "gpu" / name]) for name in ("small", "small_synchronised", "small_device_only")
    )
    report = report_on_diff(small, reading)
    assert report.verdict.startswith(
        "Unprofiled, run B is slower than run A: a step takes 18.9 % more time, 4.35 ms instead of 3.66 ms. "
        "Recorded, run B is as fast as run A: a step takes 0.7 % more time, "
    )
    rows = {row["part"]: (row["a"], row["b"]) for row in report.tables["trace_diff_runs"].rows()}
    assert [*rows][:3] == ["step", "unprofiled step", "run"]
    assert rows["unprofiled step"] == (3662.9, 4353.5)
    assert (
        "8.08 ms instead of 18.34 ms. Most of that is the wait for data, 673.8 µs instead of 10.22 ms. Recorded, run B "
        "is faster than run A: a step takes 22.6 % less time, 20.24 ms instead of 26.16 ms."
    ) in report_on_diff(*(find_sources([data / "gpu" / name]) for name in ("loader_slow", "loader_fast"))).verdict
    alone = report_on_diff(small, unknown)
    assert alone.verdict.startswith("Run B is faster than run A: a step takes 68.9 % less time, 7.60 ms instead of")
    assert "unprofiled step" not in alone.tables["trace_diff_runs"]["part"]


def test_a_span_that_is_shorter_than_the_run_says_so(t: TraceBuilder) -> None:
    with t.op("aten::mm"):
        t.work(100)
        t.launch("gemm", duration=50)
    linked = link_run(t)
    ranks = [RankTrace(number, linked, None) for number in (0, 1)]
    (table,) = analyse(ranks, ["temporal_breakdown"]).values()
    assert table.note == "a device's span is from its first to its last activity, shorter than the run"


def replayed_by_command(folder: Path, capfd: pytest.CaptureFixture[str], *more: str) -> dict[str, float]:
    with pytest.raises(SystemExit):
        trace_replay.main(["-q", "--json", str(folder), *more])
    figures: dict[str, float] = json.loads(capfd.readouterr().out)
    return figures


def by_kind(rows: list[dict[str, object]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for row in rows:
        total[str(row["kind"])] = total.get(str(row["kind"]), 0.0) + float(str(row["time"]))
    return total


@pytest.mark.parametrize("job", ["training", "dlrm_8gpu"])
def test_page_tables_commands_and_python_say_the_same_of_a_job(job, data, request, tmp_path, capfd):
    traces = (request.getfixturevalue("real_traces") if job == "dlrm_8gpu" else data) / job
    build(traces, tmp_path / "graphs", BuildOptions(), here)
    replayed = replayed_by_command(tmp_path / "graphs", capfd)
    halved = replayed_by_command(tmp_path / "graphs", capfd, "--scale", "class:host=0.5")
    report = report_on(find_sources([traces]))
    sources = [(str(source.path), str(source.host)) for source in find_sources([traces]).ranks]
    ranks = [read_rank(*source, rank) for rank, source in enumerate(sources)]
    from_python = analyse(ranks, ["critical_path"])
    from_json = as_json(capfd, traces, "--only", "critical_path")
    for rows in (
        report.tables["critical_path"].rows(),
        report.page_table("critical_path").rows(),  # type: ignore[union-attr]
        from_python["critical_path"].rows(),
        from_json["critical_path"],
    ):
        assert by_kind(rows) == pytest.approx(replayed["critical_path_us"])
    (row,) = from_json["critical_path_replay"]
    assert (row["measured"], row["replayed"]) == pytest.approx((replayed["measured_us"], replayed["makespan_us"]))
    measured = time_text(row["measured"])
    figures = key_figures(report.tables | {"ranks": report.ranks})
    assert next(figure.value for figure in figures if figure.label == "run") == measured
    assert run("-q", traces) == 0
    said = capfd.readouterr().out
    assert f"How each device spent the run of {measured}\n" in said
    assert " ".join(said.split("\n\n")[0].split()) == report.verdict
    graphs = [ExecutionGraph.read(str(path)) for path in sorted((tmp_path / "graphs").glob("*.et"))]
    assert replay_ranks(graphs).makespan_ns / 1000 == pytest.approx(row["replayed"])
    after_us = what_if(graphs, {"class:host": 0.5}).after.makespan_ns / 1000
    assert report.twice_as_fast is not None and after_us == pytest.approx(halved["makespan_us"])
    # of dlrm_8gpu, a third of which nothing explains, no gain is said
    told = [(row["before"], row["after"]) for row in report.twice_as_fast.rows() if row["change"] == "host"]
    assert told == ([pytest.approx((replayed["makespan_us"], after_us))] if job == "training" else [])
    assert any(finding.gain for finding in report.findings) == (job == "training")


def test_page_commands_and_python_say_the_same_of_a_run_without_a_profiler(data, small_report, tmp_path, capfd):
    build(data / "gpu" / "small", tmp_path / "graphs", BuildOptions(), here)
    (said,) = [replayed_by_command(tmp_path / "graphs", capfd)["recording"]]
    graph = tmp_path / "graphs" / "graph.0.et"
    report, from_python = small_report, recording(graph)
    assert report.recording == from_python is not None
    assert msgspec.convert(said, Recording) == from_python
    step_us = said["step_without_profiler_us"]
    without = makespan_ns(from_python.without_profiler(gather_job([read_et(graph)]))) / 1000
    assert without == pytest.approx(2 * step_us, rel=0.01)
    assert report.twice_as_fast is not None
    assert report.twice_as_fast.rows()[0]["before"] == pytest.approx(without)
    assert f"the unprofiled run ({time_text(step_us)} a step)" in report.verdict


def test_a_transfer_with_an_absent_rank_has_no_gain_as_it_may_be_all_waiting(data: Path) -> None:
    def exposed(*ranks: int) -> list[Finding]:
        report = report_on(find_sources([data / "training"], chosen=[*ranks]), ReportRequest(page=False))
        return [finding for finding in report.findings if finding.what is Found.EXPOSED]

    assert [finding.gain is None for finding in exposed(0)] == [True]
    assert [finding.gain is None for finding in exposed(0, 1)] == [False]


def test_graphs_of_the_unprofiled_run_are_said_to_hold_a_model(data: Path, tmp_path: Path) -> None:
    build(data / "gpu" / "small", tmp_path, BuildOptions(without_profiler=True), here)
    report = report_on(find_sources([tmp_path]), ReportRequest(page=False))
    assert report.verdict.endswith("All this is about a model of the unprofiled run, which these graphs hold.")
    said = what_if(ExecutionGraph.read(str(tmp_path / "graph.0.et")), {"class:host": 0.5}).after.describe()
    assert (
        "These graphs hold a model of the unprofiled run: for a range, build them without --without-profiler." in said
    )


DATA = ROOT / "tests/data"
DIFFERENCES = {"error", "difference", "saved", "saved_pct", "gain", "gain_pct"}
"""Columns that may be below 0."""
WITHIN_THE_RUN = ("temporal_breakdown", "step_breakdown", "host_phases", "critical_path_nodes", "critical_path_by_rank")
SAMPLES = sorted(
    path.parent.relative_to(DATA).as_posix()
    for pattern in ("*/device_rank0.json.gz", "gpu/*/device_rank0.json.gz")
    for path in DATA.glob(pattern)
)[:: 1 if settings().max_examples > 100 else 16]
"""Each sixteenth one, unless tests are thorough."""
REAL = [
    "dlrm_8gpu", "captures/ddp_gloo", "captures/mlp_attn", "critical_path/event_sync.json.gz", "simple_add",
    *(f"device_only/{name}.json.gz" for name in ("a100_nccl_rank0_of_2", "h100_bert", "mi210_gpu_only", "mi300_bert")),
    *(f"device_only/{name}.json.gz" for name in ("mi300_vllm_decode_hipgraph", "mtia_inference")),
]  # fmt: skip
BUSY = re.compile(r"^  \S+ +[\d,.]+ µs +([\d.]+) %$", re.M)


def impossible(tables: dict[str, Table]) -> list[str]:
    """What cannot be, as `table column value`."""
    (replay,) = tables["critical_path_replay"].rows()
    run = max(replay["measured"], replay["replayed"])
    found = []
    for name, table in tables.items():
        for column in table.columns:
            if isinstance(column.values, list):
                continue
            values = np.asarray(column.values, np.float64)
            values = values[~np.isnan(values)]
            highest, lowest = values.max(initial=0), values.min(initial=0)
            if column.unit == "%" and column.name not in DIFFERENCES and highest > 100.0001:
                found.append(f"{name} {column.name} {highest}")
            if column.unit and column.name not in DIFFERENCES and lowest < -1e-6:
                found.append(f"{name} {column.name} {lowest}")
            if column.unit == "µs" and name in WITHIN_THE_RUN and highest > run + 0.01:
                found.append(f"{name} {column.name} {highest} of {run}")
    return found


def check(traces: Path) -> None:
    report = report_on(find_sources([traces]), ReportRequest(page=False))
    assert impossible(report.tables) == []
    for finding in report.findings:
        assert finding.gain is None or 0 < finding.gain.pct <= 100.0001
    graphs = [rank.graph for rank in read_ranks(find_sources([traces]).ranks) if rank.graph is not None]
    for scale in ([], [parse_scale("class:host=0")]):
        replayed = replay_ranks(graphs, scale)
        for share in BUSY.findall(describe(replayed, summarise(replayed), scale)):
            assert float(share) <= 100


@pytest.mark.parametrize("sample", SAMPLES)
def test_no_table_of_a_sample_says_what_cannot_be(sample: str, data: Path) -> None:
    check(data / sample)


@pytest.mark.parametrize("sample", REAL)
def test_no_table_of_a_real_trace_says_what_cannot_be(sample: str, real_traces: Path) -> None:
    check(real_traces / sample)


def test_memory_that_was_there_before_stays_to_the_end(data: Path) -> None:
    """Parameters are there throughout, though the last op that names them is long before the end."""
    tables = report_on(find_sources([data / "torch_2.1.2"]), ReportRequest(["memory_timeline"], page=False)).tables
    before = {row["device"]: row["before"] for row in tables["memory_timeline_peak"].rows()}
    last = {row["device"]: row["allocated"] for row in tables["memory_timeline"].rows()}
    assert any(before.values())
    assert all(last[device] >= size for device, size in before.items())
