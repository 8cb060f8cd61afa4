"""The types that columns are made of, and what large records show of themselves, as text and as HTML for notebooks."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from html import escape
from typing import ClassVar, Generic, NamedTuple, NewType, TypeVar, cast, overload

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]
Bool = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ns = Int64
"""A column of times or durations in ns."""
Rows = Int64
"""A column of positions in another table, -1 for none, as in the types below."""
OpRows = NewType("OpRows", Int64)
DeviceOpRows = NewType("DeviceOpRows", Int64)
"""Rows of the ops as the device trace holds them, -1 for none; `RowMap` turns them into `OpRows`."""
CallRows = NewType("CallRows", Int64)
ActivityRows = NewType("ActivityRows", Int64)
CommunicationRows = NewType("CommunicationRows", Int64)
NodeIds = NewType("NodeIds", Int64)
"""A column of ids of a graph's nodes, as in its file; graphs of this project have ids from 1 on."""
NodeNumbers = NewType("NodeNumbers", Int64)
"""Numbers of nodes from 0 on, -1 for none: of a conversion, or rows of a graph."""
SeveralRows = slice | Sequence[int] | npt.NDArray[np.integer] | Bool
TEXTS_SHOWN, TEXT_SHOWN = 3, 40
ABSENT = np.iinfo(np.int64).min
"""Stands in an int64 attribute column where a node does not have the attribute."""
Target = TypeVar("Target", bound=Int64)
Value = TypeVar("Value")


class Summary(NamedTuple):
    """What a record is, and lines about it by what they tell."""

    title: str
    lines: dict[str, str]


class SummaryRepr:
    """A record with a short repr whatever its size: the length of its columns. Dataclasses need `repr=False`."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, object]]

    def summary(self) -> Summary:
        """Returns what the repr shows: here the number of rows, and the names of the columns."""
        columns = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        present = {name: column for name, column in columns.items() if column is not None}
        count = len(next(iter(present.values())))
        return Summary(f"{type(self).__name__}: {count:,} rows", {"columns": ", ".join(present)})

    def __repr__(self) -> str:
        return summary_text(self.summary())

    def _repr_html_(self) -> str:
        return summary_html(self.summary())


def summary_text(summary: Summary) -> str:
    """Returns the title, and a line below it for each of the others."""
    title, lines = summary
    width = max(map(len, lines), default=0)
    return "\n".join([title, *(f"  {label:<{width}}  {text}" for label, text in lines.items())])


def summary_html(summary: Summary) -> str:
    """Returns the same as an HTML table."""
    title, lines = summary
    rows = "".join(f"<tr><th>{escape(label)}</th><td>{escape(text)}</td></tr>" for label, text in lines.items())
    return f"<table><caption>{escape(title)}</caption>{rows}</table>"


def format_counts(counts: dict[str, int]) -> str:
    """Returns counts by what they are of, without zeros: `3 launch, 1,200 stream order`."""
    return ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)


def microseconds_text(ns: int) -> str:
    """Returns a time as text, such as `1,234.6 µs`."""
    return f"{ns / 1000:,.1f} µs"


def time_text(time_us: float) -> str:
    """Returns a duration in the unit that suits it, such as `4.56 ms`."""
    if abs(time_us) < 1000:
        return f"{time_us:.1f} µs"
    return f"{time_us / 1000:.2f} ms" if abs(time_us) < 1e6 else f"{time_us / 1e6:.2f} s"


def signed_pct(pct: float) -> str:
    """Returns a change in percent with its sign, such as `-1.20 %`; a smaller one than is shown is `±0.00 %`."""
    return f"{pct + 0.0:+.2f} %" if round(pct, 2) or not pct else "±0.00 %"


def shortened(text: str, letters: int) -> str:
    """Returns a text of at most so many letters, without its middle if it is longer: ends of names tell them apart."""
    ending = (letters - 1) // 2
    return text if len(text) <= letters else f"{text[: letters - 1 - ending]}…{text[len(text) - ending :]}"


def bytes_text(size: float) -> str:
    """Returns a number of bytes in the unit that suits it, such as `208.1 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024 or unit == "GiB":
            return f"{size:.0f} B" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1024
    raise AssertionError


@dataclass(slots=True, repr=False)
class Categorical(SummaryRepr):
    """A column of strings: `codes[i]` is the position of row i's text in `table`, -1 where the row has none."""

    codes: Int32
    table: list[str]

    def __len__(self) -> int:
        return len(self.codes)

    @overload
    def __getitem__(self, row: int) -> str: ...
    @overload
    def __getitem__(self, row: SeveralRows) -> list[str]: ...
    def __getitem__(self, row: int | SeveralRows) -> str | list[str]:
        """Returns the text of a row, or a list with those of several; "" stands for none."""
        code = self.codes[row]
        if isinstance(code, np.ndarray):
            table = [*self.table, ""]
            return [table[number] for number in code.tolist()]
        return self.table[code] if code >= 0 else ""

    def tolist(self) -> list[str]:
        """Returns the texts of all rows."""
        return self[:]

    def where(self, test: Callable[[str], bool]) -> Bool:
        """Returns which rows have a text that passes the test; each text is tested once."""
        # one more than the table has, for the code -1 of rows without a text
        return np.array([*map(test, self.table), False], np.bool_)[self.codes]

    def equal(self, *strings: str) -> Bool:
        """Returns which rows have one of the strings."""
        return self.where(strings.__contains__)

    def numbers(self, number: Callable[[str], int], without: int = 0) -> Int64:
        """Returns a number for each row's text, `without` for a row that has none."""
        return np.array([*map(number, self.table), without], np.int64)[self.codes]

    def summary(self) -> Summary:
        """Returns how many rows and distinct texts there are, and the first of those."""
        first_texts = ", ".join(repr(text[:TEXT_SHOWN]) for text in self.table[:TEXTS_SHOWN])
        more = ", …" if len(self.table) > TEXTS_SHOWN else ""
        return Summary(f"Categorical: {len(self):,} rows, {len(self.table):,} texts", {"texts": first_texts + more})

    def take(self, rows: npt.NDArray[np.integer] | Bool) -> "Categorical":
        """Returns the given rows; the table of texts is shared."""
        return Categorical(self.codes[rows], self.table)

    @staticmethod
    def nulls(count: int) -> "Categorical":
        """Returns a column of rows without a text."""
        return Categorical(np.full(count, -1, np.int32), [])

    @staticmethod
    def joined(columns: "Iterable[Categorical]") -> "Categorical":
        """Returns the rows of all columns, one column after the other."""
        code_of: dict[str, int] = {}
        # one more than the table has, for the code -1 of rows without a text
        tables = ((c.codes, [*(code_of.setdefault(text, len(code_of)) for text in c.table), -1]) for c in columns)
        codes = [np.array(table, np.int32)[code] for code, table in tables]
        return Categorical(np.concatenate(codes), list(code_of))

    @staticmethod
    def of(strings: Iterable[str]) -> "Categorical":
        """Returns a column of strings, which are interned."""
        seen: dict[str, int] = {}
        codes = np.fromiter((seen.setdefault(text, len(seen)) for text in strings), np.int32)
        return Categorical(codes, list(seen))


@dataclass(slots=True, repr=False)
class Ragged(SummaryRepr):
    """Rows of integers of varying length: row i is `values[starts[i]:starts[i + 1]]`."""

    starts: Int64
    values: Int64

    def __len__(self) -> int:
        return len(self.starts) - 1

    @overload
    def __getitem__(self, row: int) -> Int64: ...
    @overload
    def __getitem__(self, row: SeveralRows) -> list[Int64]: ...
    def __getitem__(self, row: int | SeveralRows) -> Int64 | list[Int64]:
        """Returns the values of a row, or a list with those of several rows."""
        first, end = self.starts[:-1][row], self.starts[1:][row]
        if isinstance(first, np.ndarray):
            return [self.values[start:stop] for start, stop in zip(first.tolist(), end.tolist(), strict=True)]
        return self.values[first:end]

    def summary(self) -> Summary:
        """Returns how many rows and values there are."""
        return Summary(f"Ragged: {len(self):,} rows, {len(self.values):,} values", {})

    def lengths(self) -> Int64:
        """Returns how many values each row has."""
        return np.diff(self.starts)

    def rows(self) -> Int64:
        """Returns the row of each value."""
        return np.repeat(np.arange(len(self), dtype=np.int64), self.lengths())

    def take(self, rows: Int64) -> "Ragged":
        """Returns these rows, in the order given."""
        lengths = self.lengths()[rows]
        starts = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
        within = np.arange(starts[-1]) - np.repeat(starts[:-1], lengths)
        return Ragged(starts, self.values[np.repeat(self.starts[rows], lengths) + within])

    @staticmethod
    def of(rows: Sequence[Sequence[int]]) -> "Ragged":
        """Returns a column of these lists."""
        lengths = np.fromiter((len(row) for row in rows), np.int64, len(rows))
        values = np.fromiter((value for row in rows for value in row), np.int64, int(lengths.sum()))
        return Ragged(np.concatenate(([0], np.cumsum(lengths))).astype(np.int64), values)

    @staticmethod
    def grouped(row: Int64, value: Int64, count: int) -> "Ragged":
        """`count` rows from (row, value) pairs that are already sorted by row."""
        return Ragged(np.searchsorted(row, np.arange(count + 1)).astype(np.int64), value)


class RowMap(Generic[Target]):
    """Maps each row of a table to a number, mostly the row of another table; the row -1, for none, has -1."""

    def __init__(self, rows: Target) -> None:
        # the index -1 finds the last
        self._rows = np.append(rows, -1)

    def __getitem__(self, rows: Rows) -> Target:
        return cast(Target, self._rows[rows])


class Interner(dict[Value, int]):
    """Looking a value up gives its number, a new one to a value that is not there. The keys are the values in order."""

    def __missing__(self, value: Value) -> int:
        return self.setdefault(value, len(self))

    def codes(self, values: Iterable[Value], count: int) -> Int32:
        """Returns the numbers of `count` values."""
        return np.fromiter(map(self.__getitem__, values), np.int32, count)


def rows_of(ids: Int64, keys: Int64) -> Int64:
    """Returns the row of each wanted id, the last one that has it, -1 for an id that is not there. O((n + k) log n)."""
    if not len(ids):
        return np.full(len(keys), -1, np.int64)
    order = np.argsort(ids, kind="stable")
    rows = order[np.searchsorted(ids, keys, side="right", sorter=order) - 1]
    return np.where(ids[rows] == keys, rows, -1)
