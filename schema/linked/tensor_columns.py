"""The tensors in ops' arguments as columns: arguments that differ in digits alone are decoded once."""

import re
from collections.abc import Hashable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import msgspec
import numpy as np

from ..columns import FIRST_LABEL, Bool, DigitRuns, Int64, Interner, group_ids, labelled
from .arguments import TENSOR_DIGITS, argument_lists

HOST, NOWHERE = -1, -2
WITHOUT_NUMBER = {"cpu": HOST, "meta": NOWHERE}
LARGEST = 1 << 62
"""Elements and bytes beyond which a view is damage."""
LABEL = re.compile(r"\d+")
FIELDS = len(TENSOR_DIGITS)
ID, STORAGE, OFFSET, ELEMENTS, SIZE = range(FIELDS)


class TensorColumns(NamedTuple):
    """Tensors by text and in the order of the text: `row` is that of the text, `argument` the index of the argument
    that is or holds the tensor, `tensor` its id, `device` a number, HOST or NOWHERE.

    `spanned` counts elements of the storage from the first one of the tensor to its last one, by its strides; 0 where
    these are not recorded or cannot be.
    """

    row: Int64
    argument: Int64
    tensor: Int64
    storage: Int64
    offset: Int64
    elements: Int64
    size: Int64
    device: Int64
    spanned: Int64

    def where(self, chosen: Bool | Int64) -> "TensorColumns":
        """Returns the chosen tensors."""
        return TensorColumns(*(column[chosen] for column in self))


class _Tensor(NamedTuple):
    """A tensor of a shape of arguments: the runs of digits that are its numbers. `device` is a number, or that of a
    run.
    """

    argument: int
    runs: list[int]
    device: int
    device_run: int
    extents: list[tuple[int, int]]
    """Runs of the extent and step of each dimension."""
    has_strides: bool


class _TensorRuns(NamedTuple):
    """The runs of digits in texts; for each tensor in them its text, its number among those of the shapes, and its
    runs.
    """

    runs: DigitRuns
    row: Int64
    tensor: Int64
    run: Int64

    def are_tensors(self) -> Bool:
        """Returns which of them are tensors: their numbers are not too long."""
        are_short: Bool = np.logical_and.reduce(self.runs.lengths[self.run] <= TENSOR_DIGITS, axis=1)
        return are_short


class TensorReader:
    """Reads tensors in texts of arguments; remembers the tensors in each shape of a text."""

    def __init__(self) -> None:
        self._shapes = Interner[bytes]()
        self._tensors: list[_Tensor] = []
        self._first = [0]
        """The first tensor of each shape, and behind the last one."""

    def of(self, texts: Sequence[bytes]) -> TensorColumns:
        """Returns the tensors of all texts. Linear in the bytes."""
        tensor_runs = self._tensor_runs(texts)
        return self._columns(tensor_runs).where(tensor_runs.are_tensors())

    def alike(self, inputs: Sequence[bytes], outputs: Sequence[bytes]) -> list[Hashable]:
        """Returns a value for each op, the same for ops whose arguments and results differ in ids, storages and offsets
        alone, and share storages alike.
        """
        tensor_runs = self._tensor_runs([*chain.from_iterable(zip(inputs, outputs, strict=True))])
        is_tensor, runs = tensor_runs.are_tensors(), tensor_runs.runs
        op, run = tensor_runs.row[is_tensor] // 2, tensor_runs.run[is_tensor]
        numbers = runs.distinct_integers()
        memory = group_ids(op, *(numbers[run[:, column]] for column in (STORAGE, OFFSET, ELEMENTS)))
        first = np.unique(memory, return_index=True)[1][memory]
        numbers[run[:, [ID, OFFSET]]] = 0
        numbers[run[:, STORAGE]] = first - np.searchsorted(op, op)
        raw, shape = numbers.tobytes(), runs.shape.tolist()
        bounds = (numbers.itemsize * np.append(runs.first, len(numbers))[::2]).tolist()
        spans = zip(shape[::2], shape[1::2], bounds, bounds[1:], strict=False)
        return [(of_inputs, of_outputs, raw[begin:end]) for of_inputs, of_outputs, begin, end in spans]

    def _tensor_runs(self, texts: Sequence[bytes]) -> _TensorRuns:
        runs = DigitRuns.of_texts(texts, self._shapes)
        for shape in [*self._shapes][len(self._first) - 1 :]:
            self._tensors += _tensors(shape)
            self._first.append(len(self._tensors))
        bounds = np.array(self._first, np.int64)
        count = np.diff(bounds)[runs.shape] if len(texts) else np.empty(0, np.int64)
        row = np.repeat(np.arange(len(count)), count)
        tensor = np.arange(len(row)) + np.repeat(bounds[runs.shape][: len(count)] - np.cumsum(count) + count, count)
        of_tensors = np.array([each.runs for each in self._tensors], np.int64).reshape(-1, FIELDS)
        return _TensorRuns(runs, row, tensor, runs.first[row][:, None] + of_tensors[tensor])

    def _columns(self, tensor_runs: _TensorRuns) -> TensorColumns:
        runs, row, tensor, run = tensor_runs
        tensors, first = self._tensors, runs.first[row]
        numbers = runs.integers(run.reshape(-1)).reshape(-1, FIELDS)
        device_run = np.array([each.device_run for each in tensors], np.int64)[tensor]
        device = np.array([each.device for each in tensors], np.int64)[tensor]
        has_run = device_run >= 0
        device[has_run] = runs.integers(first[has_run] + device_run[has_run])
        return TensorColumns(
            row=row,
            argument=np.array([each.argument for each in tensors], np.int64)[tensor],
            tensor=numbers[:, ID],
            storage=numbers[:, STORAGE],
            offset=numbers[:, OFFSET],
            elements=numbers[:, ELEMENTS],
            size=numbers[:, SIZE],
            device=device,
            spanned=self._spanned(tensor_runs, numbers),
        )

    def _spanned(self, tensor_runs: _TensorRuns, numbers: Int64) -> Int64:
        """Returns the elements that each tensor spans by its strides."""
        runs, row, tensor, _ = tensor_runs
        dimension_count = max((len(each.extents) for each in self._tensors), default=0)
        padded = [each.extents + [(-1, -1)] * (dimension_count - len(each.extents)) for each in self._tensors]
        dimensions = np.array(padded, np.int64).reshape(len(padded), dimension_count, 2)[tensor]
        is_recorded = dimensions >= 0
        extents = np.ones(dimensions.shape)
        extents[is_recorded] = runs.integers((dimensions + runs.first[row][:, None, None])[is_recorded])
        spanned = 1 + ((extents[:, :, 0] - 1) * extents[:, :, 1]).sum(axis=1)
        has_strides = np.array([each.has_strides for each in self._tensors], np.bool_)[tensor]
        fits = (spanned > 0) & (spanned < LARGEST) & ((numbers[:, OFFSET] + spanned) * numbers[:, SIZE] < LARGEST)
        return np.where(has_strides & fits & (numbers[:, ELEMENTS] > 0), spanned, 0).astype(np.int64)


def _tensors(shape: bytes) -> list[_Tensor]:
    try:
        values, shapes, strides = argument_lists(labelled(shape), "values", "shapes", "strides")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
    # arguments that a launch added have no shapes or strides
    parallel = [[*column, *[None] * (len(values) - len(column))] for column in (shapes, strides)]
    numbered_values = enumerate(zip(values, *parallel, strict=False))
    return [tensor for index, parts in numbered_values for tensor in _tensors_in(index, *parts)]


def _tensors_in(argument: int, value: Any, shape: Any, strides: Any) -> Iterator[_Tensor]:
    if isinstance(value, dict):
        value = [*value.values()]
    if not isinstance(value, list):
        return
    if (
        len(value) == FIELDS + 1
        and all(type(each) is int and each > 0 for each in value[:-1])
        and type(value[-1]) is str
    ):
        yield _tensor(argument, value, shape, strides)
        return
    parallel = [column if isinstance(column, list) else [] for column in (shape, strides)]
    padded = ([*column, *[None] * (len(value) - len(column))] for column in parallel)
    for parts in zip(value, *padded, strict=False):
        yield from _tensors_in(argument, *parts)


def _tensor(argument: int, value: list[Any], shape: Any, strides: Any) -> _Tensor:
    name, _, number = value[-1].strip().partition(":")
    label = LABEL.search(number)
    device = WITHOUT_NUMBER.get(name if not number else "", 0)
    are_lists = isinstance(shape, list) and isinstance(strides, list)
    has_strides = are_lists and all(type(each) is int and each > 0 for each in (*shape, *strides))
    pairs = [*zip(shape, strides, strict=False)] if has_strides else []
    return _Tensor(
        argument,
        [each - FIRST_LABEL for each in value[:-1]],
        device,
        int(label.group()) - FIRST_LABEL if label else -1,
        [(extent - FIRST_LABEL, step - FIRST_LABEL) for extent, step in pairs],
        has_strides,
    )
