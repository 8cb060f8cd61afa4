"""A linked trace on disk says all that it says in memory, and Chakra's tools and ours read each other's."""

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from execgraph.converter.convert import convert
from execgraph.linker.link import link, read_linked as read_linked_of_anyone
from execgraph.linker.readers import read_device_trace, read_host_trace
from execgraph.schema import json_stream
from execgraph.schema.columns import ABSENT
from execgraph.schema.errors import DataError
from execgraph.schema.graph import DependencyKind
from execgraph.schema.linked import LinkedTrace, read_linked, write_linked, writer as linked_writer
from execgraph.schema.linked.host import FRAME, THREAD_ROOTS
from hypothesis import given
from support.builder.records import LAYOUTS
from support.builder.timeline import TraceBuilder
from support.graphs import read_nodes
from support.runs import VERSIONS, convert_linked, link_run, one_thread, play, rich_run


def et_bytes(linked: LinkedTrace, path: Path) -> bytes:
    convert(linked).write(str(path))
    return path.read_bytes()


def through_a_file(linked: LinkedTrace, path: Path) -> LinkedTrace:
    write_linked(linked, str(path))
    return read_linked(str(path))


# To a file and back


@pytest.mark.parametrize(
    ("torch", "name"), [*((torch, "linked.json") for torch in LAYOUTS), ("2.13", "linked.json.gz")]
)
def test_a_graph_is_the_same_by_way_of_a_file(tmp_path: Path, torch: str, name: str) -> None:
    linked = link_run(rich_run(torch))
    back = through_a_file(linked, tmp_path / name)
    assert et_bytes(back, tmp_path / "b.et") == et_bytes(linked, tmp_path / "a.et")
    assert back.report == linked.report
    assert back.info == linked.info
    assert back.groups == linked.groups


@given(one_thread, VERSIONS)
def test_any_run_is_the_same_by_way_of_a_file(tmp_path_factory, steps, torch):
    folder = tmp_path_factory.mktemp("linked")
    linked = link_run(play(steps, torch=torch))
    assert et_bytes(through_a_file(linked, folder / "l.json"), folder / "b.et") == et_bytes(linked, folder / "a.et")


def in_chakras_order(path: Path) -> list[tuple[int, float]]:
    """Roots and times of the timed ops of a linked file, as Chakra's converter meets them: children by id."""
    nodes = {node["id"]: node for node in json.loads(path.read_text())["nodes"]}
    children, met = defaultdict(list), []
    for node in nodes.values():
        children[node["ctrl_deps"]].append(node["id"])
    for root in sorted(node["id"] for node in nodes.values() if node["name"] in THREAD_ROOTS):
        stack = [root]
        while stack:
            node = nodes.pop(stack.pop())
            stack += sorted(children[node["id"]], reverse=True)
            is_op = "thread" in node and not node["name"].startswith("ProfilerStep")
            met += [(root, node["ts"])] if is_op else []
    assert {node["name"] for node in nodes.values()} <= {f"{FRAME}trace|process]"}
    return met


@pytest.mark.parametrize("without", ["", "steps", "host"])
@pytest.mark.parametrize("run", ["threads", "compiled", "gpu/small_graph"])
def test_a_real_run_is_the_same_by_way_of_a_file_whose_ops_descend_from_their_threads_roots(
    data: Path, tmp_path: Path, run: str, without: str
) -> None:
    recorded = json.loads(gzip.decompress((data / run / "host_rank0.json.gz").read_bytes()))
    if without == "steps":
        steps = {node["id"]: node["ctrl_deps"] for node in recorded["nodes"] if node["name"].startswith("ProfilerStep")}
        nodes = [node for node in recorded["nodes"] if node["id"] not in steps]
        recorded["nodes"] = [node | {"ctrl_deps": steps.get(node["ctrl_deps"], node["ctrl_deps"])} for node in nodes]
    (host := tmp_path / "host.json").write_text(json.dumps(recorded))
    device = read_device_trace(str(data / run / "device_rank0.json.gz"))
    linked = link(None if without == "host" else read_host_trace(str(host)), device)
    back = through_a_file(linked, tmp_path / "linked.json")
    assert et_bytes(back, tmp_path / "b.et") == et_bytes(linked, tmp_path / "a.et")
    assert back.ops.parent_id.tolist() == linked.ops.parent_id.tolist()
    met = in_chakras_order(tmp_path / "linked.json")
    assert met == sorted(met)


def test_a_linked_file_is_the_same_in_pieces_blocks_and_again(tmp_path, monkeypatch):
    linked, again, files = link_run(rich_run()), link_run(rich_run()), [tmp_path / f"{name}.json.gz" for name in "abc"]
    again.report.notes = linked.report.notes  # which name the files that it was linked from
    for path, run, at_once in zip(files, (linked, again, linked), (1024, 1024, 3), strict=True):
        monkeypatch.setattr(linked_writer, "NODES_AT_ONCE", at_once)
        write_linked(run, str(path))
    assert len({path.read_bytes() for path in files}) == 1
    monkeypatch.setattr(json_stream, "PIECE", 700)
    assert et_bytes(read_linked(str(files[0])), tmp_path / "b.et") == et_bytes(linked, tmp_path / "a.et")


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    linked = link_run(rich_run())
    linked.calls.op_row[0] = 10**6
    with pytest.raises(IndexError):
        write_linked(linked, str(tmp_path / "linked.json"))
    assert list(tmp_path.iterdir()) == []


# As Chakra's converter reads it


def written_nodes(t: TraceBuilder, path: Path) -> dict[str, dict[str, Any]]:
    write_linked(link_run(t), str(path))
    return {node["name"]: node for node in json.loads(path.read_text())["nodes"]}


@pytest.mark.parametrize("torch", LAYOUTS)
def test_every_node_has_the_fields_of_host_schema_1_1_1_and_a_collectives_kernel_its_tensors(tmp_path, torch):
    """Chakra's converter takes its size from them; the annotation that it was launched in has none."""
    path = tmp_path / "linked.json"
    nodes = written_nodes(rich_run(torch), path)
    assert json.loads(path.read_text())["schema"].startswith("1.1.1")
    for node in nodes.values():
        assert {"id", "name", "ctrl_deps", "inputs", "outputs", "attrs"} <= node.keys()
        assert set(node["inputs"]) >= {"values", "shapes", "types"} <= set(node["outputs"])
        attributes = {attribute["name"]: attribute["value"] for attribute in node["attrs"]}
        assert {"rf_id", "fw_parent", "seq_id", "scope", "tid", "fw_tid", "op_schema"} <= attributes.keys()
    collective = next(node for name, node in nodes.items() if name.startswith("ncclDevKernel"))
    assert collective["inputs"]["types"][0] == "Tensor(c10::Half)"
    assert collective["inputs"]["values"][0][3:5] == [64, 2]


def test_an_op_keeps_what_the_host_trace_says_of_it(tmp_path: Path) -> None:
    t = rich_run()
    node = written_nodes(t, tmp_path / "linked.json")["aten::mm"]
    op = next(op for op in t.ops if op.name == "aten::mm")
    recorded = next(node for node in t.host_trace()["nodes"] if node["name"] == "aten::mm")
    assert (node["id"], node["ctrl_deps"]) == (recorded["id"], recorded["ctrl_deps"])
    assert node["inputs"] == recorded["inputs"] and node["outputs"] == recorded["outputs"]
    attributes = {attribute["name"]: attribute["value"] for attribute in node["attrs"]}
    assert attributes["rf_id"] == op.rf_id
    assert attributes["op_schema"] == op.schema
    assert (node["inclusive_dur"], node["exclusive_dur"]) == (7, 7)


def test_exclusive_time_is_without_the_ops_that_were_called(t: TraceBuilder, tmp_path: Path) -> None:
    with t.op("aten::linear"):
        t.work(2)
        t.leaf("aten::addmm", 5)
    node = written_nodes(t, tmp_path / "linked.json")["aten::linear"]
    assert (node["inclusive_dur"], node["exclusive_dur"]) == (7, 2)


def test_only_device_nodes_have_a_category(tmp_path: Path) -> None:
    nodes = written_nodes(rich_run(), tmp_path / "linked.json")
    on_device, nccl = {name for name, node in nodes.items() if "cat" in node}, "AllReduce_Sum_f32_RING_LL"
    nccl = f"ncclDevKernel_{nccl}(ncclDevKernelArgsStorage<4096ul>)"
    assert on_device == {"sgemm", "outside any op", "orphan", "Memcpy DtoH (Device -> Pageable)", nccl}
    kernel = nodes["sgemm"]
    assert (kernel["cat"], kernel["stream"], kernel["inclusive_dur"]) == ("kernel", 7, 20)
    assert kernel["ctrl_deps"] == nodes["aten::mm"]["id"]


def test_what_waits_names_what_it_waits_for(tmp_path: Path) -> None:
    nodes = written_nodes(rich_run(), tmp_path / "linked.json")
    collective = next(node for name, node in nodes.items() if name.startswith("ncclDevKernel"))
    assert nodes["outside any op"]["sync_dep"] == [collective["id"]]
    assert collective["sync_dep"] == [nodes["sgemm"]["id"]]


def test_a_group_of_any_name_is_a_number_there(tmp_path: Path) -> None:
    linked, path = link_run(rich_run()), tmp_path / "linked.json"
    for name, of_all, number in [
        ("0", True, "0"),
        ("7", False, "7"),
        ("94594108284448", False, "1"),
        ("5f", True, "0"),
    ]:
        (entry,) = linked.communications
        entry.group, entry.ranks = name, [*range(linked.info.world_size if of_all else 1)]
        write_linked(linked, str(path))
        assert {node["pg_name"] for node in json.loads(path.read_text())["nodes"] if "pg_name" in node} == {number}


@pytest.mark.parametrize("before", [0, 1])
def test_an_op_on_another_thread_names_the_op_that_it_was_called_from(t, tmp_path, before):
    t.leaf("aten::mm", 5, seq_id=0)
    with t.annotation("## backward ##"):
        with t.thread(2, start=t.now + 2), t.op("autograd::engine::evaluate_function: X", seq_id=0, fw_thread=1):
            t.work(before)
            t.leaf("aten::mul", 5)
        t.join_thread(2)
    nodes = written_nodes(t, tmp_path / "linked.json")
    named = {name: node["inter_thread_dep"] for name, node in nodes.items() if node.get("inter_thread_dep")}
    assert named == {"autograd::engine::evaluate_function: X": nodes["## backward ##"]["id"]}


def test_times_are_written_exactly(tmp_path: Path) -> None:
    path = tmp_path / "linked.json"
    written_nodes(rich_run("2.1"), path)
    assert '"ts":1700000000000000,' in path.read_text()


# As chakra_trace_link writes it


def chakra_node(number: int, name: str, parent: int, **more: Any) -> dict[str, Any]:
    attributes = {"rf_id": number, "fw_parent": 0, "seq_id": -1, "scope": 0, "tid": 1, "fw_tid": 0, "op_schema": ""}
    nothing: dict[str, Any] = {"values": [], "shapes": [], "types": []}
    kinds = {str: "string", int: "uint64"}
    typed = [{"name": key, "type": kinds[type(value)], "value": value} for key, value in attributes.items()]
    node = {"id": number, "name": name, "ctrl_deps": parent, "inputs": nothing, "outputs": nothing, "attrs": typed}
    return node | more


def timed(start: float, duration: float, **more: Any) -> dict[str, Any]:
    return {"ts": start, "inclusive_dur": duration, "exclusive_dur": duration} | more


def on_stream(stream: int) -> dict[str, Any]:
    return {"cat": "kernel", "ph": "X", "stream": stream}


def chakra_file(path: Path) -> str:
    """Two ops that launch a kernel each; the second kernel, on another stream, waits for the first."""
    nodes = [
        chakra_node(1, "[pytorch|profiler|execution_trace|process]", 1),
        chakra_node(2, "[pytorch|profiler|execution_trace|thread]", 1),
        chakra_node(3, "aten::mm", 2, **timed(1000, 10)),
        chakra_node(4, "sgemm", 3, **timed(1008.5, 20, **on_stream(7))),
        chakra_node(5, "aten::add", 2, **timed(1012, 5), inter_thread_dep=None),
        chakra_node(6, "vectorized_add", 5, **timed(1030, 5, **on_stream(20), sync_dep=[4])),
    ]
    top = {"schema": "1.1.1-chakra.0.0.4", "pid": 1000, "time": "2025", "start_ts": 5, "finish_ts": 9}
    path.write_text(json.dumps(top | {"nodes": nodes}))
    return str(path)


def test_a_file_of_chakra_trace_link_converts_and_says_what_is_assumed(tmp_path: Path) -> None:
    linked = read_linked(chakra_file(tmp_path / "chakra.json"))
    [note] = linked.report.notes
    expected = "no calls in the linked trace: activities are launched at their op's end or their start, the earlier one"
    assert note == expected
    nodes = convert_linked(linked, origin_ns=1_000_000)
    assert nodes.time("sgemm") == (8.5, 28.5)
    assert nodes.follows("sgemm") == {"aten::mm#0": DependencyKind.LAUNCH}
    assert nodes.follows("vectorized_add") == {"aten::add": DependencyKind.LAUNCH, "sgemm": DependencyKind.EVENT_WAIT}
    assert nodes.times(1) == [("aten::mm", 0, 8.5), ("aten::mm", 8.5, 10), ("host idle", 10, 12), ("aten::add", 12, 17)]


def test_fractions_that_a_double_cannot_hold_are_read_exactly(tmp_path: Path) -> None:
    path = Path(chakra_file(tmp_path / "chakra.json"))
    path.write_text(path.read_text().replace("1008.5", "1700000000001008.567"))
    linked = read_linked(str(path))
    assert linked.activities.start.tolist() == [1_700_000_000_001_008_567, 1_030_000]
    assert (linked.activities.end - linked.activities.start).tolist() == [20_000, 5_000]


def test_ops_without_a_time_stand_beside_others(tmp_path: Path) -> None:
    linked = read_linked(chakra_file(tmp_path / "chakra.json"))
    assert (linked.ops.start == ABSENT).tolist() == [True, True, False, False]


def test_a_compressed_file_is_read_whatever_its_name(tmp_path: Path) -> None:
    plain = Path(chakra_file(tmp_path / "chakra.json"))
    (tmp_path / "compressed.json").write_bytes(gzip.compress(plain.read_bytes()))
    assert len(read_linked(str(tmp_path / "compressed.json")).activities) == 2


OF_CHAKRA = {
    "id", "name", "ctrl_deps", "inputs", "outputs", "attrs", "ts", "inclusive_dur", "exclusive_dur", "cat", "ph", "stream", "pg_name",
}  # fmt: skip
KNOWN_TO_CHAKRA = ("schema", "pid", "time", "start_ts", "finish_ts", "nodes")


def as_chakra_links(t: TraceBuilder, path: Path) -> str:
    """A run as chakra_trace_link writes it: indented, without tables; activities have their op's attributes."""
    write_linked(link_run(t), str(path))
    document = {key: value for key, value in json.loads(path.read_text()).items() if key in KNOWN_TO_CHAKRA}
    ops = {node["id"]: node for node in document["nodes"] if "cat" not in node}
    nodes = [{key: value for key, value in node.items() if key in OF_CHAKRA} for node in document["nodes"]]
    for node in nodes:
        if "cat" in node and node["ctrl_deps"] in ops:
            node |= {key: ops[node["ctrl_deps"]][key] for key in ("attrs", "inputs", "outputs")}
    path.write_text(json.dumps(document | {"nodes": nodes}, indent=4))
    return str(path)


def collective(linked: LinkedTrace, path: Path) -> dict[str, Any]:
    """What the graph of a linked trace says of its only collective."""
    convert(linked).write(str(path))
    told = ("comm_type", "comm_size", "comm_seq", "pg_name")
    [found] = [node.attributes for node in read_nodes(path) if "comm_type" in node.attributes]
    return {name: found.get(name) for name in told}


@pytest.mark.parametrize("torch", LAYOUTS)
def test_communication_in_a_file_of_chakra_trace_link_is_what_its_ops_recorded(tmp_path: Path, torch: str) -> None:
    path = as_chakra_links(rich_run(torch), tmp_path / "chakra.json")
    assert read_linked(path).communications == []
    theirs = collective(read_linked_of_anyone(path), tmp_path / "theirs.et")
    assert theirs == collective(link_run(rich_run(torch)), tmp_path / "ours.et")
    assert theirs["comm_size"][1] == 128


def test_kernels_in_a_file_of_chakra_trace_link_have_the_work_of_their_ops(tmp_path: Path) -> None:
    report = convert(read_linked_of_anyone(as_chakra_links(rich_run(), tmp_path / "chakra.json"))).report
    assert report and report.kernels_with_work == 1


def test_ops_that_are_their_own_or_each_others_parents_end_nothing(tmp_path: Path) -> None:
    """Roots are their own parents; loops are nonsense, but must not hold up the reader."""
    path = Path(chakra_file(tmp_path / "chakra.json"))
    document = json.loads(path.read_text())
    nodes = {node["id"]: node for node in document["nodes"]}
    nodes[3]["ctrl_deps"], nodes[5]["ctrl_deps"], nodes[4]["name"] = 5, 3, "ncclDevKernel_Generic"
    path.write_text(json.dumps(document))
    assert read_linked_of_anyone(str(path)).activities.communication_row.tolist() == [0, -1]


# What is no linked trace


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ({"traceEvents": []}, "a device trace; link it with its host trace first"),
        ({"schema": "1.1.1", "nodes": [chakra_node(1, "aten::mm", 1)]}, "a host trace that was never linked"),
        ({"nodes": []}, "holds no nodes"),
        ({"nodes": [{"id": "one", "name": "x"}]}, "unexpected content"),
        ({}, "holds no nodes"),
    ],
)
def test_what_is_no_linked_trace_is_refused_with_the_remedy(tmp_path, content, complaint):
    path = tmp_path / "x.json"
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match=complaint):
        read_linked(str(path))


def written_document(folder: Path) -> dict[str, Any]:
    """A sound linked trace as it stands in its file."""
    write_linked(link_run(rich_run()), str(folder / "linked.json"))
    document: dict[str, Any] = json.loads((folder / "linked.json").read_text())
    return document


CHANGES: dict[str, tuple[tuple[Any, ...], Any, str]] = {
    "a device wait for what is not there": (("device_waits", "source", 0), 999_999, "999999 is referred to but not"),
    "a host wait for what is not there": (("host_waits", "source", 0), 999_999, "999999 is referred to but not"),
    "a call without a name": (("calls", "name", 0), -1, "a call has no name"),
    "latencies beyond any clock": (
        ("trace", "machine", "launch", "", "upper"), 10**30, r"unexpected content: .*machine\.launch",
    ),
    "a hand-off beyond any clock": (("handoffs", "source_ns", 0), 3 * 10**18, "further apart than any clock shows"),
    "a wait beyond any clock": (("host_waits", "since_ns", 0), 3 * 10**18, "further apart than any clock shows"),
    "device waits of an older version": (("device_waits", "known_by"), None, r"`array`, got `null` - at `\$.device_w"),
    "an activity without a time": (("nodes", -1, "ts"), None, "1 activities have no time"),
}  # fmt: skip
"""What is somewhere in a file in place of what belongs there, and what is said of that."""


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_contradicts_itself_is_refused(tmp_path: Path, change: str) -> None:
    (*way, last), value, complaint = CHANGES[change]
    document = place = written_document(tmp_path)
    for key in way:
        place = place[key]
    place[last] = value
    (tmp_path / "changed.json").write_text(json.dumps(document))
    with pytest.raises(DataError, match=complaint):
        read_linked(str(tmp_path / "changed.json"))


def test_no_op_is_before_a_handoff_at_the_least_time_that_a_column_holds_nor_on_a_thread_without_ops(tmp_path):
    linked = link_run(rich_run())
    threads = linked.handoffs.source_thread
    for column, value in ((threads, 424242), (linked.handoffs.source_time, ABSENT)):
        column[:] = value
        assert through_a_file(linked, tmp_path / "linked.json").handoffs.source_thread.tolist() == threads.tolist()
    nodes = json.loads((tmp_path / "linked.json").read_text())["nodes"]
    assert not any(node.get("inter_thread_dep") for node in nodes)
