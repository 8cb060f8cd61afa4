"""Finds where an array begins and its elements end, by brackets and quotes alone: exact for any JSON."""

import re
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import numpy as np

from .columns import Bool, Bytes, Int32, Int64

ESCAPED = b"__"
QUOTE, COMMA = ord('"'), ord(",")
DEPTH = np.zeros(256, np.int8)
DEPTH[[*b"[{"]], DEPTH[[*b"]}"]] = 1, -1
AT_ONCE = 1 << 20
OF_NUMBERS = b"0123456789+-.eE"
TRUNCATED = "truncated"
WITHIN_TOP_LEVEL = 2
"""Brackets that are open in an array under a key of the top level."""
SOUND = msgspec.json.Decoder(msgspec.Raw)


class Structure(NamedTuple):
    """The positions of the commas between elements and of the array's closing bracket (-1: after the text)."""

    commas: Int64
    end: int


def structure_of(text: bytes) -> Structure:
    """Returns the structure of a text in an array that begins between two elements. Linear in the text.

    >>> commas, end = structure_of(b'{"a":"},{"},{"b":[1,2]}]')
    >>> commas.tolist(), end
    ([11], 23)
    """
    commas: list[Int64] = [np.empty(0, np.int64)]
    for first, block, outside, depths in _blocks(text):
        closing = np.flatnonzero(depths < 0)[:1]
        block = block[: closing[0]] if len(closing) else block
        commas.append(first + np.flatnonzero((block == COMMA) & (outside & (depths == 0))[: len(block)]))
        if len(closing):
            return Structure(np.concatenate(commas), first + int(closing[0]))
    return Structure(np.concatenate(commas), -1)


def _blocks(text: bytes) -> Iterator[tuple[int, Bytes, Bool, Int32]]:
    """Yields blocks of the text: start, bytes, which bytes are outside of quotes, and the bracket depth behind each."""
    plain = np.frombuffer(text.replace(rb"\\", ESCAPED).replace(rb"\"", ESCAPED), np.uint8)
    quotes = depth = 0
    for first in range(0, len(plain), AT_ONCE):
        block = plain[first : first + AT_ONCE]
        quoted = quotes + np.cumsum(block == QUOTE, dtype=np.int32)
        outside = quoted & 1 == 0
        depths = depth + np.cumsum(DEPTH[block] * outside, dtype=np.int32)
        yield first, block, outside, depths
        quotes, depth = int(quoted[-1]), int(depths[-1])


def opening_of(text: bytes, key: str, ended: bool) -> int | None:
    """Returns where the array under a top-level key, or the text's own array, begins; None if it has not come yet.

    Keys on deeper levels are passed over, unless the text is damaged before it, or has `ended` without it.

    >>> opening_of(b'{"a":{"rows":[1]},"rows":[2', "rows", ended=False)
    26
    """
    if only := re.match(rb"\s*\[", text):
        return only.end()
    ends = np.array([match.end() for match in re.finditer(rb'"%b"\s*:\s*\[' % key.encode(), text)], np.int64)
    outermost = ends[_depths_before(text, ends) == WITHIN_TOP_LEVEL]
    if len(outermost) and _is_json(text[: outermost[0]] + b"]}"):
        return int(outermost[0])
    return int(ends[0]) if len(ends) and (ended or not is_sound(text)) else None


def _depths_before(text: bytes, positions: Int64) -> Int64:
    """Returns how many brackets are open before each position; positions ascend and are not 0."""
    depth_at = np.zeros(len(positions), np.int64)
    if len(positions):
        for first, block, _, depths in _blocks(text[: positions[-1]]):
            in_block = slice(*np.searchsorted(positions, (first + 1, first + len(block) + 1)))
            depth_at[in_block] = depths[positions[in_block] - first - 1]
    return depth_at


def is_sound(text: bytes) -> bool:
    """Returns whether the text is JSON, or the beginning of some in which nothing is wrong so far."""
    return TRUNCATED in (_refused(text.rstrip(OF_NUMBERS)) or TRUNCATED)


def _refused(text: bytes) -> str | None:
    try:
        SOUND.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        return str(error)
    return None


def _is_json(text: bytes) -> bool:
    return _refused(text) is None
