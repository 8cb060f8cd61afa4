"""Columns of byte strings whose bytes lie together in a few buffers; a Python object is made only when one is read."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pickle import PickleBuffer
from typing import Any, SupportsIndex, overload

import numpy as np
import numpy.typing as npt

from .byte_strings import Spans
from .column_types import Bool, Int32, Int64, Rows
from .workspace import Buffer

AT_ONCE = 1 << 13
BUFFERS_FROM = 5
"""The protocol of pickle from which on it takes buffers as they are."""


@dataclass(slots=True, eq=False, repr=False)
class BytesColumn(Sequence[bytes]):
    """Row i is `length[i]` bytes from `start[i]` on in buffer `part[i]`. Taken and joined columns share buffers."""

    parts: list[Buffer]
    part: Int32
    start: Int64
    length: Int32

    def __len__(self) -> int:
        return len(self.part)

    @overload
    def __getitem__(self, row: int) -> bytes: ...
    @overload
    def __getitem__(self, row: slice) -> list[bytes]: ...
    def __getitem__(self, row: int | slice) -> bytes | list[bytes]:
        if isinstance(row, slice):
            return self._strings(row)
        start = self.start[row]
        return bytes(self.parts[self.part[row]][start : start + self.length[row]])

    def __iter__(self) -> Iterator[bytes]:
        for first in range(0, len(self), AT_ONCE):
            yield from self._strings(slice(first, first + AT_ONCE))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and [*self] == [*other]

    __hash__ = None  # type: ignore[assignment]

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        buffer: Callable[[Buffer], Any] = PickleBuffer if int(protocol) >= BUFFERS_FROM else bytes
        return BytesColumn, ([*map(buffer, self.parts)], self.part, self.start, self.length)

    def at(self, rows: Rows | Sequence[int]) -> list[bytes]:
        """Returns the texts of these rows."""
        return self._strings(np.asarray(rows, np.int64))

    def take(self, rows: "npt.NDArray[np.integer] | Bool") -> "BytesColumn":
        """Returns the given rows as a column."""
        return BytesColumn(self.parts, self.part[rows], self.start[rows], self.length[rows])

    def differ(self, text: bytes) -> Bool:
        """Returns which rows have another text than this one."""
        differs: Bool = np.not_equal(self.length, len(text))
        alike = np.flatnonzero(~differs)
        for first in range(0, len(alike), AT_ONCE):
            rows = alike[first : first + AT_ONCE]
            differs[rows] = [stored != text for stored in self.at(rows)]
        return differs

    def spans(self, rows: slice) -> Spans:
        """Returns the rows as a column for what copies bytes."""
        part = self.part[rows]
        if len(part) and (part == part[0]).all():
            length = self.length[rows].astype(np.int64)
            return Spans(np.frombuffer(self.parts[int(part[0])], np.uint8), self.start[rows], length)
        return Spans.of(self._strings(rows))

    def _strings(self, rows: Int64 | slice) -> list[bytes]:
        parts, start = self.parts, self.start[rows]
        columns = (self.part[rows].tolist(), start.tolist(), (start + self.length[rows]).tolist())
        return [bytes(parts[part][first:last]) for part, first, last in zip(*columns, strict=True)]

    @staticmethod
    def joined(columns: "Sequence[BytesColumn]") -> "BytesColumn":
        """Returns the rows of all columns, one column after the other."""
        before = np.cumsum([0, *(len(column.parts) for column in columns)])
        part = [column.part + np.int32(count) for column, count in zip(columns, before.tolist(), strict=False)]
        return BytesColumn(
            [buffer for column in columns for buffer in column.parts],
            np.concatenate([np.empty(0, np.int32), *part]),
            np.concatenate([np.empty(0, np.int64), *(column.start for column in columns)]),
            np.concatenate([np.empty(0, np.int32), *(column.length for column in columns)]),
        )

    @staticmethod
    def of(strings: Iterable[bytes]) -> "BytesColumn":
        """Returns a column of strings, of which each stands in the buffer once.

        >>> BytesColumn.of([b"[1]", b"[]", b"[1]"])[1:]
        [b'[]', b'[1]']
        """
        listed = [*strings]
        # most may be distinct, so none of them takes a call of Python's
        numbers = dict(zip(dict.fromkeys(listed), count(), strict=False))
        code = np.fromiter(map(numbers.__getitem__, listed), np.int32, len(listed))
        length = np.fromiter(map(len, numbers), np.int64, len(numbers))
        start = np.cumsum(length) - length
        part = np.zeros(len(code), np.int32)
        return BytesColumn([b"".join(numbers)], part, start[code], length[code].astype(np.int32))
