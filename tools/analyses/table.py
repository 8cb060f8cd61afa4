"""The table that every analysis returns: named columns with units, as rows of dicts, JSON, pandas or polars."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson

from ...schema.columns import Bool, Categorical, Floats, Groups, Int64, Rows, Summary, Tabular, column_of
from ..terminal import ranges

Values = npt.NDArray[Any] | list[str]
ROWS_AT_ONCE = 10_000


class Column(NamedTuple):
    """A named column of numbers (NaN if unknown), booleans or texts. `unit` is "" for plain numbers and texts."""

    name: str
    unit: str
    values: Values

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known in any row."""
        values = self.values
        if isinstance(values, list):
            return not any(values)
        return bool(values.dtype.kind == "f" and np.isnan(values).all())

    def take(self, rows: Int64 | Bool | slice) -> "Column":
        """Returns the column of these rows."""
        values = self.values
        if isinstance(values, list):
            return self._replace(values=[values[row] for row in np.arange(len(values))[rows].tolist()])
        return self._replace(values=values[rows])


class Quantity(NamedTuple):
    """The values of a column with a unit."""

    unit: str
    values: npt.NDArray[Any]


Cells = Values | Categorical | Quantity
Columns = Mapping[str, Cells]


def us(ns: npt.ArrayLike) -> Quantity:
    """Returns times in µs from ns."""
    return Quantity("µs", np.asarray(ns, np.float64) / 1000)


def pct(part: npt.ArrayLike, whole: npt.ArrayLike, of: str = "") -> Quantity:
    """Returns shares in percent, `of` what if the heading is to say it; NaN if the whole is 0."""
    part, whole = np.broadcast_arrays(np.asarray(part, np.float64), np.asarray(whole, np.float64))
    return Quantity(f"% of {of}" if of else "%", ratio(100 * part, whole, where=whole != 0))


def ratio(part: npt.NDArray[Any], whole: npt.NDArray[Any], where: Bool | None = None) -> Floats:
    """Returns the quotients; NaN where the whole is not above 0, or as `where` says."""
    is_known = whole > 0 if where is None else where
    return np.asarray(np.divide(part, whole, out=np.full(len(whole), np.nan), where=is_known))


def ints(values: Iterable[int]) -> Int64:
    """Returns a column of whole numbers."""
    return np.array([*values], np.int64)


def texts(table: Sequence[str], code: npt.NDArray[np.integer]) -> list[str]:
    """Returns the text of each code, "" for -1."""
    return Categorical(np.asarray(code, np.int32), [*table]).tolist()


def named(column: Categorical, rows: Rows) -> Categorical:
    """Returns the texts of these rows, null for -1."""
    return Categorical(np.append(column.codes, -1)[rows].astype(np.int32), column.table)


def statistics(groups: Groups, durations: Int64, quantiles: Collection[float] = ()) -> dict[str, Cells]:
    """Returns by group count, sum, mean, std (n - 1), min, quantiles as numpy's and max of durations in ns."""
    order = np.lexsort((durations, groups.number))
    ordered, number, count = durations[order], groups.number[order], groups.count()
    begin, squares = np.cumsum(count) - count, (ordered - groups.mean(durations)[number]) ** 2

    def quantile(share: float) -> Quantity:
        position = begin + share * (count - 1)
        below = np.floor(position).astype(np.int64)
        low, high = ordered[below], ordered[np.minimum(below + 1, len(ordered) - 1)]
        return us(low + (position - below) * (high - low))

    return {
        "count": count, "sum": us(groups.sum(durations)), "mean": us(groups.mean(durations)),
        "std": us(np.sqrt(np.bincount(number, squares, len(groups)) / np.maximum(count - 1, 1))), "min": quantile(0),
        **{f"q{100 * share:02.0f}": quantile(share) for share in quantiles}, "max": quantile(1),
    }  # fmt: skip


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
        lines = {"columns": ", ".join(self._shown_columns())} | ({"note": self.note} if self.note else {})
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

    def frame_columns(self) -> Mapping[str, Values]:
        """Returns the columns of the table by name."""
        return {column.name: column.values for column in self.columns}

    def _shown_columns(self) -> Mapping[str, Values]:
        """Returns the columns by name and unit."""
        return {f"{name} [{unit}]" if unit else name: values for name, unit, values in self.columns}


def tabulate(name: str, title: str, columns: Columns, note: str = "", *details: Table, empty: str = "") -> Table:
    """Returns the table of these columns; without rows its note is `empty`, if that is given."""
    of_table = []
    for key, values in columns.items():
        unit, values = values if isinstance(values, Quantity) else ("", values)
        of_table.append(Column(key, unit, values.tolist() if isinstance(values, Categorical) else values))
    made = Table(name, title, of_table, note, details)
    made.note = note if len(made) or not empty else empty
    return made


def concat(tables: Sequence[tuple[int, Table]]) -> Table:
    """Returns the tables of (rank, table) one below the other; a note that only some ranks have begins with these."""
    first = tables[0][1]
    not_empty = [table.columns for _, table in tables if len(table)] or [first.columns]
    rank_of = np.repeat(ints(rank for rank, _ in tables), [len(table) for _, table in tables])
    columns = [Column("rank", "", rank_of), *(_concat_columns(same) for same in zip(*not_empty, strict=True))]
    details = zip(*([(rank, detail) for detail in table.details] for rank, table in tables), strict=True)
    ranks_of = dict[str, list[int]]()
    for rank, table in tables:
        ranks_of.setdefault(table.note, []).append(rank)
    notes = [
        note if len(ranks) == len(tables) else f"rank{'s' * (len(ranks) > 1)} {ranges(sorted(ranks))}: {note}"
        for note, ranks in ranks_of.items()
        if note
    ]
    return Table(first.name, first.title, columns, "; ".join(notes), tuple(map(concat, details)))


def _concat_columns(columns: Sequence[Column]) -> Column:
    name, unit, values = columns[0]
    if isinstance(values, list):
        return Column(name, unit, [text for column in columns for text in column.values])
    return Column(name, unit, np.concatenate([np.asarray(column.values) for column in columns]))
