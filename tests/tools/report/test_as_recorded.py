"""Which figures are as recorded, and which of the run without a profiler: each place says it where the two differ."""

import csv
import re
from pathlib import Path

import pytest
from execgraph.tools.analyses import RankTrace, Table, analyse
from execgraph.tools.report import ReportRequest, find_sources, render, report_on, report_on_diff
from execgraph.tools.report.sections import OF_NO_RECORDING, SECTIONS
from support.builder import TraceBuilder
from support.reports import as_json, needs_page, run
from support.runs import link_run

SAYS = "as recorded; without a profiler a step takes 3.66 ms"


@needs_page
def test_each_section_of_the_page_says_which_run_its_times_are_of(data: Path) -> None:
    report = report_on(find_sources([data / "gpu" / "small"]))
    html = render(report).replace("\u00a0", " ")
    sections = {section.name for group in SECTIONS.values() for section in group} - OF_NO_RECORDING
    shown = {name for name in sections if len(report.tables.get(name, Table("", "", [])))}
    of_each = dict(re.findall(r'<section id="(\w+)">(.*?)</section>', html, re.DOTALL))
    assert len(shown) > 10
    assert {name for name, text in of_each.items() if f"Times in this section are {SAYS}." in text} == shown
    assert f"These figures are {SAYS}." in html and f"Times are {SAYS}." in of_each["run"]
    assert "Gains are of the run without a profiler." in of_each["overview"]
    assert "If it were twice as fast <small>without a profiler</small>" in of_each["overview"]
    assert "What limits it: the critical path <small>as recorded</small>" in of_each["overview"]


@needs_page
def test_a_page_says_nothing_of_it_where_no_step_was_measured_without_a_profiler(data: Path) -> None:
    assert "as recorded" not in render(report_on(find_sources([data / "training"]))).replace("was recorded", "")


def test_the_terminal_csv_and_json_say_it_too(data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    traces = data / "gpu" / "small"
    assert run("-q", traces) == 0
    said = capfd.readouterr().out
    assert "spent the run of 48.93 ms, as recorded (the verdict is without a profiler)\n" in said
    assert run("-q", traces, "--only", "temporal_breakdown") == 0
    assert capfd.readouterr().out.startswith(f"Times in the tables are {SAYS}.\n\nTemporal breakdown\n")
    only = (traces, "--only", "temporal_breakdown")
    notes = as_json(capfd, *only)["notes"]
    assert {"table": "all tables", "note": f"Times in the tables are {SAYS}."} in notes
    assert run("-q", *only, "--csv", tmp_path) == 0
    with (tmp_path / "notes.csv").open(newline="") as file:
        assert [*csv.DictReader(file)] == notes


def test_what_no_factor_for_the_host_gives_is_as_recorded_everywhere(
    data: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    report = report_on(find_sources([data / "gpu" / "nccl"]), ReportRequest(page=False))
    assert report.is_of_recording and "without a profiler a step takes 4.92 ms" in report.as_recorded
    assert run("-q", data / "gpu" / "nccl") == 0
    assert "How each device spent the run of 43.97 ms\n" in capfd.readouterr().out


def test_a_difference_is_told_without_a_profiler_first_where_both_runs_know(data: Path) -> None:
    """By the recording both take as long: the reads that cost 0.7 ms a step are hidden behind its slower host."""
    small, reading, unknown = (
        find_sources([data / "gpu" / name]) for name in ("small", "small_synchronised", "small_device_only")
    )
    report = report_on_diff(small, reading)
    assert report.verdict.startswith(
        "Without a profiler, run B is slower than run A: a step takes 18.9 % more time, 4.35 ms instead of 3.66 ms. "
        "As recorded, run B is as fast as run A: a step takes 0.7 % more time, "
    )
    rows = {row["part"]: (row["a"], row["b"]) for row in report.tables["trace_diff_runs"].rows()}
    assert [*rows][:3] == ["step", "step without a profiler", "run"]
    assert rows["step without a profiler"] == (3662.9, 4353.5)
    alone = report_on_diff(small, unknown)
    assert alone.verdict.startswith("Run B is slower than run A: a step takes 10.8 % more time")
    assert "step without a profiler" not in alone.tables["trace_diff_runs"]["part"]


def test_a_span_that_is_shorter_than_the_run_says_so() -> None:
    t = TraceBuilder()
    with t.op("aten::mm"):
        t.work(100)
        t.launch("gemm", duration=50)
    linked = link_run(t)
    ranks = [RankTrace(number, linked, None) for number in (0, 1)]
    (table,) = analyse(ranks, ["temporal_breakdown"]).values()
    assert table.note == "a device's span is from its first to its last activity, shorter than the run"
