"""Changes a graph in the fields of its messages."""

import copy
from random import Random
from typing import Any

from execgraph.schema.graph import varint

from fuzz.byte_changes import changed_bytes
from fuzz.values import CHANGES, NUMBERS, VALUES

Field = tuple[int, int, Any]
"""Number, wire type, and the value: a number, the fields of a message, or bytes."""
WIRE_NUMBERS = [number % (1 << 64) for number in NUMBERS if isinstance(number, int)]


def changed_graph(content: bytes, random: Random) -> bytes:
    """The graph with some changed messages."""
    messages = []
    at = 0
    while at < len(content):
        size, at = _varint_at(content, at)
        messages.append(content[at : at + size])
        at += size
    for _ in range(random.choice(CHANGES)):
        chosen = random.randrange(len(messages))
        fields = _fields(messages[chosen])
        if fields and random.random() < 0.8:
            _change_field(fields, random)
            messages[chosen] = _message(fields)
        else:
            random.choice([_lose, _double, _move])(messages, chosen, random)
        if not messages:
            break
    changed = b"".join(varint(len(message)) + message for message in messages)
    return changed_bytes(changed, random) if random.random() < 0.2 else changed


def _lose(parts: list[Any], chosen: int, _: Random) -> None:
    del parts[chosen]


def _double(parts: list[Any], chosen: int, random: Random) -> None:
    parts[chosen:chosen] = [copy.deepcopy(parts[chosen])] * random.choice([1, 1, 20])


def _move(parts: list[Any], chosen: int, random: Random) -> None:
    parts.insert(random.randrange(len(parts)), parts.pop(chosen))


def _change_field(fields: list[Field], random: Random) -> None:
    chosen = random.randrange(len(fields))
    number, wire, value = fields[chosen]
    if isinstance(value, list) and value and random.random() < 0.85:
        _change_field(value, random)
        return
    way = random.random()
    if way < 0.3:
        random.choice([_lose, _double, _move])(fields, chosen, random)
    elif way < 0.4:
        fields[chosen] = random.choice([0, 1, 2, 3, 5, 10, 19, 31, 1 << 20, (1 << 29) - 1]), wire, value
    elif wire == 2:
        text = random.choice([text for text in VALUES if isinstance(text, str)]).encode("utf-8", "surrogatepass")
        fields[chosen] = (
            number,
            wire,
            random.choice([text, b"", b"\xff\xfe", b"".join(map(varint, WIRE_NUMBERS)), b"\x80"]),
        )
    elif wire == 0:
        fields[chosen] = number, wire, random.choice(WIRE_NUMBERS)
    else:
        fields[chosen] = (
            number,
            wire,
            random.choice([bytes(len(value)), b"\xff" * len(value), b"\x7f\xf0".ljust(len(value), b"\0")[::-1]]),
        )


def _fields(message: bytes) -> list[Field] | None:
    """The fields of a message, None where it is none."""
    fields: list[Field] = []
    at = 0
    try:
        while at < len(message):
            key, at = _varint_at(message, at)
            number, wire = key >> 3, key & 7
            if number == 0 or wire not in (0, 1, 2, 5):
                return None
            if wire == 0:
                value, at = _varint_at(message, at)
                fields.append((number, wire, value))
                continue
            size, at = _varint_at(message, at) if wire == 2 else ({1: 8, 5: 4}[wire], at)
            if at + size > len(message):
                return None
            content = message[at : at + size]
            at += size
            fields.append((number, wire, (_fields(content) or content) if wire == 2 else content))
    except IndexError:
        return None
    return fields


def _varint_at(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _message(fields: list[Field]) -> bytes:
    written = b""
    for number, wire, value in fields:
        written += varint(number << 3 | wire)
        if wire == 0:
            written += varint(value)
        else:
            content = _message(value) if isinstance(value, list) else value
            written += (varint(len(content)) if wire == 2 else b"") + content
    return written
