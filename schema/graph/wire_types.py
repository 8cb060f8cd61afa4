"""How the fields of a message are encoded, by their numbers."""

import numpy as np
import numpy.typing as npt
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from .wire import DELIMITED, FIXED32, FIXED64, VARINT

UNKNOWN = 0xFF
"""The wire type of a field that the message does not have."""
WIRES = {
    **dict.fromkeys(range(1, 19), VARINT),
    **dict.fromkeys(
        (FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FIXED64, FieldDescriptor.TYPE_SFIXED64), FIXED64
    ),
    **dict.fromkeys((FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_FIXED32, FieldDescriptor.TYPE_SFIXED32), FIXED32),
    **dict.fromkeys((FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES, FieldDescriptor.TYPE_MESSAGE), DELIMITED),
}


def wire_types(message: type[Message]) -> npt.NDArray[np.uint8]:
    """Returns the wire type of each field number; lists are packed."""
    fields = message.DESCRIPTOR.fields
    types = np.full(max(field.number for field in fields) + 1, UNKNOWN, np.uint8)
    for field in fields:
        types[field.number] = DELIMITED if field.default_value == [] else WIRES[field.type]
    return types
