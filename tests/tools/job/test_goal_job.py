"""trace-build --target goal: one file for the whole job, all or nothing, and options that are of it alone."""

import json
import shutil
from pathlib import Path

import pytest
from execgraph.converter.targets import GoalReport, MessageNetwork, lower_for_target
from execgraph.schema.errors import DataError
from execgraph.tools.commands import trace_build, trace_convert
from execgraph.tools.generate import build_job, simulate, write_traces
from execgraph.tools.job import poor_goal_fit
from support.goal_simulator import Waits, others, parse, run, troubles
from support.graphs import training_step

pytestmark = pytest.mark.usefixtures("in_this_process")


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("traces")
    write_traces(simulate(build_job("uneven", ranks=2, steps=1, layers=1, seed=3)), folder)
    return folder


def command(*arguments: object) -> int:
    with pytest.raises(SystemExit) as stopped:
        trace_build.main([*map(str, arguments), "--jobs", "1"])
    return int(stopped.value.code or 0)


def test_the_file_runs_as_measured_and_the_report_tells_what_is_in_it(traces: Path, tmp_path: Path) -> None:
    arguments = ("--input-dir", traces, "--output-dir", tmp_path, "--target", "goal")
    assert command(*arguments, "--measured-communication") == 0
    report = json.loads((tmp_path / "report.json").read_text())["goal"]
    ranks = parse((tmp_path / "job.goal").read_text())
    assert troubles(ranks) == []
    for waits in Waits:
        for finish, rank in zip(run(ranks, waits), report["ranks"], strict=True):
            assert finish == pytest.approx(rank["end_ns"], rel=0.005)
    assert command(*arguments, "--chunk", 100_000, "--simulator", "atlahs") == 0
    assert max(op.amount for _, op in others(parse((tmp_path / "job.goal").read_text()), "send")) == 100_000


def test_the_same_traces_give_the_same_bytes(traces: Path, tmp_path: Path) -> None:
    for folder in ("one", "two"):
        assert command("--input-dir", traces, "--output-dir", tmp_path / folder, "--target", "goal") == 0
    assert (tmp_path / "one" / "job.goal").read_bytes() == (tmp_path / "two" / "job.goal").read_bytes()


def test_without_all_graphs_there_is_no_file(traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job, out = Path(shutil.copytree(traces, tmp_path / "job")), tmp_path / "out"
    arguments = ("--input-dir", job, "--output-dir", out, "--target", "goal")
    assert command(*arguments) == 0
    assert (out / "job.goal").is_file()
    (job / "device_rank1.json").write_text('{"traceEvents": [], "distributedInfo": {"rank": 1}}')
    assert command(*arguments) == 1
    assert not (out / "job.goal").exists()
    said = capsys.readouterr().err
    assert "note: job.goal is not written: it needs the graphs of all ranks" in said
    assert said.count("trace-build: error: ") == 1


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--chunk", 100], "--chunk is for --target goal"),
        (["--measured-communication"], "--measured-communication is for --target goal"),
        (["--no-start-offsets"], "--no-start-offsets is for --target astra-sim and goal"),
        (["--target", "goal", "--chunk", 0], "--chunk is 0, not 1 or more"),
        (["--target", "goal", "--gpus-per-node", -1], "--gpus-per-node is -1, not 1 or more"),
    ],
)
def test_wrong_options_are_one_line(
    more: list[object], said: str, traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("--input-dir", traces, "--output-dir", tmp_path, *more) == 2
    assert said in capsys.readouterr().err


def test_one_ranks_graph_is_no_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        trace_convert.main(["--input", "linked.json", "--output", str(tmp_path / "g.et"), "--target", "goal"])
    assert stopped.value.code == 2
    assert "trace-build --target goal" in capsys.readouterr().err
    with pytest.raises(DataError, match="of a whole job"):
        lower_for_target(training_step(), "goal")


@pytest.mark.parametrize(("error_pct", "is_poor"), [(None, False), (10.0, False), (69.4, True)])
def test_a_network_that_does_not_describe_the_messages_is_warned_of(error_pct: float | None, is_poor: bool) -> None:
    warning = poor_goal_fit(GoalReport([], {}, network=MessageNetwork(500, 0.25, 8, error_pct)))
    assert (warning is not None) == is_poor
    assert warning is None or "69.4 %; GoalOptions(measured_communication=True) keeps" in warning
    assert poor_goal_fit(GoalReport([], {})) is None
