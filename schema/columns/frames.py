"""Columns in; a pandas or polars data frame, an Arrow stream or an HTML table out. No library is needed before."""

import importlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from html import escape
from textwrap import wrap
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ..errors import require
from .column_types import ABSENT, Bool, Categorical, Int64, Ragged, Summary, SummaryRepr, shortened

Values = npt.NDArray[Any] | list[Any] | Categorical | Ragged
"""One value per row: null where an array is masked or a row of a Categorical has no text, a list of a Ragged."""
V = TypeVar("V", bound=Values)
ROWS_SHOWN, LETTERS_SHOWN = 10, 60
WIDEST, LETTERS_PRINTED = 100, 32
"""How wide a printed table is at the most, and a text in it."""
TIMES = ("start", "end", "exclusive")
"""Columns of times in ns, whose names say so in data frames."""


def nullable(column: Int64) -> "np.ma.MaskedArray[Any, np.dtype[np.int64]]":
    """Returns the integers, ABSENT as null."""
    return np.ma.masked_array(column, column == ABSENT)


class Tabular(SummaryRepr):
    """Rows and named columns, which data-frame libraries take; `print` and notebooks show the first rows."""

    __slots__ = ()

    def frame_columns(self) -> Mapping[str, Values]:
        """Returns the columns of the table by name."""
        raise NotImplementedError

    def _shown_columns(self) -> Mapping[str, Values]:
        """Returns the columns by what stands above them where the table is shown."""
        return self.frame_columns()

    def rows(self) -> list[dict[str, Any]]:
        """Returns one dict of Python values per row; None for what is not known."""
        columns = self.frame_columns()
        lists: list[list[Any]] = []
        for values in columns.values():
            plain = _plain(values)
            items = plain.tolist() if isinstance(plain, np.ndarray) else plain
            if isinstance(values, Ragged):
                items = [value.tolist() for value in items]
            elif isinstance(plain, np.ndarray) and plain.dtype.kind == "f":
                items = [None if math.isnan(number) else number for number in items]
            lists.append(items)
        return [dict(zip(columns, row, strict=True)) for row in zip(*lists, strict=True)]

    def to_pandas(self) -> Any:
        """Returns the table as a pandas.DataFrame; ImportError where pandas is not installed."""
        return to_pandas(self.frame_columns())

    def to_polars(self) -> Any:
        """Returns the table as a polars.DataFrame; ImportError where polars is not installed."""
        return to_polars(self.frame_columns())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Returns the table as an Arrow stream, without copying numbers. Raises ImportError without nanoarrow."""
        return arrow_stream(self.frame_columns(), requested_schema)

    def __repr__(self) -> str:
        # the first rows, of as many columns as fit, and below them what else there is
        (title, lines), columns = self.summary(), self._shown_columns()
        count = len(next(iter(columns.values()), ()))
        shown: list[list[str]] = []
        width = 0
        for name, values in columns.items():
            cells = [name, *(_printed(_cell(values, row)) for row in range(min(count, ROWS_SHOWN)))]
            column_width = max(map(len, cells))
            width += 2 + column_width
            if shown and width > WIDEST:
                break
            is_text = isinstance(values, list | Categorical) or getattr(values, "dtype", np.dtype(int)).kind == "U"
            justify = str.ljust if is_text else str.rjust
            shown.append([justify(cell, column_width) for cell in cells])
        table = [f"  {'  '.join(row)}".rstrip() for row in zip(*shown, strict=True)]
        more = f"… {count - ROWS_SHOWN:,} more rows" if count > ROWS_SHOWN else ""
        others = [*columns][len(shown) :]
        further = f"further columns: {', '.join(others)}" if others else ""
        note = _printed(lines.get("note", ""), None)
        below = [line for text in (more, further, note) for line in wrap(text, WIDEST - 2)]
        return "\n".join([title, *table, *(f"  {line}" for line in below)])

    def _repr_html_(self) -> str:
        (title, lines), columns = self.summary(), self._shown_columns()
        count = len(next(iter(columns.values()), ()))
        shown = range(min(count, ROWS_SHOWN))
        head = "".join(f"<th>{escape(name)}</th>" for name in columns)
        body = "".join(
            f"<tr>{''.join(f'<td>{escape(_cell(values, row))}</td>' for values in columns.values())}</tr>"
            for row in shown
        )
        more = f"{count - len(shown):,} more rows" if count > len(shown) else ""
        below = "".join(f"<p>{escape(text)}</p>" for text in (more, lines.get("note", "")) if text)
        return f"<table><caption>{escape(title)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}"


@dataclass(slots=True, repr=False, eq=False)
class Frame(Tabular):
    """A table of named columns, such as the nodes of a graph.

    >>> import execgraph as eg
    >>> kernels = eg.link("tests/data/training", rank=0).kernels
    >>> len(kernels), kernels["name"][:1], kernels["duration_ns"][:2].tolist()
    (62, ['ampere_sgemm_128x128_tn'], [138965, 24142])
    >>> kernels.rows()[0]["op"]
    'aten::addmm'
    """

    title: str
    columns: dict[str, Values]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def __getitem__(self, name: str) -> Values:
        """Returns the values of a column; KeyError where there is none of that name."""
        return column_of(self.title, self.columns, name)

    def frame_columns(self) -> Mapping[str, Values]:
        """Returns the columns of the table by name."""
        return self.columns

    def summary(self) -> Summary:
        """Returns the title, the number of rows and the names of the columns."""
        return Summary(f"{self.title}: {len(self):,} rows", {"columns": ", ".join(self.columns)})


class RowTable(Tabular):
    """A table that data-frame libraries take: its columns of numbers and texts, null where nothing was recorded."""

    __slots__ = ()

    def __getitem__(self, name: str) -> Values:
        """Returns the values of a column of `frame_columns`; KeyError where there is none of that name."""
        return column_of(type(self).__name__, self.frame_columns(), name)

    def frame_columns(self) -> Mapping[str, Values]:
        """Returns the columns of the table by name."""
        columns: dict[str, Values] = {}
        for name in (field.name for field in fields(self)):  # type: ignore[arg-type]
            column: Any = getattr(self, name)
            if isinstance(column, np.ndarray | Categorical):
                is_integer = isinstance(column, np.ndarray) and column.dtype == np.int64
                shown = nullable(np.asarray(column)) if is_integer else column
                columns[f"{name}_ns" if name in TIMES else name] = shown
        return columns


def column_of(table: str, columns: Mapping[str, V], name: str) -> V:
    """Returns a column of a table. Raises KeyError for an unknown name, TypeError for a position and the like."""
    if not isinstance(name, str):
        example = f'table["{next(iter(columns))}"]' if columns else "table[name]"
        raise TypeError(
            f"{table}: a table is indexed by column, as {example}; for rows, table.rows() has a dict of each"
        )
    if name not in columns:
        raise KeyError(f"{table}: no column {name!r}; there are {', '.join(columns)}")
    return columns[name]


def to_pandas(columns: Mapping[str, Values]) -> Any:
    """Returns a pandas.DataFrame; ImportError where pandas is not installed."""
    require("pandas")
    pandas = importlib.import_module("pandas")

    def series(values: Values) -> Any:
        if isinstance(values, np.ma.MaskedArray):
            return pandas.arrays.IntegerArray(values.data.copy(), np.ma.getmaskarray(values).copy())
        return _plain(values)

    return pandas.DataFrame({name: series(values) for name, values in columns.items()})


def to_polars(columns: Mapping[str, Values]) -> Any:
    """Returns a polars.DataFrame; ImportError where polars is not installed."""
    require("polars")
    polars = importlib.import_module("polars")

    def series(values: Values) -> Any:
        if isinstance(values, np.ma.MaskedArray):
            return polars.Series(values.data).set(polars.Series(np.ma.getmaskarray(values)), None)
        if isinstance(values, Ragged):
            return polars.Series(_plain(values), dtype=polars.List(polars.Int64))
        return _plain(values)

    return polars.DataFrame({name: series(values) for name, values in columns.items()})


def _plain(values: Values) -> npt.NDArray[Any] | list[Any]:
    if isinstance(values, Categorical):
        table = [*values.table, None]
        return [table[code] for code in values.codes.tolist()]
    return [values[row] for row in range(len(values))] if isinstance(values, Ragged) else values


def arrow_stream(columns: Mapping[str, Values], requested_schema: object = None) -> object:
    """Returns the capsule of an Arrow stream with one batch; ImportError where nanoarrow is not installed."""
    require("arrow")
    arrow = importlib.import_module("nanoarrow")

    def array(kind: Any, values: Values, buffers: list[Any], *children: Any) -> Any:
        return arrow.c_array_from_buffers(kind, len(values), buffers, children=children)

    def texts(values: Categorical) -> Any:
        table = [text.encode("utf-8", "replace") for text in (*values.table, "")]
        lengths = np.array([*map(len, table)], np.int64)[values.codes]
        content = b"".join([table[code] for code in values.codes.tolist()])
        offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
        return array(arrow.large_string(), values, [_bits(values.codes >= 0), offsets, content])

    def series(values: Values) -> Any:
        if isinstance(values, list) or (isinstance(values, np.ndarray) and values.dtype.kind == "U"):
            return texts(Categorical.of(map(str, values)))
        if isinstance(values, Categorical):
            return texts(values)
        if isinstance(values, Ragged):
            numbers = array(arrow.int64(), values.values.tolist(), [None, values.values])
            return array(arrow.large_list(arrow.int64()), values, [None, values.starts], numbers)
        if isinstance(values, np.ma.MaskedArray):
            return array(arrow.int64(), values, [_bits(~np.ma.getmaskarray(values)), values.data])
        if values.dtype.kind == "b":
            return array(arrow.bool_(), values, [None, _bits(values)])
        if values.dtype.kind == "f":
            return array(arrow.float64(), values, [None, values.astype(np.float64, copy=False)])
        return array(arrow.int64(), values, [None, values.astype(np.int64, copy=False)])

    made = {name: series(values) for name, values in columns.items()}
    schema = arrow.struct({name: column.schema for name, column in made.items()})
    rows = len(next(iter(columns.values()), ()))
    batch = arrow.c_array_from_buffers(schema, rows, [None], children=list(made.values()))
    return arrow.c_array_stream(batch).__arrow_c_stream__(requested_schema)


def _bits(valid: Bool) -> npt.NDArray[np.uint8]:
    return np.packbits(valid, bitorder="little")


def _printed(text: str, longest: int | None = LETTERS_PRINTED) -> str:
    """Returns a text of a file as a terminal can take it: in one line, and without control characters."""
    plain = text if text.isprintable() else repr(text)[1:-1]
    return plain if longest is None else shortened(plain, longest)


def _cell(values: Values, row: int) -> str:
    """Returns the text of a value; that of a float has one decimal, and nothing stands for null."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.getmaskarray(values)[row]:
        return ""
    value = values[row]
    if isinstance(value, float | np.floating):
        return "" if np.isnan(value) else f"{value:,.1f}"
    text = str(value.tolist() if isinstance(value, np.ndarray) else value)
    return shortened(text, LETTERS_SHOWN)
