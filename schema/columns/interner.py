"""Integers for values: numbers in the order in which the values first come, or the rows that hold them."""

from collections.abc import Iterable
from typing import TypeVar

import numpy as np

from .column_types import Int32, Int64

Value = TypeVar("Value")


class Interner(dict[Value, int]):
    """Looking a value up gives its number, a new one to a value that is not there. The keys are the
    values by number.
    """

    def __missing__(self, value: Value) -> int:
        return self.setdefault(value, len(self))

    def codes(self, values: Iterable[Value], count: int) -> Int32:
        """Returns the numbers of `count` values."""
        return np.fromiter(map(self.__getitem__, values), np.int32, count)


def rows_of(ids: Int64, keys: Int64) -> Int64:
    """Returns the row of each wanted id, the last one that has it, -1 for an id that is not there. O((n + k) log n)."""
    if not len(ids):
        return np.full(len(keys), -1, np.int64)
    order = np.argsort(ids, kind="stable")
    rows = order[np.searchsorted(ids, keys, side="right", sorter=order) - 1]
    return np.where(ids[rows] == keys, rows, -1)
