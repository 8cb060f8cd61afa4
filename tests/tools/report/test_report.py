"""What comes out of trace-report: tables as text, CSV and JSON that agree with each other, overlays, and the page."""

import csv
import json
import re
import sys
from html import escape
from pathlib import Path

import numpy as np
import pytest
from execgraph.tools.analyses import ANALYSES, Column, Table
from execgraph.tools.replay import KINDS
from execgraph.tools.report import ReportRequest, find_sources, page, report_on
from execgraph.tools.report.cells import largest
from execgraph.tools.report.sections import WORDS
from execgraph.tools.report.text import ROWS, as_text
from execgraph.tools.view import LOOKS
from support.reports import as_json, needs_page, run, small_run


def test_each_analysis_is_a_key_the_one_of_two_runs_without_rows(
    given: dict[str, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    found = as_json(capfd, given["pair"])
    assert {analysis.name for analysis in ANALYSES} | {"trace_diff"} <= found.keys()
    assert found["trace_diff"] == []


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
    assert run(given["pair"], "--all") == 0
    said = capfd.readouterr().out.partition("Temporal breakdown (a device's span is")[2]
    assert said.splitlines()[1].startswith("  rank  device  span [µs]")


@pytest.mark.parametrize("sample", ["training", "gloo_slow", "compiled"])
def test_the_terminal_says_first_what_limits_the_run_and_what_to_do_in_100_columns(
    sample: str, data: Path, capfd: pytest.CaptureFixture[str]
) -> None:
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
    assert list(as_json(capfd, given["pair"], "--only", "counters", "temporal_breakdown")) == [
        "temporal_breakdown",
        "counters",
        "counters_summary",
        "notes",
    ]


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


@pytest.mark.parametrize("ending", [".txt", ".md", ".pdf", ".json", ".json.gz", ".et"])
def test_what_ends_like_another_kind_of_file_is_refused(
    given: dict[str, Path], ending: str, capfd: pytest.CaptureFixture[str]
) -> None:
    page = given["out"].with_name(f"report{ending}")
    assert run(given["pair"], "--output", page) == 2
    assert f"{page} would hold an HTML page: name a file that ends in .html or .htm" in capfd.readouterr().err
    assert not page.exists()


def test_beside_a_page_the_terminal_says_what_was_written(
    given: dict[str, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(given["pair"], "--csv", given["out"]) == 0
    out, err = capfd.readouterr()
    assert out == ""
    assert f"tables      {given['out']}, " in err


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


def test_diff_of_a_run_with_itself_finds_nothing_and_with_another_what_was_added(
    given: dict[str, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
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
    assert (
        capfd.readouterr().err
        == f"trace-report: error: {needs}; run: pip install altair vl-convert-python platformdirs\n"
    )
    assert not given["out"].exists()
    assert run("-q", given["pair"], "--csv", given["out"]) == 0


@needs_page
def test_the_page_opens_with_the_verdict_and_findings_lead_to_their_details(data: Path) -> None:
    report = report_on(find_sources([data / "training"]))
    html = page.render(report).replace("\u00a0", " ")
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


def test_the_page_says_what_its_words_mean(data: Path) -> None:
    assert {*KINDS, *LOOKS} <= set(WORDS)
    assert f"<dt>gap</dt><dd>{WORDS['gap']}</dd>" in page.render(report_on(find_sources([data / "training"])))
