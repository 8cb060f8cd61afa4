"""Columns of byte strings, and the builders of these and other columns, which take one piece of a file at a time."""

from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from types import MappingProxyType
from typing import Any, Generic, TypeVar, overload

import msgspec
import numpy as np
import numpy.typing as npt

from .column_types import Bool, Categorical, Int32, Int64, Interner, Rows

Bytes = npt.NDArray[np.uint8]
Record = TypeVar("Record")
AT_ONCE = 1 << 13


@dataclass(slots=True, eq=False, repr=False)
class BytesColumn(Sequence[bytes]):
    """Row i is `length[i]` bytes from `start[i]` on in buffer `part[i]`. Taken and joined columns share buffers."""

    parts: list[bytes | bytearray]
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
        """Returns a column of strings, of which each stands in the buffer once."""
        listed = [*strings]
        # most may be distinct, so none of them takes a call of Python's
        numbers = dict(zip(dict.fromkeys(listed), count(), strict=False))
        code = np.fromiter(map(numbers.__getitem__, listed), np.int32, len(listed))
        length = np.fromiter(map(len, numbers), np.int64, len(numbers))
        start = np.cumsum(length) - length
        part = np.zeros(len(code), np.int32)
        return BytesColumn([b"".join(numbers)], part, start[code], length[code].astype(np.int32))


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

    def add(self, strings: Sequence[str]) -> None:
        """Takes a piece."""
        self._codes += self._seen.codes(strings, len(strings)).tobytes()

    def column(self) -> Categorical:
        """Returns all strings, in order."""
        return Categorical(np.frombuffer(self._codes, np.int32), list(self._seen))


class BytesColumnBuilder:
    """A column of byte strings on its way."""

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


class TableBuilder:
    """Columns on their way, by name: of integers, except those named as `texts` or `byte_strings`."""

    def __init__(self, texts: Iterable[str], byte_strings: Iterable[str] = ()) -> None:
        self._builders = defaultdict[str, Any](IntegerBuilder)
        self._builders |= {name: CategoricalBuilder() for name in texts}
        self._builders |= {name: BytesColumnBuilder() for name in byte_strings}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, columns: Mapping[str, Any]) -> None:
        """Takes a piece of every column."""
        for name, values in columns.items():
            self._builders[name].add(values)
        self._count += len(next(iter(columns.values())))

    def columns(self) -> dict[str, Any]:
        """Returns all rows, in order, by column."""
        return {name: builder.column() for name, builder in self._builders.items()}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RecordsByRow(Mapping[int, Record], Generic[Record]):
    """Maps rows to records, kept as JSON in one buffer: objects would hold memory around them. No change is kept."""

    rows: Int64
    encoded: BytesColumn
    decoder: msgspec.json.Decoder[Record]

    def __getitem__(self, row: int) -> Record:
        index = int(self.rows.searchsorted(row))
        if index == len(self.rows) or self.rows[index] != row:
            raise KeyError(row)
        return self.decoder.decode(self.encoded[index])

    def __iter__(self) -> Iterator[int]:
        return iter(self.rows.tolist())

    def __len__(self) -> int:
        return len(self.rows)

    def moved(self, new_row: Rows) -> "RecordsByRow[Record]":
        """Returns the records by their new rows, without those whose new row is -1."""
        rows = new_row[self.rows]
        order = np.argsort(rows)[np.count_nonzero(rows < 0) :]
        return RecordsByRow(rows[order], self.encoded.take(order), self.decoder)

    @staticmethod
    def of(kind: Any, records: Mapping[int, Any] = MappingProxyType({})) -> "RecordsByRow[Any]":
        """Returns such records, given by ascending rows."""
        builder = RecordBuilder[Any](kind)
        builder.add(records)
        return builder.records()


class RecordBuilder(Generic[Record]):
    """Records of some rows on their way, those of later rows after the others."""

    def __init__(self, kind: Any) -> None:
        self._rows, self._encoded, self._decoder = IntegerBuilder(), BytesColumnBuilder(), msgspec.json.Decoder(kind)

    def add(self, records: Mapping[int, Record]) -> None:
        """Takes a piece."""
        self._rows.add(np.fromiter(records, np.int64, len(records)))
        self._encoded.add([*map(msgspec.json.encode, records.values())])

    def records(self) -> RecordsByRow[Record]:
        """Returns all records."""
        return RecordsByRow(self._rows.column(), self._encoded.column(), self._decoder)
