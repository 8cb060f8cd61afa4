"""A run is reported on, and two are compared, by one call each."""

from pathlib import Path

import pytest
from execgraph import DataError, compare, report

TRAINING = Path("tests/data/training")
RANKS = [TRAINING / f"device_rank{rank}.json.gz" for rank in (0, 1)]


def test_a_report_has_what_was_asked_for() -> None:
    made = report(TRAINING, only=["critical_path"], changes={"class:host": 0.5}, ranks=[1])
    assert made.tables["critical_path"].rows()[0]["rank"] == 1 and len(made.tables["what_if"]) == 1
    with pytest.raises(ValueError, match="there is no analysis nonsense"):
        report(TRAINING, only=["nonsense"])


def test_two_runs_are_compared(tmp_path: Path) -> None:
    pytest.importorskip("altair")
    made = compare(*RANKS, tmp_path / "diff.html")
    assert made.verdict and (tmp_path / "diff.html").stat().st_size > 100_000


def test_what_is_no_path_or_no_trace_is_named(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"compare\(before, after\) takes a path, or a list of paths, not int"):
        compare(TRAINING, 3)  # type: ignore[arg-type]
    with pytest.raises(DataError):
        report(tmp_path)
