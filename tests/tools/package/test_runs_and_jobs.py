"""What replayed runs and jobs offer in Python: their tables, changes, builds, scaling and reports."""

import gc
import tempfile
import warnings
from html import escape
from pathlib import Path

import pytest
from execgraph import (
    AstraSimOptions,
    DataError,
    Job,
    Options,
    Report,
    build,
    compare,
    read_job,
    replay,
    report,
    what_if,
)
from execgraph.schema.graph import DependencyKind
from support.commands import Run
from support.graphs import LAUNCH, PROGRAM_ORDER, GraphBuilder, rank_with_collective, training_step


def test_a_rank_that_cannot_be_built_is_a_warning_beside_others_and_an_error_alone(tmp_path: Path) -> None:
    (tmp_path / "device_rank1.json").write_text('{"distributedInfo": {"rank": 1}, "traceEvents": []}')
    with pytest.raises(DataError, match="device_rank1"):
        build(tmp_path)
    for name in ("host_rank0.json.gz", "device_rank0.json.gz"):
        (tmp_path / name).write_bytes((TRAINING / name).read_bytes())
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        built = build(tmp_path)
    said = [str(one.message) for one in given if one.category is UserWarning]
    assert built.ranks == [0] and said == built.failures


def test_the_configuration_of_astra_sim_has_what_was_given_and_peaks_are_for_graphs_of_devices_alone() -> None:
    given = build(TRAINING, target=AstraSimOptions(bandwidth_gib_s=50, latency_ns=700))
    [link] = given.simulate().network
    assert (link.bandwidth_gib_s, link.latency_ns) == (50, 700)
    replayed = build(TRAINING, target=AstraSimOptions(replay=True))
    assert replayed.simulate().mode == "replay" and abs(replayed.simulate().worst_error_pct) < 0.1
    peaks = AstraSimOptions(roofline="V100:fp32")
    assert build(TRAINING, options=Options(host=False), target=peaks).simulate().mode == "roofline"


def test_ranks_begin_at_once_if_start_offsets_are_left_out(data: Path) -> None:
    for start_offsets in (True, False):
        job = build(data / "gloo_slow", target=AstraSimOptions(replay=True), start_offsets=start_offsets)
        latest = max(rank.start_offset_us for rank in job.simulate().ranks.values())
        assert (latest > 0) == start_offsets


@pytest.mark.filterwarnings("ignore:.*fit error")
def test_time_beyond_the_fitted_network_is_left_out_if_asked(data: Path) -> None:
    jobs = [build(data / "gloo_slow", target="goal", excess_time=excess_time) for excess_time in (True, False)]
    reports = [job.build_report for job in jobs]
    excess = [report.goal.ranks[0].excess_ns for report in reports if report and report.goal]
    assert excess[0] > 0 == excess[1]


def test_a_network_that_does_not_describe_the_job_is_a_warning(data: Path) -> None:
    with pytest.warns(UserWarning, match=r"may not describe this job: .*; AstraSimOptions\(replay=True\) keeps"):
        build(data / "gloo_slow", target="astra-sim")


def test_ranks_that_are_up_to_date_are_built_again_if_forced(tmp_path: Path) -> None:
    graph = tmp_path / "graphs" / "graph.0.et"
    written = []
    for forced in (False, False, True):
        build(TRAINING, tmp_path / "graphs", force=forced)
        written.append(graph.stat().st_mtime_ns)
    assert written[0] == written[1] < written[2]


def test_results_are_in_us_and_tables_in_ns() -> None:
    run = replay(training_step())
    assert (run.makespan_us, run.measured_us, run.results.makespan_us) == (0.05, 0.05, 0.05)
    assert sum(run.critical_path["duration_ns"].tolist()) == run.makespan_ns == 50  # type: ignore[union-attr]
    assert list(run.nodes.columns)[4:6] == ["start_ns", "end_ns"]


def test_the_critical_path_names_its_nodes() -> None:
    pytest.importorskip("polars")
    path = replay(training_step()).critical_path.to_polars()
    assert path["name"].to_list()[-2:] == ["cudaDeviceSynchronize", "host idle"]
    sgemm = path.filter(path["name"] == "sgemm").select("rank", "id", "kind", "stream")
    assert sgemm.rows()[-1] == (0, 3, "computation", 7)


def test_the_rank_is_a_number_as_in_all_tables_the_position_of_a_graph_without_one() -> None:
    ranks = [rank_with_collective(rank, work=10, collective=5, clock=0) for rank in (4, 2)]
    run = replay(ranks)
    assert set(run.nodes["rank"].tolist()) == {2, 4}  # type: ignore[union-attr]
    assert set(run.critical_path["rank"].tolist()) <= {2, 4}  # type: ignore[union-attr]
    assert set(replay(training_step()).nodes["rank"].tolist()) == {0}  # type: ignore[union-attr]


def test_a_change_of_a_changed_run_comes_on_top() -> None:
    answer = replay(training_step(), {"sgemm": 0.5}).what_if({"vector_add": 0.5})
    assert (answer.before.makespan_ns, answer.after.makespan_ns) == (40, 35)
    assert "all computation" not in answer.after.describe() and "sgemm" not in repr(answer)
    assert "changed  1 node by vector_add=0.5 (" in repr(answer)


def test_an_answer_is_without_a_profiler_where_that_is_known_or_as_recorded() -> None:
    """Two steps of a host op of 80 µs and a kernel of 20 µs, which take 30 µs without a profiler."""
    g = GraphBuilder(rank=0, steps=2, step_without_profiler_ns=30_000)
    before: list[tuple[int, DependencyKind]] = []
    for end in (80_000, 160_000):
        op = g.host("aten::mm", end - 80_000, 80_000, after=before)
        g.activity("gemm", end, 20_000, stream=op, after=[(op, LAUNCH)])
        before = [(op, PROGRAM_ORDER)]
    recorded = what_if(g.build(), {"class:host": 0.5}, as_recorded=True)
    assert (recorded.before.makespan_us, recorded.after.makespan_us) == (180, 100)
    assert "profiler" not in repr(recorded)
    answer = what_if(g.build(), {"class:host": 0.5})
    assert repr(answer).splitlines()[
        0
    ] == "WhatIf: 1.50 times as fast, unprofiled" and "  before   30.0 µs a step" in repr(answer)
    assert (answer.before.makespan_us, answer.after.makespan_us) == pytest.approx((60, 40), rel=0.01)
    further = answer.after.what_if({"class:computation": 0.5})
    assert (further.before.makespan_us, further.after.makespan_us) == pytest.approx((40, 30), rel=0.01)


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


def test_a_job_that_cannot_be_made_leaves_no_temporary_folder(job, tmp_path, monkeypatch):
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


def test_a_job_is_reported_on_from_its_traces(job: Job) -> None:
    tables = job.report(only=["critical_path", "temporal_breakdown"]).tables
    assert tables["temporal_breakdown"].rows()[0]["rank"] == 0
    assert report(job.folder, only=["critical_path"], ranks=[1]).tables["critical_path_replay"].rows()[0]["ranks"] == 1


def test_a_page_is_written(job: Job, tmp_path: Path) -> None:
    pytest.importorskip("altair")
    assert job.report(tmp_path / "report.html").verdict.startswith("Computation limits the run")
    assert (tmp_path / "report.html").stat().st_size > 100_000


RANKS = [TRAINING / f"device_rank{rank}.json.gz" for rank in (0, 1)]


def test_a_report_has_what_was_asked_for() -> None:
    made = report(TRAINING, only=["critical_path"], ranks=[1])
    assert made.tables["critical_path"].rows()[0]["rank"] == 1


@pytest.fixture(scope="module")
def made() -> Report:
    return report(TRAINING)


def test_a_finding_is_printed_in_a_few_lines(made: Report) -> None:
    first = made.findings[0]
    title, *lines = repr(first).splitlines()
    assert title == f"Finding: {first.title}"
    assert [line.split()[0] for line in lines] == ["gain", "evidence", "advice", "table"]
    assert repr(first.gain) == "Gain: up to 19 %, 863.3 µs" and lines[0].endswith("up to 19 %, 863.3 µs")


def test_two_runs_are_compared(tmp_path: Path) -> None:
    pytest.importorskip("altair")
    made = compare(*RANKS, tmp_path / "diff.html")
    assert made.verdict and (tmp_path / "diff.html").stat().st_size > 100_000


def test_a_report_prints_what_the_terminal_says_and_notebooks_show_it(made: Report, data: Path, run: Run) -> None:
    said = (
        run("trace-report", "-q", data / "training")
        .out.rstrip()
        .rpartition("\n\nTables: ")[0]
        .replace("--all says", "report.findings says")
    )
    assert str(made) == repr(made) and len(repr(made)) < 2_000
    assert repr(made).startswith(f"Report of training\n\n{said}\n\nAll tables by name: report.tables")
    assert escape(made.verdict.split(".")[0]) in made._repr_html_() and made._repr_html_().startswith("<pre")
    compared = compare(data / "gloo_slow", data / "gloo_fast")
    assert repr(compared).split("\n")[2].startswith("Run B is faster than run A")


def test_a_report_of_some_analyses_prints_these_alone(data: Path, run: Run) -> None:
    made = report(data / "training", only=["temporal_breakdown", "critical_path"])
    assert "The critical path" in repr(made) and "Busy by class" not in repr(made)
    alone = report(data / "training", only="kernel_breakdown")
    said = run("trace-report", "-q", "--only", "kernel_breakdown", "--", data / "training").out.rstrip()
    assert repr(alone) == f"Report of training\n\n{said}".replace("--csv DIR", "write_csv(folder)")
