"""Converts graph files to JSON and back, byte for byte, in pieces: memory does not grow with the file.

Written is `{"metadata": {...}, "nodes": [...]}` with one node per line; any other layout is read, too. Only where
there is none, `doc_string`, tensors, `storage` and the value of an attribute are left out. Bytes are base64 text;
doubles that are not finite are "Infinity", "-Infinity" or "NaN"; a node type that has no name is a number.
"""

import io
import math
import shutil
from base64 import b64encode
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from itertools import chain, islice
from tempfile import TemporaryFile
from types import GenericAlias
from typing import IO, Annotated, Any, Generic, Literal, NamedTuple, TypeVar, Union, cast

import msgspec
import numpy as np
import orjson
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from msgspec import UNSET, Meta, Struct

from ..errors import DataError
from ..io import open_input, open_output
from ..json_stream import ArrayReader
from ..progress import OnProgress, unseen
from .et_file import frames_of, read_frames
from .execution_graph_pb2 import AttributeProto, GlobalMetadata, Node, NodeType
from .nodes import NodeColumns
from .wire import Messages, WireError, varint, varint_lengths

T = TypeVar("T")
M = TypeVar("M", bound=Message)
Members = dict[str, Any]
"""A message as protobuf's constructors take it and JSON shows it: values by the names of the fields."""
LARGEST_FLOAT = float.fromhex("0x1.fffffep+127")
NODE_TYPES: dict[int, str] = {number: name for name, number in NodeType.items()}
UNSIGNED32 = Annotated[int, Meta(ge=0, le=(1 << 32) - 1)]
SIGNED32 = Annotated[int, Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
UNSIGNED64 = Annotated[int, Meta(ge=0)]
SIGNED64 = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
NOT_FINITE = Literal["Infinity", "-Infinity", "NaN"]
JSON_TYPES: dict[int, Any] = {
    FieldDescriptor.TYPE_DOUBLE: float | NOT_FINITE,
    FieldDescriptor.TYPE_FLOAT: Annotated[float, Meta(ge=-LARGEST_FLOAT, le=LARGEST_FLOAT)] | NOT_FINITE,
    FieldDescriptor.TYPE_BOOL: bool, FieldDescriptor.TYPE_STRING: str, FieldDescriptor.TYPE_BYTES: bytes,
    FieldDescriptor.TYPE_ENUM: Literal[tuple(NODE_TYPES.values())] | SIGNED32,
    **dict.fromkeys((FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_SINT32, FieldDescriptor.TYPE_SFIXED32), SIGNED32),
    **dict.fromkeys((FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_FIXED32), UNSIGNED32),
    **dict.fromkeys((FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_SINT64, FieldDescriptor.TYPE_SFIXED64), SIGNED64),
    **dict.fromkeys((FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64), UNSIGNED64),
}  # fmt: skip
FLOATS, FLOAT_LISTS = {"double_val", "float_val"}, {"double_list", "float_list"}
FLOATING = FLOATS | FLOAT_LISTS
NOT_VALUES = {"name", "doc_string"}


class Converted(NamedTuple):
    """The number of nodes and of bytes (before compression) written."""

    nodes: int
    bytes: int


def _metadata(metadata: GlobalMetadata) -> Members:
    return {"version": metadata.version, "attr": _attributes(metadata.attr)}


def _node(node: Node) -> Members:
    members = {
        "id": node.id, "name": node.name, "type": NODE_TYPES.get(node.type, node.type), "ctrl_deps": node.ctrl_deps[:],
        "data_deps": node.data_deps[:], "start_time_micros": node.start_time_micros,
        "duration_micros": node.duration_micros,
    }  # fmt: skip
    for side in ("inputs", "outputs"):
        if node.HasField(side):
            tensors = getattr(node, side)
            members[side] = {"values": tensors.values, "shapes": tensors.shapes, "types": tensors.types}
    members["attr"] = _attributes(node.attr)
    return members | ({"storage": node.storage} if node.HasField("storage") else {})


def _attributes(attributes: Iterable[AttributeProto]) -> list[Members]:
    members_of_all = []
    for attribute in attributes:
        members: Members = {"name": attribute.name}
        if attribute.doc_string:
            members["doc_string"] = attribute.doc_string
        if kind := attribute.WhichOneof("value"):
            value = getattr(attribute, kind)
            members[kind] = TO_JSON[kind](value) if kind in TO_JSON else value
        members_of_all.append(members)
    return members_of_all


def _float_to_json(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _record(message: Descriptor) -> type[Struct]:
    """Returns the typed record that the JSON text of such a message is decoded into."""
    fields: list[tuple[str, Any, Any]] = []
    for field in message.fields:
        kind = _record(field.message_type) if field.message_type is not None else JSON_TYPES[field.type]
        # protobuf's properties for repeated fields differ between its releases
        whole = GenericAlias(list, kind) if field.default_value == [] else kind
        fields.append((field.name, Union[whole, msgspec.UnsetType], UNSET))  # noqa: UP007
    return msgspec.defstruct(message.name, fields, forbid_unknown_fields=True, gc=False)


LISTS = [kind for kind in AttributeProto.DESCRIPTOR.fields_by_name if kind.endswith("_list")]
TO_JSON: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(LISTS, lambda value: {"values": value.values[:]}),
    **dict.fromkeys(FLOAT_LISTS, lambda value: {"values": [*map(_float_to_json, value.values)]}),
    **dict.fromkeys(FLOATS, _float_to_json),
}
"""Conversions of values that orjson cannot write as they are."""


class Form(Generic[M]):
    """The JSON form of a kind of message."""

    def __init__(self, message: type[M], members: Callable[[M], Members]) -> None:
        self._message = message
        self._members = members
        # stubs name the descriptors of both of protobuf's implementations
        self._decoder = msgspec.json.Decoder(_record(cast(Descriptor, message.DESCRIPTOR)))

    def encode(self, text: bytes | msgspec.Raw, where: str) -> bytes:
        """Returns the message of a JSON text. Raises DataError, which begins with where that is."""
        try:
            fields = msgspec.to_builtins(self._decoder.decode(text), builtin_types=(bytes,))
            for attribute in fields.get("attr", ()):
                several = len(attribute) > 1 + ("name" in attribute)
                if several and len(kinds := [kind for kind in attribute if kind not in NOT_VALUES]) > 1:
                    # protobuf keeps one of them
                    raise ValueError(f"{' and '.join(kinds)} in one AttributeProto, which has one value")
                for kind in () if FLOATING.isdisjoint(attribute) else FLOATING & attribute.keys():
                    value = attribute[kind]
                    is_list = kind in FLOAT_LISTS
                    attribute[kind] = {"values": [*map(float, value.get("values", ()))]} if is_list else float(value)
            message = self._message(**fields)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise DataError(f"{where}: {error}") from error
        return message.SerializeToString(deterministic=True)

    def decode(self, encoded: bytes) -> bytes:
        """Returns the JSON text of a message, in one line. Raises WireError where `encode` would not return it."""
        try:
            message = self._message.FromString(encoded)
        except DecodeError as error:
            raise WireError(f"no {self._message.DESCRIPTOR.name} ({error})", 0) from error
        message.DiscardUnknownFields()
        text = orjson.dumps(self._members(message), lambda raw: b64encode(raw).decode())
        # of numbers that are none JSON has only the usual one
        again = self.encode(text, "") if b'"NaN"' in text else message.SerializeToString(deterministic=True)
        if again != encoded:
            pairs = enumerate(zip(again, encoded, strict=False))
            same = next((at for at, (ours, theirs) in pairs if ours != theirs), min(len(again), len(encoded)))
            raise WireError("an encoding that would not come back the same", same)
        return text


METADATA, NODE = Form(GlobalMetadata, _metadata), Form(Node, _node)


def graph_to_json(source: str, target: str, progress: OnProgress) -> Converted:
    """Writes a graph file as JSON. Raises DataError with the byte of damage or of what JSON could not give back."""
    with open_input(source) as stream, open_output(target) as out:
        return _write_json(read_frames(stream, source), source, out, progress)


def write_json(graph: NodeColumns, path: str) -> None:
    """Writes the graph as JSON, one node per line, whole or not at all. Raises DataError when no file can hold it."""
    with open_output(path) as out:
        blocks = (block for frames in frames_of(graph) for block in read_frames(io.BytesIO(frames), path))
        _write_json(blocks, path, out)


def _write_json(blocks: Iterable[Messages], source: str, out: IO[bytes], progress: OnProgress = unseen) -> Converted:
    """Writes messages, of which the first one is the metadata."""
    nodes = size = 0
    for block in blocks:
        at, begin = 0, np.append(0, block.ends[:-1])
        shortest = varint_lengths((block.ends - block.starts).view(np.uint64))
        try:
            if (longer := np.flatnonzero(block.starts - begin != shortest)).size:
                raise WireError("a message length that takes more bytes than it needs", int(begin[longer[0]]))
            for at, end in zip(block.starts.tolist(), block.ends.tolist(), strict=True):
                message = block.raw[at:end]
                if not size:
                    size += out.write(b'{"metadata":%s,"nodes":[' % METADATA.decode(message))
                else:
                    size += out.write((b",\n" if nodes else b"\n") + NODE.decode(message))
                    nodes += 1
        except WireError as error:
            position = block.offset + at + error.at
            raise DataError(f"{source}: cannot be converted: {error.what} at byte {position}") from error
        progress(len(block.raw))
    if not size:
        raise DataError(f"{source}: is empty; was the graph written to its end?")
    return Converted(nodes, size + out.write(b"\n]}\n"))


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    """The JSON of a whole graph file, or of its beginning without nodes."""

    nodes: list[msgspec.Raw]
    metadata: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Remainder(msgspec.Struct, forbid_unknown_fields=True):
    """The end of a graph file's JSON from the last block of nodes on. A second list of nodes is an unknown field."""

    last_nodes: list[msgspec.Raw]
    metadata: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


def json_to_graph(source: str, target: str, progress: OnProgress) -> Converted:
    """Writes the graph file that a JSON file represents. Raises DataError with the node where it is no graph's JSON."""
    count = size = 0

    def write(nodes: list[msgspec.Raw], nodes_out: IO[bytes]) -> None:
        nonlocal count, size
        for node in nodes:
            size += nodes_out.write(_frame(NODE.encode(node, f"{source}: nodes[{count}]")))
            count += 1

    with open_input(source) as stream, open_output(target) as out:
        reader: ArrayReader[msgspec.Raw] = ArrayReader(stream, source, "nodes", msgspec.Raw, progress)
        pieces = iter(reader)
        # the first piece is read, as what stands before the nodes is known then
        first = [*islice(pieces, 1)]
        head = _decode(reader.head + b"]}" if reader.has_array else reader.document, _Document, source)
        has_metadata = head.metadata is not msgspec.UNSET
        with nullcontext(out) if has_metadata else TemporaryFile() as nodes_out:
            if has_metadata:
                size += out.write(_metadata_frame(head.metadata, source))
            for _, nodes in chain(first, pieces):
                write(nodes, nodes_out)
            remainder = _decode(b'{"last_nodes":[' + reader.document[len(reader.head) :], _Remainder, source)
            write(remainder.last_nodes, nodes_out)
            if not has_metadata:
                size += out.write(_metadata_frame(remainder.metadata, source))
                nodes_out.seek(0)
                shutil.copyfileobj(nodes_out, out)
            elif remainder.metadata is not msgspec.UNSET:
                raise DataError(f"{source}: has metadata twice; remove one")
    return Converted(count, size)


def _metadata_frame(text: msgspec.Raw | msgspec.UnsetType, source: str) -> bytes:
    if isinstance(text, msgspec.UnsetType):
        raise DataError(f"{source}: has no metadata, which a graph begins with; add it as metadata: {{}}")
    return _frame(METADATA.encode(text, f"{source}: metadata"))


def _frame(message: bytes) -> bytes:
    return varint(len(message)) + message


def _decode(text: bytes, kind: type[T], source: str) -> T:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(f"{source}: is not the JSON of a graph: {error}") from error
