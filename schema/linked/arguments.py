"""An op's recorded arguments or results as texts: parallel lists, and the tensors in them.

The one place that says what of these texts is usable: lists, and tensors whose numbers fit 64 bits.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from ..reasons import Counts, Reason
from .host import EMPTY_LIST, TensorLists
from .numbers import json_value

TENSOR = re.compile(rb'\[\s*\d{1,18},\s*\d{1,18},\s*\d{1,14},\s*\d{1,14},\s*\d{1,3},\s*"[^"]*"\s*\]')
TENSOR_LIMITS = (10**18, 10**18, 10**14, 10**14, 10**3)
"""The numbers of a tensor, once decoded, are from 0 to below these: products of them fit 64 bits."""
LARGEST_EXTENT = 10**18
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


class RecordedTensor(NamedTuple):
    """A tensor as a host trace lists it: `elements` of `size` bytes each, behind the first `offset` ones of a storage.

    Its `shape` and `strides` are as recorded, None where they are not.
    """

    tensor: int
    storage: int
    offset: int
    elements: int
    size: int
    device: str
    shape: Any = None
    strides: Any = None
    argument: int = 0

    @property
    def spanned(self) -> int:
        """The elements of the storage from its first to its last one, by its strides; 0 without strides."""
        columns = self.shape, self.strides
        if not all(isinstance(column, list) for column in columns):
            return 0
        if not all(type(number) is int and 0 <= number < LARGEST_EXTENT for number in chain(*columns)):
            return 0
        return 1 + sum(int((extent - 1) * step) for extent, step in zip(*columns, strict=False))


def with_tensors(values: list[Any], shapes: Any, strides: Any) -> list[Any]:
    """Returns decoded arguments with a RecordedTensor for each tensor, also in lists, given their shapes and strides.

    >>> with_tensors([7, [[3, 4, 0, 6, 4, "cuda:0"]]], [[], [[2, 3]]], [])[1][0].shape
    [2, 3]
    """
    # arguments that a launch added have no shapes or strides
    parallel = ([*(column if isinstance(column, list) else ()), *[None] * len(values)] for column in (shapes, strides))
    return [_with_tensors(*parts) for parts in zip(values, *parallel, strict=False)]


def _with_tensors(value: Any, shape: Any, strides: Any) -> Any:
    if isinstance(value, dict):
        return dict(zip(value, with_tensors([*value.values()], shape, strides), strict=True))
    if not isinstance(value, list):
        return value
    if len(value) == 6 and isinstance(value[5], str):
        numbers = zip(value[:5], TENSOR_LIMITS, strict=True)
        if all(type(number) is int and 0 <= number < limit for number, limit in numbers):
            tensor, storage, offset, elements, size, device = value
            return RecordedTensor(tensor, storage, offset, elements, size, device, shape, strides)
    return with_tensors(value, shape, strides)


def recorded_tensors(text: bytes) -> list[RecordedTensor]:
    """Returns the tensors in the text of an op's arguments, in its order.

    >>> [tensor.storage for tensor in recorded_tensors(b'{"values":[[3,4,0,6,4,"cuda:0"],5,[[7,8,0,1,8,"cpu"]]]}')]
    [4, 8]
    """
    try:
        values = with_tensors(*argument_lists(text, "values", "shapes", "strides"))
        numbered = [(number, tensor) for number, value in enumerate(values) for tensor in _flat(value)]
    except (msgspec.DecodeError, RecursionError):
        return []
    return [tensor._replace(argument=number) for number, tensor in numbered]


def _flat(value: Any) -> Iterator[RecordedTensor]:
    if isinstance(value, RecordedTensor):
        yield value
    elif isinstance(value, list | dict):
        for each in value if isinstance(value, list) else value.values():
            yield from _flat(each)


def usable_arguments(arguments: Sequence[bytes], skipped: Counts) -> Sequence[bytes]:
    """Returns ops' arguments, objects with the members of `TensorLists`, with empty lists for unusable members.

    Counts that in `skipped`, by reason.

    >>> usable_arguments([b'{"values":[1],"shapes":5}'], Counts())
    [b'{"values":[1],"shapes":[]}']
    """
    block = b",".join({*arguments})
    if NO_LIST.search(block) or MANY_DIGITS in block.translate(AS_ANY_DIGIT):
        return [_usable(text, skipped) for text in arguments]
    return arguments


def _usable(text: bytes, skipped: Counts) -> bytes:
    if not NO_LIST.search(text) and MANY_DIGITS not in text.translate(AS_ANY_DIGIT):
        return text
    recorded = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    usable = {name: _usable_member(name, bytes(recorded[name]), skipped) for name in MEMBERS if name in recorded}
    changed = {name: msgspec.Raw(member) for name, member in usable.items() if member != bytes(recorded[name])}
    return msgspec.json.encode(recorded | changed) if changed else text


def _usable_member(name: str, text: bytes, skipped: Counts) -> bytes:
    def usable_tensor(match: re.Match[bytes]) -> bytes:
        if TENSOR.fullmatch(match[0]):
            return match[0]
        skipped[Reason.TENSORS_TOO_LARGE] += 1
        return bytes(EMPTY_LIST)

    if not text.startswith(b"["):
        skipped[Reason.ARGUMENTS_NO_LISTS] += 1
        return bytes(EMPTY_LIST)
    if name in MEASURES and LONG_NUMBER.search(text):
        skipped[Reason.TENSORS_TOO_LARGE] += 1
        return bytes(EMPTY_LIST)
    return LIKE_A_TENSOR.sub(usable_tensor, text)


def listed(text: msgspec.Raw) -> list[Any]:
    """Returns the list that a text is; empty where it is none, or nested too deep."""
    value = json_value(text)
    return value if isinstance(value, list) else []


def argument_members(text: bytes) -> TensorLists:
    """Returns the texts of the lists in an op's arguments."""
    return msgspec.json.decode(text, type=TensorLists)


def argument_lists(text: bytes, *names: str) -> list[list[Any]]:
    """Returns the members of `TensorLists` that are asked for, decoded; empty where one is no list.

    >>> argument_lists(b'{"values":[1],"shapes":5}', "values", "shapes", "types")
    [[1], [], []]
    """
    members = argument_members(text)
    return [listed(getattr(members, name)) for name in names]
