"""The recorded arguments of many communications as one column of rows of numbers: they are objects only while they are
looked at.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, overload

import msgspec
import numpy as np

from ..columns import Int64, IntegerBuilder
from .linked_trace import Communication

AT_ONCE = 1 << 8
FIELDS = Communication.__struct_fields__
IS_NUMBER = [isinstance(value, int) for value in msgspec.structs.astuple(Communication())]


@dataclass(slots=True, eq=False)
class Communications(Sequence[Communication]):
    """Row i of `rows` has the fields of a communication, in their order: numbers as they are, of texts and lists the
    place in `table`.

    Texts and lists are shared by the communications that have equal ones, so they are not to be changed.
    """

    rows: Int64
    table: list[Any] = field(repr=False)

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, row: int) -> Communication: ...
    @overload
    def __getitem__(self, row: slice) -> list[Communication]: ...
    def __getitem__(self, row: int | slice) -> Communication | list[Communication]:
        if isinstance(row, slice):
            return [*map(self._one, self.rows[row].tolist())]
        return self._one(self.rows[row].tolist())

    def __iter__(self) -> Iterator[Communication]:
        for first in range(0, len(self), AT_ONCE):
            yield from self[first : first + AT_ONCE]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and [*self] == [*other]

    __hash__ = None  # type: ignore[assignment]

    def numbers(self, name: str) -> Int64:
        """Returns the column of a field that is a number."""
        return self.rows[:, FIELDS.index(name)]

    def texts(self, name: str) -> list[str]:
        """Returns what each has in a field that is a text."""
        return [self.table[place] for place in self.numbers(name).tolist()]

    def take(self, rows: Int64) -> "Communications":
        """Returns the given rows; texts and lists are shared."""
        return Communications(self.rows[rows], self.table)

    def rename(self, rows: Int64, name: str) -> None:
        """Gives some of them another name."""
        self.table.append(name)
        self.rows[rows, FIELDS.index("name")] = len(self.table) - 1

    def _one(self, row: list[int]) -> Communication:
        table = self.table
        values: list[Any] = [number if own else table[number] for number, own in zip(row, IS_NUMBER, strict=True)]
        return Communication(*values)

    @staticmethod
    def of(records: Iterable[Communication]) -> "Communications":
        """Returns the same as columns, which are on disk where columns go there."""
        coming, once, pieces = iter(records), _Once(), IntegerBuilder()
        while block := [*islice(coming, AT_ONCE)]:
            pieces.add(np.array([*map(once.row, block)], np.int64).reshape(-1))
        return Communications(pieces.column().reshape(-1, len(FIELDS)), once.table)


class _Once:
    """Texts and lists by their places in `table`, where each stands once."""

    def __init__(self) -> None:
        self.table: list[Any] = []
        self._places: dict[Any, int] = {}
        self._of_list: dict[int, int] = {}
        """By identity of the lists in the table, so that long ones that many share are not compared again."""

    def row(self, record: Communication) -> list[int]:
        """Returns the numbers that stand for a communication."""
        values = msgspec.structs.astuple(record)
        return [value if own else self._place(value) for value, own in zip(values, IS_NUMBER, strict=True)]

    def _place(self, value: Any) -> int:
        place = self._of_list.get(id(value))
        if place is None:
            key = value if isinstance(value, str | range) else _key(value)
            place = self._places.setdefault(key, len(self.table))
            if place == len(self.table):
                self.table.append(value)
                self._of_list[id(value)] = place
        return place


def _key(values: Sequence[Any]) -> Any:
    """Returns what is equal for equal lists; what is coalesced stands for itself."""
    return id(values) if values and isinstance(values[0], Communication) else tuple(values)
