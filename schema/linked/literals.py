"""Reads values that a trace holds as texts, such as `"[0, 1]"` or `"[{'pg_name': '0', 'ranks': [0, 1]}]"`.

The one reader of such texts: whoever wrote them may have written anything, of any size and depth.
"""

import ast
import warnings
from typing import Any

import msgspec

from .numbers import integer

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
