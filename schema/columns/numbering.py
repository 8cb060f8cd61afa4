"""Integers for values: numbers in the order in which the values first come, or the rows that hold them."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

import numpy as np

from .column_types import Int32, Int64, Strings

Value = TypeVar("Value")


class Numbering(dict[Value, int]):
    """Looking a value up gives its number, a new one to a value that is not there. The keys are the values by number."""

    def __missing__(self, value: Value) -> int:
        return self.setdefault(value, len(self))

    def codes(self, values: Iterable[Value], count: int) -> Int32:
        """The numbers of `count` values."""
        return np.fromiter(map(self.__getitem__, values), np.int32, count)


class StringPieces:
    """A column of strings on its way, a piece at a time."""

    def __init__(self) -> None:
        self._codes: list[Int32] = []
        self._seen = Numbering[str]()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, texts: Sequence[str]) -> None:
        """Takes a piece."""
        self._codes.append(self._seen.codes(texts, len(texts)))
        self._count += len(texts)

    def column(self) -> Strings:
        """All strings, in order."""
        return Strings(np.concatenate([np.empty(0, np.int32), *self._codes]), list(self._seen))


def rows_of(ids: Int64, wanted: Int64) -> Int64:
    """The row of each wanted id, the last one that has it, -1 for an id that is not there. O((n + k) log n)."""
    if not len(ids):
        return np.full(len(wanted), -1, np.int64)
    order = np.argsort(ids, kind="stable")
    rows = order[np.searchsorted(ids, wanted, side="right", sorter=order) - 1]
    return np.where(ids[rows] == wanted, rows, -1)
