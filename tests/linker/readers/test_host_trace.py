"""Host traces of a few nodes: defaults of absent members, ids of nodes, the top level, and files that are refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from execgraph.linker.readers import HostTrace, read_host_trace
from execgraph.schema.errors import DataError
from execgraph.schema.linked import NO_TENSORS
from execgraph.schema.reasons import Reason

Node = dict[str, Any]


def read(folder: Path, *nodes: Node, **top: Any) -> HostTrace:
    path = folder / "host.json"
    path.write_text(json.dumps({"schema": "1.1.1-chakra.0.0.4", **top, "nodes": nodes}))
    return read_host_trace(str(path))


def integers(trace: HostTrace) -> list[list[int]]:
    columns = (trace.rf_id, trace.fw_parent, trace.seq_id, trace.scope, trace.tid, trace.fw_tid)
    return [column.tolist() for column in columns]


def attributes(**values: Any) -> list[dict[str, Any]]:
    return [{"name": name, "type": "", "value": value} for name, value in values.items()]


@pytest.mark.parametrize("attrs", [[], attributes(kernel_backend="triton")], ids=["flat", "listed"])
def test_of_what_a_node_does_not_say_all_is_zero_but_the_sequence(tmp_path: Path, attrs: list[Any]) -> None:
    trace = read(tmp_path, {"id": 2, "attrs": attrs})
    assert integers(trace) == [[0], [0], [-1], [0], [0], [0]]
    assert (trace.parent.tolist(), trace.name[0], trace.schema_text[0]) == ([-1], "", "")


def test_attributes_are_read_flat_and_listed_and_those_of_some_nodes_kept_by_row_unless_they_are_empty(tmp_path):
    values = {"rf_id": 1, "fw_parent": 2, "seq_id": 3, "scope": 4, "tid": 5, "fw_tid": 6, "op_schema": "add()"}
    trace = read(tmp_path, {"id": 2, **values}, {"id": 3, "attrs": attributes(**values)})
    assert integers(trace) == [[number, number] for number in range(1, 7)]
    assert [trace.schema_text[row] for row in (0, 1)] == ["add()", "add()"]
    nodes = [{"id": number} for number in range(3)]
    trace = read(tmp_path, *nodes, {"id": 3, "attrs": attributes(rf_id=7, kernel_file="", kernel_backend="triton")})
    assert trace.extra == {3: {"kernel_backend": "triton"}}


@pytest.mark.parametrize(
    ("node", "parent"),
    [
        ({"ctrl_deps": 7}, 7), ({"parent": 7}, 7), ({"ctrl_deps": 7, "parent": 8}, 7), ({"ctrl_deps": [7, 8]}, 7),
        ({"ctrl_deps": []}, -1),
    ],
)  # fmt: skip
def test_the_parent_is_the_first_control_dependency(tmp_path: Path, node: Node, parent: int) -> None:
    assert read(tmp_path, {"id": 2} | node).parent.tolist() == [parent]


def test_arguments_are_lists_whether_flat_or_together(tmp_path: Path) -> None:
    together = {"values": [1], "shapes": [[]], "types": ["Int"]}
    flat = {"id": 1, "inputs": [1], "input_shapes": [[]], "input_types": ["Int"], "outputs": [2]}
    trace = read(tmp_path, flat, {"id": 2, "inputs": together}, {"id": 3})
    assert [json.loads(text) for text in trace.inputs[:2]] == [together, together]
    assert json.loads(trace.outputs[0]) == {"values": [2], "shapes": [], "types": []}
    assert trace.inputs[2] == NO_TENSORS
    assert not trace.oddities.without_zeros()


def test_nodes_arguments_and_splits_that_cannot_be_read_are_counted(tmp_path: Path) -> None:
    splits = [attributes(in_split_size=text, out_split_size="[4]") for text in ("[1, 2]", "[1,", "")]
    trace = read(tmp_path, *({"id": number, "attrs": attrs} for number, attrs in enumerate(splits)))
    assert trace.oddities.without_zeros() == {Reason.UNREADABLE_LISTS: 1}
    trace = read(tmp_path, {"id": 1, "inputs": 5, "outputs": "none"}, {"id": 2, "inputs": 5})
    assert {*trace.inputs, *trace.outputs} == {NO_TENSORS}
    assert trace.oddities[Reason.NODES_WITHOUT_ARGUMENT_LISTS] == 3
    path = tmp_path / "host.json"
    path.write_text('{"schema": "1.0.9", "nodes": [{"id": 1}, 7, {"id": 2}]}')
    trace = read_host_trace(str(path))
    assert trace.id.tolist() == [1, 2]
    assert trace.skipped == {Reason.UNREADABLE_ROWS.of("host nodes"): 1}


def test_of_several_nodes_with_one_id_the_first_keeps_it_and_the_children(tmp_path: Path) -> None:
    for again in (0, 4):
        nodes = [{"id": again}, {"id": 9, "ctrl_deps": again}, {"id": again}, {"id": again}]
        trace = read(tmp_path, *nodes)
        assert trace.id.tolist() == [again, 9, 10, 11]
        assert trace.parent.tolist() == [-1, again, -1, -1]
        assert trace.oddities[Reason.NODES_WITHOUT_ID] == 2


def test_nodes_that_are_among_their_own_parents_have_none(tmp_path: Path) -> None:
    parents = {1: 1, 2: 1, 3: 5, 4: 3, 5: 4, 6: 5, 7: 6, 8: 9}
    trace = read(tmp_path, *({"id": node, "ctrl_deps": parent} for node, parent in parents.items()))
    assert dict(zip(trace.id.tolist(), trace.parent.tolist(), strict=True)) == {**parents, 3: -1, 4: -1, 5: -1}
    assert trace.oddities == {Reason.NODES_IN_CIRCLES: 3}


def test_nodes_without_an_id_of_their_own_get_another_one_and_their_children_follow(tmp_path: Path) -> None:
    trace = read(tmp_path, {"id": 5}, {"id": 0}, {"id": 2})
    assert trace.id.tolist() == [5, 0, 2]
    assert not trace.oddities.without_zeros()
    children = [{"id": 2, "ctrl_deps": -6}, {"id": 3, "ctrl_deps": -5}]
    trace = read(tmp_path, {"id": -5}, {"id": -5}, {"id": -6}, *children)
    assert (trace.id.tolist(), trace.parent.tolist()) == ([4, 5, 6, 2, 3], [-1, -1, -1, 6, 4])
    trace = read(tmp_path, {"id": None}, {"id": "none", "ctrl_deps": -1}, {"id": []})
    assert (trace.id.tolist(), trace.parent.tolist()) == ([1, 2, 3], [-1, -1, -1])
    trace = read(tmp_path, {"id": -1}, {"id": 1 << 63}, {"id": 7}, {"id": 2, "ctrl_deps": 7})
    assert (trace.id.tolist()[2:], trace.parent.tolist()) == ([7, 2], [-1, -1, -1, 7])
    assert sorted(trace.id.tolist()[:2]) == [8, 9]


def test_the_top_level_says_process_and_period(tmp_path: Path) -> None:
    trace = read(tmp_path, {"id": 1}, pid=0, time="today", start_ts=3, finish_ts=8.5)
    assert (trace.pid, trace.time, trace.start_ts, trace.finish_ts) == (0, "today", 3, 8.5)
    trace = read(tmp_path, {"id": 1}, pid=-1, finish_ts=None)
    assert (trace.pid, trace.time, trace.start_ts, trace.finish_ts) == (None, "", 0, 0)
    assert (trace.window, read(tmp_path, {"id": 1}).pid) == ("", None)
    said = [read(tmp_path, {"id": 1}, execgraph_window=said).window for said in ("host", 7)]
    assert said == ["host", ""]


def test_the_stand_in_for_no_host_trace_has_no_nodes() -> None:
    none = HostTrace.without_nodes()
    assert (len(none), none.pid, none.start_ts, none.finish_ts) == (0, None, 0, 0)
    assert {len(column) for column in (none.inputs, none.outputs, none.name, none.schema_text, none.fw_tid)} == {0}


@pytest.mark.parametrize(
    ("schema", "note"),
    [
        ("1.1.1-chakra.0.0.4", ""),
        ("1.0.9", ""),
        ("1.1.2", "schema '1.1.2' is not known here; read by the rules of 1.1.1"),
        ("1.2.0", "schema '1.2.0' is not known here; read by the rules of 1.1.1"),
        ("2.0.0", "schema '2.0.0' is not known here; read by the rules of 1.1.1"),
        ("v" * 50, f"schema '{'v' * 40}' is not known here; read by the rules of 1.1.1"),
        ("", "says no schema version; read by the rules of 1.1.1"),
    ],
)
def test_only_a_schema_that_is_newer_or_none_is_noted(tmp_path: Path, schema: str, note: str) -> None:
    trace = read(tmp_path, {"id": 1}, schema=schema)
    assert trace.notes == ([f"{trace.path}: {note}"] if note else [])


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"traceEvents": []}', r"a device trace \(it has traceEvents\); expected a PyTorch Execution Trace"),
        ("[{}]", r"a device trace \(it has traceEvents\); expected a PyTorch Execution Trace"),
        ('{"nodes": []}', r"the host trace has no nodes; was anything recorded\?$"),
        ('{"nodes": [{}]}', r"no nodes; was anything recorded\? 1 host nodes that cannot be read \(2 bytes\)"),
        ('{"nodes": [7, {"id":', r"no nodes; was anything recorded\? 1 host nodes that cannot be read \(1 bytes\)"),
    ],
)
def test_files_without_host_nodes_are_refused(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(DataError, match=complaint) as refused:
        read_host_trace(str(path))
    assert str(refused.value).count(str(path)) == 1
