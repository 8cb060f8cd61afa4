"""Reads graph files without the package: by field number and wire type, so the file itself is judged."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NamedTuple


class Value(NamedTuple):
    """An attribute's value and the field of the oneof that carried it."""

    kind: str
    value: int | str


SCALARS = (
    ("double", 3), ("float", 5), ("int32", 7), ("int64", 9), ("uint32", 11), ("uint64", 13), ("sint32", 15), ("sint64", 17),
    ("fixed32", 19), ("fixed64", 21), ("sfixed32", 23), ("sfixed64", 25), ("bool", 27), ("string", 29), ("bytes", 31),
)  # fmt: skip
KINDS = {number: f"{name}_val" for name, number in SCALARS} | {number + 1: f"{name}_list" for name, number in SCALARS}
PLAIN = {1: "id", 3: "type", 7: "duration_us"}


@dataclass
class Node:
    id: int = 0
    name: str = ""
    type: int = 0
    control: list[int] = field(default_factory=list)
    data: list[int] = field(default_factory=list)
    duration_us: int = 0
    attributes: dict[str, Value] = field(default_factory=dict)

    def read(self, name: str, kind: str, default: int | str = 0) -> int | str:
        """The attribute if it has exactly this value type."""
        found = self.attributes.get(name)
        return found.value if found and found.kind == kind else default


def varint(data: bytes, at: int) -> tuple[int, int]:
    if data[at] < 0x80:
        return data[at], at + 1
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(field number, value) of a message: numbers as unsigned, the rest as bytes."""
    at, length = 0, len(data)
    while at < length:
        # nearly all of these numbers take one byte, for which a call would take longer than the rest
        tag, at = (data[at], at + 1) if data[at] < 0x80 else varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == 2:
            size, at = (data[at], at + 1) if data[at] < 0x80 else varint(data, at)
            yield number, data[at : at + size]
            at += size
        elif wire == 0:
            value, at = (data[at], at + 1) if data[at] < 0x80 else varint(data, at)
            yield number, value
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
            yield number, struct.unpack("<Q" if wire == 1 else "<I", data[at : at + size])[0]
            at += size
        else:
            raise ValueError(f"no wire type {wire}")


def numbers(value: int | bytes) -> list[int]:
    """One number of a repeated field, or a packed run of them."""
    if isinstance(value, int):
        return [value]
    found, at = [], 0
    while at < len(value):
        number, at = varint(value, at)
        found.append(number)
    return found


@cache
def attribute(data: bytes) -> tuple[str, Value]:
    name, value = "", Value("none", 0)
    for number, content in fields(data):
        if number == 1:
            name = bytes(content).decode()  # type: ignore[arg-type]
        elif isinstance(content, bytes):
            value = Value(KINDS[number], content.decode("utf-8", "replace"))
        elif number in KINDS:
            signed = content - (1 << 64) if content >= 1 << 63 else content
            value = Value(KINDS[number], signed)
    return name, value


def node(data: bytes) -> Node:
    found = Node()
    for number, content in fields(data):
        if number == 10 and isinstance(content, bytes):
            name, value = attribute(content)
            found.attributes[name] = value
        elif number in (4, 5):
            (found.control if number == 4 else found.data).extend(numbers(content))
        elif number == 2 and isinstance(content, bytes):
            found.name = content.decode()
        elif number in PLAIN and isinstance(content, int):
            setattr(found, PLAIN[number], content)
    return found


def read_nodes(path: Path) -> list[Node]:
    """The nodes of a file, whose first message is the metadata, whatever it holds."""
    data, at, messages = path.read_bytes(), 0, []
    while at < len(data):
        size, at = varint(data, at)
        messages.append(data[at : at + size])
        at += size
    return [node(message) for message in messages[1:]]
