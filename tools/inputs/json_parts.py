"""Finds JSON objects in a text that was cut out of a larger one, in time linear in its length, whatever it holds."""

import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

DECODER = json.JSONDecoder(strict=False)
BRACES = re.compile(r'"(?:[^"\\]|\\.)*"|[{}]', re.DOTALL)
OPENED = re.compile(r"[{\[]")
DEEP = 500
"""Levels of nesting of which a decoder goes down more before it gives up."""


def objects_in(text: str, at: int = 0) -> Iterator[dict[str, Any]]:
    """The outermost complete objects of the text from a place on. No part of the text is decoded more than a few times.

    >>> list(objects_in('"b": 1}, {"c": {}}, {"d": {"e": 2}, "f":'))
    [{'c': {}}, {'e': 2}]
    """
    at = text.find("{", at)
    while at >= 0:
        found, end = _decoded(text, at)
        if found is not None:
            yield found
        else:
            # what is open at the end cannot be decoded from its own beginning either
            yield from (DECODER.raw_decode(text, first)[0] for first in _closed(text, at + 1, end))
        at = text.find("{", end)


def objects_after(key: re.Pattern[str], text: str) -> Iterator[dict[str, Any]]:
    """The complete objects that begin where the key ends, but for those inside another one of them."""
    end = 0
    for match in key.finditer(text):
        if match.end() >= end:
            found, end = _decoded(text, match.end())
            if found is not None:
                yield found


def _decoded(text: str, at: int) -> tuple[dict[str, Any] | None, int]:
    """The object that begins at a brace, and where it ends; None for none, and how far it was looked at."""
    try:
        return DECODER.raw_decode(text, at)
    except json.JSONDecodeError as error:
        return None, max(error.pos, at + 1)
    except RecursionError:
        return None, max(opened.end() for opened in islice(OPENED.finditer(text, at), DEEP))


def _closed(text: str, begin: int, end: int) -> list[int]:
    """Where the outermost of the objects begin that also end in this part of the text."""
    opened: list[int] = []
    closed: list[int] = []
    for token in BRACES.finditer(text, begin, end):
        if token[0] == "{":
            opened.append(token.start())
        elif token[0] == "}" and opened:
            first = opened.pop()
            while closed and closed[-1] > first:
                closed.pop()
            closed.append(first)
    return closed
