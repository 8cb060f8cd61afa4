"""The JSON form of a graph and of its messages: protobuf reads and writes the messages, msgspec and orjson the JSON.

Fields and enum values are named as in the schema, integers of any size are numbers. A message has all its fields, but
for `doc_string`, `inputs`, `outputs` and the one value of an attribute, which are left out where the message has none.
Bytes are base64 text. A double or float that is not finite is "Infinity", "-Infinity", "NaN" or, for a NaN of other
bits than the usual one, "NaN:" and its bits as a double in hexadecimal. A node type that has no name is a number.
"""

import math
import struct
from base64 import b64encode
from collections.abc import Callable, Iterable
from types import GenericAlias
from typing import Annotated, Any, Generic, Literal, TypeVar, Union, cast

import msgspec
import orjson
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from msgspec import UNSET, Meta, Struct

from .execution_graph_pb2 import AttributeProto, DoubleList, FloatList, GlobalMetadata, IOInfo, Node, NodeType
from .wire import WireError

M = TypeVar("M", bound=Message)
Members = dict[str, Any]
"""A message as protobuf's constructors take it and JSON shows it: values by the names of the fields."""
NAN = float("nan")
LARGEST_FLOAT = float.fromhex("0x1.fffffep+127")
NODE_TYPES: dict[int, str] = {number: name for name, number in NodeType.items()}
UNSIGNED32 = Annotated[int, Meta(ge=0, le=(1 << 32) - 1)]
SIGNED32 = Annotated[int, Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
UNSIGNED64 = Annotated[int, Meta(ge=0)]
SIGNED64 = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
JSON_TYPES: dict[int, Any] = {
    FieldDescriptor.TYPE_DOUBLE: float | str,
    FieldDescriptor.TYPE_FLOAT: Annotated[float, Meta(ge=-LARGEST_FLOAT, le=LARGEST_FLOAT)] | str,
    FieldDescriptor.TYPE_BOOL: bool,
    FieldDescriptor.TYPE_STRING: str,
    FieldDescriptor.TYPE_BYTES: bytes,
    FieldDescriptor.TYPE_ENUM: Literal[tuple(NODE_TYPES.values())] | SIGNED32,
    FieldDescriptor.TYPE_INT32: SIGNED32,
    FieldDescriptor.TYPE_SINT32: SIGNED32,
    FieldDescriptor.TYPE_SFIXED32: SIGNED32,
    FieldDescriptor.TYPE_UINT32: UNSIGNED32,
    FieldDescriptor.TYPE_FIXED32: UNSIGNED32,
    FieldDescriptor.TYPE_INT64: SIGNED64,
    FieldDescriptor.TYPE_SINT64: SIGNED64,
    FieldDescriptor.TYPE_SFIXED64: SIGNED64,
    FieldDescriptor.TYPE_UINT64: UNSIGNED64,
    FieldDescriptor.TYPE_FIXED64: UNSIGNED64,
}
NOT_VALUES = {"name", "doc_string"}
FLOATS, FLOAT_LISTS = {"double_val", "float_val"}, {"double_list", "float_list"}
FLOATING = FLOATS | FLOAT_LISTS


class FormError(Exception):
    """JSON text that is no message; says why and where in the text."""


def _metadata(metadata: GlobalMetadata) -> Members:
    return {"version": metadata.version, "attr": _attributes(metadata.attr)}


def _node(node: Node) -> Members:
    members = {
        "id": node.id,
        "name": node.name,
        "type": NODE_TYPES.get(node.type, node.type),
        "ctrl_deps": node.ctrl_deps[:],
        "data_deps": node.data_deps[:],
        "start_time_micros": node.start_time_micros,
        "duration_micros": node.duration_micros,
    }
    if node.HasField("inputs"):
        members["inputs"] = _tensors(node.inputs)
    if node.HasField("outputs"):
        members["outputs"] = _tensors(node.outputs)
    members["attr"] = _attributes(node.attr)
    return members


def _tensors(tensors: IOInfo) -> Members:
    return {"values": tensors.values, "shapes": tensors.shapes, "types": tensors.types}


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
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    bits = struct.pack(">d", value)
    return "NaN" if bits == struct.pack(">d", NAN) else f"NaN:{bits.hex()}"


def _list_to_json(values: Any) -> Members:
    return {"values": values.values[:]}


def _floats_to_json(values: DoubleList | FloatList) -> Members:
    return {"values": [_float_to_json(value) for value in values.values]}


def _float_from_json(value_or_text: float | str) -> float:
    if not isinstance(value_or_text, str):
        return value_or_text
    if value_or_text in ("Infinity", "-Infinity", "NaN"):
        return float(value_or_text)
    try:
        kind, digits = value_or_text.split(":")
        (value,) = struct.unpack(">d", bytes.fromhex(digits))
    except (ValueError, struct.error):
        kind, value = "", 0.0
    if kind != "NaN" or not math.isnan(value):
        raise ValueError(f"{value_or_text!r} is no number; NaN, Infinity, -Infinity and NaN:HEX are the ones in quotes")
    return float(value)


def _base64(value: bytes) -> str:
    return b64encode(value).decode()


def _record(message: Descriptor) -> type[Struct]:
    """Returns the typed record that the JSON text of such a message is decoded into."""
    fields: list[tuple[str, Any, Any]] = []
    for field in message.fields:
        kind = _record(field.message_type) if field.message_type is not None else JSON_TYPES[field.type]
        # protobuf's properties for repeated fields differ between its releases
        whole = GenericAlias(list, kind) if field.default_value == [] else kind
        fields.append((field.name, Union[whole, msgspec.UnsetType], UNSET))  # noqa: UP007
    return msgspec.defstruct(message.name, fields, forbid_unknown_fields=True, gc=False)


TO_JSON: dict[str, Callable[[Any], Any]] = {
    **{kind: _list_to_json for kind in AttributeProto.DESCRIPTOR.fields_by_name if kind.endswith("_list")},
    **dict.fromkeys(FLOAT_LISTS, _floats_to_json),
    **dict.fromkeys(FLOATS, _float_to_json),
}
"""Conversions of values that orjson cannot write as they are."""


def _mend_values(attributes: Iterable[Members]) -> None:
    """Converts floats that are texts to numbers. Raises ValueError for an attribute of several values, of which
    protobuf keeps one.
    """
    for attribute in attributes:
        if len(attribute) > 1 + ("name" in attribute):
            _check_single(attribute)
        if not FLOATING.isdisjoint(attribute):
            _mend_floats(attribute)


def _check_single(attribute: Members) -> None:
    kinds = [kind for kind in attribute if kind not in NOT_VALUES]
    if len(kinds) > 1:
        raise ValueError(f"{' and '.join(kinds)} in one AttributeProto, which has one value")


def _mend_floats(attribute: Members) -> None:
    for kind in FLOATS & attribute.keys():
        attribute[kind] = _float_from_json(attribute[kind])
    for kind in FLOAT_LISTS & attribute.keys():
        attribute[kind] = {"values": [_float_from_json(item) for item in attribute[kind].get("values", ())]}


class Form(Generic[M]):
    """The JSON form of a kind of message."""

    def __init__(self, message: type[M], members: Callable[[M], Members]) -> None:
        self._message = message
        self._members = members
        # stubs name the descriptors of both of protobuf's implementations
        self._decoder = msgspec.json.Decoder(_record(cast(Descriptor, message.DESCRIPTOR)))

    def encode(self, text: bytes | msgspec.Raw) -> bytes:
        """Returns the message of a JSON text. Raises FormError."""
        try:
            fields = msgspec.to_builtins(self._decoder.decode(text), builtin_types=(bytes,))
            _mend_values(fields.get("attr", ()))
            message = self._message(**fields)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise FormError(str(error)) from error
        return message.SerializeToString(deterministic=True)

    def decode(self, encoded: bytes) -> bytes:
        """Returns the JSON text of a message, in one line.

        Raises WireError where `encode` would not return the same message.
        """
        try:
            message = self._message.FromString(encoded)
        except DecodeError as error:
            raise WireError(f"no {self._message.DESCRIPTOR.name} ({error})", 0) from error
        message.DiscardUnknownFields()
        text = orjson.dumps(self._members(message), _base64)
        # Python's floats have no room for some NaNs of 32 bits
        again = self.encode(text) if b'"NaN:' in text else message.SerializeToString(deterministic=True)
        if again != encoded:
            pairs = enumerate(zip(again, encoded, strict=False))
            same = next((at for at, (ours, theirs) in pairs if ours != theirs), min(len(again), len(encoded)))
            raise WireError("an encoding that would not come back the same", same)
        return text


METADATA, NODE = Form(GlobalMetadata, _metadata), Form(Node, _node)
