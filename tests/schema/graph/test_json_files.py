"""trace-jsonize: graph files become JSON and come back the same, byte for byte; others are refused with their place."""

import gzip
import json
import math
import re
import subprocess
import sys
import tracemalloc
from functools import partial

import numpy as np
import pytest
from execgraph.converter.rewiring import rows_of_graph
from execgraph.schema import json_stream
from execgraph.schema.errors import DataError
from execgraph.schema.graph import ExecutionGraph, et_file as framing, execution_graph_pb2 as pb
from execgraph.schema.graph.json_files import graph_to_json, json_to_graph
from execgraph.tools.replay import NodeClass, node_classes, replay
from hypothesis import given, settings, strategies as st
from support.commands import status_of
from support.graphs import framed

run = partial(status_of, "trace-jsonize")

TEXT = st.text(st.characters(codec="utf-8"), max_size=40)
UNSIGNED32, SIGNED32 = st.integers(0, (1 << 32) - 1), st.integers(-(1 << 31), (1 << 31) - 1)
UNSIGNED64, SIGNED64 = st.integers(0, (1 << 64) - 1), st.integers(-(1 << 63), (1 << 63) - 1)
KINDS = {
    "double": st.floats(allow_nan=False) | st.just(math.nan),
    "float": st.floats(width=32, allow_nan=False) | st.just(math.nan),
    **dict.fromkeys(("int32", "sint32", "sfixed32"), SIGNED32),
    **dict.fromkeys(("int64", "sint64", "sfixed64"), SIGNED64), **dict.fromkeys(("uint32", "fixed32"), UNSIGNED32),
    **dict.fromkeys(("uint64", "fixed64"), UNSIGNED64), "bool": st.booleans(), "string": TEXT,
    "bytes": st.binary(max_size=20),
}  # fmt: skip


@st.composite
def attributes(draw):
    attribute = pb.AttributeProto(name=draw(TEXT | st.sampled_from(["is_cpu_op", "data_dep_kinds"])))
    if draw(st.integers(0, 9)) == 0:
        attribute.doc_string = draw(TEXT)
    kind = draw(st.sampled_from([*KINDS, "int64", "bool", "string"]))
    form = draw(st.sampled_from(["val", "val", "list", "none"]))
    if form == "val":
        setattr(attribute, f"{kind}_val", draw(KINDS[kind]))
    if form == "list":
        getattr(attribute, f"{kind}_list").SetInParent()
        getattr(attribute, f"{kind}_list").values.extend(draw(st.lists(KINDS[kind], max_size=4)))
    return attribute


TENSORS = st.none() | st.builds(pb.IOInfo, values=TEXT, shapes=TEXT, types=TEXT)
NODES = st.builds(
    pb.Node,
    id=UNSIGNED64,
    name=TEXT,
    type=st.integers(0, 10) | SIGNED32,
    ctrl_deps=st.lists(UNSIGNED64, max_size=3),
    data_deps=st.lists(UNSIGNED64, max_size=3),
    start_time_micros=UNSIGNED64,
    duration_micros=UNSIGNED64,
    inputs=TENSORS,
    outputs=TENSORS,
    attr=st.lists(attributes(), max_size=5),
    storage=st.none() | st.binary(max_size=20),
)
METADATA = st.builds(pb.GlobalMetadata, version=TEXT, attr=st.lists(attributes(), max_size=3))


def to_json(folder, content):
    (folder / "in.et").write_bytes(content)
    graph_to_json(str(folder / "in.et"), str(folder / "out.json"), lambda _: None)
    return (folder / "out.json").read_bytes()


def to_graph(folder, text):
    (folder / "in.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    json_to_graph(str(folder / "in.json"), str(folder / "out.et"), lambda _: None)
    return (folder / "out.et").read_bytes()


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(framing, "READ_SIZE", 300)
    monkeypatch.setattr(json_stream, "PIECE", 300)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("jsonize")


@settings(deadline=None)
@given(metadata=METADATA, nodes=st.lists(NODES, max_size=4))
def test_any_graph_comes_back_byte_for_byte(folder, metadata, nodes):
    content = framed(metadata, *nodes)
    assert to_graph(folder, to_json(folder, content)) == content


def every_kind():
    """A node with an attribute of every type, each with values at the ends of its range."""
    node = pb.Node(
        id=(1 << 64) - 1, name='a "name"\n\u2028\0', type=pb.COMM_COLL_NODE, inputs=pb.IOInfo(values='["x"]')
    )
    ends = {
        "double": [0.0, -0.0, 0.1, 5e-324, 1.7976931348623157e308, math.inf, -math.inf, math.nan],
        "float": [0.0, -0.0, 0.1, 1.401298464324817e-45, 3.4028234663852886e38, math.inf, -math.inf, math.nan],
        "bool": [False, True], "string": ["", "text", "\U0001f600\\"], "bytes": [b"", b"\0\xff", b"12"],
    }  # fmt: skip
    for bits in (32, 64):
        for kind in ("int", "sint", "sfixed"):
            ends[f"{kind}{bits}"] = [0, -1, -(1 << bits - 1), (1 << bits - 1) - 1]
        for kind in ("uint", "fixed"):
            ends[f"{kind}{bits}"] = [0, 1, (1 << bits) - 1]
    for kind, values in ends.items():
        for value in values:
            node.attr.add(name="one", doc_string="of a kind", **{f"{kind}_val": value})
            node.attr.add(name=kind, **{f"{kind}_val": value})
        getattr(node.attr.add(name=f"{kind}s"), f"{kind}_list").values.extend(values)
        getattr(node.attr.add(name=f"no {kind}s"), f"{kind}_list").SetInParent()
    node.attr.add(name="nothing")
    node.attr.add()
    return node


def test_nodes_of_storage_come_back_with_what_is_said_of_it_and_last_in_a_replay(tmp_path):
    """Chakra's STORAGE_NODE, BATCH_NODE and CHECKPOINT_NODE; its field 11 is a message, which is kept as bytes."""
    of_storage = [b"\x08\x01\x52\x02\x08\x03", None, b""]
    nodes = [
        pb.Node(
            id=i + 1, name="io", type=8 + i, data_deps=[i] if i else [], start_time_micros=10 * i, duration_micros=10
        )
        for i in range(3)
    ]
    for node, said in zip(nodes, of_storage, strict=True):
        if said is not None:
            node.storage = said
    content = framed(pb.GlobalMetadata(version="1.0.0"), *nodes)
    assert to_graph(tmp_path, text := to_json(tmp_path, content)) == content
    assert [json.loads(line.rstrip(b",")).get("storage") for line in text.splitlines()[1:4]] == ["CAFSAggD", None, ""]
    graph = ExecutionGraph.read(str(tmp_path / "out.et"))
    assert node_classes(graph).tolist() == [NodeClass.HOST] * 3
    assert replay(graph).makespan_ns == 30_000
    rows_of_graph(graph, np.array([2, 0])).write(str(tmp_path / "anew.et"))
    assert ExecutionGraph.read(str(tmp_path / "anew.et")).storage == {0: b"", 1: of_storage[0]} and not graph.notes


def test_the_json_is_a_line_for_each_node_in_the_names_of_the_schema(tmp_path):
    node = pb.Node(id=(1 << 63) + 1, name='é "\n', type=pb.COMP_NODE, data_deps=[7, 8], inputs=pb.IOInfo(values="[1]"))
    node.attr.add(name="is_cpu_op", bool_val=True)
    node.attr.add(name="pg_ranks", doc_string="who", int64_list=pb.Int64List(values=[0, -1]))
    node.attr.add(name="small", float_val=0.1)
    node.attr.add(name="special", double_list=pb.DoubleList(values=[1.5, -0.0, -math.inf, math.nan]))
    node.attr.add(name="raw", bytes_val=b"\xff")
    text = to_json(tmp_path, framed(pb.GlobalMetadata(version="0.1"), node, pb.Node(type=11)))
    attributes = (
        r'{"name":"is_cpu_op","bool_val":true},{"name":"pg_ranks","doc_string":"who","int64_list":{"values":[0,-1]}},'
        r'{"name":"small","float_val":0.10000000149011612},'
        r'{"name":"special","double_list":{"values":[1.5,-0.0,"-Infinity","NaN"]}},'
        r'{"name":"raw","bytes_val":"/w=="}'
    )
    assert text.decode().splitlines() == [
        '{"metadata":{"version":"0.1","attr":[]},"nodes":[',
        r'{"id":9223372036854775809,"name":"é \"\n","type":"COMP_NODE","ctrl_deps":[],"data_deps":[7,8],'
        r'"start_time_micros":0,"duration_micros":0,"inputs":{"values":"[1]","shapes":"","types":""},'
        f'"attr":[{attributes}]}},',
        '{"id":0,"name":"","type":11,"ctrl_deps":[],"data_deps":[],"start_time_micros":0,"duration_micros":0,"attr":[]}',
        "]}",
    ]


def reordered(value):
    """The same JSON value with the members of every object in reverse."""
    if isinstance(value, dict):
        return {key: reordered(value[key]) for key in reversed(value)}
    return [reordered(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("change", [lambda value: value, reordered], ids=["in order", "nodes before metadata"])
@pytest.mark.parametrize(
    "layout",
    [{}, {"indent": 3}, {"separators": (",", ":"), "ensure_ascii": False}, {"separators": (" ,\n", "\t: ")}],
    ids=["spaces", "indented", "compact", "odd"],
)
def test_any_layout_of_the_same_json_gives_the_same_graph(tmp_path, layout, change):
    content = framed(pb.GlobalMetadata(version='"nodes": ['), *[every_kind(), pb.Node(id=2, data_deps=[1])] * 3)
    value = json.loads(to_json(tmp_path, content))
    assert to_graph(tmp_path, json.dumps(change(value), **layout)) == content


def test_fields_left_out_of_the_json_are_the_default(tmp_path):
    assert to_graph(tmp_path, '{"metadata": {}, "nodes": [{}, {"attr": [{"name": "x"}]}]}') == framed(
        pb.GlobalMetadata(), pb.Node(), pb.Node(attr=[pb.AttributeProto(name="x")])
    )


ATTR = b"\x52\x07\x0a\x01x"
REFUSED = {
    "an unknown field": (b"\x08\x01\x58\x01", 2), "fields out of order": (b"\x12\x01x\x08\x01", 0),
    "a field twice": (b"\x08\x01\x08\x02", 1), "a number longer than needed": (b"\x08\x81\x00", 1),
    "a tag longer than needed": (b"\x88\x00\x01", 0), "a default that is spelled out": (b"\x08\x00", 0),
    "dependencies that are not packed": (b"\x28\x01\x28\x02", 0),
    "a node type beyond 32 bits": (b"\x18\x84\x80\x80\x80\x80\x80\x01", 1),
    "text that is not UTF-8": (b"\x12\x01\xff", 0), "an unknown field of a tensor": (b"\x42\x05\x0a\x01x\x20\x01", 1),
    "an unknown field of an attribute": (b"\x52\x06\x0a\x01x\x88\x02\x01", 1),
    "an unknown field of a list": (ATTR + b"\x52\x02\x10\x01", 1),
    "a value before its name": (b"\x52\x05\x48\x01\x0a\x01x", 2), "two values": (ATTR + b"\x48\x01\x48\x02", 1),
    "a truth that is not 1": (b"\x52\x06\x0a\x01x\xd8\x01\x02", 7),
    "a float that is no number, other than the usual one": (b"\x52\x08\x0a\x01x\x2d\x01\x00\x80\x7f", 6),
    "a double that is no number, other than the usual one": (b"\x52\x0c\x0a\x01x\x19\x23\x01\0\0\0\0\xf8\xff", 6),
    "no message": (b"\x07", 0),
}  # fmt: skip


@pytest.mark.parametrize(("message", "at"), REFUSED.values(), ids=REFUSED)
def test_what_would_not_come_back_is_refused_with_the_byte(tmp_path, message, at):
    before = framed(pb.GlobalMetadata(version="0.1"), pb.Node(id=1))
    with pytest.raises(DataError, match=r"in.et: cannot be converted: .* at byte \d+$") as refusal:
        to_json(tmp_path, before + framed(message) + framed(pb.Node(id=2)))
    assert int(str(refusal.value).split()[-1]) - len(before) - 1 == at
    assert not (tmp_path / "out.json").exists()


def test_a_frame_length_longer_than_needed_and_metadata_that_would_not_come_back_are_refused(tmp_path):
    with pytest.raises(DataError, match="message length that takes more bytes than it needs at byte 5"):
        to_json(tmp_path, framed(pb.GlobalMetadata(version="12")) + b"\x82\x00\x08\x01")
    with pytest.raises(DataError, match="at byte 1"):
        to_json(tmp_path, framed(pb.Node(id=1)))


@settings(deadline=None)
@given(data=st.data(), nodes=st.lists(NODES, min_size=1, max_size=2))
def test_damaged_graphs_come_back_the_same_or_are_refused(folder, data, nodes):
    content = bytearray(framed(pb.GlobalMetadata(version="1"), *nodes))
    at = data.draw(st.integers(0, len(content) - 1))
    content[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
    try:
        text = to_json(folder, bytes(content))
    except DataError as error:
        assert str(error).startswith(f"{folder}/in.et: ")
    else:
        assert to_graph(folder, text) == content


def peak(convert, source, target):
    tracemalloc.start()
    convert(str(source), str(target), lambda _: None)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most


@pytest.mark.parametrize("change", [lambda value: value, reordered], ids=["in order", "nodes before metadata"])
def test_memory_does_not_grow_with_the_graph(tmp_path, change):
    peaks = {}
    for count in (300, 1500):
        graph, text = tmp_path / f"{count}.et", tmp_path / f"{count}.json"
        graph.write_bytes(framed(pb.GlobalMetadata(), *[pb.Node(id=7, name="x" * 1000)] * count))
        there = peak(graph_to_json, graph, text)
        text.write_text(json.dumps(change(json.loads(text.read_bytes()))))
        peaks[count] = np.array([there, peak(json_to_graph, text, tmp_path / "back.et")])
        assert (tmp_path / "back.et").read_bytes() == graph.read_bytes()
    assert (peaks[1500] - peaks[300] < graph.stat().st_size / 20).all(), peaks


NODE_1, NODE_2 = '{"id": 1, "name": "a"}', '{"id": 2, "attr": [{"name": "x", "int64_val": 5}]}'


@pytest.mark.parametrize(("node", "complaint"), [
    ('{"colour": 1}', "unknown field `colour`"), ('{"id": "1"}', "Expected `int`, got `str` - at `$.id`"),
    ('{"id": -1}', "Expected `int` >= 0 - at `$.id`"), ('{"id": 18446744073709551616}', "out of range"),
    ('{"type": "COMP"}', "Invalid enum value 'COMP' - at `$.type`"),
    ('{"data_deps": [1, -1]}', "at `$.data_deps[1]`"),
    ('{"attr": [{"name": "x", "int64_val": true}]}', "Expected `int`, got `bool` - at `$.attr[0].int64_val`"),
    ('{"attr": [{"name": "x", "int64_val": null}]}', "Expected `int`, got `null` - at `$.attr[0].int64_val`"),
    ('{"attr": [{"name": "x", "int32_val": 2147483648}]}', "at `$.attr[0].int32_val`"),
    ('{"attr": [{"name": "x", "int_val": 1}]}', "unknown field `int_val` - at `$.attr[0]`"),
    ('{"attr": [{"name": "x", "int64_val": 1, "bool_val": true}]}', "int64_val and bool_val in one AttributeProto"),
    ('{"attr": [{"int64_val": 1, "string_val": "x"}]}', "int64_val and string_val in one AttributeProto"),
    ('{"attr": [{"name": "x", "int64_list": {"values": ["1"]}}]}', "at `$.attr[0].int64_list.values[0]`"),
    ('{"attr": [{"name": "x", "float_val": 1e39}]}', "at `$.attr[0].float_val`"),
    ('{"attr": [{"name": "x", "double_val": "many"}]}', "Invalid enum value 'many' - at `$.attr[0].double_val`"),
    ('{"attr": [{"name": "x", "double_list": {"values": ["NaN:00"]}}]}', "Invalid enum value 'NaN:00'"),
    ('{"attr": [{"name": "x", "bytes_val": "*"}]}', "Invalid base64"), ("null", "Expected `object`, got `null`"),
])  # fmt: skip
def test_a_node_that_is_none_is_refused_with_its_place(tmp_path, node, complaint):
    text = f'{{"metadata": {{}}, "nodes": [{NODE_1}, {NODE_2}, {NODE_1}, {node}, {NODE_1}]}}'
    with pytest.raises(DataError, match=re.escape(complaint)) as refusal:
        to_graph(tmp_path, text)
    assert str(refusal.value).startswith(f"{tmp_path}/in.json: nodes[3]: ")
    assert not (tmp_path / "out.et").exists()


@pytest.mark.parametrize(("text", "complaint"), [
    ("", "is empty"), ("{", "is not the JSON of a graph"), ("[1, 2]", "Expected `object`, got `array`"),
    ("{}", "missing required field `nodes`"), ('{"nodes": []}', "has no metadata"),
    ('{"metadata": {}, "nodes": {}}', "Expected `array`, got `object`"),
    ('{"metadata": 5, "nodes": []}', "metadata: Expected `object`, got `int`"),
    ('{"metadata": {"verson": 1}, "nodes": []}', "metadata: Object contains unknown field `verson`"),
    ('{"metadata": {}, "nodes": [], "edges": []}', "unknown field `edges`"),
    ('{"edges": [], "metadata": {}, "nodes": []}', "unknown field `edges`"),
    ('{"metadata": {}, "nodes": [], "metadata": {}}', "has metadata twice"),
    ('{"metadata": {}, "nodes": [{}], "nodes": []}', "unknown field `nodes`"),
    ('{"metadata": {}, "nodes": [{}', "is not the JSON of a graph"),
    ('{"metadata": {}, "nodes": [{} {}]}', "is not the JSON of a graph"),
    ('{"metadata": {}, "nodes": [{}]} more', "is not the JSON of a graph"),
    ('{"metadata": {}, "nodes": [{}]', "is not the JSON of a graph"),
    (b'{"metadata": {}, "nodes": [{"name": "\xff"}]}', "in.json: nodes[0]: "),
    (b'{"metadata": {"version": "\xff"}, "nodes": []}', "in.json: metadata: "),
    (framed(pb.GlobalMetadata(version="0.1"), pb.Node(id=1)), "is not the JSON of a graph"),
    (gzip.compress(b'{"metadata": {}, "nodes": []}' * 50, mtime=0)[:-9], "damaged compressed file"),
], ids=lambda value: value if isinstance(value, str) else "bytes")  # fmt: skip
def test_what_is_no_json_of_a_graph_is_refused(tmp_path, text, complaint):
    with pytest.raises(DataError, match=re.escape(complaint)) as refusal:
        to_graph(tmp_path, text)
    assert str(refusal.value).startswith(f"{tmp_path}/in.json: ")


@pytest.fixture
def graph(tmp_path):
    (tmp_path / "graph.et").write_bytes(framed(pb.GlobalMetadata(version="0.1"), pb.Node(id=1), pb.Node(id=2)))
    return tmp_path / "graph.et"


@pytest.mark.parametrize(
    ("there", "back"), [("g.json", "b.et"), ("g.json.gz", "b.et"), ("g.json", "b.et.gz"), ("plain", "b.et")]
)
def test_the_command_converts_as_the_names_say(graph, there, back, capfd):
    there, back = graph.with_name(there), graph.with_name(back)
    assert run("--input", graph, "--output", there) == 0
    assert run("--input_filename", there, "--output_filename", back) == 0
    content = back.read_bytes()
    assert (gzip.decompress(content) if back.suffix == ".gz" else content) == graph.read_bytes()
    assert "2 nodes" in capfd.readouterr().err


def test_the_command_pipes(graph):
    def piped(content, form):
        command = [sys.executable, "-c", "from execgraph.tools.commands.trace_jsonize import main; main()"]
        return subprocess.run(
            [*command, "--input", "-", "--output", "-", "--to", form], input=content, capture_output=True
        )

    there = piped(graph.read_bytes(), "json")
    back = piped(there.stdout, "et")
    assert back.stdout == graph.read_bytes()
    assert b"2 nodes" in back.stderr


@pytest.mark.parametrize(
    ("source", "target", "complaint"),
    [("-", "-", "give --to et or --to json"), ("a.et", "b.et", "both .et"), ("a.json.gz", "b.json", "both .json")],
)
def test_names_that_do_not_tell_are_wrong_usage(source, target, complaint, capfd):
    assert run("--input", source, "--output", target) == 2
    assert complaint in capfd.readouterr().err


def test_the_summary_is_one_json_object_and_cannot_share_stdout_with_the_output(graph, capfd):
    target = graph.with_name("g.json")
    assert run("--input", graph, "--output", target, "--json") == 0
    assert json.loads(capfd.readouterr().out) == {"output": str(target), "nodes": 2, "bytes": target.stat().st_size}
    assert run("--input", graph, "--output", "-", "--to", "json", "--json") == 2


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b'{"metadata": {}, "nodes": []}', b"\xff" * 99],
    ids=["empty", "nothing", "its json", "noise"],
)
def test_wrong_input_is_one_line(graph, content, capfd):
    graph.write_bytes(content)
    assert run("--input", graph, "--output", graph.with_name("g.json")) == 1
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(f"trace-jsonize: error: {graph}")
    assert [path.name for path in graph.parent.iterdir()] == [graph.name]


def test_a_byte_order_mark_is_no_part_of_the_json(tmp_path):
    assert to_graph(tmp_path, b'\xef\xbb\xbf{"metadata":{},"nodes":[{"id":1}]}') == b"\0\x02\x08\x01"
