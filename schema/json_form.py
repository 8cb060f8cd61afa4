"""The JSON form of a graph's messages, one message at a time; the conversions of whole blocks give the same text and bytes.

Fields and enum values are named as in the schema, integers of any size are numbers. A message has all its fields, but for
`doc_string`, `inputs`, `outputs` and the one value of an attribute, which are left out where the message has none. Bytes are base64
text. A double or float that is not finite is "Infinity", "-Infinity", "NaN" or, for a NaN of other bits than the usual one, "NaN:"
and its bits as a double in hexadecimal. A node type that has no name is a number.
"""

import math
import struct
from base64 import b64encode
from types import GenericAlias
from typing import Annotated, Any, NamedTuple, Union, cast

import msgspec
import orjson
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from msgspec import UNSET, Meta, Struct

from .execution_graph_pb2 import AttributeProto, GlobalMetadata, Node
from .wire import WireError


class FormError(Exception):
    """JSON text that stands for no message; says why and where in the text, and which of several texts it is."""

    def __init__(self, what: str, row: int = 0) -> None:
        super().__init__(what)
        self.row = row


NAN = float("nan")
LARGEST_FLOAT = float.fromhex("0x1.fffffep+127")
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
    FieldDescriptor.TYPE_ENUM: str | int,
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


def message_text(message: Message) -> bytes:
    """A message as JSON text in one line."""
    members = []
    for field in _fields(message):
        value = getattr(message, field.name)
        if message.HasField(field.name) if field.has_presence else value or field.name != "doc_string":
            text = _list_text(field, value) if _is_repeated(field) else _value_text(field, value)
            members.append(b'"%s":%s' % (field.name.encode(), text))
    return b"{" + b",".join(members) + b"}"


def _fields(message: Message) -> list[FieldDescriptor]:
    # stubs name the descriptors of both of protobuf's implementations
    return cast(list[FieldDescriptor], message.DESCRIPTOR.fields)


def _is_repeated(field: FieldDescriptor) -> bool:
    # the properties made for this question differ between releases of protobuf
    return bool(field.default_value == [])


def _list_text(field: FieldDescriptor, values: Any) -> bytes:
    return b"[" + b",".join(_value_text(field, value) for value in values) + b"]"


def _value_text(field: FieldDescriptor, value: Any) -> bytes:
    if field.message_type is not None:
        return message_text(value)
    if field.enum_type is not None:
        named = field.enum_type.values_by_number.get(value)
        return orjson.dumps(value if named is None else named.name)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return b'"' + b64encode(value) + b'"'
    return orjson.dumps(_special_text(value) if isinstance(value, float) and not math.isfinite(value) else value)


def _special_text(value: float) -> str:
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    bits = struct.pack(">d", value)
    return "NaN" if bits == struct.pack(">d", NAN) else f"NaN:{bits.hex()}"


def _special_value(text: str) -> float:
    if text in ("Infinity", "-Infinity", "NaN"):
        return float(text)
    try:
        kind, digits = text.split(":")
        (value,) = struct.unpack(">d", bytes.fromhex(digits))
    except (ValueError, struct.error):
        kind, value = "", 0.0
    if kind != "NaN" or not math.isnan(value):
        raise ValueError(f"{text!r} is no number; NaN, Infinity, -Infinity and NaN:HEX are the ones in quotes")
    return float(value)


def _record(message: Descriptor) -> type[Struct]:
    """The typed record that the JSON text of such a message is decoded into."""
    fields: list[tuple[str, Any, Any]] = []
    for field in message.fields:
        kind = _record(field.message_type) if field.message_type is not None else JSON_TYPES[field.type]
        whole = GenericAlias(list, kind) if _is_repeated(field) else kind
        fields.append((field.name, Union[whole, msgspec.UnsetType], UNSET))  # noqa: UP007
    return msgspec.defstruct(message.name, fields, forbid_unknown_fields=True)


def _fill(message: Message, record: Struct) -> None:
    """Sets the fields of a message as in the record. Raises ValueError for what the message cannot hold."""
    for field in _fields(message):
        value = getattr(record, field.name)
        if value is UNSET:
            continue
        if field.containing_oneof is not None and (other := message.WhichOneof(field.containing_oneof.name)):
            raise ValueError(f"{other} and {field.name} in one {message.DESCRIPTOR.name}, which has one value")
        _set(message, field, value)


def _set(message: Message, field: FieldDescriptor, value: Any) -> None:
    if field.message_type is not None:
        target = getattr(message, field.name)
        if _is_repeated(field):
            for item in value:
                _fill(target.add(), item)
        else:
            target.SetInParent()
            _fill(target, value)
    elif _is_repeated(field):
        getattr(message, field.name).extend(_plain(field, item) for item in value)
    else:
        setattr(message, field.name, _plain(field, value))


def _plain(field: FieldDescriptor, value: Any) -> Any:
    if field.enum_type is not None and isinstance(value, str):
        named = field.enum_type.values_by_name.get(value)
        if named is None:
            raise ValueError(f"{value!r} is no {field.enum_type.name}")
        return named.number
    if field.type in (FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FLOAT) and isinstance(value, str):
        return _special_value(value)
    return value


class Form(NamedTuple):
    """A kind of message and the decoder of its JSON text."""

    message: type[Message]
    decoder: msgspec.json.Decoder[Struct]

    @staticmethod
    def of(message: type[Message]) -> "Form":
        return Form(message, msgspec.json.Decoder(_record(cast(Descriptor, message.DESCRIPTOR))))

    def encode(self, text: bytes) -> bytes:
        """The message that the JSON text stands for. Raises FormError."""
        message = self.message()
        try:
            _fill(message, self.decoder.decode(text))
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise FormError(str(error)) from error
        return message.SerializeToString(deterministic=True)

    def decode(self, encoded: bytes) -> bytes:
        """The JSON text of a message that is encoded as this project would. Raises WireError for others, where they differ."""
        try:
            text = message_text(self.message.FromString(encoded))
        except DecodeError as error:
            raise WireError(f"no {self.message.DESCRIPTOR.name} ({error})", 0) from error
        again = self.encode(text)
        if again != encoded:
            pairs = enumerate(zip(again, encoded, strict=False))
            same = next((at for at, (ours, theirs) in pairs if ours != theirs), min(len(again), len(encoded)))
            raise WireError("an encoding that would not come back the same", same)
        return text


METADATA, NODE, ATTRIBUTE = Form.of(GlobalMetadata), Form.of(Node), Form.of(AttributeProto)
