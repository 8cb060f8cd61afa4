"""The integer types of the schema: how each is encoded, and which attribute values are of which type."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..columns import Int64
from .execution_graph_pb2 import AttributeProto
from .varints import UInt64
from .wire import FIXED32, FIXED64, VARINT


class IntegerKind(NamedTuple):
    """How a type of integer is encoded: its wire type, and what the bits on the wire mean."""

    wire: int
    decode: Callable[[UInt64], Int64]


def _low_half(bits: UInt64) -> Int64:
    return bits.astype(np.uint32).view(np.int32).astype(np.int64)


def _unsigned_half(bits: UInt64) -> Int64:
    return bits.astype(np.uint32).astype(np.int64)


def _zigzag(bits: UInt64) -> Int64:
    magnitude, sign = (bits >> np.uint64(1)).view(np.int64), (bits & np.uint64(1)).view(np.int64)
    return np.bitwise_xor(magnitude, -sign)


def _plain(bits: UInt64) -> Int64:
    return bits.view(np.int64)


def _truth(bits: UInt64) -> Int64:
    return np.asarray(bits != 0, np.int64)


INTEGER_KINDS = {
    "int32": IntegerKind(VARINT, _low_half),
    "int64": IntegerKind(VARINT, _plain),
    "uint32": IntegerKind(VARINT, _unsigned_half),
    "uint64": IntegerKind(VARINT, _plain),
    "sint32": IntegerKind(VARINT, _zigzag),
    "sint64": IntegerKind(VARINT, _zigzag),
    "fixed32": IntegerKind(FIXED32, _unsigned_half),
    "fixed64": IntegerKind(FIXED64, _plain),
    "sfixed32": IntegerKind(FIXED32, _low_half),
    "sfixed64": IntegerKind(FIXED64, _plain),
    "bool": IntegerKind(VARINT, _truth),
}


def _by_field_number(suffix: str) -> dict[int, IntegerKind]:
    numbers = {field.name: field.number for field in AttributeProto.DESCRIPTOR.fields}
    return {numbers[name + suffix]: kind for name, kind in INTEGER_KINDS.items()}


INTEGER_VALUES, INTEGER_LISTS = _by_field_number("_val"), _by_field_number("_list")
