"""Answers about changed jobs are held against the truth rightly; with PyTorch a job is recorded and really changed."""

import importlib.util
import json
import sys
from types import SimpleNamespace

import pytest
from execgraph.schema.errors import DataError
from support.commands import Run
from support.folders import DATA

from benchmarks.accuracy import changed_jobs
from benchmarks.accuracy.changed_jobs import HEAD, Answer, Result, percents, summary

HAS_TORCH = importlib.util.find_spec("torch") is not None
SLEEP = Result("sleep", "×0", "sleep=0", Answer(-13, (-14.5, -12)), percents([(10, 3.5), (10, 3.6), (20, 7.4)]))
NEAR, REFUSED = SLEEP._replace(answer=Answer(-64.8, is_recorded=True)), SLEEP._replace(answer="no node")


def test_answers_are_off_in_points_of_the_unchanged_step_and_wrong_where_they_are_refused() -> None:
    assert SLEEP.true == pytest.approx(-64) and SLEEP.error == pytest.approx(51)
    assert SLEEP.row[3:] == ["-13.0 (-14.5 to -12.0)", "-64.0 (-65.0 to -63.0)", "+51.0", "no"]
    assert NEAR.row[3:] == ["-64.8 of the recording", "-64.0 (-65.0 to -63.0)", "-0.8", "yes"]
    assert REFUSED.row[3:] == ["refused", "-64.0 (-65.0 to -63.0)", "–", "–"] and len(REFUSED.row) == len(HEAD)
    text = summary([SLEEP, NEAR, NEAR, REFUSED])
    assert "unchanged step: 50 %" in text and "51.0 points, sleep, ×0" in text
    assert "the range: 50 %" in text and "wrong: 25 % (1 of 4).\n  - sleep, ×0: no node" in text
    assert "differs by 2.0 points between rounds (median of the changes)." in text
    assert "too busy" in summary([SLEEP._replace(percents=[-64, -60])]) and summary([]).startswith("No job")
    assert "Worst" not in summary([REFUSED]) and "0 % (0 of 1)" in summary([REFUSED])


def test_a_job_that_fails_is_an_error_beside_the_table_of_the_others(run: Run, monkeypatch, tmp_path) -> None:
    def time_job(name, *_):
        if name == "mixed":
            raise DataError("job 'mixed' failed")

    jobs = dict.fromkeys(("sleep", "mixed"), SimpleNamespace(ranks=1))
    monkeypatch.setitem(sys.modules, changed_jobs.__name__ + "_programs", SimpleNamespace(JOBS=jobs))
    results = {"results_of": lambda folder: [SLEEP._replace(job=folder.name)]}
    for name, replaced in {"time_job": time_job, "require": str, **results}.items():
        monkeypatch.setattr(changed_jobs, name, replaced)
    ended = run(changed_jobs.main, "--out", tmp_path / "table.md")
    assert ended.code == 1 and "'mixed' failed" in ended.err and "| sleep | ×0 | sleep=0 | -13.0" in ended.out
    assert (tmp_path / "table.md").read_text() == ended.out
    assert run(changed_jobs.main, "--jobs", "slep").code == run(changed_jobs.main, "--rounds", "0").code == 2
    assert "holds no job" in run(changed_jobs.main, "--again", tmp_path).line


def test_a_kept_job_is_asked_again_by_its_findings_without_pytorch(run: Run, tmp_path) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "traces").symlink_to(DATA / "gpu" / "optimizer_loop")
    truth = {"fused": [{"finding:SMALL_KERNELS": 0}, [[3, 1]]], "pinned": [{"finding:PAGEABLE_COPIES": 0}, [[3, 3]]]}
    (tmp_path / "job" / "truth.json").write_text(json.dumps(truth))
    ended = run(changed_jobs.main, "--device", "cuda", "--again", tmp_path)
    rows = [[cell.strip() for cell in line.split("|")[2:]] for line in ended.out.splitlines()[2:4]]
    assert (
        ended.code == 0 and rows[0][:2] == ["fused", "`finding:SMALL_KERNELS`"] and float(rows[0][2].split()[0]) < -50
    )
    assert rows[1][2:] == ["+0.0", "+0.0 (+0.0 to +0.0)", "+0.0", "yes", ""] and "Within 5 points" in ended.out


@pytest.mark.skipif(not HAS_TORCH, reason="needs PyTorch")
def test_a_job_is_recorded_asked_and_changed(tmp_path) -> None:
    changed_jobs.time_job("sleep", tmp_path, 1, changed_jobs.Effort(1, 2, 4))
    results = changed_jobs.results_of(tmp_path)
    assert [result.change for result in results] == [f"sleep ×{factor}" for factor in ("0", "0.5", "1.5", "2", "3")]
    assert results[0].true < results[3].true and all(isinstance(result.answer, Answer) for result in results)


@pytest.mark.skipif(HAS_TORCH, reason="has PyTorch")
def test_without_pytorch_one_line_says_so(run: Run) -> None:
    ended = run(changed_jobs.main)
    assert ended.code != 0 and "torch" in ended.line
