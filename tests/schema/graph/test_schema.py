"""The protobuf schema: the generated code is that of the .proto, and lives beside others' of the same messages."""

import re
from pathlib import Path

import pytest
from execgraph.schema.graph import ATTRIBUTES, CollectiveType, NodeType, execution_graph_pb2 as schema
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

SCHEMA = Path(schema.__file__).parent


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
    assert files.file[0].SerializeToString() == schema.DESCRIPTOR.serialized_pb


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
    schema.DESCRIPTOR.CopyToProto(other)
    other.name, other.package = "et_def.proto", "ChakraProtoMsg"
    for message in other.message_type:
        for field in (field for field in message.field if field.type_name):
            field.type_name = field.type_name.replace(".execgraph.", ".ChakraProtoMsg.")
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(other.SerializeToString())
    other_node = message_factory.GetMessageClass(pool.FindMessageTypeByName("ChakraProtoMsg.Node"))

    ours = schema.Node(id=7, name="all_reduce", type=schema.COMM_COLL_NODE)

    assert other_node.FromString(ours.SerializeToString()).name == "all_reduce"
    assert other_node is not schema.Node


def test_enums_of_the_columns_agree_with_the_schema():
    assert {f"{kind.name}_NODE": kind.value for kind in NodeType} == dict(schema.NodeType.items())
    assert {kind.name: kind.value for kind in CollectiveType} == dict(schema.CollectiveCommType.items())


def test_attribute_values_are_ones_of_the_schema():
    assert {attribute.value for attribute in ATTRIBUTES} <= set(schema.AttributeProto.DESCRIPTOR.fields_by_name)


def test_names_of_attributes_are_short_enough_to_be_told_apart_by_two_words():
    assert max(len(attribute.name) for attribute in ATTRIBUTES) <= 16
