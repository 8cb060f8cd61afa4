"""What only some rows have: records that are JSON text, and Python objects only while they are looked at."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np

from .builders import BytesColumnBuilder, IntegerBuilder
from .bytes_column import BytesColumn
from .column_types import Bool, Int64

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
