"""The command trace-replay: its inputs, what it prints where, and what it refuses.

trace-merge: which files it merges and replaces, and what becomes of those that it cannot use.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from execgraph.linker.readers import read_device_trace
from execgraph.schema.graph import DependencyKind, ExecutionGraph
from execgraph.tools.commands import trace_merge
from execgraph.tools.commands.trace_replay import main
from execgraph.tools.job import merge_for_viewing
from execgraph.tools.trace_files import by_rank, find_traces
from support.graphs import GraphBuilder, rank_with_collective, training_step
from support.reports import Jobs, ranks_in, recorded_activities


def command(*arguments: object) -> int:
    with pytest.raises(SystemExit) as stopped:
        trace_merge.main([str(argument) for argument in arguments])
    return int(stopped.value.code or 0)


@pytest.mark.parametrize("name", ["merged.json", "merged.json.gz", "merged.db"])
def test_the_command_merges_a_folder_again_and_again(jobs: Jobs, tmp_path: Path, name: str) -> None:
    folder = Path(shutil.copytree(jobs(2), tmp_path / "job"))
    assert command(folder, "--output", folder / name) == 0
    first = (folder / name).read_bytes()
    assert command(folder, "--output", folder / name) == 0
    assert len((folder / name).read_bytes()) == len(first)
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("name", ["device_rank0.json", "host_rank1.json"])
def test_no_trace_of_the_folder_is_replaced(
    jobs: Jobs, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    folder = Path(shutil.copytree(jobs(2), tmp_path / "job"))
    before = (folder / name).read_bytes()
    assert command(folder, "--output", folder / name) == 2
    assert "is a trace of one rank, which is read: give another name for the output" in capsys.readouterr().err
    assert (folder / name).read_bytes() == before


def test_the_summary_counts_what_was_not_merged(jobs: Jobs, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(jobs(2), "--output", tmp_path / "m.json", "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["skipped"] == {"truth.json of trace-generate": 1, "host traces, which have no times": 2}
    assert [rank["activities"] for rank in summary["ranks"]] == [sum(recorded_activities(jobs(2)).values()) // 2] * 2


def test_wrong_input_is_refused_and_the_old_output_stays(jobs: Jobs, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(jobs(2), tmp_path / "job"))
    shutil.copy(folder / "device_rank0.json", folder / "again_rank0.json")
    for name in ("m.json", "m.db"):
        (tmp_path / name).write_text("old")
        assert command(folder, "--output", tmp_path / name) == 1
        assert command(jobs(2) / "host_rank0.json", "--output", tmp_path / name) == 1
        assert command(tmp_path / "absent", "--output", tmp_path / name) == 1
        assert (tmp_path / name).read_text() == "old"
    assert command(jobs(2), "--output", tmp_path / "m.txt") == 2


def test_a_clock_that_is_centuries_from_the_others_is_refused(
    jobs: Jobs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(jobs(2), tmp_path / "job"))
    for rank, shift in enumerate((-(10**15), 4 * 10**15)):
        path = folder / f"device_rank{rank}.json"
        trace = json.loads(path.read_text())
        trace["traceEvents"] = [
            {**row, "ts": int(row["ts"]) + shift} if "ts" in row else row for row in trace["traceEvents"]
        ]
        path.write_text(json.dumps(trace))
    for name in ("m.json", "m.db"):
        assert command(folder, "--output", tmp_path / name) == 1
        assert "device_rank0.json: its clock is 158 years from that of other ranks" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job"]


@pytest.mark.parametrize("key", ["cat", "pid", "tid", "id", "args"])
def test_values_that_nothing_can_hold_stay_in_the_merged_trace(jobs: Jobs, tmp_path: Path, key: str) -> None:
    folder = Path(shutil.copytree(jobs(2), tmp_path / "job"))
    path = folder / "device_rank1.json"
    row = json.dumps(
        {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 1, key: "HUGE"}
    ).replace('"HUGE"', "1e999")
    path.write_text(path.read_text().replace('"traceEvents": [', f'"traceEvents": [{row},', 1))
    assert command(folder, "--output", tmp_path / "m.json") == 0
    assert json.loads((tmp_path / "m.json").read_text(), parse_constant=float)["mergedRanks"][1]["rank"] == 1
    assert command(folder, "--output", tmp_path / "m.db") == 0


def test_a_base_time_that_no_clock_shows_is_none(jobs: Jobs, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(jobs(2), tmp_path / "job"))
    path = folder / "device_rank0.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "baseTimeNanoseconds": "0x7fffffffffffffff"}))
    assert read_device_trace(str(path)).base_time_ns == 0
    assert command(folder, "--output", tmp_path / "m.db") == 0


def test_a_trace_that_cannot_be_used_leaves_no_output(jobs: Jobs, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(jobs(2), tmp_path / "job"))
    (folder / "device_rank1.json").write_text('{"distributedInfo": {"rank": 1}, "traceEvents": []}')
    for name in ("m.json", "m.db"):
        assert command(folder, "--output", tmp_path / name) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job"]


def test_of_a_trace_that_breaks_off_what_can_be_read_is_merged_and_that_is_said(jobs: Jobs, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(jobs(2), tmp_path / "job"))
    path = folder / "device_rank1.json"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    report = merge_for_viewing(ranks_in(folder), str(tmp_path / "m.json"))
    assert 0 < report.ranks[1].rows < report.ranks[0].rows
    assert any("device_rank1.json: " in note and "ends early" in note for note in report.notes)


def test_a_number_in_a_name_that_is_the_process_is_no_rank(jobs: Jobs, tmp_path: Path) -> None:
    for rank, pid in enumerate((41_000, 41_064)):
        trace = json.loads((jobs(2) / f"device_rank{rank}.json").read_text())
        del trace["distributedInfo"]
        (tmp_path / f"trace_{pid}.json").write_text(json.dumps(trace))
    ranks, notes = by_rank(find_traces([tmp_path]).devices, {})
    assert [(rank, path.name) for rank, path in ranks] == [(0, "trace_41000.json"), (1, "trace_41064.json")]
    assert len(notes) == 2 and "numbered 1 by its process" in notes[1]


def test_the_recorded_rank_comes_before_that_of_the_name(jobs: Jobs, tmp_path: Path) -> None:
    shutil.copy(jobs(2) / "device_rank1.json", tmp_path / "device_rank5.json")
    assert [rank for rank, _ in ranks_in(tmp_path)] == [1]


@pytest.fixture
def graph_file(tmp_path: Path) -> str:
    path = str(tmp_path / "graph.0.et")
    training_step().write(path)
    return path


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    return int(end.value.code or 0)


def test_json_prints_the_figures_in_us_and_nothing_else(graph_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--input", graph_file, "--json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "makespan_us": 0.05,
        "measured_us": 0.05,
        "error_pct": 0.0,
        "start_error_us": {"median": 0.0, "p95": 0.0, "max": 0.0},
        "busy_us": {"0/7": 0.03, "0/8": 0.006},
        "critical_path_us": {"computation": 0.03, "host": 0.009, "memory": 0.006, "launch": 0.003, "event wait": 0.002},
        "explained_pct": 100.0,
    }


def test_the_result_goes_to_stdout(graph_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--input_filename", graph_file) == 0
    output = capsys.readouterr()
    assert output.err == ""
    for part in (
        "host 4, computation 2, memory 1",
        "program order 3, launch 2",
        "critical path",
        "+0.00 %",
        "100.00 %  of",
    ):
        assert part in output.out


def test_graphs_of_several_ranks_are_replayed_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [str(tmp_path / f"graph.{rank}.et") for rank in (0, 1)]
    for rank, (path, work, collective) in enumerate(zip(paths, (10, 40), (50, 20), strict=True)):
        rank_with_collective(rank, work=work, collective=collective, clock=1000).write(path)
    assert run("--input", paths[0], "--input", paths[1], "--json") == 0
    assert json.loads(capsys.readouterr().out)["busy_us"] == {"0/0/7": 0.065, "1/0/7": 0.065}


def test_absent_ranks_of_a_job_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in (0, 1):
        graph = of_world(4, rank_with_collective(rank, work=10, collective=20, clock=1000))
        graph.write(str(tmp_path / f"graph.{rank}.et"))
    assert run(str(tmp_path)) == 0
    assert (
        "absent         2 of 4 ranks are absent (2-3): communication with them includes waiting"
        in capsys.readouterr().out
    )
    assert run(str(tmp_path / "graph.0.et"), "--scale", "class:communication=0") == 0
    assert (
        " 3 of 4 ranks are absent (1-3): communication with them includes waiting for them." in capsys.readouterr().out
    )
    assert run(str(tmp_path), "--json") == 0
    assert json.loads(capsys.readouterr().out)["absent"].startswith("2 of 4 ranks are absent")


@pytest.mark.parametrize(
    "arguments",
    [[], ["--input", "g.et", "--scale", "gemm"], ["--input", "g.et", "--json", "--timeline", "-"], ["--inp", "g.et"]],
)
def test_wrong_usage_ends_with_2(arguments: list[str]) -> None:
    assert run(*arguments) == 2


def test_a_graph_that_cannot_be_replayed_is_one_line_that_names_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    g = GraphBuilder()
    g.host("itself", 0, 1, after=[(1, DependencyKind.PROGRAM_ORDER)])
    path = str(tmp_path / "cycle.et")
    g.build().write(path)
    assert run("--input", path) == 1
    assert capsys.readouterr().err.startswith(
        f"trace-replay: error: {path}: 1 of 1 nodes never become ready: node 1 (itself)"
    )


def test_a_missing_file_ends_with_1_and_leaves_no_timeline(tmp_path: Path) -> None:
    timeline = tmp_path / "timeline.json"
    assert run("--input", str(tmp_path / "absent.et"), "--timeline", str(timeline)) == 1
    assert not timeline.exists()


@pytest.mark.parametrize("peak", ["fp16", "fp16=fast", "fp16=-1", "fp16=inf", "network=5"])
def test_a_peak_needs_a_known_name_and_a_number_above_0(peak: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--input", "graph.et", "--peak", peak])
    assert ended.value.code == 2
    assert (
        f"{peak!r}: expected one of fp64, fp32, tf32, fp16, fp8, int8, memory, = and a number above 0"
        in capsys.readouterr().err
    )


def written(folder: Path, *graphs: ExecutionGraph) -> list[str]:
    paths = [str(folder / f"graph.{rank}.et") for rank in range(len(graphs))]
    for graph, path in zip(graphs, paths, strict=True):
        graph.write(path)
    return paths


def pair(**more: Any) -> list[ExecutionGraph]:
    return [rank_with_collective(rank, work=10 + rank, collective=5, clock=1000, **more) for rank in range(2)]


def replayed_us(capsys: pytest.CaptureFixture[str], *arguments: str) -> float:
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--json"])
    assert ended.value.code == 0
    return float(json.loads(capsys.readouterr().out)["makespan_us"])


def test_several_graphs_and_a_folder_of_them_are_the_same_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = written(tmp_path, *pair())
    once = replayed_us(capsys, "--input", *paths)
    assert (
        once
        == replayed_us(capsys, "--input", str(tmp_path))
        == replayed_us(capsys, "--input", paths[0], "--input", paths[1])
    )


def test_a_folder_without_graphs_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--input", str(tmp_path)])
    assert ended.value.code == 1
    assert "holds no graph.N.et" in capsys.readouterr().err


def of_world(size: int, graph: ExecutionGraph) -> ExecutionGraph:
    graph.metadata["world_size"] = size
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


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (
            without_collectives,
            "rank 1 has none of the collectives that rank 0 has with it, so its trace may be incomplete",
        ),
        (lambda: pair()[0], "2 graphs are of rank 0"),
        (lambda: of_world(16, pair()[1]), "rank 0 is of 2 ranks, rank 1 of 16"),
        (elsewhere, "of 1 collectives of rank 0 with other ranks that are given none meets theirs"),
    ],
)
def test_graphs_of_two_jobs_are_refused_unless_allowed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], second: Any, reason: str
) -> None:
    paths = written(tmp_path, of_world(2, pair()[0]), second())
    with pytest.raises(SystemExit) as ended:
        main(["--input", *paths])
    assert ended.value.code == 1
    assert f"{reason}; give the graphs of one job (or --allow-mismatch)" in capsys.readouterr().err
    assert replayed_us(capsys, "--input", *paths, "--allow-mismatch") > 0
