"""Finds JSON objects in a text that was cut out of a larger one, whatever it holds, in time linear in its length."""

import json
import re
from collections.abc import Iterator
from typing import Any

DECODER = json.JSONDecoder(strict=False)
MOST_UNREADABLE = 100
"""Places at which no object begins that can be read: to find that out may cost as much as all that follows."""


def objects_in(text: str, at: int = 0) -> Iterator[dict[str, Any]]:
    """Yields the outermost complete objects from a position on; gives up after a hundred that cannot be read.

    >>> list(objects_in('"b": 1}, {"c": {}}, {"d": {"e": 2}, "f":'))
    [{'c': {}}, {'e': 2}]
    """
    at, left = text.find("{", at), MOST_UNREADABLE
    while at >= 0 and left:
        value, end = _decoded(text, at)
        if value is not None:
            yield value
        else:
            left -= 1
        at = text.find("{", end)


def objects_after(key: re.Pattern[str], text: str) -> Iterator[dict[str, Any]]:
    """Yields the complete objects that begin where the key ends, but for those inside another one of them."""
    end, left = 0, MOST_UNREADABLE
    for match in key.finditer(text):
        if match.end() < end:
            continue
        value, end = _decoded(text, match.end())
        if value is not None:
            yield value
        else:
            left -= 1
        if not left:
            return


def _decoded(text: str, at: int) -> tuple[dict[str, Any] | None, int]:
    """Returns the object that begins at a brace, and where it ends; None for none, and where the next one may begin."""
    try:
        value, end = DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):
        return None, at + 1
    return (value if isinstance(value, dict) else None), end
