"""Everything that is said of a job comes from one replay of all its ranks, wherever it is said."""

import json
from pathlib import Path

import msgspec
import pytest
from execgraph import what_if
from execgraph.schema.columns import time_text
from execgraph.schema.graph import ExecutionGraph
from execgraph.tools.analyses import analyse, read_rank
from execgraph.tools.commands import trace_replay
from execgraph.tools.job import BuildOptions, build
from execgraph.tools.replay import recording, replay_ranks
from execgraph.tools.report import find_sources, report_on
from execgraph.tools.report.overview import key_figures
from support.generated import here
from support.reports import as_json, run


def replayed_by_command(folder: Path, capfd: pytest.CaptureFixture[str], *more: str) -> dict[str, float]:
    with pytest.raises(SystemExit):
        trace_replay.main(["-q", "--json", str(folder), *more])
    figures: dict[str, float] = json.loads(capfd.readouterr().out)
    return figures


def by_kind(rows: list[dict[str, object]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for row in rows:
        total[str(row["kind"])] = total.get(str(row["kind"]), 0.0) + float(str(row["time"]))
    return total


@pytest.mark.parametrize("job", ["training", "dlrm_8gpu"])
def test_page_tables_commands_and_python_say_the_same_of_a_job(
    job: str, data: Path, request: pytest.FixtureRequest, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    traces = (request.getfixturevalue("real_traces") if job == "dlrm_8gpu" else data) / job
    build(traces, tmp_path / "graphs", BuildOptions(), here)
    replayed = replayed_by_command(tmp_path / "graphs", capfd)
    halved = replayed_by_command(tmp_path / "graphs", capfd, "--scale", "class:host=0.5")
    report = report_on(find_sources([traces]))
    sources = [(str(source.path), str(source.host)) for source in find_sources([traces]).ranks]
    ranks = [read_rank(*source, rank) for rank, source in enumerate(sources)]
    from_python = analyse(ranks, ["critical_path"])
    from_json = as_json(capfd, traces, "--only", "critical_path")
    for rows in (
        report.tables["critical_path"].rows(),
        report.page_table("critical_path").rows(),  # type: ignore[union-attr]
        from_python["critical_path"].rows(),
        from_json["critical_path"],
    ):
        assert by_kind(rows) == pytest.approx(replayed["critical_path_us"])
    (row,) = from_json["critical_path_replay"]
    assert (row["measured"], row["replayed"]) == pytest.approx((replayed["measured_us"], replayed["makespan_us"]))
    measured = time_text(row["measured"])
    figures = key_figures(report.tables | {"ranks": report.ranks})
    assert next(figure.value for figure in figures if figure.label == "measured run") == measured
    assert run("-q", traces) == 0
    said = capfd.readouterr().out
    assert f"How each device spent the run of {measured}\n" in said
    assert " ".join(said.split("\n\n")[0].split()) == report.verdict
    assert report.twice_as_fast is not None
    host = next(row for row in report.twice_as_fast.rows() if row["change"] == "host")
    assert (host["before"], host["after"]) == pytest.approx((replayed["makespan_us"], halved["makespan_us"]))
    graphs = [ExecutionGraph.read(str(path)) for path in sorted((tmp_path / "graphs").glob("*.et"))]
    assert replay_ranks(graphs).makespan_ns / 1000 == pytest.approx(row["replayed"])
    assert what_if(graphs, {"class:host": 0.5}).after.makespan_ns / 1000 == pytest.approx(host["after"])


def test_page_commands_and_python_say_the_same_of_a_run_without_a_profiler(
    data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    traces = data / "gpu" / "small"
    build(traces, tmp_path / "graphs", BuildOptions(), here)
    (said,) = [replayed_by_command(tmp_path / "graphs", capfd)["recording"]]
    graph = tmp_path / "graphs" / "graph.0.et"
    report, from_python = report_on(find_sources([traces])), recording(graph)
    assert report.recording == from_python is not None
    assert msgspec.to_builtins(from_python) == said
    factor, step_us = said["host_factor"], said["step_without_profiler_us"]
    without = what_if(graph, {"class:host": factor}).after.makespan_ns / 1000
    assert without == pytest.approx(2 * step_us, rel=0.01)
    assert report.twice_as_fast is not None
    assert report.twice_as_fast.rows()[0]["before"] == pytest.approx(without)
    assert f"in which a step takes {time_text(step_us)} and not " in report.verdict
    assert f"(host work takes {100 * factor:.3g} % of its recorded time)" in report.verdict
    (notes,) = (row["note"] for row in as_json(capfd, traces)["notes"] if row["table"] == "findings")
    assert notes == report.verdict
