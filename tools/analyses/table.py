"""The table that every analysis returns: named columns with units, as rows of dicts, JSON, pandas or polars."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson

from ...schema.columns import Bool, Categorical, Int64, Summary, Tabular, Values as FrameValues, column_of
from ..terminal import ranges

Floats = npt.NDArray[np.float64]
BytesColumn = npt.NDArray[np.str_]
Values = npt.NDArray[Any] | list[str]


class Column(NamedTuple):
    """A named column of numbers (NaN if unknown), booleans or texts. `unit` is "" for plain numbers and texts."""

    name: str
    unit: str
    values: Values

    def take(self, rows: Int64 | Bool | slice) -> "Column":
        """Returns the column of these rows."""
        values = self.values
        if not isinstance(values, list):
            return self._replace(values=values[rows])
        if isinstance(rows, slice):
            return self._replace(values=values[rows])
        return self._replace(values=[values[row] for row in np.arange(len(values))[rows].tolist()])


ROWS_AT_ONCE = 10_000


@dataclass(slots=True, repr=False)
class Table(Tabular):
    """The result of an analysis: columns of equal length, and in `note` what a reader must know, or why there are no
    rows. `details` are further tables of the same analysis, named `NAME_…`.
    """

    name: str
    title: str
    columns: list[Column]
    note: str = ""
    details: tuple["Table", ...] = ()

    def __len__(self) -> int:
        return len(self.columns[0].values) if self.columns else 0

    def summary(self) -> Summary:
        """Returns the title, the columns with their units, and the note."""
        columns = ", ".join(f"{name} [{unit}]" if unit else name for name, unit, _ in self.columns)
        lines = {"columns": columns} | ({"note": self.note} if self.note else {})
        return Summary(f"{self.title} ({self.name}): {len(self):,} rows", lines)

    def __getitem__(self, name: str) -> Values:
        """Returns the values of a column; KeyError where there is none of that name."""
        return column_of(self.name, {column.name: column.values for column in self.columns}, name)

    def with_details(self) -> Iterator["Table"]:
        """Yields this table and its details."""
        yield self
        for table in self.details:
            yield from table.with_details()

    def take(self, rows: Int64 | Bool | slice) -> "Table":
        """Returns the table of these rows, with all details."""
        return replace(self, columns=[column.take(rows) for column in self.columns])

    def pieces(self) -> Iterator["Table"]:
        """Yields the table in pieces of ROWS_AT_ONCE rows, as rows take much more memory than columns."""
        return (self.take(slice(first, first + ROWS_AT_ONCE)) for first in range(0, len(self), ROWS_AT_ONCE))

    def to_json(self) -> bytes:
        """Returns the rows as a JSON list; null for unknown numbers."""
        return b"".join(self.json_pieces())

    def json_pieces(self) -> Iterator[bytes]:
        """Yields the text of `to_json` in pieces."""
        separator = b"["
        for piece in self.pieces():
            yield separator + orjson.dumps(piece.rows())[1:-1]
            separator = b","
        yield b"]" if len(self) else b"[]"

    def frame_columns(self) -> Mapping[str, FrameValues]:
        """Returns the columns of the table by name."""
        return {column.name: column.values for column in self.columns}

    def _shown_columns(self) -> Mapping[str, FrameValues]:
        """Returns the columns by name and unit."""
        return {f"{name} [{unit}]" if unit else name: values for name, unit, values in self.columns}


def microseconds(name: str, ns: npt.NDArray[np.number] | Sequence[int]) -> Column:
    """Returns a column of times in µs from ns."""
    return Column(name, "µs", np.asarray(ns, np.float64) / 1000)


def percentage(name: str, part: npt.ArrayLike, whole: npt.ArrayLike) -> Column:
    """Returns a column of shares in percent; NaN if the whole is 0."""
    part, whole = np.broadcast_arrays(np.asarray(part, np.float64), np.asarray(whole, np.float64))
    return Column(name, "%", np.divide(100 * part, whole, out=np.full(part.shape, np.nan), where=whole != 0))


def text_column(name: str, values: Categorical) -> Column:
    """Returns a column of texts."""
    table = [*values.table, ""]
    return Column(name, "", [table[code] for code in values.codes.tolist()])


def integers(name: str, values: Sequence[int], unit: str = "") -> Column:
    """Returns a column of whole numbers."""
    return Column(name, unit, np.array(values, np.int64))


def rank_column(rank: int, count: int) -> Column:
    """Returns a column `rank` of `count` equal values."""
    return Column("rank", "", np.full(count, rank, np.int64))


def concat(tables: Sequence[tuple[int, Table]]) -> Table:
    """Returns the table of several ranks, given as (rank, table), one below the other.

    A note that only some ranks have begins with these ranks.
    """
    first = tables[0][1]
    not_empty = [table.columns for _, table in tables if len(table)] or [first.columns]
    columns = [_concat_columns(same) for same in zip(*not_empty, strict=True)]
    details = zip(*([(rank, detail) for detail in table.details] for rank, table in tables), strict=True)
    return Table(first.name, first.title, columns, _notes(tables), tuple(map(concat, details)))


def _concat_columns(columns: Sequence[Column]) -> Column:
    name, unit, values = columns[0]
    if isinstance(values, list):
        return Column(name, unit, [text for column in columns for text in column.values])
    return Column(name, unit, np.concatenate([np.asarray(column.values) for column in columns]))


def _notes(tables: Sequence[tuple[int, Table]]) -> str:
    ranks: dict[str, list[int]] = {}
    for rank, table in tables:
        if table.note:
            ranks.setdefault(table.note, []).append(rank)
    return "; ".join(
        note if len(about) == len(tables) else f"rank {ranges(sorted(about))}: {note}" for note, about in ranks.items()
    )
