"""The command trace-replay: its inputs, what it prints where, and what it refuses."""

import json
from pathlib import Path
from typing import Any

import pytest
from execgraph.schema.graph import DependencyKind, ExecutionGraph
from execgraph.tools.commands.trace_replay import main
from support.graphs import GraphBuilder, rank_with_collective, training_step


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
