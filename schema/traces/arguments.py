"""An op's recorded arguments or results as texts: parallel lists, and the tensors in them.

The one place that says what of these texts is usable: lists, and tensors whose numbers fit 64 bits.
"""

import re
from collections import Counter
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import msgspec

from .host import EMPTY_LIST, TensorLists

TENSOR = re.compile(rb'\[\s*\d{1,18},\s*(\d{1,18}),\s*(\d{1,14}),\s*(\d{1,14}),\s*(\d{1,3}),\s*"([^"]*)"\s*\]')
"""[tensor id, storage id, offset, elements, bytes per element, device], as a host trace lists it; all but the first as groups.

Products of its numbers fit 64 bits: longer ones are no tensor's.
"""
LIKE_A_TENSOR = re.compile(rb'\[\s*\d+(?:,\s*\d+){4},\s*"[^"]*"\s*\]')
AS_ANY_DIGIT, MANY_DIGITS = bytes.maketrans(b"123456789", 9 * b"0"), 15 * b"0"
"""What a number has at least that may be too large: to look for it takes a tenth of what it takes to look for all tensors."""
NO_LISTS = "ops with arguments that are no lists"
TOO_LARGE = "tensors whose numbers are too large"


def listed(text: msgspec.Raw) -> list[Any]:
    """The list that a text is; empty where it is none, or nested too deep."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return []
    return value if isinstance(value, list) else []


def argument_lists(text: bytes, *names: str) -> list[list[Any]]:
    """The members of `TensorLists` that are asked for, decoded; empty where one is no list.

    >>> argument_lists(b'{"values":[1],"shapes":5}', "values", "shapes", "types")
    [[1], [], []]
    """
    lists = msgspec.json.decode(text, type=TensorLists)
    return [listed(getattr(lists, name)) for name in names]


def value_texts(text: bytes) -> list[bytes]:
    """The text of each value among an op's arguments."""
    values = msgspec.json.decode(text, type=TensorLists).values
    return [*map(bytes, msgspec.json.decode(values, type=list[msgspec.Raw]))] if _is_list(values) else []


def _is_list(text: msgspec.Raw) -> bool:
    return bytes(text)[:1] == b"["


class ArgumentTexts:
    """The texts of `members` of many ops' arguments, a block of them at a time; `left_out` counts what is unusable, by reason."""

    def __init__(self, *members: str) -> None:
        self.names, self._decode = members, msgspec.json.Decoder(list[TensorLists]).decode
        self.left_out: Counter[str] = Counter()

    def of(self, texts: Sequence[bytes]) -> list[list[bytes]]:
        """By member its text for each op; that of an empty list where it is none."""
        block = b"[" + b",".join(texts) + b"]"
        if MANY_DIGITS in block.translate(AS_ANY_DIGIT):
            self.left_out[TOO_LARGE] += len(LIKE_A_TENSOR.findall(block)) - len(TENSOR.findall(block))
        ops = self._decode(block)
        return [self._lists([*map(bytes, map(attrgetter(name), ops))]) for name in self.names]

    def _lists(self, texts: list[bytes]) -> list[bytes]:
        odd = [row for row, text in enumerate(texts) if not text.startswith(b"[")]
        for row in odd:
            texts[row] = bytes(EMPTY_LIST)
        self.left_out[NO_LISTS] += len(odd)
        return texts
