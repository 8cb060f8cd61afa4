"""A job is a sequence of graphs in a folder, which are replayed, scaled and reported on together."""

import gc
import tempfile
from pathlib import Path

import pytest
from execgraph import DataError, Job, Options, RequestError, build, read_job, replay, report

TRAINING = Path("tests/data/training")


@pytest.fixture(scope="module")
def job() -> Job:
    return build(TRAINING)


def test_a_job_is_a_sequence_of_graphs(job: Job) -> None:
    assert (len(job), job.ranks, [graph.metadata["rank"] for graph in job]) == (2, [0, 1], [0, 1])
    assert job.graph(1).metadata["rank"] == job[-1].metadata["rank"] == 1
    with pytest.raises(IndexError, match="no graph at 2: the job has 2"):
        job[2]
    with pytest.raises(KeyError, match="no graph of rank 2"):
        job.graph(2)
    assert repr(job).startswith("Job: 2 ranks\n  folder")


def test_a_job_goes_wherever_graphs_go(job: Job) -> None:
    assert job.replay().makespan_ns == replay(job).makespan_ns == replay(job.folder).makespan_ns
    assert job.what_if({"class:communication": 0.5}).saved_us > 0


def test_graphs_of_a_temporary_folder_go_with_the_job_and_copies_stay(tmp_path: Path) -> None:
    assert [graph.metadata["rank"] for graph in build(TRAINING, options=Options(host=False))] == [0, 1]
    temporary = build(TRAINING, options=Options(host=False))
    folder = temporary.folder
    assert temporary.write(tmp_path / "kept").ranks == [0, 1]
    with pytest.raises(DataError, match="is there and not empty"):
        temporary.write(tmp_path / "kept")
    del temporary
    gc.collect()
    assert not folder.exists() and read_job(tmp_path / "kept").ranks == [0, 1]


def test_a_job_that_cannot_be_made_leaves_no_temporary_folder(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    with pytest.raises(DataError):
        build(tmp_path)
    with pytest.raises(DataError):
        job.scale(data_parallel=2, groups=["nonsense"])
    assert not [*temporary.iterdir()]


def test_a_job_is_scaled(job: Job, tmp_path: Path) -> None:
    assert job.scale(data_parallel=2).write(tmp_path / "copied").ranks == [0, 1, 2, 3]
    assert job.scale(data_parallel=2, output=tmp_path / "direct").folder == tmp_path / "direct"
    with pytest.raises(DataError, match="groups nonsense") as raised:
        job.scale(data_parallel=2, groups=["nonsense"])
    assert "--" not in str(raised.value)


def test_the_number_of_copies_is_checked(job: Job) -> None:
    with pytest.raises(ValueError, match="takes 1 or more, not 0"):
        job.scale(data_parallel=0)
    with pytest.raises(RequestError, match="would be the same; give data_parallel above 1 or remove_ranks"):
        job.scale()
    with pytest.raises(TypeError, match="takes a whole number, not str"):
        job.scale(data_parallel="4")  # type: ignore[arg-type]


def test_a_job_is_reported_on_from_its_traces(job: Job) -> None:
    tables = job.report(only=["critical_path", "temporal_breakdown"]).tables
    assert tables["temporal_breakdown"].rows()[0]["rank"] == 0
    assert report(job.folder, only=["critical_path"], ranks=[1]).tables["critical_path_replay"].rows()[0]["ranks"] == 1


def test_a_job_for_a_simulator_says_when_its_ranks_finish_there(job: Job) -> None:
    assert abs(build(TRAINING, target="astra-sim").simulate().worst_error_pct) < 1
    with pytest.raises(
        DataError, match=r"not for astra-sim; build the job with execgraph.build\(…, target=\"astra-sim\"\)"
    ):
        job.simulate()


def test_a_page_is_written(job: Job, tmp_path: Path) -> None:
    pytest.importorskip("altair")
    assert job.report(tmp_path / "report.html").verdict.startswith("Computation limits the run")
    assert (tmp_path / "report.html").stat().st_size > 100_000


def test_a_folder_without_graphs_is_no_job() -> None:
    with pytest.raises(TypeError, match=r"read_job\(folder\) takes a path, not list"):
        read_job([])  # type: ignore[arg-type]
    with pytest.raises(DataError, match="no such folder"):
        read_job("nowhere")
