"""The arguments and results of ops, for all who ask what an op does or touches: of one op, or all tensors as a table.

Of texts that differ in the ids and offsets of tensors alone one is decoded; ids and offsets are read in columns.
"""

import re
from collections.abc import Hashable
from functools import cached_property
from itertools import chain, pairwise, repeat
from typing import NamedTuple

import numpy as np

from ..columns import Bool, BytesColumn, Categorical, Int32, Int64, Interner, OpRows, group_ids
from ..reasons import Counts
from .arguments import LISTS, MEMBERS, RecordedArguments, usable_arguments

AT_ONCE = 1 << 12
LINE, CUT = b"\n", b"\1"
"""Stand between texts, and where ids and offset of a tensor were cut out; no JSON text contains them as they are."""
IDS = re.compile(rb'\[(\s*\d{1,18},\s*\d{1,18},\s*\d{1,14})(?=,\s*\d{1,14},\s*\d{1,3},\s*"[^"]*"\s*\])')
"""Tensor id, storage id and offset of a tensor."""
HOST, NOWHERE = -1, -2
DEVICES = {"cpu": HOST, "meta": NOWHERE}
DEVICE_NUMBER = re.compile(r":\D*(\d{1,18})")
CUDA_DEVICE = re.compile(rb'"cuda:(\d+)"')
LARGEST = 1 << 62
"""Elements and bytes beyond which a view is damage."""
NAMES = MEMBERS[:3]
ENDS = 2 * len(NAMES)
NOTATIONS = ((", ", ": "), (",", ":"))
"""What stands between members, and behind their names."""


class _Kinds(NamedTuple):
    """What the form of a text says of each of its tensors, one after the other for all forms."""

    argument: Int64
    elements: Int64
    size: Int64
    device: Int64
    spanned: Int64


class Tensors(NamedTuple):
    """A row for each tensor: by op, arguments before results; `offset` counts elements, and `kind` tells the rest."""

    kinds: _Kinds
    row: Int64
    is_output: Bool
    tensor: Int64
    storage: Int64
    offset: Int64
    kind: Int64

    @property
    def argument(self) -> Int64:
        """The index of the argument or result that is or holds the tensor."""
        return self.kinds.argument[self.kind]

    @property
    def elements(self) -> Int64:
        """The number of elements."""
        return self.kinds.elements[self.kind]

    @property
    def size(self) -> Int64:
        """Bytes of an element."""
        return self.kinds.size[self.kind]

    @property
    def device(self) -> Int64:
        """The number of the device, HOST or NOWHERE."""
        return self.kinds.device[self.kind]

    @property
    def low(self) -> Int64:
        """The first byte of the storage that the tensor covers, if it is contiguous."""
        return self.offset * self.size

    @property
    def high(self) -> Int64:
        """The end of the bytes that the tensor covers, if it is contiguous."""
        return (self.offset + self.elements) * self.size

    @property
    def spanned(self) -> Int64:
        """The elements of the storage from the tensor's first to its last one by its strides; 0 if not known."""
        spanned = self.kinds.spanned[self.kind]
        fits = (spanned + self.offset.astype(np.float64)) * self.size < LARGEST
        return np.where(fits, spanned, 0)

    @property
    def in_memory(self) -> Bool:
        """Which of them have elements in a storage."""
        chosen: Bool = (self.storage != 0) & (self.elements != 0) & (self.device != NOWHERE)
        return chosen

    def where(self, chosen: Bool | Int64) -> "Tensors":
        """Returns the chosen tensors."""
        return Tensors(self.kinds, *(column[chosen] for column in self[1:]))  # type: ignore[arg-type]

    def of(self, rows: OpRows) -> "Tensors":
        """Returns the tensors of these ops; their `row` counts in `rows`."""
        first, end = (np.searchsorted(self.row, rows, side) for side in ("left", "right"))
        count = end - first
        number = np.repeat(np.arange(len(rows)), count)
        index = np.arange(len(number)) + (first - np.cumsum(count) + count)[number]
        return self.where(index)._replace(row=number)


class Arguments:
    """The arguments and results of ops, by the ops' rows, given their texts.

    The table of tensors is kept, an op's lists are not: decoded, they take several times the memory of the texts.
    """

    def __init__(self, inputs: BytesColumn, outputs: BytesColumn) -> None:
        self.texts = inputs, outputs

    def inputs(self, row: int) -> RecordedArguments:
        """Returns the arguments of an op."""
        return RecordedArguments.of(self.texts[0][row])

    def outputs(self, row: int) -> RecordedArguments:
        """Returns the results of an op."""
        return RecordedArguments.of(self.texts[1][row])

    def cuda_devices(self, count: int) -> set[int]:
        """Returns the numbers of the devices that the first ops, so many, name."""
        return {int(number) for texts in self.texts for text in texts[:count] for number in CUDA_DEVICE.findall(text)}

    @property
    def tensors(self) -> Tensors:
        """All tensors."""
        return self._read[0]

    @property
    def input_shapes(self) -> Categorical:
        """The shapes of each op's arguments as a JSON list, such as `[[4,8],[]]`; "" if it has none."""
        _, example, number = np.unique(self._read[1], return_index=True, return_inverse=True)
        members = map(LISTS.decode, self.texts[0].at(example))
        shapes = (bytes(each.shapes).decode().replace(" ", "") for each in members)
        return Categorical.of("" if shape == "[]" else shape for shape in shapes).take(number)

    def member_texts(self, rows: OpRows, skipped: Counts) -> list[BytesColumn]:
        """Returns the values, shapes and types of these ops' arguments, then results; `skipped` counts emptied ones."""
        texts = (column.take(rows) for column in self.texts)
        forms = (form[rows] for form in self._read[1:])
        return [*chain.from_iterable(map(_member_texts, texts, forms, repeat(skipped)))]

    def alike(self, rows: OpRows) -> list[Hashable]:
        """Returns for each op a value, the same where texts differ in ids and offsets alone and share memory alike."""
        tensors, input_form, output_form = self._read
        tensors = tensors.of(rows)
        memory = group_ids(tensors.row, tensors.storage, tensors.offset, tensors.elements)
        first = np.unique(memory, return_index=True)[1][memory]
        bounds = np.searchsorted(tensors.row, np.arange(len(rows) + 1))
        shared = (first - bounds[tensors.row]).tobytes()
        spans = [shared[begin:end] for begin, end in pairwise((first.itemsize * bounds).tolist())]
        return [*zip(input_form[rows].tolist(), output_form[rows].tolist(), spans, strict=True)]

    @cached_property
    def _read(self) -> tuple[Tensors, Int32, Int32]:
        """The tensors of all ops, and the form of each op's arguments and results."""
        forms = Interner[bytes]()
        codes, ids = [np.empty(0, np.int32)], [np.empty(0, np.int64)]
        for texts in self.texts:
            for first in range(0, len(texts), AT_ONCE):
                some = texts[first : first + AT_ONCE]
                block = LINE.join(some)
                if block.count(LINE) >= len(some) or CUT in block:
                    block = LINE.join([text.replace(LINE, b" ").replace(CUT, b" ") for text in some])
                pieces = IDS.split(block)
                codes.append(forms.codes(CUT.join(pieces[::2]).split(LINE), len(some)))
                ids.append(np.fromstring(b",".join(pieces[1::2]), np.int64, sep=","))
        form, op_count = np.concatenate(codes), len(self.texts[0])
        examples = BytesColumn.joined(self.texts).at(np.unique(form, return_index=True)[1])
        tensors = _tensors(form, [text.count(CUT) for text in forms], examples, np.concatenate(ids).reshape(-1, 3))
        is_output = tensors.row >= op_count
        tensors = tensors._replace(row=tensors.row - op_count * is_output, is_output=is_output)
        return tensors.where(np.argsort(tensors.row, kind="stable")), form[:op_count], form[op_count:]


def _tensors(form: Int32, cuts: list[int], texts: list[bytes], ids: Int64) -> Tensors:
    """Returns the tensors by text, given each text's form, and of each form how many ids were cut from it, and a text
    of it. What was cut from other values than tensors is left out with all of its text.
    """
    of_forms = [RecordedArguments.of(text).tensors if cut else [] for text, cut in zip(texts, cuts, strict=True)]
    kinds = [tensors if len(tensors) == cut else [] for tensors, cut in zip(of_forms, cuts, strict=True)]
    cut_count, kind_count = np.array(cuts, np.int64), np.array([*map(len, kinds)], np.int64)
    row = np.repeat(np.arange(len(form)), cut_count[form])
    is_tensor = (kind_count == cut_count)[form[row]]
    row = row[is_tensor]
    kind = (np.cumsum(kind_count) - kind_count)[form[row]] + np.arange(len(row)) - np.searchsorted(row, row)
    rows = []
    for listed in chain.from_iterable(kinds):
        digits = DEVICE_NUMBER.search(listed.device)
        device = DEVICES.get(listed.device.strip().partition(":")[0], int(digits[1]) if digits else 0)
        spanned = listed.spanned if listed.elements and listed.spanned < LARGEST else 0
        rows.append((listed.argument, listed.elements, listed.size, device, max(spanned, 0)))
    columns = np.array(rows, np.int64).reshape(-1, len(_Kinds._fields))
    tensor, storage, offset = np.ascontiguousarray(ids[is_tensor].T)
    return Tensors(_Kinds(*columns.T), row, is_tensor[is_tensor], tensor, storage, offset, kind)


def _member_texts(texts: BytesColumn, form: Int32, skipped: Counts) -> list[BytesColumn]:
    """Returns the values, shapes and types of arguments with these forms."""
    _, example, number = np.unique(form, return_index=True, return_inverse=True)
    of_forms = np.array([_bounds(text) for text in texts.at(example)], np.int32).reshape(-1, ENDS)[number]
    bounds = np.where(of_forms < 0, texts.length[:, None] + of_forms, of_forms)
    columns = [
        BytesColumn(texts.parts, texts.part, texts.start + begin, end - begin)
        for begin, end in bounds.T.reshape(len(NAMES), 2, len(texts))
    ]
    odd = np.flatnonzero(of_forms[:, 0] == 0)
    if not len(odd):
        return columns
    order = np.arange(len(texts))
    order[odd] = len(texts) + np.arange(len(odd))
    members = [LISTS.decode(text) for text in usable_arguments(texts.at(odd), skipped)]
    usable = ([bytes(getattr(each, name)) for each in members] for name in NAMES)
    return [
        BytesColumn.joined((column, BytesColumn.of(decoded))).take(order)
        for column, decoded in zip(columns, usable, strict=True)
    ]


def _bounds(text: bytes) -> list[int]:
    """Returns where each member of a text begins and ends: the first begin from the start of the text, the others from
    its end, so that they hold for all texts of its form; zeros where not all is usable, or written in another way.
    """
    members = LISTS.decode(text)
    for comma, colon in NOTATIONS if usable_arguments([text], Counts()) == [text] else ():
        begin, ends = b"{", list[int]()
        for name in NAMES:
            begin += f'"{name}"{colon}'.encode()
            ends += [len(begin), len(begin) + len(bytes(getattr(members, name)))]
            begin += bytes(getattr(members, name)) + comma.encode()
        if text.startswith(begin.removesuffix(comma.encode())):
            return [ends[0], *(end - len(text) for end in ends[1:])]
    return [0] * ENDS
