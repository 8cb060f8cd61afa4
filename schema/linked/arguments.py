"""An op's recorded arguments or results as texts: parallel lists, and the tensors in them.

The one place that says what of these texts is usable: lists, and tensors whose numbers fit 64 bits.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from .host import EMPTY_LIST, TensorLists
from .numbers import json_value

TENSOR = re.compile(rb'\[\s*\d{1,18},\s*(\d{1,18}),\s*(\d{1,14}),\s*(\d{1,14}),\s*(\d{1,3}),\s*"([^"]*)"\s*\]')
"""[tensor id, storage id, offset, elements, bytes per element, device], as a host trace lists it; all but the first as
groups.

Products of its numbers fit 64 bits: longer ones are no tensor's.
"""
TENSOR_LIMITS = (10**18, 10**18, 10**14, 10**14, 10**3)
"""The numbers of a tensor, once decoded, are from 0 to below these."""
TENSOR_DIGITS = (18, 18, 14, 14, 3)
"""How many digits each of its numbers has at most."""
LIKE_A_TENSOR = re.compile(rb'\[\s*\d+(?:,\s*\d+){4},\s*"[^"]*"\s*\]')
LONG_NUMBER = re.compile(rb"\d{19}")
NO_LIST = re.compile(rb'"\s*:(?! ?\[)')
"""Follows the key of what is no list. May be found elsewhere, too: it is looked for in many arguments at once, as that
costs little.
"""
AS_ANY_DIGIT, MANY_DIGITS = bytes.maketrans(b"123456789", 9 * b"0"), 15 * b"0"
"""What a number has at least that may be too large: to look for it takes a tenth of what it takes to look for all
tensors.
"""
MEMBERS, MEASURES = TensorLists.__struct_fields__, ("shapes", "strides")
NO_LISTS = "values, shapes, types or strides of arguments that are no lists"
TOO_LARGE = "tensors whose numbers are too large"


class RecordedTensor(NamedTuple):
    """A tensor as a host trace lists it: `elements` of `size` bytes each, behind the first `offset` ones
    of a storage.
    """

    storage: int
    offset: int
    elements: int
    size: int
    device: str


def recorded_tensor(value: Any) -> RecordedTensor | None:
    """Returns the tensor that a decoded argument is, by the same rule as TENSOR; None for any other value.

    >>> recorded_tensor([3, 4, 0, 6, 4, "cuda:0"])
    RecordedTensor(storage=4, offset=0, elements=6, size=4, device='cuda:0')
    """
    if not isinstance(value, list) or len(value) != 6 or not isinstance(value[5], str):
        return None
    _, storage, offset, elements, size, device = value
    numbers = zip(value[:5], TENSOR_LIMITS, strict=True)
    is_tensor = all(type(number) is int and 0 <= number < limit for number, limit in numbers)
    return RecordedTensor(storage, offset, elements, size, device) if is_tensor else None


def usable_arguments(arguments: Sequence[bytes], skipped: Counter[str]) -> Sequence[bytes]:
    """Returns ops' arguments, objects with the members of `TensorLists`, with empty lists for unusable members.

    Counts that in `skipped`, by reason.

    >>> usable_arguments([b'{"values":[1],"shapes":5}'], Counter())
    [b'{"values":[1],"shapes":[]}']
    """
    block = b",".join({*arguments})
    if NO_LIST.search(block) or MANY_DIGITS in block.translate(AS_ANY_DIGIT):
        return [_usable(text, skipped) for text in arguments]
    return arguments


def _usable(text: bytes, skipped: Counter[str]) -> bytes:
    if not NO_LIST.search(text) and MANY_DIGITS not in text.translate(AS_ANY_DIGIT):
        return text
    recorded = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    usable = {name: _usable_member(name, bytes(recorded[name]), skipped) for name in MEMBERS if name in recorded}
    changed = {name: msgspec.Raw(member) for name, member in usable.items() if member != bytes(recorded[name])}
    return msgspec.json.encode(recorded | changed) if changed else text


def _usable_member(name: str, text: bytes, skipped: Counter[str]) -> bytes:
    def usable_tensor(match: re.Match[bytes]) -> bytes:
        if TENSOR.fullmatch(match[0]):
            return match[0]
        skipped[TOO_LARGE] += 1
        return bytes(EMPTY_LIST)

    if not text.startswith(b"["):
        skipped[NO_LISTS] += 1
        return bytes(EMPTY_LIST)
    if name in MEASURES and LONG_NUMBER.search(text):
        skipped[TOO_LARGE] += 1
        return bytes(EMPTY_LIST)
    return LIKE_A_TENSOR.sub(usable_tensor, text)


def listed(text: msgspec.Raw) -> list[Any]:
    """Returns the list that a text is; empty where it is none, or nested too deep."""
    value = json_value(text)
    return value if isinstance(value, list) else []


def argument_lists(text: bytes, *names: str) -> list[list[Any]]:
    """Returns the members of `TensorLists` that are asked for, decoded; empty where one is no list.

    >>> argument_lists(b'{"values":[1],"shapes":5}', "values", "shapes", "types")
    [[1], [], []]
    """
    lists = msgspec.json.decode(text, type=TensorLists)
    return [listed(getattr(lists, name)) for name in names]


def value_texts(text: bytes) -> list[bytes]:
    """Returns the text of each value among an op's arguments."""
    values = msgspec.json.decode(text, type=TensorLists).values
    return [*map(bytes, msgspec.json.decode(values, type=list[msgspec.Raw]))] if _is_list(values) else []


def _is_list(text: msgspec.Raw) -> bool:
    return bytes(text)[:1] == b"["
