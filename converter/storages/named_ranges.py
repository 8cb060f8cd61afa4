"""Parses the tensors in ops' arguments: the bytes of storages that they cover, taken as contiguous or by
their strides.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ...schema.columns import Bool, Int64, Interner
from ...schema.traces import TENSOR, argument_lists, integer, recorded_tensor

HOST, NOWHERE = -1, -2
WITHOUT_NUMBER = {"cpu": HOST, "meta": NOWHERE}
LARGEST = 1 << 62
"""Bytes beyond which a view is damage."""


class Ranges(NamedTuple):
    """Columns of tensors: the text number `row` names bytes [low, high) of a storage on a device, HOST for the host."""

    row: Int64
    storage: Int64
    low: Int64
    high: Int64
    device: Int64

    def where(self, chosen: Bool) -> "Ranges":
        """Returns the chosen ranges."""
        return Ranges(*(column[chosen] for column in self))


def named_ranges(arguments: Iterable[bytes]) -> Ranges:
    """Returns the ranges of the tensors in each text, taken as contiguous, without empty ones and those without a
    storage.
    """
    counts: list[int] = []
    codes: list[int] = []
    # an op lists the tensors of its enclosing ops again, and most tensors are used more than once
    tensor_codes = Interner[tuple[bytes, ...]]()
    for tensors in map(TENSOR.findall, arguments):
        counts.append(len(tensors))
        codes += map(tensor_codes.__getitem__, tensors)
    storage, offset, count, size = np.array([tensor[:4] for tensor in tensor_codes], np.int64).reshape(-1, 4).T
    device = np.array([_device(tensor[4]) for tensor in tensor_codes], np.int64)
    row, code = np.repeat(np.arange(len(counts)), np.array(counts, np.int64)), np.array(codes, np.int64)
    ranges = Ranges(row, storage[code], (offset * size)[code], ((offset + count) * size)[code], device[code])
    return ranges.where(((storage != 0) & (count != 0) & (device != NOWHERE))[code])


def _device(text: bytes) -> int:
    """Returns the number in `"cuda:1"`; 0, the first device, for a name without one."""
    name = text.strip().strip(b'"').decode("utf-8", "replace")
    return WITHOUT_NUMBER[name] if name in WITHOUT_NUMBER else integer(name.partition(":")[2], 0)


class StridedRange(NamedTuple):
    """Bytes [low, high) of a storage; `dense` where none of them lies between the view's elements."""

    storage: int
    low: int
    high: int
    dense: bool


def strided_ranges(lists: bytes) -> tuple[StridedRange, ...]:
    """Returns the ranges of the tensors that an op's lists name with strides (schema 1.1.1 on); none
    without strides.
    """
    return tuple(_strided_ranges(*argument_lists(lists, "values", "shapes", "strides")))


def _strided_ranges(values: list[Any], shapes: list[Any], strides: list[Any]) -> Iterator[StridedRange]:
    # arguments that the launch added have no strides
    for value, shape, stride in zip(values, shapes, strides, strict=False):
        if not (isinstance(value, list) and isinstance(shape, list) and isinstance(stride, list)):
            continue
        if (tensor := recorded_tensor(value)) is None:
            yield from _strided_ranges(value, shape, stride)
        elif all(isinstance(number, int) for number in (*shape, *stride)) and tensor.elements:
            begin, size = tensor.offset, tensor.size
            spanned = 1 + sum((extent - 1) * step for extent, step in zip(shape, stride, strict=False))
            if 0 < spanned < LARGEST and (begin + spanned) * size < LARGEST:
                yield StridedRange(tensor.storage, begin * size, (begin + spanned) * size, spanned <= tensor.elements)
