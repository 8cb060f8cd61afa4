"""Formats values of tables in the same way on the page and on the terminal, and packs the largest rows for the page."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import orjson

from ...schema.columns import shortened
from ..analyses import Column, Table
from ..view import short_name

Row = dict[str, Any]
BYTES = "B"
ARROW = " → "
IDENTITIES = {
    "rank", "to_rank", "device", "on_device", "stream", "tid", "thread", "node", "op", "correlation", "sequence",
    "repetition", "straggler", "depth", "members",
}  # fmt: skip
"""Columns of identifiers, and of counts that may be unknown; -1 stands for none."""
NOTHING = "–"
MAX_BYTES = 4_500_000
"""The most bytes of all tables' rows."""
FEWEST = 200
"""So many rows of every table are on the page in any case."""
LONGEST = 1000
"""The most letters of a text on the page."""


def heading(name: str, unit: str) -> str:
    """Returns the heading of a column, with its unit: `idle [%]`."""
    label = name.removesuffix("pct").replace("_", " ").strip()
    return f"{label} [{unit}]" if label and unit else label or unit


def cell(value: Any, column: str = "", unit: str = "") -> str:
    """Returns the text of a value: numbers with separators and few decimals, identifiers unchanged, names shortened.

    >>> cell(1234.56, "time", "µs"), cell(0.0363, "share", "%"), cell(41000, "tid"), cell(-1, "stream")
    ('1,234.6', '0.036', '41000', '–')
    """
    if value is None or value != value:
        return ""
    if isinstance(value, str):
        return ARROW.join(map(short_name, value.split(ARROW)))
    if column in IDENTITIES and not unit:
        return NOTHING if value == -1 else f"{value:.0f}"
    if isinstance(value, int) or unit == BYTES:
        return f"{value:,.0f}"
    return f"{value:.2g}" if math.isfinite(value) and 0 < abs(value) < 0.1 else f"{value:,.1f}"


def short_and_full(text: str) -> str | list[str]:
    """Returns a text as shown and in full, each of at most LONGEST letters, or one text if they are the same."""
    short, full = shortened(cell(text), LONGEST), shortened(text, LONGEST)
    return full if short == full else [short, full]


def times_text(count: float) -> str:
    """Returns how often something happened: `once`, `1,200 times`."""
    return "once" if count == 1 else f"{count:,.0f} times"


def largest(table: Table, by: str, count: int) -> Table:
    """Returns the rows with the `count` largest numbers in a column, the largest first, NaN last; makes no dicts."""
    values = np.nan_to_num(np.asarray(table[by], np.float64), nan=-np.inf)
    return table.take(np.argsort(-values, kind="stable")[:count])


def rows_of(tables: Mapping[str, Table], name: str) -> list[Row]:
    """Returns the rows of a table, none where it is missing."""
    return tables[name].rows() if name in tables else []


def sums(rows: Sequence[Row], key: str, value: str) -> dict[Any, float]:
    """Returns the sums of the column `value` by the column `key`, the largest first."""
    total: dict[Any, float] = defaultdict(float)
    for row in rows:
        total[row[key]] += row[value] or 0
    return dict(sorted(total.items(), key=lambda item: -item[1]))


def embed_tables(tables: Mapping[str, tuple[Table, str]], max_bytes: int = MAX_BYTES) -> dict[str, bytes]:
    """Packs tables as JSON, each with the column that ranks its rows, "" for none; large ones share the room."""
    packed: dict[str, bytes] = {}
    for name, (table, by) in sorted(tables.items(), key=lambda item: len(item[1][0]) * len(item[1][0].columns)):
        packed[name] = _largest_fitting(table, by, max_bytes // (len(tables) - len(packed)))
        max_bytes -= len(packed[name])
    return packed


def _largest_fitting(table: Table, by: str, max_bytes: int) -> bytes:
    # a value and its comma take two bytes at least
    rows = min(len(table), max(max_bytes // (2 * len(table.columns) or 1), FEWEST))
    while True:
        chosen = largest(table, by, rows) if by else table.take(slice(rows))
        of = {"title": table.title, "rows": rows, "of": len(table), "largest": heading(by, "")}
        json = orjson.dumps(of | {"columns": [*map(_packed, chosen.columns)]})
        if len(json) <= max_bytes or rows <= FEWEST:
            return json
        rows = max(int(0.9 * rows * max_bytes / len(json)), FEWEST)


def _packed(column: Column) -> dict[str, Any]:
    """Returns a column: times to the ns, other fractions to six digits, texts as numbers of those that follow."""
    described = {"key": column.name, "label": heading(column.name, ""), "unit": column.unit}
    if isinstance(column.values, list):
        number: dict[str, int] = {}
        codes = [number.setdefault(text, len(number)) for text in column.values]
        return described | {"values": codes, "texts": [*map(short_and_full, number)]}
    exact = np.asarray(column.values)
    kind = "whole" if exact.dtype.kind in "iub" or column.unit == BYTES else "number"
    described["kind"] = "identity" if column.name in IDENTITIES and not column.unit else kind
    if exact.dtype.kind != "f":
        return described | {"values": [*map(int, exact.tolist())]}
    rounded = exact.round(3).tolist() if column.unit == "µs" else [float(f"{value:.6g}") for value in exact.tolist()]
    shown = [int(value) if value.is_integer() else value if value == value else None for value in rounded]
    return described | {"values": shown}
