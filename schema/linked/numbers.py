"""Converts numbers that a trace may give as text, as floats or not at all to int64."""

import re
import zlib
from array import array
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from ..columns import Int64

LARGEST = 1 << 63
NUMBER = re.compile(r"0x[0-9a-f]{1,16}(?![0-9a-f])|-?\d{1,19}(?!\d)", re.IGNORECASE)


def integer(value: Any, missing: int) -> int:
    """Returns a number that may be text, as an int; `missing` for what is no number or too large for 64 bits.

    >>> integer("stream 7", -1), integer("0x1f", -1), integer(None, -1), integer(7.0, -1), integer([7], -1)
    (7, 31, -1, 7, -1)
    """
    if isinstance(value, str):
        match = NUMBER.search(value)
        value = int(match.group(), 16 if match.group()[:2].lower() == "0x" else 10) if match else None
    if not isinstance(value, int | float) or not -LARGEST < value < LARGEST:
        return missing
    return int(value)


def json_value(text: bytes | msgspec.Raw) -> Any:
    """Returns what a JSON text stands for; None for what cannot be held: lists too deep, and numbers too large.

    >>> json_value(b"[7]"), json_value(b"1e999")
    ([7], None)
    """
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None


def identity(value: Any) -> int:
    """Returns the number of a process or thread; a name in its place becomes a negative number of its own."""
    if isinstance(value, str) and not re.fullmatch(r"\s*-?\d+\s*", value):
        return -2 - zlib.crc32(value.encode())
    return integer(value, -1)


def integers(values: Sequence[Any], missing: int) -> Int64:
    """Returns a column of `integer(value, missing)`."""
    for present in (values, [missing if value is None else value for value in values]):
        if (column := _whole_numbers(present)) is not None:
            return column
    return np.fromiter((integer(value, missing) for value in values), np.int64, len(values))


def identities(values: Sequence[Any]) -> Int64:
    """Returns a column of `identity(value)`."""
    column = _whole_numbers(values)
    return np.fromiter(map(identity, values), np.int64, len(values)) if column is None else column


def _whole_numbers(values: Sequence[Any]) -> Int64 | None:
    """Returns a column of numbers that are integers of 64 bits, None if others are among them."""
    try:
        return np.asarray(array("q", values))
    except (TypeError, OverflowError):
        return None
