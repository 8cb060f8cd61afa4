"""Where an array begins and its elements end, by brackets and quotes alone: exact for any JSON, whatever its texts hold."""

import re
from itertools import islice
from typing import NamedTuple

import msgspec
import numpy as np

from ..columns import Int64

ESCAPED = b"__"
QUOTE, COMMA = ord('"'), ord(",")
DEPTH = np.zeros(256, np.int8)
DEPTH[[*b"[{"]], DEPTH[[*b"]}"]] = 1, -1
AT_ONCE = 1 << 20
OF_NUMBERS = b"0123456789+-.eE"
TRUNCATED = "truncated"
KEYS_TRIED = 16
SOUND = msgspec.json.Decoder(msgspec.Raw)


class Structure(NamedTuple):
    """Where the commas between elements are, and where the bracket that closes the array is, -1 where the text ends before it."""

    commas: Int64
    end: int


def structure_of(text: bytes) -> Structure:
    """The structure of a text in an array that begins between two elements. Linear in the text.

    >>> commas, end = structure_of(b'{"a":"},{"},{"b":[1,2]}]')
    >>> commas.tolist(), end
    ([11], 23)
    """
    plain = np.frombuffer(text.replace(rb"\\", ESCAPED).replace(rb"\"", ESCAPED), np.uint8)
    quotes = depth = 0
    commas: list[Int64] = [np.empty(0, np.int64)]
    for first in range(0, len(plain), AT_ONCE):
        block = plain[first : first + AT_ONCE]
        quoted = quotes + np.cumsum(block == QUOTE, dtype=np.int32)
        outside = quoted & 1 == 0
        depths = depth + np.cumsum(DEPTH[block] * outside, dtype=np.int32)
        closing = np.flatnonzero(depths < 0)[:1]
        block = block[: closing[0]] if len(closing) else block
        commas.append(first + np.flatnonzero((block == COMMA) & (outside & (depths == 0))[: len(block)]))
        if len(closing):
            return Structure(np.concatenate(commas), first + int(closing[0]))
        quotes, depth = int(quoted[-1]), int(depths[-1])
    return Structure(np.concatenate(commas), -1)


def opening_of(text: bytes, key: str, ended: bool) -> int | None:
    """Where the array under a key of the top level begins, or the text itself if it is an array; None where it has not come yet.

    Keys on deeper levels are passed over, unless the text is damaged before it, or has `ended` without it.

    >>> opening_of(b'{"a":{"rows":[1]},"rows":[2', "rows", ended=False)
    26
    """
    found = [*islice(re.finditer(rb'"%b"\s*:\s*\[|\A\s*\[' % key.encode(), text), KEYS_TRIED)]
    outermost = (one.end() for one in found if _is_json(text[: one.end()] + (b"]}" if b":" in one[0] else b"]")))
    given_up = found and (ended or not is_sound(text))
    return next(outermost, found[0].end() if given_up else None)


def is_sound(text: bytes) -> bool:
    """Whether the text is JSON, or the beginning of some in which nothing is wrong so far."""
    return TRUNCATED in (_refused(text.rstrip(OF_NUMBERS)) or TRUNCATED)


def _refused(text: bytes) -> str | None:
    try:
        SOUND.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        return str(error)
    return None


def _is_json(text: bytes) -> bool:
    return _refused(text) is None
