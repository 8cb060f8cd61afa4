"""A replayed run tells its results in µs, its tables in ns, and what a further change would bring.

A job is a sequence of graphs in a folder, which are replayed, scaled and reported on together.
"""

import gc
import tempfile
from pathlib import Path

import pytest
from execgraph import DataError, Job, Options, RequestError, build, read_job, replay, report, what_if
from execgraph.schema.graph import DependencyKind
from support.graphs import LAUNCH, PROGRAM_ORDER, GraphBuilder, rank_with_collective, training_step


def test_results_are_in_us_and_tables_in_ns() -> None:
    run = replay(training_step())
    assert (run.makespan_us, run.measured_us, run.results.makespan_us) == (0.05, 0.05, 0.05)
    assert sum(run.critical_path["duration_ns"].tolist()) == run.makespan_ns == 50  # type: ignore[union-attr]
    assert list(run.nodes.columns)[4:6] == ["start_ns", "end_ns"]


def test_the_critical_path_names_its_nodes() -> None:
    pytest.importorskip("polars")
    path = replay(training_step()).critical_path.to_polars()
    assert path["name"].to_list()[-2:] == ["cudaDeviceSynchronize", "host idle"]
    assert path.filter(path["name"] == "sgemm").select("rank", "id", "kind", "stream").rows()[-1] == (
        0,
        3,
        "computation",
        7,
    )


def test_the_rank_is_a_number_as_in_all_tables_the_position_of_a_graph_without_one() -> None:
    ranks = [rank_with_collective(rank, work=10, collective=5, clock=0) for rank in (4, 2)]
    run = replay(ranks)
    assert set(run.nodes["rank"].tolist()) == {2, 4}  # type: ignore[union-attr]
    assert set(run.critical_path["rank"].tolist()) <= {2, 4}  # type: ignore[union-attr]
    assert set(replay(training_step()).nodes["rank"].tolist()) == {0}  # type: ignore[union-attr]


def test_a_change_of_a_changed_run_comes_on_top() -> None:
    answer = replay(training_step(), {"sgemm": 0.5}).what_if({"vector_add": 0.5})
    assert (answer.before.makespan_ns, answer.after.makespan_ns) == (40, 35)
    assert "all" not in answer.after.describe() and "sgemm" not in repr(answer)
    assert "changed  1 node by vector_add=0.5, which took " in repr(answer)


def test_an_answer_is_as_recorded_and_leads_to_the_one_without_a_profiler() -> None:
    """Two steps of a host op of 80 µs and a kernel of 20 µs, which take 30 µs without a profiler."""
    g = GraphBuilder(rank=0, steps=2, step_without_profiler_ns=30_000)
    before: list[tuple[int, DependencyKind]] = []
    for end in (80_000, 160_000):
        op = g.host("aten::mm", end - 80_000, 80_000, after=before)
        g.activity("gemm", end, 20_000, stream=op, after=[(op, LAUNCH)])
        before = [(op, PROGRAM_ORDER)]
    answer = what_if(g.build(), {"class:host": 0.5})
    assert (answer.before.makespan_us, answer.after.makespan_us) == (180, 100)
    title, *lines = repr(answer).splitlines()
    assert title == "WhatIf: 1.80 times as fast with the profiler, 1.50 times without"
    assert lines[-1] == "  no profiler  60.0 µs before, 40.0 µs after; see without_profiler"
    faster = answer.without_profiler
    assert faster is not None and "profiler" not in repr(faster)
    assert (faster.before.makespan_us, faster.after.makespan_us) == (
        pytest.approx(60, rel=0.01),
        pytest.approx(40, rel=0.01),
    )
    assert what_if(training_step(), {"class:host": 0.5}).without_profiler is None


def test_a_timeline_is_written_for_viewers(tmp_path: Path) -> None:
    ranks = [rank_with_collective(rank, work=10, collective=5, clock=0) for rank in (0, 1)]
    replay(ranks).write_timeline(tmp_path / "timeline.json")
    assert (tmp_path / "timeline.json").read_text().count("process_name") == 4


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
