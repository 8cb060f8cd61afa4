"""Graph files: written as the protobuf library would; what is valid by the schema is read, the rest refused."""

import gzip
import io
import re
from pathlib import Path

import numpy as np
import pytest
from execgraph.schema.columns import ABSENT, BytesColumn, Categorical, Ragged
from execgraph.schema.errors import DataError
from execgraph.schema.graph import (
    ATTRIBUTES,
    CollectiveType,
    ExecutionGraph,
    NodeType,
    TensorText,
    et_file,
    execution_graph_pb2 as pb,
    read_et,
    read_frames,
    varint,
)
from execgraph.schema.graph.json_files import graph_to_json
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given, strategies as st
from support.graphs import framed, training_step

INT64 = st.one_of(st.integers(-(1 << 63) + 1, (1 << 63) - 1), st.integers(-3, 300))
INT32 = st.one_of(st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-3, 300))
TEXT = st.text(st.characters(codec="utf-8"), max_size=200)
METADATA = st.dictionaries(TEXT, st.one_of(TEXT, INT64), max_size=4)
VALUES = {
    "bool_val": st.integers(0, 1), "int32_val": INT32, "int64_val": INT64,
    "uint64_val": st.integers(0, (1 << 63) - 1), "string_val": TEXT,
    "int32_list": st.lists(INT32, min_size=1, max_size=5), "int64_list": st.lists(INT64, min_size=1, max_size=200),
}  # fmt: skip
TENSOR = st.lists(TEXT.map(str.encode), min_size=6, max_size=6)


@st.composite
def graphs(draw):
    """Any graph that the columns can hold."""
    count = draw(st.integers(0, 7))

    def rows(cell):
        return draw(st.lists(cell, min_size=count, max_size=count))

    dependencies = rows(st.lists(INT64, max_size=4))
    names = draw(st.sets(st.sampled_from([a.name for a in ATTRIBUTES if a.name != "data_dep_kinds"])))
    cells = {a: rows(st.none() | VALUES[a.value]) for a in ATTRIBUTES if a.name in names}
    attributes = {a.name: column(a.value, cell) for a, cell in cells.items() if any(c is not None for c in cell)}
    if any(dependencies) and draw(st.booleans()):
        attributes["data_dep_kinds"] = Ragged.of([[abs(d) % 512 for d in row] for row in dependencies])
    tensors = {row: texts for row, texts in enumerate(rows(st.none() | TENSOR)) if texts and any(texts)}
    return ExecutionGraph(
        id=np.array(draw(st.lists(INT64, min_size=count, max_size=count, unique=True)), np.int64),
        name=Categorical.of(rows(TEXT)),
        type=np.array(rows(st.integers(0, 7)), np.uint8),
        data_deps=Ragged.of(dependencies),
        ctrl_deps=Ragged.of(rows(st.lists(INT64, max_size=1))),
        start_time_micros=np.array(rows(INT64), np.int64),
        duration_micros=np.array(rows(INT64), np.int64),
        attributes=attributes,
        metadata=draw(METADATA),
        tensors=TensorText(np.array(list(tensors)), *map(BytesColumn.of, zip(*tensors.values(), strict=True)))
        if tensors
        else None,
        storage={row: said for row, said in enumerate(rows(st.none() | st.binary(max_size=9))) if said is not None},
    )


def column(value, cells):
    if value == "string_val":
        texts = Categorical.of(["" if cell is None else cell for cell in cells])
        return Categorical(np.where([cell is None for cell in cells], -1, texts.codes).astype(np.int32), texts.table)
    if value.endswith("_list"):
        return Ragged.of([cell or [] for cell in cells])
    return np.array([ABSENT if cell is None else cell for cell in cells], np.int64)


def rows_of(graph):
    """The graph's content as plain values, whatever the tables and offsets behind it."""

    def cell(column, row):
        if isinstance(column, Categorical):
            return column[row] if column.codes[row] >= 0 else None
        return column[row].tolist()

    columns = [graph.id, graph.name, graph.type, graph.data_deps, graph.ctrl_deps]
    columns += [graph.start_time_micros, graph.duration_micros, *graph.attributes.values()]
    nodes = [tuple(cell(column, row) for column in columns) for row in range(len(graph))]
    t = graph.tensors
    tensors = t and (t.rows.tolist(), *([*getattr(t, name)] for name in TensorText.__slots__ if name != "rows"))
    return list(graph.attributes), nodes, tensors, graph.storage, graph.metadata


def frames_of(data):
    return [
        block.raw[start:end]
        for block in read_frames(io.BytesIO(data), "test")
        for start, end in zip(block.starts, block.ends, strict=True)
    ]


def read(tmp_path, *messages):
    path = tmp_path / "graph.et"
    path.write_bytes(framed(pb.GlobalMetadata(version="1"), *messages))
    return read_et(str(path))


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(et_file, "ROWS_AT_ONCE", 3)
    monkeypatch.setattr(et_file, "READ_SIZE", 100)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("graphs")


@given(graph=graphs())
def test_a_graph_is_read_as_it_was_written_and_its_messages_are_those_of_the_protobuf_library(folder, graph):
    path = folder / "graph.et"
    graph.write(str(path))
    assert rows_of(read_et(str(path))) == rows_of(graph)
    metadata, *nodes = frames_of(path.read_bytes())
    assert pb.GlobalMetadata.FromString(metadata).SerializeToString(deterministic=True) == metadata
    assert [pb.Node.FromString(node).SerializeToString(deterministic=True) for node in nodes] == nodes
    assert len(nodes) == len(graph)
    # without its tensors the rest is the same
    graph.tensors = None
    assert rows_of(read_et(str(path), tensors=False)) == rows_of(graph)


def test_attributes_carry_the_values_that_simulators_read(tmp_path):
    one = np.ones(1, np.int64)
    attributes = {
        a.name: column(a.value, ["1" if a.value == "string_val" else [1] if "list" in a.value else 1])
        for a in ATTRIBUTES
    }
    graph = ExecutionGraph(
        one, Categorical.of(["k"]), np.array([4], np.uint8), Ragged.of([[1]]), Ragged.of([[]]), one, one, attributes
    )
    graph.write(str(tmp_path / "graph.et"))
    node = pb.Node.FromString(frames_of((tmp_path / "graph.et").read_bytes())[1])
    assert [(a.name, a.WhichOneof("value")) for a in node.attr] == [(a.name, a.value) for a in ATTRIBUTES]


def test_equal_graphs_give_equal_bytes_compressed_or_not(tmp_path):
    graph = read(tmp_path, pb.Node(id=5, name="op"), pb.Node(id=6))
    contents = {}
    for name in ("a.et", "b.et", "a.et.gz", "b.et.gz"):
        graph.write(str(tmp_path / name))
        contents[name] = (tmp_path / name).read_bytes()
    assert contents["a.et"] == contents["b.et"] == gzip.decompress(contents["a.et.gz"])
    assert contents["a.et.gz"] == contents["b.et.gz"]
    assert rows_of(read_et(str(tmp_path / "a.et.gz"))) == rows_of(graph)


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [
        ("int32", [-77, 3, -4, 1 << 30]), ("int64", [-77, 3, -4, 1 << 60]), ("uint32", [(1 << 32) - 1]),
        ("uint64", [1 << 60]), ("bool", [1, 0]),
    ],
)  # fmt: skip
def test_any_type_that_is_encoded_as_these_integers_is_read(tmp_path, kind, numbers):
    node = pb.Node(id=1, attr=[pb.AttributeProto(name="comm_size", **{f"{kind}_val": numbers[0]})])
    getattr(node.attr.add(name="pg_ranks"), f"{kind}_list").values.extend(numbers)
    graph = read(tmp_path, node)
    assert graph.integers("comm_size").tolist() == numbers[:1]
    assert graph.attributes["pg_ranks"][0].tolist() == numbers


def test_unknown_attributes_and_values_of_other_kinds_are_skipped(tmp_path):
    attributes = [
        pb.AttributeProto(name="is_cpu_op", bool_val=True), pb.AttributeProto(name="priority", double_val=1.5),
        pb.AttributeProto(name="a name longer than any known one", int64_val=3),
        pb.AttributeProto(name="stream", string_val="seven"), pb.AttributeProto(name="device"),
        pb.AttributeProto(string_val="nameless"),
    ]  # fmt: skip
    graph = read(tmp_path, pb.Node(id=1, attr=attributes), pb.Node(id=2))
    assert graph.integers("is_cpu_op").tolist() == [1, ABSENT]
    assert graph.integers("stream").tolist() == [ABSENT, ABSENT]
    assert graph.attributes.keys() == {"is_cpu_op", "stream"}


def test_nodes_of_one_id_are_refused(tmp_path):
    with pytest.raises(DataError, match="2 nodes have the id 7; number them again"):
        read(tmp_path, *(pb.Node(id=number) for number in (7, 1, 2, 3, 7)))


ODD_FIELDS = [
    varint(99 << 3) + b"\x05",
    varint(77 << 3 | 2) + b"\x03abc",
    varint(60 << 3 | 1) + bytes(8),
    varint(61 << 3 | 5) + bytes(4),
    varint(5 << 3) + b"\x85\x00",  # a dependency that is not packed, its number longer than needed
    varint(1 << 3 | 5) + bytes(4),  # an id of another wire type
]


@given(data=st.data(), graph=graphs())
def test_fields_in_any_order_are_read_as_by_the_protobuf_library(folder, data, graph):
    path, plain = folder / "graph.et", folder / "plain.et"
    graph.attributes.pop("data_dep_kinds", None)
    graph.write(str(path))
    metadata, *nodes = frames_of(path.read_bytes())
    mixed = []
    for number, node in enumerate(nodes):
        pieces = [
            *fields_of(pb.Node.FromString(node)),
            *fields_of(pb.Node.FromString(data.draw(st.sampled_from(nodes)))),
        ]
        mixed.append(b"".join([*data.draw(st.permutations(pieces + ODD_FIELDS)), varint(1 << 3), varint(number)]))
    path.write_bytes(framed(metadata, *mixed))
    plain.write_bytes(framed(metadata, *(pb.Node.FromString(node) for node in mixed)))
    assert rows_of(read_et(str(path))) == rows_of(read_et(str(plain)))


def fields_of(message):
    """A message's fields, each encoded on its own; the value of an attribute before its name."""
    pieces = []
    for field, value in message.ListFields():
        for item in value if hasattr(value, "extend") else [value]:
            if field.name == "attr":
                reverse = b"".join(fields_of(item)[::-1])
                pieces.append(varint(field.number << 3 | 2) + varint(len(reverse)) + reverse)
            else:
                pieces.append(type(message)(**{field.name: [item] if item is not value else item}).SerializeToString())
    return pieces


def test_kinds_that_some_nodes_lack_stay_parallel_to_the_dependencies_and_must_fit_them(tmp_path):
    kinds = pb.AttributeProto(name="data_dep_kinds", int32_list=pb.Int32List(values=[2, 4]))
    graph = read(tmp_path, pb.Node(id=1), pb.Node(id=2, data_deps=[1]), pb.Node(id=3, data_deps=[1, 2], attr=[kinds]))
    assert graph.attributes["data_dep_kinds"].values.tolist() == [0, 2, 4]
    kinds = pb.AttributeProto(name="data_dep_kinds", int32_list=pb.Int32List(values=[2, 4]))
    with pytest.raises(DataError, match="node 9 has 2 data_dep_kinds for 1 data_deps"):
        read(tmp_path, pb.Node(id=9, data_deps=[1], attr=[kinds]))


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "is empty"),
        (gzip.compress(b"", mtime=0), "is empty"),
        (gzip.compress(framed(pb.GlobalMetadata(version="1")), mtime=0)[:-9], "cannot be read to its end"),
        (b'{"metadata": {}, "nodes": []}', "is cut off: the message at byte 0"),
        (b"\xff" * 20, "the length at byte 0 is impossible"),
        (varint(1 << 31) + bytes(50), "the length at byte 0 is impossible"),
        (varint((1 << 31) - 1) + bytes(50), "the message at byte 0 goes beyond the end"),
        (framed(pb.Node(id=3)), "no metadata where a graph begins with it at byte 1"),
        (framed(pb.GlobalMetadata(), b"\x0a"), "beyond its message at byte 2"),
        (
            framed(pb.GlobalMetadata(), pb.Node(id=1), b"\x00\x01"),
            "no field, or one that goes beyond its message at byte 5",
        ),
        (framed(pb.GlobalMetadata(), b"\x12\x01\xff"), "a text that is not UTF-8 at byte 4"),
        (framed(pb.GlobalMetadata(), b"\x2a\x02\x01\x80"), "a packed field that ends inside a number at byte 4"),
        (
            framed(pb.GlobalMetadata(), b"\x2a\x0b" + b"\x80" * 10 + b"\x01"),
            "a number of more than ten bytes at byte 4",
        ),
        (framed(pb.GlobalMetadata(), pb.Node(type=11)), "a node of unknown type 11 at byte 2"),
    ],
    ids=lambda value: value if isinstance(value, str) else "bytes",
)
def test_what_is_no_graph_is_refused_with_the_place(tmp_path, content, complaint):
    path = tmp_path / "graph.et"
    path.write_bytes(content)
    with pytest.raises(DataError, match=complaint) as refusal:
        read_et(str(path))
    assert str(refusal.value).startswith(f"{path}: ")
    with pytest.raises(DataError, match="is a folder; name a file in it"):
        read_et(str(tmp_path))


def test_a_file_cut_anywhere_but_between_messages_is_refused(tmp_path):
    path = tmp_path / "graph.et"
    data = framed(pb.GlobalMetadata(version="1"), pb.Node(id=1, name="a" * 150), pb.Node(id=2, data_deps=[1]))
    whole = {0, 4, 4 + 157, len(data)}
    for size in sorted(set(range(1, len(data))) - whole):
        path.write_bytes(data[:size])
        with pytest.raises(DataError, match="is cut off"):
            read_et(str(path))


@pytest.mark.parametrize("complaint", [r"comm_tag .* beyond 32 bits", "a tensor text is not UTF-8"])
def test_what_the_format_cannot_hold_is_not_written(tmp_path, complaint):
    graph = read(tmp_path, pb.Node(id=1, inputs=pb.IOInfo(values="[1]")))
    if "UTF-8" in complaint:
        graph.tensors.input_values = BytesColumn.of([b"\xff"])
    else:
        graph.attributes["comm_tag"] = np.array([1 << 31])
    with pytest.raises(DataError, match=complaint):
        graph.write(str(tmp_path / "new.et"))
    assert not (tmp_path / "new.et").exists()


def test_a_file_name_that_is_no_text_is_kept_readable(tmp_path):
    graph = read(tmp_path)
    graph.metadata = {"source_host": "trace\udcff.json"}
    graph.write(str(tmp_path / "new.et"))
    assert read_et(str(tmp_path / "new.et")).metadata == {"source_host": "trace\\udcff.json"}


@pytest.mark.parametrize("name", ["graph.json", "graph.json.gz"])
def test_a_name_that_ends_in_json_gets_the_json_of_the_graph(tmp_path: Path, name: str) -> None:
    """That of trace-jsonize, from the same graph's .et file."""
    graph = training_step()
    graph.write(tmp_path / "graph.et")
    graph.write(tmp_path / name)
    graph_to_json(str(tmp_path / "graph.et"), str(tmp_path / f"other-{name}"), lambda _: None)
    assert (tmp_path / name).read_bytes() == (tmp_path / f"other-{name}").read_bytes()
    assert read_et(tmp_path / "graph.et").name[0] == "aten::mm"


SCHEMA = Path(pb.__file__).parent


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    protoc = pytest.importorskip("grpc_tools.protoc")
    folder = tmp_path_factory.mktemp("generated")
    options = [f"-I{SCHEMA}", f"--python_out={folder}", f"--pyi_out={folder}"]
    assert protoc.main(["protoc", *options, f"--descriptor_set_out={folder}/set", "execution_graph.proto"]) == 0
    return folder


def test_checked_in_code_defines_the_messages_of_the_proto(generated):
    files = descriptor_pb2.FileDescriptorSet.FromString((generated / "set").read_bytes())
    # this protoc option adds JSON names, which the generated code leaves out
    for message in files.file[0].message_type:
        for field in message.field:
            field.ClearField("json_name")
    assert files.file[0].SerializeToString() == pb.DESCRIPTOR.serialized_pb


def test_checked_in_stubs_declare_what_the_proto_does(generated):
    def declarations(folder):
        # the arguments of __init__ and the imports are spelled differently from one protoc to the next
        text = (folder / "execution_graph_pb2.pyi").read_text()
        return [line for line in text.splitlines() if line and not re.match(r" *(def __init__|from|import) ?", line)]

    assert declarations(generated) == declarations(SCHEMA)


def test_checked_in_code_asks_for_no_runtime_newer_than_the_oldest_supported():
    assert "ValidateProtobufRuntimeVersion" not in (SCHEMA / "execution_graph_pb2.py").read_text()


def test_other_definitions_of_the_messages_can_be_loaded_into_the_same_process():
    other = descriptor_pb2.FileDescriptorProto()
    pb.DESCRIPTOR.CopyToProto(other)
    other.name, other.package = "et_def.proto", "ChakraProtoMsg"
    for message in other.message_type:
        for field in (field for field in message.field if field.type_name):
            field.type_name = field.type_name.replace(".execgraph.", ".ChakraProtoMsg.")
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(other.SerializeToString())
    other_node = message_factory.GetMessageClass(pool.FindMessageTypeByName("ChakraProtoMsg.Node"))

    ours = pb.Node(id=7, name="all_reduce", type=pb.COMM_COLL_NODE)

    assert other_node.FromString(ours.SerializeToString()).name == "all_reduce"
    assert other_node is not pb.Node


def test_enums_of_the_columns_agree_with_the_schema():
    assert {f"{kind.name}_NODE": kind.value for kind in NodeType} == dict(pb.NodeType.items())
    assert {kind.name: kind.value for kind in CollectiveType} == dict(pb.CollectiveCommType.items())


def test_attribute_values_are_ones_of_the_schema():
    assert {attribute.value for attribute in ATTRIBUTES} <= set(pb.AttributeProto.DESCRIPTOR.fields_by_name)


def test_names_of_attributes_are_short_enough_to_be_told_apart_by_two_words():
    assert max(len(attribute.name) for attribute in ATTRIBUTES) <= 16
