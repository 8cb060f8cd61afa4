"""Builders of columns, which take one piece of a file at a time and move what they have to the workspace, if any."""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np

from .byte_strings import BytesColumn
from .column_types import Bool, Categorical, Int64, Interner
from .workspace import Spilled

PIECE, TEXT_PIECE = 1 << 16, 1 << 20
"""Bytes of numbers, and of strings, that stay in memory while a column of them comes together."""


class IntegerBuilder:
    """A column of integers on its way."""

    def __init__(self) -> None:
        self._content = Spilled(PIECE)

    def add(self, numbers: Int64) -> None:
        """Takes a piece."""
        self._content.add(numbers.astype(np.int64, copy=False).tobytes())

    def column(self) -> Int64:
        """Returns all numbers, in order."""
        return np.frombuffer(self._content.buffer(), np.int64)


class RowBuilder:
    """Rows of so many integers on their way, one by one or some at once."""

    def __init__(self, width: int) -> None:
        self._width, self._waiting, self._content = width, array("q"), IntegerBuilder()

    def append(self, *row: int) -> None:
        """Takes a row."""
        self._waiting.extend(row)
        if self._waiting.itemsize * len(self._waiting) > PIECE:
            self._pass_on()

    def extend(self, *columns: Int64) -> None:
        """Takes some rows."""
        self._pass_on()
        self._content.add(np.stack(columns, axis=1).reshape(-1))

    def columns(self) -> list[Int64]:
        """Returns all rows, in order."""
        self._pass_on()
        rows = self._content.column().reshape(-1, self._width)
        return [np.ascontiguousarray(column) for column in rows.T]

    def _pass_on(self) -> None:
        self._content.add(np.array(self._waiting, np.int64))
        self._waiting = array("q")


class CategoricalBuilder:
    """A column of strings on its way."""

    def __init__(self) -> None:
        self._codes = Spilled(PIECE)
        self._seen = Interner[str]()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, strings: Sequence[str]) -> None:
        """Takes a piece."""
        self._codes.add(self._seen.codes(strings, len(strings)).tobytes())
        self._count += len(strings)

    def column(self) -> Categorical:
        """Returns all strings, in order."""
        return Categorical(np.frombuffer(self._codes.buffer(), np.int32), list(self._seen))


class BytesColumnBuilder:
    """A column of strings on its way."""

    def __init__(self) -> None:
        self._content = Spilled(TEXT_PIECE)
        self._start, self._length = IntegerBuilder(), IntegerBuilder()

    def add(self, strings: Sequence[bytes]) -> None:
        """Takes a piece."""
        piece = BytesColumn.of(strings)
        self._start.add(piece.start + self._content.size)
        self._length.add(piece.length.astype(np.int64))
        self._content.add(b"".join(map(bytes, piece.parts)))

    def column(self) -> BytesColumn:
        """Returns all strings, in order."""
        buffers = self._content.buffers()
        buffer_starts: Int64 = np.cumsum([0, *map(len, buffers)])[:-1]
        position, size = self._start.column(), self._length.column()
        part = np.maximum(np.searchsorted(buffer_starts, position, side="right") - 1, 0)
        start = position - np.append(buffer_starts, 0)[part]
        return BytesColumn(buffers, part.astype(np.int32), start, size.astype(np.int32))


Record = TypeVar("Record")


@dataclass(slots=True, eq=False)
class JsonRecords(Mapping[int, Record], Generic[Record]):
    """The records of some rows, by row; `rows` ascend. What is changed in a record that was looked up is not kept."""

    rows: Int64
    encoded: BytesColumn
    kind: Any

    def __getitem__(self, row: int) -> Record:
        index = int(self.rows.searchsorted(row))
        if index == len(self.rows) or self.rows[index] != row:
            raise KeyError(row)
        record: Record = msgspec.json.decode(self.encoded[index], type=self.kind)
        return record

    def __iter__(self) -> Iterator[int]:
        return iter(self.rows.tolist())

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, mask: Bool) -> "JsonRecords[Record]":
        """Returns the records of the kept rows, by their positions among these."""
        is_kept = mask[self.rows]
        return JsonRecords((np.cumsum(mask) - 1)[self.rows[is_kept]], self.encoded.take(is_kept), self.kind)

    @staticmethod
    def of(records: Mapping[int, Record], kind: Any) -> "JsonRecords[Record]":
        """Returns the same as a mapping of ascending rows."""
        pieces: JsonRecordsBuilder[Record] = JsonRecordsBuilder(kind)
        pieces.add(records)
        return pieces.column()


class JsonRecordsBuilder(Generic[Record]):
    """Such records on their way, those of later rows after the others."""

    def __init__(self, kind: Any) -> None:
        self._kind, self._rows, self._texts = kind, IntegerBuilder(), BytesColumnBuilder()
        self._encode = msgspec.json.Encoder().encode

    def add(self, records: Mapping[int, Record]) -> None:
        """Takes a piece."""
        if records:
            self._rows.add(np.array([*records], np.int64))
            self._texts.add([*map(self._encode, records.values())])

    def column(self) -> "JsonRecords[Record]":
        """Returns all records."""
        return JsonRecords(self._rows.column(), self._texts.column(), self._kind)
