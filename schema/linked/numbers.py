"""Reads numbers, lists and records that a trace may give as numbers, as texts or not at all.

The one reader of such texts: whoever wrote them may have written anything, of any size and depth.
"""

import ast
import re
import warnings
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


LONGEST = 1 << 26
LONGEST_PYTHON = 1 << 21
"""Characters. Python's parser, which reads what is no JSON, takes some 200 bytes for each."""
SHORTENED = "..."
"""Stands in lists that the profiler cut."""
FAILURES = (ValueError, SyntaxError, TypeError, MemoryError, RecursionError, msgspec.DecodeError)


def literal(text: str) -> Any:
    """Returns the value of a text in JSON or, as PyTorch 2.1 writes, Python's notation; None if it is neither.

    >>> literal('[{"ranks": [0, 1]}]'), literal("{0: 'a', 1: (True, None)}"), literal("[{[]: 1}]"), literal("[" * 5000)
    ([{'ranks': [0, 1]}], {0: 'a', 1: (True, None)}, None, None)
    """
    if len(text) > LONGEST:
        return None
    try:
        return msgspec.json.decode(text)
    except FAILURES:
        return _python_literal(text) if len(text) <= LONGEST_PYTHON else None


def _python_literal(text: str) -> Any:
    try:
        with warnings.catch_warnings():
            # the parser warns of what is odd in a program
            warnings.simplefilter("ignore")
            return ast.literal_eval(text)
    except FAILURES:
        return None


def integer_list(value: Any) -> list[int] | None:
    """Returns a list of integers that may be given as text, or as the keys of an object; None for what is no such list.

    Empty where none is given, and where the profiler shortened it (Kineto keeps 30).

    >>> integer_list("[2, 3]"), integer_list({"1": 0, "0": 0}), integer_list("[0, 1, ...]"), integer_list("[2, x]")
    ([2, 3], [0, 1], [], None)
    """
    if value is None or value == "":
        return []
    if isinstance(value, str):
        return [] if SHORTENED in value else _numbers(literal(value))
    return _numbers(value)


def _numbers(value: Any) -> list[int] | None:
    if isinstance(value, dict):
        return sorted(integer(key, -1) for key in value)
    is_list = isinstance(value, list | tuple) and all(isinstance(number, int | float) for number in value)
    return [integer(number, -1) for number in value] if is_list else None
