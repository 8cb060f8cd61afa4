"""How the fields of a message are encoded, and which of many encoded messages are surely as the protobuf library would write them.

A message that is not surely so may still be; it takes the library to tell.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from .columns import Bool, Int64
from .varints import varint_lengths
from .wire import DELIMITED, FIXED32, FIXED64, FIXED_SIZES, VARINT, Fields

UNKNOWN = 0xFF
"""Stands for the wire type of a field that the message does not have."""
WIRES = {
    **dict.fromkeys(range(1, 19), VARINT),
    **dict.fromkeys(
        (FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FIXED64, FieldDescriptor.TYPE_SFIXED64), FIXED64
    ),
    **dict.fromkeys((FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_FIXED32, FieldDescriptor.TYPE_SFIXED32), FIXED32),
    **dict.fromkeys((FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES, FieldDescriptor.TYPE_MESSAGE), DELIMITED),
}


class Layout(NamedTuple):
    """The encoding of a message's fields by number: wire type, whether 0 or empty is written, whether the field may come again."""

    wire: npt.NDArray[np.uint8]
    writes_zero: Bool
    repeats: Bool

    @staticmethod
    def of(message: type[Message]) -> "Layout":
        fields = message.DESCRIPTOR.fields
        count = max(field.number for field in fields) + 1
        layout = Layout(np.full(count, UNKNOWN, np.uint8), np.zeros(count, np.bool_), np.zeros(count, np.bool_))
        for field in fields:
            is_list = field.default_value == []
            layout.repeats[field.number] = is_list and WIRES[field.type] == DELIMITED
            layout.writes_zero[field.number] = field.has_presence or layout.repeats[field.number]
            layout.wire[field.number] = DELIMITED if is_list else WIRES[field.type]
        return layout


def surely_canonical(fields: Fields, starts: Int64, ends: Int64, layout: Layout) -> Bool:
    """For each message `starts[i] : ends[i]`, whose `fields` stand in message order, whether its own encoding is the shortest.

    What its delimited fields contain is not looked at. All fields are known, ascend, and are not needlessly there; as no field can
    be shorter than this adds up, a sum that is the message's length means that none is longer.
    """
    number = np.where(fields.number < len(layout.wire), fields.number, 0)
    good = fields.wire == layout.wire[number]
    good &= (fields.value != 0) | layout.writes_zero[number]
    step = np.diff(number)
    good[1:] &= (step > 0) | (fields.message[1:] != fields.message[:-1]) | ((step == 0) & layout.repeats[number[1:]])
    count = len(starts)
    total = np.bincount(fields.message, weights=shortest_sizes(fields), minlength=count)
    bad = np.bincount(fields.message[~good], minlength=count)
    sound: Bool = (bad == 0) & (total == ends - starts)
    return sound


def shortest_sizes(fields: Fields) -> Int64:
    """The bytes that each field needs, tag included; field numbers from 1 to 2047."""
    delimited = (fields.wire == DELIMITED) * fields.value.view(np.int64)
    tags = 1 + (fields.number > 15)
    sizes: Int64 = tags + varint_lengths(fields.value) + delimited
    for wire, size in FIXED_SIZES.items():
        fixed = np.flatnonzero(fields.wire == wire)
        sizes[fixed] = tags[fixed] + size
    return sizes
