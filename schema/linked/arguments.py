"""What is recorded of an op's arguments: texts with parallel lists of values, shapes, types and strides, and a schema.

The texts are written in one way once they are read: patterns look into them, caches compare them. Nothing outside
this package decodes or searches them: all else asks `tensors.Arguments`.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain, repeat
from typing import Any, NamedTuple

import msgspec

from ..reasons import Counts, Reason
from .host import EMPTY_LIST, NO_TENSORS, TensorLists
from .numbers import integer, json_value, literal

TENSOR = re.compile(rb'\[\s*\d{1,18},\s*\d{1,18},\s*\d{1,14},\s*\d{1,14},\s*\d{1,3},\s*"[^"]*"\s*\]')
TENSOR_LIMITS = (10**18, 10**18, 10**14, 10**14, 10**3)
"""The numbers of a tensor, once decoded, are from 0 to below these: products of them fit 64 bits."""
LARGEST_EXTENT = 10**18
LIKE_A_TENSOR = re.compile(rb'\[\s*\d+(?:,\s*\d+){4},\s*"[^"]*"\s*\]')
LONG_NUMBER = re.compile(rb"\d{19}")
NO_LIST = re.compile(rb'"\s*:(?! ?\[)')
"""Follows the key of what is no list. May be elsewhere, too: many arguments are searched at once, as that is cheap."""
AS_ANY_DIGIT, MANY_DIGITS = bytes.maketrans(b"123456789", 9 * b"0"), 15 * b"0"
"""What a number that may be too large has at least; to look for it takes a tenth of looking for all tensors."""
MEMBERS, MEASURES = TensorLists.__struct_fields__, ("shapes", "strides")
ODD_BLANK = re.compile(rb' (?!(?<=: )\[|(?<=, )"(?:values|shapes|types|strides)":)(?:(?<=[\[{,: ] )|(?=[\]},: ]))')
"""A blank between values, other than PyTorch's: behind a member's key and before the next one."""
LISTS, LISTS_OF_MANY = msgspec.json.Decoder(TensorLists), msgspec.json.Decoder(list[TensorLists])
LINE_ENDS = (b"\n", b"\r", b"\t")
WITHOUT_TENSORS = len('{"values": [], "shapes": [], "types": []}')
TENSOR_TYPE = re.compile(r"Tensor\((?:nullptr[^)]*|([^()]*))\)")
"""The dtype of a tensor among types; that of an undefined one is empty."""
BETWEEN_ARGUMENTS = re.compile(r", (?![^\[\]]*\])")
"""Between arguments, not within a default like `[1, 1]`."""


class RecordedTensor(NamedTuple):
    """A tensor of a host trace: `elements` of `size` bytes, behind `offset` ones, in the argument of this index."""

    tensor: int
    storage: int
    offset: int
    elements: int
    size: int
    device: str
    shape: Any = None
    strides: Any = None
    argument: int = 0
    dtype: str = ""

    @property
    def spanned(self) -> int:
        """The elements of the storage from its first to its last one, by its strides; 0 without strides."""
        columns = self.shape, self.strides
        if not all(isinstance(column, list) for column in columns):
            return 0
        if not all(type(number) is int and 0 <= number < LARGEST_EXTENT for number in chain(*columns)):
            return 0
        return 1 + sum(int((extent - 1) * step) for extent, step in zip(*columns, strict=False))


class RecordedArguments(NamedTuple):
    """The arguments or results of an op, decoded: parallel lists, with a RecordedTensor for each tensor in `values`.

    A list is empty, and not all `are_lists`, where a member is none, or cannot be held: it is nested too deep.
    """

    values: list[Any]
    tensors: list[RecordedTensor]
    shapes: list[Any]
    types: list[Any]
    are_lists: bool

    @staticmethod
    def of(recorded: bytes | TensorLists) -> "RecordedArguments":
        """Returns what the text of an op's arguments, or those of its lists, stand for."""
        try:
            members = LISTS.decode(recorded) if isinstance(recorded, bytes) else recorded
            decoded = [json_value(getattr(members, name) or EMPTY_LIST) for name in MEMBERS]
            lists = [member if isinstance(member, list) else [] for member in decoded]
            values, shapes, types, strides = lists
            return RecordedArguments(*_with_tensors(values, shapes, strides, types), shapes, types, decoded == lists)
        except (msgspec.DecodeError, RecursionError):
            return RecordedArguments([], [], [], [], are_lists=False)

    @property
    def elements(self) -> int:
        """The elements of all tensors, -1 if there is none."""
        return integer(sum(tensor.elements for tensor in self.tensors), -1) if self.tensors else -1

    @property
    def dtype(self) -> str:
        """The first dtype among the types."""
        return next(filter(None, TENSOR_TYPE.findall(" ".join(map(str, self.types)))), "")

    @property
    def literals(self) -> list[Any]:
        """What each text among the values stands for, as device traces write numbers; None for what is none."""
        return [literal(value) if isinstance(value, str) else None for value in self.values]


def _padded(column: Any) -> Iterator[Any]:
    # arguments that a launch added have no shapes or strides
    return chain(column if isinstance(column, list) else (), repeat(None))


def _with_tensors(values: list[Any], *columns: list[Any]) -> tuple[list[Any], list[RecordedTensor]]:
    """Returns decoded arguments with RecordedTensors, also in lists, by their shapes, strides, types; and all these."""
    tensors, arguments = list[RecordedTensor](), list[Any]()
    for number, (value, shape, strides, kind) in enumerate(zip(values, *map(_padded, columns), strict=False)):
        dtypes = chain(TENSOR_TYPE.findall(str(kind)), repeat(""))
        arguments.append(_with_tensor(value, shape, strides, zip(repeat(number), dtypes, strict=False), tensors))
    return arguments, tensors


def _with_tensor(
    value: Any, shape: Any, strides: Any, labels: Iterator[tuple[int, str]], tensors: list[RecordedTensor]
) -> Any:
    """Returns a value with a RecordedTensor for each tensor in it, also given its labels; adds these to `tensors`."""
    # a function within the other one would refer to itself, and keep what it decoded until the next collection
    if not isinstance(value, list | dict):
        return value
    is_like_one = isinstance(value, list) and len(value) == 6 and isinstance(value[5], str)
    if is_like_one and all(type(n) is int and 0 <= n < limit for n, limit in zip(value, TENSOR_LIMITS, strict=False)):
        tensors.append(RecordedTensor._make((*value, shape, strides, *next(labels))))
        return tensors[-1]
    items = value if isinstance(value, list) else value.values()
    parts = [*map(_with_tensor, items, _padded(shape), _padded(strides), repeat(labels), repeat(tensors))]
    return parts if isinstance(value, list) else dict(zip(value, parts, strict=True))


def usable_arguments(arguments: Sequence[bytes], skipped: Counts) -> Sequence[bytes]:
    """Returns ops' arguments with empty lists for unusable members of `TensorLists`, counted in `skipped` by reason."""

    def needs_check(text: bytes) -> bool:
        return bool(NO_LIST.search(text)) or MANY_DIGITS in text.translate(AS_ANY_DIGIT)

    if needs_check(b",".join({*arguments})):
        return [_usable(text, skipped) if needs_check(text) else text for text in arguments]
    return arguments


def _usable(text: bytes, skipped: Counts) -> bytes:
    def usable_tensor(match: re.Match[bytes]) -> bytes:
        if TENSOR.fullmatch(match[0]):
            return match[0]
        skipped[Reason.TENSORS_TOO_LARGE] += 1
        return bytes(EMPTY_LIST)

    recorded = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    changed = {}
    for name in (name for name in MEMBERS if name in recorded):
        member = bytes(recorded[name])
        if not member.startswith(b"["):
            skipped[Reason.ARGUMENTS_NO_LISTS] += 1
            changed[name] = EMPTY_LIST
        elif name in MEASURES and LONG_NUMBER.search(member):
            skipped[Reason.TENSORS_TOO_LARGE] += 1
            changed[name] = EMPTY_LIST
        elif (usable := LIKE_A_TENSOR.sub(usable_tensor, member)) != member:
            changed[name] = msgspec.Raw(usable)
    return msgspec.json.encode(recorded | changed) if changed else text


def plain_arguments(arguments: Sequence[bytes]) -> Sequence[bytes]:
    """Returns the arguments of many ops, objects with the members of `TensorLists`: equal ones as equal texts."""
    odd_arguments = [*{*arguments}]
    block = b",".join(odd_arguments)
    if not (ODD_BLANK.search(block) or any(line_end in block for line_end in LINE_ENDS)):
        odd_arguments = [text for text in odd_arguments if len(text) <= WITHOUT_TENSORS and text != NO_TENSORS]
    if not odd_arguments:
        return arguments
    plain = dict(zip(odd_arguments, _plain(odd_arguments), strict=True))
    return [*map(plain.get, arguments, arguments)]


def _plain(arguments: list[bytes]) -> list[bytes]:
    try:
        compact = msgspec.json.format(b"[%b]" % b",".join(arguments), indent=-1)
        texts = []
        for lists in LISTS_OF_MANY.decode(compact):
            text = b'{"values": %b, "shapes": %b, "types": %b' % (lists.values, lists.shapes, lists.types)
            text += b', "strides": %b}' % lists.strides if bytes(lists.strides) else b"}"
            texts.append(NO_TENSORS if len(text) <= WITHOUT_TENSORS else text)
        return texts
    except RecursionError:
        return arguments


class DeclaredArguments(NamedTuple):
    """The arguments that an op's schema declares, and positions of those that it writes, or writes without reading."""

    names: tuple[str, ...]
    written: tuple[int, ...]
    only_written: tuple[int, ...]


@cache
def declared_arguments(schema: str) -> DeclaredArguments:
    """Returns what a schema declares, nothing for the text "".

    >>> declared_arguments("aten::mul.out(Tensor self, Tensor other=[1, 1], *, Tensor(a!) out) -> Tensor(a!)")
    DeclaredArguments(names=('self', 'other', 'out'), written=(2,), only_written=(2,))
    """
    # an argument may hold an arrow itself: Tensor(a -> *) self
    declared = BETWEEN_ARGUMENTS.split(schema.partition(") -> ")[0].partition("(")[2])
    positional = declared.index("*") if "*" in declared else len(declared)
    arguments = [argument for argument in declared if argument not in ("*", "")]
    written = tuple(index for index, argument in enumerate(arguments) if "!" in argument)
    names = tuple(argument.partition("=")[0].split(" ")[-1] for argument in arguments)
    return DeclaredArguments(names, written, tuple(index for index in written if index >= positional))
