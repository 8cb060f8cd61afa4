"""Packs rows of tables as compact JSON for the page: by columns, each text once, as many rows as fit.

Packs columns of whole numbers as text for the page: bytes of equal significance together, deflated, in base64.

So numbers that vary little need almost no room. The bytes per number follow from the largest number of a column.
"""

import base64
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson

from ...schema.columns import Int64
from ..analyses import Column, Table
from .cells import heading, kind, largest, short_and_full, shown_unit

MAX_BYTES = 4_500_000
"""The most bytes of all tables' rows."""
FEWEST = 200
"""So many rows of every table are on the page in any case."""


class EmbeddedTable(NamedTuple):
    """A table, its rows on the page as JSON, and their number; if `by` names a column, they have its largest values."""

    table: Table
    json: bytes
    rows: int
    by: str

    @property
    def headings(self) -> list[tuple[str, bool]]:
        """The headings of the columns, and whether these are numbers."""
        columns = self.table.columns
        return [
            (heading(column.name, shown_unit(column)[0]), not isinstance(column.values, list)) for column in columns
        ]

    @property
    def largest(self) -> str:
        """The heading of the column whose largest values the rows have, "" where that says nothing."""
        return heading(self.by, "") if self.rows < len(self.table) else ""


def embed_tables(tables: Mapping[str, tuple[Table, str]], max_bytes: int = MAX_BYTES) -> dict[str, EmbeddedTable]:
    """Packs the tables, each given with the column by whose largest values rows are selected, "" for the first rows.

    Small tables are complete; large ones share the remaining room equally.
    """
    by_name: dict[str, EmbeddedTable] = {}
    for name, (table, by) in sorted(tables.items(), key=lambda item: len(item[1][0]) * len(item[1][0].columns)):
        by_name[name] = _largest_fitting(table, by, max_bytes // (len(tables) - len(by_name)))
        max_bytes -= len(by_name[name].json)
    return by_name


def _largest_fitting(table: Table, by: str, max_bytes: int) -> EmbeddedTable:
    # a value and its comma take two bytes at least
    rows = min(len(table), max(max_bytes // (2 * len(table.columns) or 1), FEWEST))
    while True:
        chosen = largest(table, by, rows) if by else table.take(slice(rows))
        columns = [
            _column(column, shown_unit(whole)[1]) for column, whole in zip(chosen.columns, table.columns, strict=True)
        ]
        json = orjson.dumps({"rows": rows, "columns": columns})
        if len(json) <= max_bytes or rows <= FEWEST:
            return EmbeddedTable(table, json, rows, by)
        rows = max(int(0.9 * rows * max_bytes / len(json)), FEWEST)


def _column(column: Column, shown_in: float) -> dict[str, Any]:
    """Returns a column with its recorded values, and by what the page divides them."""
    described = {"key": column.name, "kind": kind(column)} | ({"per": shown_in} if shown_in != 1 else {})
    if not isinstance(column.values, list):
        return described | {"values": _numbers(column)}
    number: dict[str, int] = {}
    values = [number.setdefault(text, len(number)) for text in column.values]
    return described | {"values": values, "texts": [short_and_full(text) for text in number]}


def _numbers(column: Column) -> list[Any]:
    """Returns times to the ns, other fractions to six digits, None for unknown numbers."""
    values = np.asarray(column.values)
    if values.dtype.kind != "f":
        return [int(value) for value in values.tolist()]
    rounded = values.round(3).tolist() if column.unit == "µs" else [float(f"{value:.6g}") for value in values.tolist()]
    return [int(value) if value.is_integer() else value if value == value else None for value in rounded]


LEVEL = 6


class Packed(NamedTuple):
    """Packed columns: the number of values of each and the bytes per value, in the order in which they are in `text`.

    A value v is stored as 2 v, a negative one as -2 v - 1. All lowest bytes of the first column come first, then all
    next ones, and so on.
    """

    columns: dict[str, tuple[int, int]]
    text: str


def pack_columns(columns: Mapping[str, Int64], suffix: bytes = b"") -> Packed:
    """Packs the columns, and bytes that follow them."""
    shapes, parts = dict[str, tuple[int, int]](), list[bytes]()
    for name, values in columns.items():
        planes = _planes(values)
        shapes[name] = len(values), len(planes)
        parts.append(planes.tobytes())
    return Packed(shapes, base64.b64encode(zlib.compress(b"".join([*parts, suffix]), LEVEL)).decode())


def _planes(values: Int64) -> npt.NDArray[np.uint8]:
    folded = ((values << 1) ^ (values >> 63)).astype("<u8")
    count = (int(folded.max(initial=0)).bit_length() + 7) // 8
    return np.ascontiguousarray(folded.view(np.uint8).reshape(-1, 8)[:, :count].T)
