"""The recorded arguments of many communications as rows of numbers, which become objects only when they
are accessed.
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
    """Communications by row. Row i of `rows` has the fields of one, in order: numbers, or positions in `table` of texts
    and lists.

    Communications with equal texts and lists share them, so they must not be changed.
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
        rows = self.rows[row].tolist()
        return [*map(self._communication, rows)] if isinstance(row, slice) else self._communication(rows)

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
        """Returns the values of a field that is a text."""
        return [self.table[position] for position in self.numbers(name).tolist()]

    def take(self, rows: Int64) -> "Communications":
        """Returns the given rows; texts and lists are shared."""
        return Communications(self.rows[rows], self.table)

    def rename(self, rows: Int64, name: str) -> None:
        """Changes the name of the communications at these rows."""
        self.table.append(name)
        self.rows[rows, FIELDS.index("name")] = len(self.table) - 1

    def _communication(self, row: list[int]) -> Communication:
        table, pairs = self.table, zip(row, IS_NUMBER, strict=True)
        values: list[Any] = [number if is_number else table[number] for number, is_number in pairs]
        return Communication(*values)

    @staticmethod
    def of(records: Iterable[Communication]) -> "Communications":
        """Returns the communications as rows; equal texts and lists are one."""
        table: list[Any] = []
        positions: dict[Any, int] = {}
        of_list: dict[int, int] = {}
        """Positions by identity of lists in the table, so that long shared lists are not compared again."""

        def position(value: Any) -> int:
            if (known := of_list.get(id(value))) is not None:
                return known
            # lists of coalesced communications are never equal
            is_plain = isinstance(value, str | range) or not (value and isinstance(value[0], Communication))
            key = (value if isinstance(value, str | range) else tuple(value)) if is_plain else id(value)
            number = positions.setdefault(key, len(table))
            if number == len(table):
                table.append(value)
                of_list[id(value)] = number
            return number

        records, rows = iter(records), IntegerBuilder()
        while block := [*islice(records, AT_ONCE)]:
            values = (zip(msgspec.structs.astuple(record), IS_NUMBER, strict=True) for record in block)
            numbers = [value if is_number else position(value) for row in values for value, is_number in row]
            rows.add(np.array(numbers, np.int64))
        return Communications(rows.column().reshape(-1, len(FIELDS)), table)
