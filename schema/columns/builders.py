"""Builders of columns, which take one piece of a file at a time; and records that only some rows have, as JSON text."""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from .byte_strings import BytesColumn
from .column_types import Bool, Categorical, Int64, Interner

Record = TypeVar("Record")


class IntegerBuilder:
    """A column of integers on its way. It grows in one buffer, so that it never needs the memory of two."""

    def __init__(self) -> None:
        self._content = bytearray()

    def add(self, numbers: npt.NDArray[np.integer]) -> None:
        """Takes a piece."""
        self._content += numbers.astype(np.int64, copy=False).tobytes()

    def column(self) -> Int64:
        """Returns all numbers, in order."""
        return np.frombuffer(self._content, np.int64)


class RowBuilder:
    """Rows of so many integers on their way, one by one or some at once."""

    def __init__(self, width: int) -> None:
        self._width, self._numbers = width, array("q")

    def append(self, *row: int) -> None:
        """Takes a row."""
        self._numbers.extend(row)

    def extend(self, *columns: Int64) -> None:
        """Takes some rows."""
        self._numbers.frombytes(np.stack(columns, axis=1).astype(np.int64).tobytes())

    def columns(self) -> list[Int64]:
        """Returns all rows, in order."""
        return [*np.array(self._numbers, np.int64).reshape(-1, self._width).T.copy()]


class CategoricalBuilder:
    """A column of strings on its way."""

    def __init__(self) -> None:
        self._codes = bytearray()
        self._seen = Interner[str]()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, strings: Sequence[str]) -> None:
        """Takes a piece."""
        self._codes += self._seen.codes(strings, len(strings)).tobytes()
        self._count += len(strings)

    def column(self) -> Categorical:
        """Returns all strings, in order."""
        return Categorical(np.frombuffer(self._codes, np.int32), list(self._seen))


class BytesColumnBuilder:
    """A column of strings on its way."""

    def __init__(self) -> None:
        self._content = bytearray()
        self._start, self._length = IntegerBuilder(), IntegerBuilder()

    def add(self, strings: Sequence[bytes]) -> None:
        """Takes a piece."""
        piece = BytesColumn.of(strings)
        self._start.add(piece.start + len(self._content))
        self._length.add(piece.length)
        self._content += piece.parts[0]

    def column(self) -> BytesColumn:
        """Returns all strings, in order."""
        start, length = self._start.column(), self._length.column().astype(np.int32)
        return BytesColumn([self._content], np.zeros(len(start), np.int32), start, length)


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
