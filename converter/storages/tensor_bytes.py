"""How far a tensor that is a strided view reaches over its storage, and whether it covers all of it: from recorded
shapes and strides.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from ...schema.traces import argument_lists

LARGEST = 1 << 62
"""Bytes beyond which a view is no view of this world."""


class ByteRange(NamedTuple):
    """Bytes [low, high) of a storage; `dense` where none of them lies between the view's elements."""

    storage: int
    low: int
    high: int
    dense: bool


def byte_ranges(lists: bytes) -> tuple[ByteRange, ...]:
    """Returns the byte_ranges of the tensors that an op's lists name with strides (schema 1.1.1 on); nothing for the
    others.
    """
    return tuple(_byte_ranges(*argument_lists(lists, "values", "shapes", "strides")))


def _byte_ranges(values: list[Any], shapes: list[Any], strides: list[Any]) -> Iterator[ByteRange]:
    # arguments that the launch added have no strides
    for value, shape, stride in zip(values, shapes, strides, strict=False):
        if not (isinstance(value, list) and isinstance(shape, list) and isinstance(stride, list)):
            continue
        if len(value) == 6 and isinstance(value[5], str):
            _, storage, offset, count, size, _ = value
            if all(isinstance(number, int) for number in (*value[:5], *shape, *stride)) and count:
                reach = 1 + sum((extent - 1) * step for extent, step in zip(shape, stride, strict=False))
                if min(value[:5]) >= 0 and 0 < reach < LARGEST and (offset + reach) * size < LARGEST:
                    yield ByteRange(storage, offset * size, (offset + reach) * size, reach <= count)
        else:
            yield from _byte_ranges(value, shape, stride)
