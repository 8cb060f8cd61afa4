"""The command trace-replay: its inputs, what it prints where, and what it refuses.

trace-merge: which files it merges and replaces, and what becomes of those that it cannot use.
"""

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from execgraph.linker.readers import read_device_trace
from execgraph.schema.graph import DependencyKind, ExecutionGraph
from execgraph.tools.job import merge_for_viewing
from support.commands import Run, status_of
from support.graphs import GraphBuilder, rank_with_collective, training_step
from support.reports import Jobs, ranks_in, recorded_activities


@pytest.fixture
def job(jobs: Jobs, tmp_path: Path) -> Path:
    """A copy of the traces of two ranks, to be changed."""
    return Path(shutil.copytree(jobs(2), tmp_path / "job"))


Merge = Callable[..., int]


@pytest.fixture
def merge(tmp_path: Path) -> Merge:
    """Merges traces into a file for viewers and into a database, which end alike."""

    def statuses(traces: Path) -> int:
        [status] = {status_of("trace-merge", traces, "--output", tmp_path / name) for name in ("m.json", "m.db")}
        return status

    return statuses


@pytest.mark.parametrize("name", ["merged.json", "merged.json.gz", "merged.db"])
def test_the_command_merges_a_folder_again_and_again(job: Path, name: str) -> None:
    assert status_of("trace-merge", job, "--output", job / name) == 0
    first = (job / name).read_bytes()
    assert status_of("trace-merge", job, "--output", job / name) == 0
    assert len((job / name).read_bytes()) == len(first)
    assert [path.name for path in job.iterdir() if path.name.startswith(".")] == []


def test_the_summary_counts_what_was_not_merged(jobs: Jobs, tmp_path: Path, run: Run) -> None:
    summary = json.loads(run("trace-merge", jobs(2), "--output", tmp_path / "m.json", "--json").out)
    assert summary["skipped"] == {"truth.json of trace-generate": 1, "host traces, which have no times": 2}
    assert [rank["activities"] for rank in summary["ranks"]] == [sum(recorded_activities(jobs(2)).values()) // 2] * 2


def test_wrong_input_is_refused_and_the_old_output_stays(job: Path, merge: Merge, tmp_path: Path) -> None:
    shutil.copy(job / "device_rank0.json", job / "again_rank0.json")
    for name in ("m.json", "m.db"):
        (tmp_path / name).write_text("old")
    (tmp_path / "empty_rank1.json").write_text('{"distributedInfo": {"rank": 1}, "traceEvents": []}')
    for traces in (job, job / "host_rank0.json", tmp_path / "absent", tmp_path / "empty_rank1.json"):
        assert merge(traces) == 1
    assert [(tmp_path / name).read_text() for name in ("m.json", "m.db")] == ["old", "old"]
    assert status_of("trace-merge", job, "--output", tmp_path / "m.txt") == 2


def test_a_clock_that_is_centuries_from_the_others_is_refused(job: Path, run: Run, tmp_path: Path) -> None:
    for rank, shift in enumerate((-(10**15), 4 * 10**15)):
        path = job / f"device_rank{rank}.json"
        trace = json.loads(path.read_text())
        for row in trace["traceEvents"]:
            row |= {"ts": int(row["ts"]) + shift} if "ts" in row else {}
        path.write_text(json.dumps(trace))
    for name in ("m.json", "m.db"):
        ended = run("trace-merge", job, "--output", tmp_path / name)
        assert ended.code == 1
        assert "device_rank0.json: its clock is 158 years from that of other ranks" in ended.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job"]


@pytest.mark.parametrize("key", ["cat", "pid", "tid", "id", "args"])
def test_values_that_nothing_can_hold_stay_in_the_merged_trace(job, merge, tmp_path, key):
    path = job / "device_rank1.json"
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 1}
    row = json.dumps(kernel | {key: "HUGE"}).replace('"HUGE"', "1e999")
    path.write_text(path.read_text().replace('"traceEvents": [', f'"traceEvents": [{row},', 1))
    assert merge(job) == 0
    assert json.loads((tmp_path / "m.json").read_text(), parse_constant=float)["mergedRanks"][1]["rank"] == 1


def test_a_base_time_that_no_clock_shows_is_none(job: Path, tmp_path: Path) -> None:
    path = job / "device_rank0.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "baseTimeNanoseconds": "0x7fffffffffffffff"}))
    assert read_device_trace(str(path)).base_time_ns == 0
    assert status_of("trace-merge", job, "--output", tmp_path / "m.db") == 0


def test_of_a_trace_that_breaks_off_what_can_be_read_is_merged_and_that_is_said(job: Path, tmp_path: Path) -> None:
    path = job / "device_rank1.json"
    known = '"execgraph_steps_without_profiler_us":{"median":9.0}'
    path.write_text(f'{{"no number":NaN,{known},{path.read_text()[1 : path.stat().st_size // 2]}')
    report = merge_for_viewing(ranks_in(job), str(tmp_path / "m.json"))
    assert known in (tmp_path / "m.json").read_text()
    assert 0 < report.ranks[1].rows < report.ranks[0].rows
    assert any("device_rank1.json: " in note and "is cut off" in note for note in report.notes)


def test_the_recorded_rank_comes_before_that_of_the_name(jobs: Jobs, tmp_path: Path) -> None:
    shutil.copy(jobs(2) / "device_rank1.json", tmp_path / "device_rank5.json")
    assert [rank for rank, _ in ranks_in(tmp_path)] == [1]


@pytest.fixture
def graph_file(tmp_path: Path) -> str:
    [path] = written(tmp_path, training_step())
    return path


def written(folder: Path, *graphs: ExecutionGraph) -> list[str]:
    paths = [str(folder / f"graph.{rank}.et") for rank in range(len(graphs))]
    for graph, path in zip(graphs, paths, strict=True):
        graph.write(path)
    return paths


def pair() -> list[ExecutionGraph]:
    return [rank_with_collective(rank, work=10 + rank, collective=5, clock=1000) for rank in range(2)]


def figures(run: Run, *arguments: str) -> dict[str, Any]:
    """What a replay says as JSON."""
    ended = run("trace-replay", *arguments, "--json")
    assert ended.code == 0, ended.err
    said: dict[str, Any] = json.loads(ended.out)
    return said


def test_json_prints_the_figures_in_us_and_nothing_else(graph_file: str, run: Run) -> None:
    assert figures(run, "--input", graph_file) == {
        "makespan_us": 0.05,
        "measured_us": 0.05,
        "error_pct": 0.0,
        "start_error_us": {"median": 0.0, "p95": 0.0, "max": 0.0},
        "busy_us": {"0/7": 0.03, "0/8": 0.006},
        "critical_path_us": {"computation": 0.03, "host": 0.009, "memory": 0.006, "launch": 0.003, "event wait": 0.002},
        "explained_pct": 100.0,
    }


def test_the_result_goes_to_stdout_and_is_that_of_the_graph_as_json(graph_file: str, run: Run, tmp_path: Path) -> None:
    ended = run("trace-replay", "--input_filename", graph_file)
    assert (ended.code, ended.err) == (0, "")
    parts = ("host 4, computation 2, memory 1", "program order 3, launch 2", "critical path", "+0.00 %", "100.00 %  of")
    assert [part for part in parts if part not in ended.out] == []
    assert run("trace-jsonize", graph_file, "--output", tmp_path / "graph.json").code == 0
    assert run("trace-replay", tmp_path / "graph.json").out == ended.out


def test_graphs_of_several_ranks_or_a_folder_of_them_are_replayed_together(tmp_path: Path, run: Run) -> None:
    ranks = enumerate(((10, 50), (40, 20)))
    graphs = [rank_with_collective(rank, work=work, collective=length, clock=1000) for rank, (work, length) in ranks]
    one, other = written(tmp_path, *graphs)
    once = figures(run, "--input", one, "--input", other)
    assert once["busy_us"] == {"0/0/7": 0.065, "1/0/7": 0.065}
    assert once == figures(run, "--input", str(tmp_path)) == figures(run, "--input", one, other)


def test_absent_ranks_of_a_job_are_said(tmp_path: Path, run: Run) -> None:
    first, _ = written(tmp_path, *(of_world(4, graph) for graph in pair()))
    said = "2 of 4 ranks are absent (2-3): communication with them includes waiting"
    assert f"absent         {said}" in run("trace-replay", tmp_path).out
    said_of_one = "3 of 4 ranks are absent (1-3): communication with them includes waiting for them."
    assert f"\nDo not rely on this: {said_of_one}" in run("trace-replay", first, "--scale", "class:communication=0").out
    assert f"\n{said_of_one}" in run("trace-replay", first, "--scale", "gemm=0").out
    assert figures(run, str(tmp_path))["absent"].startswith("2 of 4 ranks are absent")


def test_a_prediction_from_a_host_trace_that_is_cut_off_is_not_to_be_relied_on(
    data: Path, tmp_path: Path, run: Run
) -> None:
    for name in ("host_rank0.json.gz", "device_rank0.json.gz"):
        shutil.copy(data / "training" / name, tmp_path)
    host = tmp_path / "host_rank0.json.gz"
    text = gzip.decompress(host.read_bytes())
    host.write_bytes(gzip.compress(text[: 3 * len(text) // 5]))
    assert run("trace-build", str(tmp_path), "-o", str(tmp_path / "graphs")).code == 0
    said = run("trace-replay", str(tmp_path / "graphs"), "--scale", "class:computation=0.5").out
    assert "Do not rely on this: the recording has rows cut off by the end of the file: 1" in said


def test_sizes_that_ranks_record_otherwise_and_nodes_that_are_gone_are_said(tmp_path: Path, run: Run) -> None:
    graphs = [
        rank_with_collective(rank, work=10, collective=5, clock=rank, comm_type=0, comm_size=64 << rank)
        for rank in (0, 1)
    ]
    graphs[1].metadata["tool"], graphs[1].id = "execgraph 1", graphs[1].id + (graphs[1].id > 1)
    for column in (graphs[1].data_deps, graphs[1].ctrl_deps):
        column.values[:] += column.values > 1
    ended = run("trace-replay", *written(tmp_path, *graphs))
    assert "1 of 1 collectives differ in type or size" in ended.err
    assert "lost           the recording has nodes that are not in the graph: 1" in ended.out


def test_a_simulated_run_in_another_network_than_the_fitted_one_is_no_error(
    data: Path, tmp_path: Path, run: Run
) -> None:
    for bandwidth in ((), ("--bandwidth", 149)):
        out = tmp_path / f"graphs{len(bandwidth)}"
        assert run("trace-build", data / "training", "-o", out, "--target", "astra-sim", *bandwidth).code == 0
        said = run("trace-replay", out, "--simulator", "astra-sim").out
        assert "largest difference from the measured run -" in said
        assert ("by another network than the fitted one" in said) == bool(bandwidth)


@pytest.mark.parametrize("line", ["", "--input g.et --scale gemm", "--input g.et --json --timeline -", "--inp g.et"])
def test_wrong_usage_ends_with_2(line: str) -> None:
    assert status_of("trace-replay", *line.split()) == 2


def test_a_graph_that_cannot_be_replayed_is_one_line_that_names_the_file(tmp_path: Path, run: Run) -> None:
    g = GraphBuilder()
    g.host("itself", 0, 1, after=[(1, DependencyKind.PROGRAM_ORDER)])
    [path] = written(tmp_path, g.build())
    absent, timeline = str(tmp_path / "absent.et"), tmp_path / "timeline.json"
    for file, problem in ((path, "1 of 1 nodes never become ready: node 1 (itself)"), (absent, "cannot be read")):
        ended = run("trace-replay", "--input", file, "--timeline", timeline)
        assert ended.code == 1 and ended.err.startswith(f"trace-replay: error: {file}: {problem}")
    assert not timeline.exists()


@pytest.mark.parametrize("peak", ["fp16", "fp16=fast", "fp16=-1", "fp16=inf", "network=5"])
def test_a_peak_needs_a_known_name_and_a_number_above_0(peak: str, run: Run) -> None:
    ended = run("trace-replay", "--input", "graph.et", "--peak", peak)
    said = f"{peak!r}: expected one of fp64, fp32, tf32, fp16, fp8, int8, memory, = and a number above 0"
    assert ended.code == 2 and said in ended.err


def of_world(size: int, graph: ExecutionGraph, base_ns: int = 10**18, step: int = 0, **more: Any) -> ExecutionGraph:
    graph.metadata |= {"world_size": size, "base_time_ns": base_ns, f"step_start_ns_{step}": 0, "pid": 7} | more
    return graph


def elsewhere() -> ExecutionGraph:
    """Rank 1 of a job in which it talks to rank 0 in a group of another name, by another collective."""
    g = GraphBuilder(rank=1)
    g.collective(1000, 5, ranks=[0, 1], comm_type=2, pg_name="99", pg_recorded="other")
    return g.build()


def without_collectives() -> ExecutionGraph:
    """Rank 1, of whose trace only a host op is left."""
    g = GraphBuilder(rank=1)
    g.host("aten::add", 0, 5)
    return g.build()


INCOMPLETE = "rank 1 has none of the collectives that rank 0 has with it, so its trace may be incomplete"


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (without_collectives, INCOMPLETE),
        (lambda: pair()[0], "2 graphs are of rank 0"),
        (lambda: of_world(16, pair()[1]), "rank 0 is of 2 ranks, rank 1 of 16"),
        (lambda: of_world(2, pair()[1], 10**18 + 2 * 3600 * 10**9), "rank 1 was recorded 2.0 hours after rank 0"),
        (lambda: of_world(2, pair()[1], step=3), "different steps, 0 and 3, and no sequence number is common"),
        (lambda: of_world(2, pair()[1], changed_by="all=2"), "a run changed by all=2, others by nothing"),
        (lambda: of_world(2, pair()[0], rank=1), "the same process and times, so they are copies of one rank"),
        (elsewhere, "of 1 collectives of rank 0 with other ranks that are given none meets theirs"),
    ],
)
def test_graphs_of_two_jobs_are_refused_unless_allowed(tmp_path: Path, run: Run, second: Any, reason: str) -> None:
    paths = written(tmp_path, of_world(2, pair()[0]), second())
    ended = run("trace-replay", "--input", *paths)
    assert ended.code == 1 and f"{reason}; give the graphs of one job (or --allow-mismatch)" in ended.err
    assert figures(run, "--input", *paths, "--allow-mismatch")["makespan_us"] > 0
