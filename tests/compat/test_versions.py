"""Traces of every version and vendor that we have, and rows as others are said to write them, are read and linked.

Every cell of the matrix in README.md here: a feature, in traces of a version or a vendor. What only some systems have
is done without where it is not: here it is taken away, as no other system is at hand.
"""

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from execgraph.linker.link import link
from execgraph.linker.readers import DeviceTrace, HostTrace, Role, read_device_trace, read_host_trace, role_of
from execgraph.schema.reasons import Reason
from fuzz.readers import accounted
from support.folders import DATA
from support.matrix import CELLS, FEATURES, PAGE, Cell, page, run_of
from support.runs import broken_rules, convert_linked


@pytest.mark.parametrize("cell", [pytest.param(cell, id=cell.name) for cell in CELLS])
def test_cell(cell: Cell) -> None:
    source = cell.source
    if source.device is not None and not source.device.exists():
        pytest.skip("set EXECGRAPH_TRACES to a folder of real traces to run this")
    FEATURES[cell.feature](run_of(source, with_host=cell.feature != "device trace alone"))


def test_the_matrix_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "write it anew: PYTHONPATH=tests python -m support.matrix"


def test_no_two_cells_have_one_name() -> None:
    assert len({cell.name for cell in CELLS}) == len(CELLS)


Json = dict[str, Any]

# Device traces alone


@pytest.mark.parametrize("name", ["gloo_slow", "modules", "training"])
def test_our_device_traces_alone_replay_as_measured(name: str) -> None:
    """Those of no cell."""
    check_alone(DATA / name / "device_rank0.json.gz")


def test_every_device_trace_of_a_real_pair_alone_replays_as_measured(real_traces: Path) -> None:
    pairs = [*(real_traces / "captures").rglob("kineto*.json.gz"), *(real_traces / "dlrm_8gpu").glob("device*.json.gz")]
    assert len(pairs) >= 30
    for device in [*pairs, *(real_traces / "simple_add").glob("*trace.json.gz")]:
        check_alone(device)


def check_alone(path: Path) -> None:
    """All ops and activities are in the graph, its replay takes as long as the run, and what is missing is said."""
    device = read_device_trace(str(path), arguments=True)
    linked = link(None, device)
    assert len(linked.ops) == len(device.ops.start)
    assert len(linked.activities) == len(device.activities.start)
    nodes = convert_linked(linked)
    assert broken_rules(nodes) == []
    assert nodes.replay_error() <= 0.005
    assert any(note.startswith("no host trace: ") for note in linked.report.notes)


# Host traces


def read_host(folder: Path, document: Json) -> HostTrace:
    (folder / "host.json").write_text(json.dumps(document))
    return read_host_trace(str(folder / "host.json"))


def as_columns(host: HostTrace) -> list[Any]:
    columns = (host.id, host.parent, host.rf_id, host.fw_parent, host.seq_id, host.scope, host.tid, host.fw_tid)
    texts = [host.name[row] for row in range(len(host))], [host.schema_text[row] for row in range(len(host))]
    return [*(column.tolist() for column in columns), *texts, [json.loads(text)["values"] for text in host.inputs]]


def flat(node: Json) -> Json:
    """A node of 1.0.2 or later as 1.0.1 lays it out."""
    attrs = {attr["name"]: attr["value"] for attr in node["attrs"]}
    lists = {
        key: node[side][part]
        for side in ("inputs", "outputs")
        for part, key in (("values", side), ("shapes", f"{side[:-1]}_shapes"), ("types", f"{side[:-1]}_types"))
    }
    return {"name": node["name"], "id": node["id"], "parent": node["ctrl_deps"], **attrs, **lists}


@pytest.fixture(scope="module")
def document() -> Json:
    found: Json = json.loads(gzip.decompress((DATA / "compiled" / "host_rank0.json.gz").read_bytes()))
    return found


@pytest.mark.parametrize(
    "change",
    [
        lambda d: {**d, "schema": "1.0.1", "nodes": [flat(node) for node in d["nodes"]]},
        lambda d: {**d, "schema": "1.0.2-chakra.0.0.4"},
        lambda d: {**d, "schema": "3.0.0-chakra.9", "new": {"nodes": []}},
        lambda d: {key: d[key] for key in ("nodes", "schema", "pid")},
        lambda d: {**d, "nodes": [{**node, "ctrl_deps": [node["ctrl_deps"]]} for node in d["nodes"]]},
        lambda d: {**d, "nodes": [{**node, "new": [{"id": 1}], "data_deps": []} for node in d["nodes"]]},
        lambda d: {**d, "nodes": [{"attrs": node["attrs"][::-1], **node, "id": str(node["id"])} for node in d["nodes"]]},
        lambda d: {**d, "nodes": [flat(n) if n["id"] % 2 else n for n in d["nodes"]]},
    ],
    ids=["flat", "1.0.2", "of the future", "few keys", "lists of parents", "new keys", "ids as texts", "mixed"],
)  # fmt: skip
def test_layouts_of_the_same_nodes_read_the_same(tmp_path, document, change):
    assert as_columns(read_host(tmp_path, change(document))) == as_columns(read_host(tmp_path, document))


def test_only_versions_that_are_not_known_are_remarked_on(tmp_path: Path, document: Json) -> None:
    versions = ["1.0.1", "1.0.2-chakra.0.0.4", "1.0.3-chakra.0.0.4", "1.1.0-chakra.0.0.4", "1.1.1-chakra.1.0.0"]
    assert all(not read_host(tmp_path, {**document, "schema": version}).notes for version in versions)
    [note] = read_host(tmp_path, {**document, "schema": "1.2.0-chakra.0.0.4"}).notes
    assert "1.2.0" in note and "read by the rules of 1.1.1" in note


def test_ids_in_any_order_are_looked_up(tmp_path: Path, document: Json) -> None:
    host = read_host(tmp_path, {**document, "nodes": document["nodes"][::-1]})
    assert link(host, read_device_trace(str(DATA / "compiled" / "device_rank0.json.gz"))).report.matched == 392


def test_no_two_nodes_keep_one_id(tmp_path: Path) -> None:
    parents = ((3, 1), (3, 1), (-7, 3), (5, -7))
    nodes = [{"id": number, "name": f"op {number}", "ctrl_deps": parent} for number, parent in parents]
    host = read_host(tmp_path, {"schema": "1.1.1", "nodes": nodes})
    assert host.id.tolist() == [3, 6, 7, 5] and host.parent.tolist() == [1, 1, 3, 7]
    assert host.oddities.without_zeros() == {Reason.NODES_WITHOUT_ID: 2}


def node(number: int, name: str, parent: int, rf_id: int = 0, **more: Any) -> Json:
    """A node of 1.1.1 on thread 1; `inputs` are (value, shape, type)."""
    scope = 7 if "[pytorch|" in name or name.startswith("##") else 0
    integers = {"rf_id": rf_id, "fw_parent": 0, "seq_id": -1, "scope": scope, "tid": 1, "fw_tid": 0}
    attrs = [{"name": key, "type": "uint64", "value": value} for key, value in integers.items()]
    attrs += [{"name": key, "type": "string", "value": value} for key, value in more.get("texts", {}).items()]
    values, shapes, types = zip(*more.get("inputs", ()), strict=True) if more.get("inputs") else ((), (), ())
    arguments = {"values": values, "shapes": shapes, "types": types, "strides": more.get("strides", [])}
    nothing: Json = {"values": [], "shapes": [], "types": [], "strides": []}
    return {"id": number, "name": name, "ctrl_deps": parent, "inputs": arguments, "outputs": nothing, "attrs": attrs}


TENSOR = ([5, 6, 0, 4, 4, "cuda:0"], [2, 2], "Tensor(float)")
ODD_NODES = [
    node(10, "aten::odd", 3, 1, inputs=[("nan", [], "Double"), ("<None>", [], "None"), (True, [], "Bool")]),
    node(11, "aten::cat", 3, 2, inputs=[([[TENSOR[0]], []], [[[2, 2]], []], "GenericList[GenericList[Tensor(float)],GenericList[]]")]),
    node(12, "triton_poi_fused_0", 3, 3, inputs=[TENSOR, (4, [], "Int"), ("grid(4,)", [], "String"), (0, [], "Int")],
         strides=[[2, 1], []], texts={"kernel_backend": "triton", "kernel_file": "c7x.py"}),
    node(-4, "aten::negative", 103, 4),
    node(14, "aten::dangling", 4270, 5),
    node(15, "## process_group:init ##", 3, 6,
         inputs=[('[{"pg_name": "0", "pg_desc": "default_pg", "ranks": [], "group_size": 2}]', [], "String")]),
    node(3, "[pytorch|profiler|execution_trace|thread]", 1), node(103, "[pytorch|profiler|execution_trace|thread]", 101),
    node(1, "[pytorch|profiler|execution_trace|process]", 1), node(101, "[pytorch|profiler|execution_trace|process]", 101),
]  # fmt: skip


def test_nodes_of_every_kind_are_matched_and_kept(tmp_path: Path) -> None:
    """Several roots, ids out of order or negative, a missing parent, lists in lists, NaN, a Triton kernel, a group."""
    host = read_host(tmp_path, {"schema": "1.1.1-chakra.0.0.4", "nodes": ODD_NODES})
    ops = [(n["name"], n["attrs"][0]["value"]) for n in ODD_NODES[:5]]
    rows = [row(name=name, ts=10 * number, args={"Record function id": number}) for name, number in ops]
    linked = link(host, read_events(tmp_path, rows))
    assert (linked.report.matched, linked.report.host_ops) == (5, 5)
    assert linked.groups[0].size == 2
    assert linked.ops.extra[2] == {"kernel_backend": "triton", "kernel_file": "c7x.py"}
    nodes = convert_linked(linked)
    names = {nodes.graph.name[line] for line in range(len(nodes.graph))}
    assert names == {name for name, _ in ops} | {"host idle", "## process_group:init ##"}
    assert broken_rules(nodes) == []


# Device traces


def row(**fields: Any) -> Json:
    return {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 10, "dur": 4, **fields}


def launched(call: Json, kernel: Json) -> list[Json]:
    """An op, the call in it and the kernel that this launches."""
    return [
        row(args={"External id": 5}),
        row(**{"cat": "cuda_runtime", "name": "launch", "ts": 11, "dur": 1, **call}),
        row(**{"cat": "kernel", "name": "add", "pid": 0, "tid": 7, "ts": 20, **kernel}),
    ]


def read_events(folder: Path, rows: list[Json], **top: Any) -> DeviceTrace:
    (folder / "device.json").write_text(json.dumps({**top, "traceEvents": rows}))
    return read_device_trace(str(folder / "device.json"))


ARGS = {"correlation": 9, "External id": 5}
ON_STREAM = {"device": 0, "stream": 7, **ARGS}


@pytest.mark.parametrize(
    ("call", "kernel"),
    [
        ({"args": ARGS}, {"args": ON_STREAM}),
        ({"cat": "Runtime", "args": {"correlation": 9, "external id": "5"}}, {"cat": "Kernel", "args": {**ARGS, "stream": 7}}),
        ({"args": {"correlation": "9"}}, {"pid": "0", "tid": "stream 7", "args": {"correlation": "9"}}),
        ({"args": {"correlation": "0x9"}}, {"args": {"correlation": 9.0, "stream": "7", "device": "0"}}),
        ({"cat": "hip_runtime", "args": ARGS}, {"args": {"correlation": 9, "queue": 3, "device": 0}}),
        ({"cat": "xpu_runtime", "args": ARGS}, {"args": {"correlation": 9, "sycl queue": "x"}}),
        ({"cat": "privateuse1_runtime", "args": ARGS}, {"args": ON_STREAM}),
        ({"cat": "npu_runtime", "args": ARGS}, {"args": ON_STREAM}),
        ({"ts": "11.000", "dur": "1", "args": ARGS}, {"ts": "20.0", "dur": "4.000", "args": ON_STREAM}),
    ],
    ids=["Kineto", "of 2021", "text", "odd numbers", "HIP", "XPU", "PrivateUse1", "a vendor to come", "times as text"],
)  # fmt: skip
def test_launches_in_the_words_of_any_vendor_and_age(tmp_path: Path, call: Json, kernel: Json) -> None:
    device = read_events(tmp_path, launched(call, kernel))
    activities = link(None, device).activities
    assert (activities.call_row.tolist(), activities.op_row.tolist()) == ([0], [0])
    assert (activities.device.tolist(), activities.stream.tolist()) == ([0], [7])
    assert (activities.end - activities.start).tolist() == [4000]


@pytest.mark.parametrize(
    ("category", "role"),
    [
        ("cpu_op", Role.OP), ("Operator", Role.OP), ("CUDA_RUNTIME", Role.CALL), ("mtia_runtime", Role.CALL),
        ("some_driver", Role.CALL), ("gpu_memset", Role.ACTIVITY), ("collective_comm", Role.ACTIVITY),
        ("cuda_sync", Role.SYNC), ("ac2g", Role.IGNORED), (None, Role.IGNORED), ("sorcery", Role.UNKNOWN),
    ],
)  # fmt: skip
def test_categories_of_any_case_have_their_role(category: str | None, role: Role) -> None:
    assert role_of(category) is role


def test_every_row_is_accounted_for(tmp_path: Path) -> None:
    rows = [
        *launched({"args": ARGS}, {"args": ON_STREAM}),
        row(ph="i"), row(ph="s", cat="ac2g"), row(ph="C"), row(ph="B"), row(ph="E"), row(ph="M", name="thread_name"),
        row(cat="python_function"), row(cat="sorcery"), row(ts=None), row(dur=None), row(dur=-5), row(dur="soon"),
        row(cat="cuda_sync", args={"cuda_sync_kind": "Context Sync", "stream": -1}),
        row(cat="cuda_event", args={"event_id": 3, "stream": 7, "correlation": 4}),
        row(cat="mtia_ccp_events", name="event_wait"),
    ]  # fmt: skip
    device = read_events(tmp_path, rows)
    assert device.read == len(rows) == accounted(device)
    assert device.skipped[Reason.UNUSABLE_TIME] == 2
    assert device.oddities[Reason.NO_DURATION] == 2


def test_what_is_said_of_the_whole_file_may_stand_anywhere_and_be_text(tmp_path: Path) -> None:
    info = {"rank": "3", "world_size": "8", "backend": None, "pg_config": "none"}
    top = {"distributedInfo": info, "baseTimeNanoseconds": "1700000000000000000", "displayTimeUnit": "ns"}
    (tmp_path / "after.json").write_text(json.dumps({"traceEvents": [row()], **top}))
    for device in (read_events(tmp_path, [row()], **top), read_device_trace(str(tmp_path / "after.json"))):
        assert (device.rank, device.world_size, device.base_time_ns) == (3, 8, 1_700_000_000_000_000_000)
        assert device.ops.start.tolist() == [10_000]


@pytest.mark.parametrize(
    "info", ["rank 3", [3], {"rank": "3"}, {"rank": 3.0, "pg_config": {"0": [3]}}, {"rank": 3, "backend": 7}, None]
)
def test_distributed_info_of_any_form_is_read_or_said_to_be_damaged(tmp_path: Path, info: Any) -> None:
    device = read_events(tmp_path, [row()], distributedInfo=info)
    said = any("damaged (Expected `object | null`" in note and "read there: nothing" in note for note in device.notes)
    assert (device.rank, said) == ((3, False) if isinstance(info, dict) else (None, info is not None))


MISSING = """
import json, sys, os, mmap, subprocess, signal
for module in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[module] = None
for place, names in {
    os: ("O_TMPFILE", "fork", "getuid", "geteuid", "link", "mkfifo", "nice", "sched_getaffinity", "wait4"),
    mmap: ("MADV_DONTNEED", "MADV_SEQUENTIAL", "MADV_WILLNEED"),
    signal: ("SIGALRM", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGUSR1"),
}.items():
    for name in names:
        if hasattr(place, name):
            delattr(place, name)
from execgraph.tools.commands.execgraph import main
if __name__ == "__main__":
    for arguments in json.loads(sys.argv[1]):
        try:
            main(arguments)
        except SystemExit as end:
            assert not end.code, arguments
"""


def test_traces_become_graphs_that_replay_without_what_only_posix_has(data: Path, tmp_path: Path) -> None:
    device = data / "training" / "device_rank0.json.gz"
    lines = (
        f"build {data / 'ddp'} -o graphs --jobs 1", "replay graphs/graph.0.et --timeline timeline.json.gz",
        f"report {device} --csv tables --only critical_path",
    )  # fmt: skip
    command = [sys.executable, "-c", MISSING, json.dumps([line.split() for line in lines])]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    # measured for coverage, what is run leaves its figures here
    made = {path.name for path in tmp_path.iterdir() if not path.name.startswith(".coverage.")}
    assert made == {"timeline.json.gz", "graphs", "tables"}
