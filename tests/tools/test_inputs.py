"""Which files of a folder make up a rank: by what is in them, and by their names only where that does not tell.

Which rank a device trace is of: recorded or in its name, never made up. All commands have one rule.

Objects found in a piece of JSON: the outermost that are complete, in linear time.
"""

import gzip
import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from execgraph.schema.errors import DataError
from execgraph.schema.graph import ExecutionGraph
from execgraph.tools import recognise as json_parts, trace_files as ranks
from execgraph.tools.commands import trace_build, trace_diagnose, trace_link, trace_merge, trace_report
from execgraph.tools.pairs import Pairs, find_pairs
from execgraph.tools.recognise import END, InputKind, Recognised, objects_in, recognise
from execgraph.tools.trace_files import rank_in_name
from hypothesis import given, strategies as st
from support.builder.records import Group
from support.builder.timeline import TraceBuilder
from support.databases import LITE, RPD_3, Op, write_database

FILLER = {"ph": "X", "cat": "python_function", "name": "f" * 200, "pid": 9, "tid": 1, "ts": 1, "dur": 1}


def host(pid: int | None) -> dict[str, Any]:
    return {"schema": "1.1.1-chakra.0.0.4", "pid": pid, "nodes": [{"id": 1, "name": "aten::add"}]}


def device(pid: int | None, rank: int | None = None, *, filler: int = 0, rank_last: bool = False) -> dict[str, Any]:
    """A device trace: host rows of a process unless pid is None, one kernel, and the rank before or after the rows."""
    op = {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": pid, "tid": 1, "ts": 1, "dur": 1}
    kernel = {"ph": "X", "cat": "kernel", "name": "add", "pid": 0, "tid": 7, "ts": 1, "dur": 1}
    rows = [kernel] * 3 + ([] if pid is None else [op]) + [FILLER] * filler
    recorded = {} if rank is None else {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 2}}
    return {"schemaVersion": 1, "traceEvents": rows, **recorded} if rank_last else {**recorded, "traceEvents": rows}


def folder_of(folder: Path, files: dict[str, Any]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = content if isinstance(content, bytes) else json.dumps(content).encode()
        path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return folder


def pairs_of(folder: Path, files: dict[str, Any]) -> Pairs:
    return find_pairs(folder_of(folder, files), lambda _: False)


def matched(pairs: Pairs) -> dict[int, tuple[str, str | None]]:
    return {pair.rank: (pair.device, pair.host) for pair in pairs.ranks}


# What a file is


@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
@pytest.mark.parametrize("rank_last", [False, True])
def test_process_and_rank_are_found_at_either_end_of_a_long_file(tmp_path: Path, name: str, rank_last: bool) -> None:
    content = device(41, 3, filler=2 * END // 200, rank_last=rank_last)
    assert recognise(folder_of(tmp_path, {name: content}) / name) == Recognised(InputKind.DEVICE, 41, 3)


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (host(41), InputKind.HOST),
        (device(41), InputKind.DEVICE),
        (device(41)["traceEvents"], InputKind.DEVICE),
        ({**device(41), "extra": {"distributedInfo": {"rank": 0}}, "distributedInfo": {"rank": 1}}, InputKind.MERGED),
        ({**host(41), "nodes": [{"id": 1, "ts": 1.0, "inclusive_dur": 2.0}]}, InputKind.LINKED),
        ({"metadata": {"version": "0.1", "attr": []}, "nodes": [{"id": 1, "type": "COMP_NODE"}]}, InputKind.GRAPH_JSON),
        (
            {"traceEvents": [{"ph": "X", "cat": "computation", "name": "add", "pid": 1, "tid": 1}]},
            InputKind.OTHER_EVENTS,
        ),
        ({"1": [0, 1]}, InputKind.GROUPS),
        ({"tool": "execgraph 1.0", "options": {}}, InputKind.REPORT),
        ({"ranks": [1, 2]}, InputKind.JSON),
        (b"\x08\x0a\x030.1\x12\x01", InputKind.GRAPH),
        (b"num_ranks 2\n", InputKind.GOAL),
        (b"<!DOCTYPE html><html>", InputKind.PAGE),
        ("Grüße".encode()[:-2], InputKind.TEXT),
        (b"\xfe\x01", InputKind.OTHER),
    ],
)
def test_a_file_is_known_by_its_content(tmp_path: Path, content: Any, kind: InputKind) -> None:
    assert recognise(folder_of(tmp_path, {"file": content}) / "file").kind is kind


def test_rank_labels_tell_the_rank_of_a_trace_that_records_none(tmp_path: Path) -> None:
    trace = device(41)
    trace["traceEvents"].append({"ph": "M", "name": "process_labels", "pid": 41, "args": {"labels": "rank 5"}})
    assert recognise(folder_of(tmp_path, {"t": trace}) / "t").rank == 5


def test_a_file_cut_off_at_its_end_is_still_known(tmp_path: Path) -> None:
    whole = gzip.compress(json.dumps(device(41, 2, filler=100)).encode())
    (tmp_path / "t.json.gz").write_bytes(whole[:-20])
    assert recognise(tmp_path / "t.json.gz") == Recognised(InputKind.DEVICE, 41, 2)


def test_a_bare_number_that_is_the_process_is_no_rank() -> None:
    assert rank_in_name("trace_41.json", 41) is None
    assert rank_in_name("rank7/trace_41.json", 41) == 7
    assert (rank_in_name("trace_3.json", 41), rank_in_name("trace_rank3.json", 3)) == (3, 3)


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("device_rank12.json", 12),
        ("worker3_step_12.1694.pt.trace.json.gz", 3),
        ("kineto_7.json", 7),
        ("node-1/rank_4/trace.json", 4),
        ("run_2/rank1/device_0.json", 0),
        ("host1_4711.1694128201545.pt.trace.json", None),
        ("torch_2.1.2/kineto.json", None),
        ("frank3.json", None),
    ],
)
def test_the_rank_in_a_name(name: str, rank: int | None) -> None:
    assert rank_in_name(name) == rank


# Which files belong together


def test_files_are_paired_by_process_whatever_they_are_called(tmp_path: Path) -> None:
    files = {"host_rank0.json": host(11), "host_rank1.json": host(10), "a.json": device(10, 0), "b.json": device(11, 1)}
    assert matched(pairs_of(tmp_path, files)) == {0: ("a.json", "host_rank1.json"), 1: ("b.json", "host_rank0.json")}


def test_one_pid_in_many_containers_is_told_apart_by_the_rank_in_the_name(tmp_path: Path) -> None:
    files = {"et_0.json": host(7), "et_1.json": host(7), "x.json": device(7, 1), "y.json": device(7, 0)}
    assert matched(pairs_of(tmp_path, files)) == {0: ("y.json", "et_0.json"), 1: ("x.json", "et_1.json")}


def test_one_pid_in_many_containers_is_told_apart_by_the_folder(tmp_path: Path) -> None:
    files = {
        f"{n}/{what}.json": made for n in "ab" for what, made in (("et", host(7)), ("k", device(7, "ab".index(n))))
    }
    assert matched(pairs_of(tmp_path, files)) == {0: ("a/k.json", "a/et.json"), 1: ("b/k.json", "b/et.json")}


def test_a_trace_without_host_rows_is_paired_by_name(tmp_path: Path) -> None:
    pairs = pairs_of(tmp_path, {"host_rank2.json": host(11), "device_rank2.json": device(None)})
    assert matched(pairs) == {2: ("device_rank2.json", "host_rank2.json")}
    assert not pairs.ranks[0].records_rank


def test_a_namesake_of_another_process_is_not_paired(tmp_path: Path) -> None:
    pairs = pairs_of(tmp_path, {"host_rank0.json": host(11), "device_rank0.json": device(12, 0)})
    assert matched(pairs) == {0: ("device_rank0.json", None)}
    [note] = pairs.ranks[0].notes
    assert "process 12" in note and "another process: host_rank0.json" in note
    [unused] = pairs.notes
    assert unused.startswith("host_rank0.json: has no device trace (process 11; ")


def test_host_traces_that_nothing_tells_apart_are_not_guessed_at(tmp_path: Path) -> None:
    pairs = pairs_of(tmp_path, {"et_a.json": host(7), "et_b.json": host(7), "kineto.json": device(7, 0)})
    assert matched(pairs) == {0: ("kineto.json", None)}
    assert "of the same: et_a.json, et_b.json" in pairs.ranks[0].notes[0]
    assert len(pairs.notes) == 2


def test_two_device_traces_of_one_rank_are_a_failure_of_that_rank_only(tmp_path: Path) -> None:
    pairs = pairs_of(tmp_path, {"a.json": device(1, 0), "b.json": device(2, 1), "c.json": device(3, 1)})
    assert list(matched(pairs)) == [0]
    assert pairs.failures == [
        "rank 1: 2 device traces of different processes (b.json of process 2, c.json of process 3): different runs; "
        "give those of one run alone, in a folder of their own or to execgraph.link"
    ]


def test_a_lone_trace_without_rank_is_rank_0(tmp_path: Path) -> None:
    assert matched(pairs_of(tmp_path, {"kineto.json": device(1)})) == {0: ("kineto.json", None)}


def test_a_trace_without_rank_among_others_is_a_failure(tmp_path: Path) -> None:
    pairs = pairs_of(tmp_path, {"kineto.json": device(1), "device_rank1.json": device(2, 1)})
    assert list(matched(pairs)) == [1]
    [failure] = pairs.failures
    assert failure.startswith("kineto.json: records no rank")


def test_databases_are_device_traces_of_their_process(tmp_path: Path) -> None:
    for pid in (800, 79):
        write_database(tmp_path / f"trace_{pid}.db", LITE, [Op("k", 1, 2)], pid=pid)
    write_database(tmp_path / "run_5.rpd", RPD_3, [Op("k", 1, 2)])
    sqlite3.connect(tmp_path / "notes.db").execute("CREATE TABLE notes (id)")
    pairs = find_pairs(folder_of(tmp_path, {"et.json": host(800)}), lambda _: False, allow_mismatch=True)
    assert matched(pairs) == {0: ("run_5.rpd", None), 1: ("trace_79.db", None), 2: ("trace_800.db", "et.json")}
    assert pairs.skipped == {InputKind.OTHER_DATABASE.value: 1}


# The other files


def test_other_files_are_counted_by_kind(tmp_path: Path) -> None:
    files = {
        "device_rank0.json": device(1, 0),
        "linked.json": {**host(1), "nodes": [{"id": 1, "ts": 1.0, "inclusive_dur": 2.0}]},
        "graph.0.et": b"\x08\x0a\x03",
        "notes.txt": b"hello",
        "empty.log": b"",
        ".hidden.json": device(2, 0),
    }
    assert pairs_of(tmp_path, files).skipped == {
        InputKind.GRAPH.value: 1,
        InputKind.LINKED.value: 1,
        InputKind.OTHER.value: 1,
        InputKind.TEXT.value: 1,
    }


def test_an_unreadable_trace_is_a_failure(tmp_path: Path) -> None:
    pairs = pairs_of(tmp_path, {"device_rank0.json": device(1, 0), "device_rank1.json": b""})
    assert pairs.failures == ["device_rank1.json: is empty; was it written to its end?"]


@pytest.mark.parametrize(
    ("files", "text"), [({}, "holds no device trace;"), ({"et.json": host(1)}, "but 1 host traces;")]
)
def test_a_folder_without_device_traces_is_refused(tmp_path: Path, files: dict[str, Any], text: str) -> None:
    with pytest.raises(DataError, match=text):
        pairs_of(tmp_path, files)


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such folder"):
        find_pairs(tmp_path / "absent", lambda _: False)


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
    monkeypatch.setattr(json_parts, "PIECE", 7)
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


ROWS = st.lists(
    st.recursive(
        st.dictionaries(st.sampled_from("abc"), st.integers() | st.text('{}[]"\\a'), max_size=3),
        lambda inner: st.dictionaries(st.sampled_from("abc"), inner | st.lists(inner, max_size=2), max_size=3),
    ),
    max_size=4,
)


@given(ROWS, st.data())
def test_whole_rows_of_a_text_that_was_cut_off_are_found_and_of_the_last_one_what_is_complete(
    rows: list[dict[str, object]], data: st.DataObject
) -> None:
    text = json.dumps(rows)
    cut = data.draw(st.integers(0, len(text)))
    found = [*objects_in(text[:cut])]
    whole, decoder, at = [], json.JSONDecoder(), 1
    for row in rows:
        at = text.index("{", at)
        at = decoder.raw_decode(text, at)[1]
        whole += [row] * (at <= cut)
    assert found[: len(whole)] == whole
    assert all(json.dumps(inner) in text for inner in found[len(whole) :])


@pytest.mark.parametrize(
    "text",
    [
        '{"a":' * 20_000,
        '{"a":[' * 20_000,
        json.dumps({"a": '{"a":' * 20_000})[:-1],
        '{"a":{"b":{}},' * 20_000,
        ('{"a":' * 300 + "x") * 70,
        '{"a":[1,' + "1," * 20_000,
        '{"a":"' + '\\"{' * 20_000,
        "{" * 20_000,
    ],
)
def test_no_part_of_a_text_is_decoded_more_than_a_few_times(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    decoded = []

    def format_counts(_: str, at: int) -> tuple[object, int]:
        try:
            found, end = json.JSONDecoder(strict=False).raw_decode(text, at)
        except json.JSONDecodeError as error:
            decoded.append(error.pos - at)
            raise
        except RecursionError:
            decoded.append(5000)
            raise
        decoded.append(end - at)
        return found, end

    monkeypatch.setattr(json_parts.DECODER, "raw_decode", format_counts)
    found: Iterator[object] = objects_in(text)
    assert all(isinstance(one, dict) for one in found)
    assert sum(decoded) < 8 * len(text)


def test_only_an_object_right_after_its_key_is_the_keys() -> None:
    key = re.compile('"k":(?={)')
    assert [*objects_in('"k":{"a": 1}, "k":{"k":{"a": 2}}, "k":{"a": {"b": 3}', key=key)] == [{"a": 1}, {"k": {"a": 2}}]
