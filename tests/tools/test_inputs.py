"""Which files of a folder make up a rank: by what is in them, and by their names only where that does not tell.

Which rank a device trace is of: recorded or in its name, never made up. All commands have one rule. Objects found in a
piece of JSON: the outermost that are complete, in linear time.
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
from execgraph.tools.recognise import END, InputKind, objects_in, rank_in_name, recognise
from execgraph.tools.trace_files import Pairs, find_pairs
from hypothesis import given, strategies as st
from support.builder.records import Group
from support.builder.timeline import TraceBuilder
from support.commands import Run, status_of
from support.databases import LITE, RPD_3, Op, write_database

FILLER = {"ph": "X", "cat": "python_function", "name": "f" * 200, "pid": 9, "tid": 1, "ts": 1, "dur": 1}


WORLD = 8


def host(pid: int | None) -> dict[str, Any]:
    return {"schema": "1.1.1-chakra.0.0.4", "pid": pid, "nodes": [{"id": 1, "name": "aten::add"}]}


def device(pid: int | None, rank: int | None = None, *, filler: int = 0, rank_last: bool = False) -> dict[str, Any]:
    """A device trace: host rows of a process unless pid is None, one kernel, and the rank before or after the rows."""
    op = {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": pid, "tid": 1, "ts": 1, "dur": 1}
    kernel = {"ph": "X", "cat": "kernel", "name": "add", "pid": 0, "tid": 7, "ts": 1, "dur": 1}
    rows = [kernel] * 3 + ([] if pid is None else [op]) + [FILLER] * filler
    recorded = {} if rank is None else {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": WORLD}}
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


@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
@pytest.mark.parametrize("rank_last", [False, True])
def test_process_and_rank_are_found_at_either_end_of_a_long_file(tmp_path: Path, name: str, rank_last: bool) -> None:
    content = device(41, 3, filler=2 * END // 200, rank_last=rank_last)
    assert recognise(folder_of(tmp_path, {name: content}) / name)[1:5] == (InputKind.DEVICE, 41, 3, True)


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (host(41), InputKind.HOST),
        (device(41), InputKind.DEVICE),
        (device(41)["traceEvents"], InputKind.DEVICE),
        ({**device(41), "extra": {"distributedInfo": {"rank": 0}}, "distributedInfo": {"rank": 1}}, InputKind.MERGED),
        ({**host(41), "nodes": [{"id": 1, "ts": 1.0, "inclusive_dur": 2.0}]}, InputKind.LINKED),
        ({"metadata": {"version": "0.1", "attr": []}, "nodes": [{"id": 1, "type": "COMP_NODE"}]}, InputKind.GRAPH_JSON),
        ({"traceEvents": [{"ph": "X", "cat": "computation", "name": "add", "pid": 1}]}, InputKind.OTHER_EVENTS),
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


def test_rank_labels_tell_the_rank_where_none_is_recorded_and_a_file_cut_off_is_still_known(tmp_path: Path) -> None:
    trace = device(41)
    trace["traceEvents"].append({"ph": "M", "name": "process_labels", "pid": 41, "args": {"labels": "rank 5"}})
    assert recognise(folder_of(tmp_path, {"t": trace}) / "t").rank == 5
    whole = gzip.compress(json.dumps(device(41, 2, filler=100)).encode())
    (tmp_path / "t.json.gz").write_bytes(whole[:-20])
    assert recognise(tmp_path / "t.json.gz")[1:5] == (InputKind.DEVICE, 41, 2, True)


@pytest.mark.parametrize(
    ("name", "process", "rank"),
    [
        ("device_rank12.json", None, 12),
        ("worker3_step_12.1694.pt.trace.json.gz", None, 3),
        ("kineto_7.json", None, 7),
        ("run-1765432100.12-TP-3-EP-3-DECODE.trace.json.gz", None, 3),
        ("1765432100.12-TP-3-DP-1.trace.json.gz", None, None),
        ("llama-TP-8/trace.json", None, None),
        ("node-1/rank_4/trace.json", None, 4),
        ("run_2/rank1/device_0.json", None, 0),
        ("host1_4711.1694128201545.pt.trace.json", None, None),
        ("torch_2.1.2/kineto.json", None, None),
        ("frank3.json", None, None),
        # times
        ("trace_20240131.json", None, None),
        ("trace_2024_01_31_3.json.gz", None, 3),
        ("rank2/trace_20240131_1205.json", None, 2),
        ("n0_1700000000.pt.trace.json", None, None),
        # a bare number that is the process
        ("trace_41.json", 41, None),
        ("rank7/trace_41.json", 41, 7),
        ("trace_3.json", 41, 3),
        ("trace_rank3.json", 3, 3),
    ],
)
def test_the_rank_in_a_name(name: str, process: int | None, rank: int | None) -> None:
    assert rank_in_name(name, process) == rank


PAIRED: dict[str, tuple[dict[str, Any], dict[int, tuple[str, str | None]]]] = {
    "by process, whatever they are called": (
        {"host_rank0.json": host(11), "host_rank1.json": host(10), "a.json": device(10, 0), "b.json": device(11, 1)},
        {0: ("a.json", "host_rank1.json"), 1: ("b.json", "host_rank0.json")},
    ),
    "one pid in many containers, by the rank in the name": (
        {"et_0.json": host(7), "et_1.json": host(7), "x.json": device(7, 1), "y.json": device(7, 0)},
        {0: ("y.json", "et_0.json"), 1: ("x.json", "et_1.json")},
    ),
    "one pid in many containers, by the folder": (
        {"a/et.json": host(7), "a/k.json": device(7, 0), "b/et.json": host(7), "b/k.json": device(7, 1)},
        {0: ("a/k.json", "a/et.json"), 1: ("b/k.json", "b/et.json")},
    ),
    "without host rows, by name": (
        {"et_rank2.json": host(11), "k_rank2.json": device(None)}, {2: ("k_rank2.json", "et_rank2.json")}
    ),
    "a lone trace without rank is rank 0": ({"kineto.json": device(1)}, {0: ("kineto.json", None)}),
}  # fmt: skip


@pytest.mark.parametrize("case", PAIRED)
def test_files_are_paired(tmp_path: Path, case: str) -> None:
    files, expected = PAIRED[case]
    pairs = pairs_of(tmp_path, files)
    assert matched(pairs) == expected
    assert all(pair.records_rank == ("distributedInfo" in files[pair.device]) for pair in pairs.ranks)


@pytest.mark.parametrize(
    ("files", "note", "unused"),
    [
        (
            {"host_rank0.json": host(11), "device.json": device(12, 0)},
            "(process 12; of that rank, but of another process: host_rank0.json)", ["(process 11; of that rank, but "],
        ),
        (
            {"et_a.json": host(7), "et_b.json": host(7), "device.json": device(7, 0)},
            "(process 7; of the same: et_a.json, et_b.json)", ["et_a.json: has no device trace", "et_b.json: has no"],
        ),
    ],
    ids=["a namesake of another process", "host traces that nothing tells apart"],
)  # fmt: skip
def test_host_traces_are_not_guessed_at(tmp_path: Path, files: dict[str, Any], note: str, unused: list[str]) -> None:
    pairs = pairs_of(tmp_path, files)
    assert matched(pairs) == {0: ("device.json", None)} and note in pairs.ranks[0].notes[0]
    assert all(text in line for text, line in zip(unused, pairs.notes, strict=True))


FAILURES = {
    "two device traces of one rank": (
        {"a.json": device(1, 0), "b.json": device(2, 1), "c.json": device(3, 1)}, [0],
        "rank 1: 2 device traces of different processes (b.json of process 2, c.json of process 3): different runs; "
        "give those of one run alone, in a folder of their own or to execgraph.link",
    ),
    "a trace without rank among others": (
        {"kineto.json": device(1), "device_rank1.json": device(2, 1)}, [1],
        "kineto.json: records no rank and its name has none; rename it to …rank<N>.json, or move it away",
    ),
    "an unreadable trace": (
        {"device_rank0.json": device(1, 0), "device_rank1.json": b""}, [0],
        "device_rank1.json: is empty; was it written to its end?",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", FAILURES)
def test_what_cannot_be_used_is_a_failure_of_that_rank_only(tmp_path: Path, case: str) -> None:
    files, ranks_built, failure = FAILURES[case]
    pairs = pairs_of(tmp_path, files)
    assert (list(matched(pairs)), pairs.failures) == (ranks_built, [failure])


def test_databases_are_device_traces_of_their_process(tmp_path: Path) -> None:
    for pid in (800, 79):
        write_database(tmp_path / f"trace_{pid}.db", LITE, [Op("k", 1, 2)], pid=pid)
    write_database(tmp_path / "run_5.rpd", RPD_3, [Op("k", 1, 2)])
    sqlite3.connect(tmp_path / "notes.db").execute("CREATE TABLE notes (id)")
    pairs = find_pairs(folder_of(tmp_path, {"et.json": host(800)}), lambda _: False, allow_mismatch=True)
    assert matched(pairs) == {0: ("run_5.rpd", None), 1: ("trace_79.db", None), 2: ("trace_800.db", "et.json")}
    assert pairs.skipped == {InputKind.OTHER_DATABASE.plural: 1}


def test_other_files_are_counted_by_kind(tmp_path: Path) -> None:
    files = {
        "device_rank0.json": device(1, 0),
        "linked.json": {**host(1), "nodes": [{"id": 1, "ts": 1.0, "inclusive_dur": 2.0}]},
        "graph.0.et": b"\x08\x0a\x03", "notes.txt": b"hello", "empty.log": b"", ".hidden.json": device(2, 0),
    }  # fmt: skip
    kinds = InputKind.GRAPH, InputKind.LINKED, InputKind.OTHER, InputKind.TEXT
    assert pairs_of(tmp_path, files).skipped == {kind.plural: 1 for kind in kinds}


def test_a_given_path_that_is_no_regular_file_is_not_passed_over(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, {"device_rank0.json": device(1, 0)})
    found = ranks.find_traces([folder / "device_rank0.json", Path("/dev/null")])
    assert found.failures == ["/dev/null: is empty; was it written to its end?"] and len(found.devices) == 1


@pytest.mark.parametrize(
    ("folder", "files", "text"),
    [
        ("", {}, "no device trace;"),
        ("", {"et.json": host(1)}, r"but host traces \(1\);"),
        ("absent", {}, "no such folder"),
    ],
)
def test_a_folder_without_device_traces_is_refused(tmp_path, folder, files, text):
    with pytest.raises(DataError, match=text):
        find_pairs(folder_of(tmp_path, files) / folder, lambda _: False)


NO_JOB = "record no rank, and nothing shows that they are of one job; give one of them, name them …rank<N>.json"
NOT_RANKS = ": windows or copies of one recording, not ranks; give those of one window"
ALONE = " alone, in a folder of their own or to trace-link"

pytestmark = pytest.mark.usefixtures("in_this_process")


def trace(
    folder: Path, name: str, pid: int, rank: int | None = None, talks: bool = False, minutes: int | None = 0
) -> Path:
    """A device trace of a process that launches a kernel, and talks to another one or not, so many minutes later; None
    for one on a clock without a date.
    """
    t = TraceBuilder(pid=pid, rank=rank, world_size=WORLD)
    with t.op("aten::mm"):
        t.launch("sgemm", stream=7, duration=20)
    if talks:
        t.collective("allreduce", group=Group("0", "default_pg", (0, 1)))
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    recorded = t.device_trace()
    base_ns = recorded.pop("baseTimeNanoseconds")
    dated = {} if minutes is None else {"baseTimeNanoseconds": base_ns + minutes * 60 * 10**9}
    path.write_text(json.dumps(dated | recorded))
    return path


def build_all(folder: Path, out: Path, *options: str) -> int:
    return status_of("trace-build", "--input-dir", folder, "--output-dir", out, *options)


def graphs_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("graph.*.et")) if folder.is_dir() else []


Line = Callable[[], str]
"""What a command says of the folder `in`."""


@pytest.fixture(params=["build", "report a folder", "report files", "merge", "diagnose"])
def refusal(request: pytest.FixtureRequest, run: Run, tmp_path: Path) -> Line:
    """The line with which a command refuses the traces in a folder, without the paths of folders."""
    folder, merged, built = tmp_path / "in", tmp_path / "m.json", tmp_path / "built"

    def line_of() -> str:
        ended = run(
            *{
                "build": ("trace-build", "--input-dir", folder, "--output-dir", built),
                "report a folder": ("trace-report", folder),
                "report files": ("trace-report", *sorted(folder.rglob("*.json"))),
                "merge": ("trace-merge", folder, "--output", merged),
                "diagnose": ("trace-diagnose", folder, "--strict"),
            }[request.param]
        )
        assert ended.code == 1
        errors = [line for line in ended.err.splitlines() if ": error: " in line]
        [line] = errors or [line for line in ended.out.splitlines() if line.startswith("wrong ")]
        assert graphs_in(built) == [] and not merged.exists()
        return line.replace(f"{folder}: ", "").replace(f"{folder}/", "")

    return line_of


ONE_RECORDING = (
    "device traces of one process (window1/device_rank0.json, window2/device_rank0.json): "
    "windows or copies of one recording; "
)
REFUSED: dict[str, tuple[list[tuple[Any, ...]], list[str]]] = {
    "two windows of one process are not ranks": (
        [("host_41.1.json", 41), ("host_41.2.json", 41)],
        [f"host_41.1.json, host_41.2.json: record no rank and are of one process, 41{NOT_RANKS}{ALONE}"],
    ),
    "windows in folders are told by these": (
        [("window1/device.json", 41), ("window2/device.json", 41)],
        [f"record no rank and are of one process, 41{NOT_RANKS}, such as window1"],
    ),
    "windows stay windows beside other processes that communicate": (
        [("host_41.1.json", 41, None, True), ("host_41.2.json", 41, None, True), ("host_42.1.json", 42, None, True)],
        ["of one process, 41: windows or copies"],
    ),
    "traces that nothing connects are of no job": (
        [("b.json", 41), ("a.json", 42)], [f"a.json of process 42, b.json of process 41: {NO_JOB}"]
    ),
    "one that does not communicate is not of the job of those that do": (
        [("a.json", 41, None, True), ("b.json", 42, None, True), ("c.json", 43)], [NO_JOB]
    ),
    "two runs of one rank": (
        [("a.json", 41, 0), ("b.json", 42, 0)],
        ["rank 0: 2 device traces of different processes (a.json of process 41, b.json of process 42): "
         f"different runs; give those of one run{ALONE}"],
    ),
    "runs that have a folder each, of which no rank is taken for the job": (
        [("small/device_rank0.json", 41, 0), ("gloo/device_rank0.json", 42, 0), ("gloo/device_rank1.json", 43, 1)],
        ["2 runs, each in a folder of its own (", "gloo, ", "small); give one of them"],
    ),
    "two windows that record one rank": (
        [("window1/device_rank0.json", 41, 0), ("window2/device_rank0.json", 41, 0)],
        [f"rank 0: 2 {ONE_RECORDING}give those of one window, such as window1"],
    ),
    "ranks of two days": (
        [("a.json", 41, 0), ("b.json", 42, 1, True, 24 * 60)],
        ["b.json was recorded 24.0 hours after a.json, so they are of two runs; give the traces of one"],
    ),
    "one rank under two numbers": (
        [("rank0.json", 41), ("rank1.json", 41)],
        ["rank0.json, rank1.json have the same process and times, so they are copies of one rank; give the traces of one"],
    ),
    "one rank under two recorded numbers": (
        [("a.json", 41, 0), ("b.json", 41, 1)],
        ["a.json, b.json have the same process and times, so they are copies of one rank; give the traces of one"],
    ),
    "ranks of which one has no date": ([("a.json", 41, 0, True, None), ("b.json", 42, 1)], ["hours after a.json"]),
    "windows of all ranks are one line": (
        [(f"host_{41 + rank}.{window}.json", 41 + rank, rank) for rank in (0, 1, 2) for window in (1, 2)],
        ["ranks 0-2: 2 device traces of one process each (host_41.1.json, host_41.2.json, …): windows or copies of one "
         f"recording; give those of one window{ALONE}"],
    ),
}  # fmt: skip
"""Traces by name, process, the rank that they record and whether they communicate, and what the line says of them."""


@pytest.mark.parametrize("case", REFUSED)
def test_what_are_not_the_ranks_of_one_job_is_called_so(tmp_path: Path, refusal: Line, case: str) -> None:
    traces, texts = REFUSED[case]
    for row in traces:
        trace(tmp_path / "in", *row)
    line = refusal()
    assert [text for text in texts if text not in line] == []


def test_traces_of_no_job_are_not_compared_as_ranks(tmp_path: Path, run: Run) -> None:
    for name, pid, talks in (("a.json", 41, True), ("b.json", 42, False)):
        trace(tmp_path, name, pid, talks=talks)
    ended = run("trace-diagnose", tmp_path)
    assert ended.code == 0 and "another rank" not in ended.out


def test_clocks_differ_by_a_few_minutes_or_by_all_where_none_has_a_date(tmp_path: Path, run: Run) -> None:
    for second, minutes, options in ((0, 4, ""), (None, None, ""), (0, 120, "--allow-mismatch")):
        trace(tmp_path / "in", "a.json", 41, 0, True, second)
        trace(tmp_path / "in", "b.json", 42, 1, True, minutes)
        ended = run("trace-build", tmp_path / "in", "-o", tmp_path / "out", *options.split())
        assert ended.code == 0 and ("2.0 hours after a.json, as if" in ended.err) == bool(options)


@pytest.mark.parametrize(("options", "talks"), [(["--allow-mismatch"], False), ([], True)])
def test_traces_that_communicate_or_are_said_to_be_of_one_job_are_numbered_by_process(tmp_path, run, options, talks):
    trace(tmp_path / "in", "b.json", 41, talks=talks)
    trace(tmp_path / "in", "trace_42.json", 42, talks=talks)
    out = tmp_path / "out"
    ended = run("trace-build", "--input-dir", tmp_path / "in", "--output-dir", out, *options)
    assert ended.code == 0
    assert [ExecutionGraph.read(str(out / name)).metadata["pid"] for name in graphs_in(out)] == [41, 42]
    for rank, (name, pid) in enumerate((("b.json", 41), ("trace_42.json", 42))):
        assert f"note: {name}: has no rank; numbered {rank} by its process, {pid}\n" in ended.err


@pytest.mark.parametrize(
    "names",
    [
        ["17.5-TP-0-DP-0-PP-0.trace.json", "17.5-TP-1-DP-0-PP-0.trace.json", "17.5-TP-0-DP-0-PP-1.trace.json"],
        ["dp0_pp0_tp0_dcp0_ep0_rank0.1.pt.trace.json", "dp1_pp0_tp0_dcp0_ep1_rank0.2.pt.trace.json"],
    ],
)
def test_names_with_coordinates_number_the_ranks_as_servers_do(tmp_path: Path, run: Run, names: list[str]) -> None:
    for pid, name in enumerate(reversed(names), 41):
        trace(tmp_path / "in", name, pid)
    ended = run("trace-build", tmp_path / "in", "-o", tmp_path / "out")
    assert ended.code == 0
    for rank, name in enumerate(names):
        assert f"note: {name}: numbered {rank} by the coordinates in its name, as servers count\n" in ended.err
    pids = [ExecutionGraph.read(str(tmp_path / "out" / name)).metadata["pid"] for name in graphs_in(tmp_path / "out")]
    assert pids == [*range(40 + len(names), 40, -1)]


def test_numbers_that_are_sizes_number_no_ranks(tmp_path: Path, run: Run) -> None:
    for pid, name in ((41, "llama_tp4.json"), (42, "llama_tp8.json")):
        trace(tmp_path / "in", name, pid)
    assert run("trace-build", tmp_path / "in", "-o", tmp_path / "out").code == 1


def test_numbered_traces_are_merged_reported_on_and_diagnosed_alike(tmp_path: Path, run: Run) -> None:
    folder = tmp_path / "in"
    files = [trace(folder, name, pid, talks=True) for name, pid in (("b.json", 41), ("a.json", 42))]
    for command, *arguments in (
        ("trace-merge", folder, "--output", tmp_path / "m.json"),
        ("trace-report", folder, "--only", "temporal_breakdown"),
        ("trace-report", *files, "--only", "temporal_breakdown"),
        ("trace-diagnose", folder, "--strict"),
    ):
        ended = run(command, *arguments)
        assert ended.code == 0
        assert (ended.err + ended.out).count("b.json: has no rank; numbered 0 by its process, 41") == 1


def test_the_host_trace_shows_that_a_process_communicates_too(tmp_path: Path) -> None:
    for pid in (41, 42):
        trace(tmp_path, f"device{pid}.json", pid)
        host = {"schema": "1.1.1", "pid": pid, "nodes": [{"id": 1, "name": "## process_group:init ##"}]}
        (tmp_path / f"host{pid}.json").write_text(json.dumps(host))
    assert [pair.device for pair in find_pairs(tmp_path, lambda _: False).ranks] == ["device41.json", "device42.json"]


def test_what_lies_across_two_pieces_of_a_file_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_parts, "PIECE", 7)
    device = ranks.Trace(str(tmp_path / "a.json"), InputKind.DEVICE, 41, None, False)
    for name, communicating in (("record_param_comms", True), ("aten::mm", False)):
        Path(device.name).write_text(json.dumps({"traceEvents": [{"name": name}]}))
        assert ranks.communicating({})(device) == communicating


def test_traces_without_rank_or_process_are_refused_and_a_window_without_a_rank_is_no_other_rank(tmp_path):
    devices = [
        ranks.Trace(name, InputKind.DEVICE, pid, None, False) for name, pid in (("a.json", None), ("b.json", 42))
    ]
    with pytest.raises(ranks.DataError, match=r"a\.json: without a rank and a process; name them …rank<N>.json"):
        ranks.assign_ranks(devices, lambda _: True, allow_mismatch=True)
    rows = (("0.json", 41, 0, True), ("1.json", 42, 1, True), ("before.json", 42, None, False))
    assigned = ranks.assign_ranks([ranks.Trace(name, InputKind.DEVICE, *row) for name, *row in rows], lambda _: True)
    assert [device.rank for device in assigned.traces] == [0, 1]
    said = "before.json: records no rank, and is of process 42 like 1.json; move one of them away"
    assert assigned.failures == [said]


def test_of_windows_in_folders_each_can_be_built(tmp_path: Path) -> None:
    for window, rank in ((1, 0), (1, 1), (2, 0), (2, 1)):
        trace(tmp_path / "in", f"window{window}/device_rank{rank}.json", 41 + rank, talks=True)
    assert build_all(tmp_path / "in" / "window2", tmp_path / "out") == 0
    assert graphs_in(tmp_path / "out") == ["graph.0.et", "graph.1.et"]


@pytest.mark.parametrize("rank", [None, 0])
def test_a_refused_folder_leaves_the_graphs_of_an_earlier_build(tmp_path: Path, rank: int | None) -> None:
    trace(tmp_path / "in", "a.json", 41, rank)
    assert build_all(tmp_path / "in", tmp_path / "out") == 0
    before = (tmp_path / "out" / "graph.0.et").read_bytes()
    trace(tmp_path / "in", "b.json", 42, rank)
    assert build_all(tmp_path / "in", tmp_path / "out") == 1
    assert (tmp_path / "out" / "graph.0.et").read_bytes() == before


def test_ranks_of_clocks_that_are_a_day_apart_are_taken_where_that_is_asked_for(tmp_path: Path, run: Run) -> None:
    trace(tmp_path, "a.json", 41, 0)
    trace(tmp_path, "b.json", 42, 1, True, 24 * 60)
    for command in (("trace-report",), ("trace-merge", "--output", tmp_path / "merged.db")):
        assert "are of two runs; give the traces of one, " in run(*command, tmp_path).err
        assert run(*command, tmp_path, "--allow-mismatch").code == 0


def test_refused_traces_are_not_passed_over_for_graphs_in_the_same_folder(tmp_path: Path, run: Run) -> None:
    trace(tmp_path, "a.json", 41)
    assert build_all(tmp_path, tmp_path / "out") == 0
    trace(tmp_path, "b.json", 42)
    ended = run("trace-report", tmp_path)
    assert ended.code == 1 and f"{NO_JOB}, compare two runs with --diff, or let --allow-mismatch" in ended.err


def test_traces_of_several_runs_beside_one_with_a_rank_are_called_different_runs(tmp_path: Path, run: Run) -> None:
    for name, pid, rank in (("a", 41, 0), ("b", 42, None), ("c", 43, None)):
        trace(tmp_path, f"{name}.json", pid, rank)
    ended = run("trace-report", tmp_path)
    assert ended.code == 1 and status_of("trace-report", tmp_path, "--ranks", "0", "-q") == 0
    assert "b.json of process 42, c.json of process 43: record no rank and are of different processes" in ended.err
    assert "if they are different runs, give one of them, else name them …rank<N>.json" in ended.err


def test_linked_traces_that_record_no_rank_are_not_numbered_by_their_order(tmp_path: Path, run: Run) -> None:
    linked = [tmp_path / f"{name}.linked.json" for name in "ab"]
    for path, pid in zip(linked, (41, 42), strict=True):
        device = trace(tmp_path, path.name[0] + ".json", pid)
        assert status_of("trace-link", "-q", "--device-trace", device, "--output", path) == 0
    assert status_of("trace-report", linked[0], "-q") == 0
    ended = run("trace-report", *linked)
    assert ended.code == 1
    assert "a.linked.json: records no rank and its name has none; rename it to …rank<N>.json" in ended.err
    renamed = [path.rename(tmp_path / f"linked_rank{rank}.json") for rank, path in enumerate(linked)]
    assert status_of("trace-report", *renamed, "-q") == 0


ROWS = st.lists(
    st.recursive(
        st.dictionaries(st.sampled_from("abc"), st.integers() | st.text('{}[]"\\a'), max_size=3),
        lambda inner: st.dictionaries(st.sampled_from("abc"), inner | st.lists(inner, max_size=2), max_size=3),
    ),
    max_size=4,
)


@given(ROWS, st.data())
def test_whole_rows_of_a_text_that_was_cut_off_are_found_and_of_the_last_one_what_is_complete(rows, data):
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
        '{"a":' * 20_000, '{"a":[' * 20_000, json.dumps({"a": '{"a":' * 20_000})[:-1], '{"a":{"b":{}},' * 20_000,
        ('{"a":' * 300 + "x") * 70, '{"a":[1,' + "1," * 20_000, '{"a":"' + '\\"{' * 20_000, "{" * 20_000,
    ],
)  # fmt: skip
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
