"""Traces are diagnosed, merged and made up by one call each."""

from pathlib import Path

import pytest
from execgraph import DataError, build, diagnose, generate, merge

TRAINING = Path("tests/data/training")


def test_a_trace_without_its_host_trace_is_found_wrong_or_odd() -> None:
    [finding, *_] = diagnose([TRAINING / "device_rank0.json.gz"]).findings
    assert finding.where and finding.advice


def test_ranks_are_merged_by_the_name_of_the_output(tmp_path: Path) -> None:
    assert [rank.rank for rank in merge(TRAINING, tmp_path / "merged.db").ranks] == [0, 1]
    with pytest.raises(ValueError, match=r"end it in \.db, \.json, \.json\.gz"):
        merge(TRAINING, tmp_path / "merged.txt")
    with pytest.raises(DataError, match="no such file or folder"):
        merge(tmp_path / "nowhere", tmp_path / "merged.json")


def test_a_job_that_was_made_up_is_built_as_a_recorded_one(tmp_path: Path) -> None:
    files = generate("ddp", tmp_path, ranks=2, steps=1, layers=2, machine_seed=3, compress=True)
    assert [host.name for host, _ in files] == ["host_rank0.json.gz", "host_rank1.json.gz"]
    assert abs(build(tmp_path).replay().error_pct or 0) < 1
    with pytest.raises(ValueError, match="no such job"):
        generate("nonsense", tmp_path)
