"""A run is reported on, and two are compared, by one call each."""

from html import escape
from pathlib import Path

import pytest
from execgraph import DataError, compare, report
from support.reports import run

TRAINING = Path("tests/data/training")
RANKS = [TRAINING / f"device_rank{rank}.json.gz" for rank in (0, 1)]


def test_a_report_has_what_was_asked_for() -> None:
    made = report(TRAINING, only=["critical_path"], changes={"class:host": 0.5}, ranks=[1])
    assert made.tables["critical_path"].rows()[0]["rank"] == 1 and len(made.tables["what_if"]) == 1
    with pytest.raises(ValueError, match="there is no analysis 'kernel_breakdwon': did you mean 'kernel_breakdown'"):
        report(TRAINING, only=["kernel_breakdwon"])


def test_a_finding_is_printed_in_a_few_lines() -> None:
    first = report(TRAINING).findings[0]
    title, *lines = repr(first).splitlines()
    assert title == f"Finding: {first.title}"
    assert [line.split()[0] for line in lines] == ["gain", "evidence", "advice", "table"]
    assert repr(first.gain) == "Gain: up to 19 %, 863.3 µs" and lines[0].endswith("up to 19 %, 863.3 µs")


def test_two_runs_are_compared(tmp_path: Path) -> None:
    pytest.importorskip("altair")
    made = compare(*RANKS, tmp_path / "diff.html")
    assert made.verdict and (tmp_path / "diff.html").stat().st_size > 100_000


def test_what_is_no_path_or_no_trace_is_named(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"compare\(before, after\) takes a path, or a list of paths, not int"):
        compare(TRAINING, 3)  # type: ignore[arg-type]
    with pytest.raises(DataError):
        report(tmp_path)


def test_a_report_prints_what_the_terminal_says_and_notebooks_show_it(
    data: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    made = report(data / "training")
    assert run("-q", data / "training") == 0
    said = capfd.readouterr().out.rstrip().rpartition("\n\nTables: ")[0].replace("--all says", "report.findings says")
    assert str(made) == repr(made) and len(repr(made)) < 2_000
    assert repr(made).startswith(f"Report of training\n\n{said}\n\nAll tables by name: report.tables")
    assert escape(made.verdict.split(".")[0]) in made._repr_html_() and made._repr_html_().startswith("<pre")
    compared = compare(data / "gloo_slow", data / "gloo_fast")
    assert repr(compared).split("\n")[2].startswith("Run B is faster than run A")


def test_a_report_of_some_analyses_prints_these_alone(data: Path, capfd: pytest.CaptureFixture[str]) -> None:
    made = report(data / "training", only=["temporal_breakdown", "critical_path"])
    assert "The critical path" in repr(made) and "Busy by class" not in repr(made)
    alone = report(data / "training", only="kernel_breakdown")
    assert run("-q", "--only", "kernel_breakdown", "--", data / "training") == 0
    assert repr(alone) == f"Report of training\n\n{capfd.readouterr().out.rstrip()}".replace(
        "--csv DIR", "write_csv(folder)"
    )


def test_one_analysis_is_asked_for_by_its_name_alone() -> None:
    assert (
        report(TRAINING, only="critical_path").tables.keys() == report(TRAINING, only=["critical_path"]).tables.keys()
    )


def test_a_page_under_another_name_is_refused_before_any_work() -> None:
    with pytest.raises(ValueError, match=r"run\.pdf: the report is an HTML page"):
        report(TRAINING, "run.pdf")
    with pytest.raises(ValueError, match=r"run\.pdf"):
        compare(*RANKS, "run.pdf")
    with pytest.raises(TypeError, match="takes a path, not int"):
        report(TRAINING, 5)  # type: ignore[arg-type]
