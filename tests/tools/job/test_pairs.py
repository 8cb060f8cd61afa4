"""Which files of a folder make up a rank: by what is in them, and by their names only where that does not tell."""

import gzip
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from execgraph.schema.errors import DataError
from execgraph.tools.pairs import Pairs, find_pairs
from execgraph.tools.recognise import END, InputKind, Recognised, recognise
from execgraph.tools.trace_files import rank_in_name
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
