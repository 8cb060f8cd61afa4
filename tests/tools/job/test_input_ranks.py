"""Which rank a device trace is of: recorded or in its name, never made up. All commands have one rule."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from execgraph.schema.graph import ExecutionGraph
from execgraph.tools import trace_files as ranks
from execgraph.tools.commands import trace_build, trace_diagnose, trace_link, trace_merge, trace_report
from execgraph.tools.pairs import find_pairs

from support.builder import Group, TraceBuilder

NO_JOB = "record no rank, and nothing shows that they are of one job; give one of them, name them …rank<N>.json"
NOT_RANKS = ": windows or copies of one recording, not ranks; give those of one window"
ALONE = " alone, in a folder of their own or to trace-link"

pytestmark = pytest.mark.usefixtures("in_this_process")


def trace(folder: Path, name: str, pid: int, rank: int | None = None, *, talks: bool = False) -> Path:
    """A device trace of a process that launches a kernel, and talks to another one or not."""
    t = TraceBuilder(pid=pid, rank=rank, world_size=max(2, (rank or 0) + 1))
    with t.op("aten::mm"):
        t.launch("sgemm", stream=7, duration=20)
    if talks:
        t.collective("allreduce", group=Group("0", "default_pg", (0, 1)))
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(t.device_trace()))
    return path


def run(command: Callable[..., object], *arguments: object) -> int:
    with pytest.raises(SystemExit) as end:
        command([str(argument) for argument in arguments])
    return int(end.value.code or 0)


def graphs_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("graph.*.et")) if folder.is_dir() else []


Line = Callable[[Path, Path], str]
"""What a command says of a folder."""


@pytest.fixture(params=["build", "report a folder", "report files", "merge", "diagnose"])
def refusal(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> Line:
    """The line with which a command refuses the traces in a folder, without the paths of folders."""

    def of(folder: Path, out: Path) -> str:
        files = sorted(folder.rglob("*.json"))
        command, arguments, status = {
            "build": (trace_build.main, ["--input-dir", folder, "--output-dir", out / "built"], 1),
            "report a folder": (trace_report.main, [folder], 1),
            "report files": (trace_report.main, files, 1),
            "merge": (trace_merge.main, [folder, "--output", out / "m.json"], 1),
            "diagnose": (trace_diagnose.main, [folder, "--strict"], 1),
        }[request.param]
        assert run(command, *arguments) == status
        said = capsys.readouterr()
        errors = [line for line in said.err.splitlines() if ": error: " in line]
        [line] = errors or [line for line in said.out.splitlines() if line.startswith("wrong ")]
        assert graphs_in(out / "built") == [] and not (out / "m.json").exists()
        return line.replace(f"{folder}: ", "").replace(f"{folder}/", "")

    return of


# Without ranks


def test_two_windows_of_one_process_are_not_ranks(tmp_path: Path, refusal: Line) -> None:
    for window in (1, 2):
        trace(tmp_path / "in", f"host_41.{window}.pt.trace.json", 41)
    line = refusal(tmp_path / "in", tmp_path)
    names = "host_41.1.pt.trace.json, host_41.2.pt.trace.json"
    assert f"{names}: record no rank and are of one process, 41{NOT_RANKS}{ALONE}" in line


def test_windows_in_folders_are_told_by_these(tmp_path: Path, refusal: Line) -> None:
    for window in (1, 2):
        trace(tmp_path / "in", f"window{window}/device.json", 41)
    line = refusal(tmp_path / "in", tmp_path)
    assert f"record no rank and are of one process, 41{NOT_RANKS}, such as window1" in line.replace(
        f"{tmp_path}/in/", ""
    )


def test_windows_stay_windows_beside_other_processes_that_communicate(tmp_path: Path, refusal: Line) -> None:
    for pid, window in ((41, 1), (41, 2), (42, 1)):
        trace(tmp_path / "in", f"host_{pid}.{window}.pt.trace.json", pid, talks=True)
    assert "of one process, 41: windows or copies" in refusal(tmp_path / "in", tmp_path)


def test_traces_that_nothing_connects_are_of_no_job(tmp_path: Path, refusal: Line) -> None:
    for name, pid in (("b.json", 41), ("a.json", 42)):
        trace(tmp_path / "in", name, pid)
    assert f"a.json of process 42, b.json of process 41: {NO_JOB}" in refusal(tmp_path / "in", tmp_path)


def test_traces_of_no_job_are_not_compared_as_ranks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, pid, talks in (("a.json", 41, True), ("b.json", 42, False)):
        trace(tmp_path, name, pid, talks=talks)
    assert run(trace_diagnose.main, tmp_path) == 0
    assert "another rank" not in capsys.readouterr().out


def test_one_that_does_not_communicate_is_not_of_the_job_of_those_that_do(tmp_path: Path, refusal: Line) -> None:
    for name, pid in (("a.json", 41), ("b.json", 42), ("c.json", 43)):
        trace(tmp_path / "in", name, pid, talks=pid != 43)
    assert NO_JOB in refusal(tmp_path / "in", tmp_path)


@pytest.mark.parametrize(("options", "talks"), [(["--allow-mismatch"], False), ([], True)])
def test_traces_that_communicate_or_are_said_to_be_of_one_job_are_numbered_by_process(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], talks: bool
) -> None:
    trace(tmp_path / "in", "b.json", 41, talks=talks)
    trace(tmp_path / "in", "trace_42.json", 42, talks=talks)
    out = tmp_path / "out"
    assert run(trace_build.main, "--input-dir", tmp_path / "in", "--output-dir", out, *options) == 0
    assert [ExecutionGraph.read(str(out / name)).metadata["pid"] for name in graphs_in(out)] == [41, 42]
    said = capsys.readouterr().err
    assert "note: b.json: has no rank; numbered 0 by its process, 41\n" in said
    assert "note: trace_42.json: has no rank; numbered 1 by its process, 42\n" in said


def test_numbered_traces_are_merged_reported_on_and_diagnosed_alike(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, pid in (("b.json", 41), ("a.json", 42)):
        trace(tmp_path / "in", name, pid, talks=True)
    assert run(trace_merge.main, tmp_path / "in", "--output", tmp_path / "m.json") == 0
    assert run(trace_report.main, tmp_path / "in", "--only", "temporal_breakdown") == 0
    assert run(trace_report.main, *(tmp_path / "in").iterdir(), "--only", "temporal_breakdown") == 0
    assert run(trace_diagnose.main, tmp_path / "in", "--strict") == 0
    said = capsys.readouterr()
    assert (said.err + said.out).count("b.json: has no rank; numbered 0 by its process, 41") == 4


def test_the_host_trace_shows_that_a_process_communicates_too(tmp_path: Path) -> None:
    for pid in (41, 42):
        trace(tmp_path, f"device{pid}.json", pid)
        host = {"schema": "1.1.1", "pid": pid, "nodes": [{"id": 1, "name": "## process_group:init ##"}]}
        (tmp_path / f"host{pid}.json").write_text(json.dumps(host))
    assert [pair.device for pair in find_pairs(tmp_path, lambda _: False).ranks] == ["device41.json", "device42.json"]


def test_what_lies_across_two_pieces_of_a_file_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "PIECE", 7)
    communicates, device = ranks.communicating({}), ranks.Trace(str(tmp_path / "a.json"), 41, None, False)
    for name, communicating in (("record_param_comms", True), ("aten::mm", False)):
        Path(device.name).write_text(json.dumps({"traceEvents": [{"name": name}]}))
        assert communicates(device) == communicating


def test_traces_that_tell_neither_rank_nor_process_are_refused(tmp_path: Path) -> None:
    devices = [ranks.Trace("a.json", None, None, False), ranks.Trace("b.json", 42, None, False)]
    with pytest.raises(ranks.DataError, match=r"a\.json: have neither rank nor process; name them …rank<N>.json"):
        ranks.assign_ranks(devices, lambda _: True, allow_mismatch=True)


# With ranks


def test_two_runs_of_one_rank_are_called_so(tmp_path: Path, refusal: Line) -> None:
    for name, pid in (("a.json", 41), ("b.json", 42)):
        trace(tmp_path / "in", name, pid, rank=0)
    text = (
        "rank 0: 2 device traces of different processes (a.json of process 41, b.json of process 42): different runs; "
    )
    assert f"{text}give those of one run{ALONE}" in refusal(tmp_path / "in", tmp_path)


def test_runs_that_have_a_folder_each_are_called_so_and_no_rank_of_one_is_taken_for_the_job(
    tmp_path: Path, refusal: Line
) -> None:
    for folder, pid, rank in (("small", 41, 0), ("gloo", 42, 0), ("gloo", 43, 1)):
        trace(tmp_path / "in", f"{folder}/device_rank{rank}.json", pid, rank)
    assert "2 runs, each in a folder of its own (" in (line := refusal(tmp_path / "in", tmp_path))
    assert "gloo, " in line and "small); give one of them" in line


@pytest.mark.parametrize("recorded", [True, False])
def test_two_windows_of_one_rank_are_called_so(tmp_path: Path, refusal: Line, recorded: bool) -> None:
    for window in (1, 2):
        trace(tmp_path / "in", f"window{window}/device_rank0.json", 41, rank=0 if recorded else None)
    names = "window1/device_rank0.json, window2/device_rank0.json"
    line = refusal(tmp_path / "in", tmp_path)
    assert f"rank 0: 2 device traces of one process ({names}): windows or copies of one recording; " in line
    assert "give those of one window, such as " in line and "window1" in line.rpartition("such as ")[2]


def test_a_window_that_records_no_rank_is_not_to_be_named_as_another_rank() -> None:
    devices = [
        ranks.Trace(*row)
        for row in (("0.json", 41, 0, True), ("1.json", 42, 1, True), ("before.json", 42, None, False))
    ]
    assigned = ranks.assign_ranks(devices, lambda _: True)
    assert [device.rank for device in assigned.traces] == [0, 1]
    assert assigned.failures == [
        "before.json: records no rank, and is of process 42 like 1.json; move one of them away"
    ]


def test_windows_of_all_ranks_are_one_line(tmp_path: Path, refusal: Line) -> None:
    for rank in (0, 1, 2):
        for window in (1, 2):
            trace(tmp_path / "in", f"host_{41 + rank}.{window}.json", 41 + rank, rank)
    line = refusal(tmp_path / "in", tmp_path)
    names = "host_41.1.json, host_41.2.json, …"
    assert f"ranks 0-2: 2 device traces of one process each ({names}): windows or copies of one recording; " in line
    assert f"give those of one window{ALONE}" in line


def test_of_windows_in_folders_each_can_be_built(tmp_path: Path) -> None:
    for window in (1, 2):
        for rank in (0, 1):
            trace(tmp_path / "in", f"window{window}/device_rank{rank}.json", 41 + rank, talks=True)
    assert run(trace_build.main, "--input-dir", tmp_path / "in" / "window2", "--output-dir", tmp_path / "out") == 0
    assert graphs_in(tmp_path / "out") == ["graph.0.et", "graph.1.et"]


@pytest.mark.parametrize("rank", [None, 0])
def test_a_refused_folder_leaves_the_graphs_of_an_earlier_build(tmp_path: Path, rank: int | None) -> None:
    build = ["--input-dir", tmp_path / "in", "--output-dir", tmp_path / "out"]
    trace(tmp_path / "in", "a.json", 41, rank)
    assert run(trace_build.main, *build) == 0
    before = (tmp_path / "out" / "graph.0.et").read_bytes()
    trace(tmp_path / "in", "b.json", 42, rank)
    assert run(trace_build.main, *build) == 1
    assert (tmp_path / "out" / "graph.0.et").read_bytes() == before


def test_refused_traces_are_not_passed_over_for_graphs_in_the_same_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace(tmp_path, "a.json", 41)
    assert run(trace_build.main, "--input-dir", tmp_path, "--output-dir", tmp_path / "out") == 0
    trace(tmp_path, "b.json", 42)
    capsys.readouterr()
    assert run(trace_report.main, tmp_path) == 1
    assert f"{NO_JOB}, or compare two runs with --diff" in capsys.readouterr().err


def test_traces_of_several_runs_beside_one_with_a_rank_are_called_different_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace(tmp_path, "a.json", 41, rank=0)
    for name, pid in (("b", 42), ("c", 43)):
        trace(tmp_path, f"{name}.json", pid)
    assert run(trace_report.main, tmp_path) == 0
    said = capsys.readouterr().err
    assert "b.json of process 42, c.json of process 43: record no rank and are of different processes" in said
    assert "if they are different runs, give one of them, else name them …rank<N>.json" in said


def test_linked_traces_that_record_no_rank_are_not_numbered_by_their_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, pid in (("a", 41), ("b", 42)):
        device = trace(tmp_path, f"{name}.json", pid)
        assert run(trace_link.main, "-q", "--device-trace", device, "--output", tmp_path / f"{name}.linked.json") == 0
    linked = sorted(tmp_path.glob("*.linked.json"))
    assert run(trace_report.main, linked[0], "-q") == 0
    assert run(trace_report.main, *linked) == 1
    assert "a.linked.json: records no rank and its name has none; rename it to …rank<N>.json" in capsys.readouterr().err
    for rank, path in enumerate(linked):
        path.rename(tmp_path / f"linked_rank{rank}.json")
    assert run(trace_report.main, *tmp_path.glob("linked_rank*.json"), "-q") == 0
