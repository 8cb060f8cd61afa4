"""Rows of tables for the page as compact JSON: by columns, each text once, as many rows as there is room for."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import orjson

from ..analyses import Column, Table
from .cells import kind, short_and_full
from .rows import largest

ROOM = 4_500_000
"""Bytes that the rows of all tables take at most."""
FEWEST = 200
"""So many rows are held of every table in any case."""


class Embedded(NamedTuple):
    """A table as JSON, with so many rows; where `by` names a column these are the ones with its largest values."""

    json: bytes
    rows: int
    by: str


def embedded(tables: Mapping[str, tuple[Table, str]], room: int = ROOM) -> dict[str, Embedded]:
    """Returns the tables by name, each with the column by which its rows are picked, "" for its own order.

    The small ones are whole, the large ones share equally what these leave.
    """
    found: dict[str, Embedded] = {}
    for name, (table, by) in sorted(tables.items(), key=lambda one: len(one[1][0]) * len(one[1][0].columns)):
        found[name] = _within(table, by, room // (len(tables) - len(found)))
        room -= len(found[name].json)
    return found


def _within(table: Table, by: str, room: int) -> Embedded:
    # a value and its comma take two bytes at least
    rows = min(len(table), max(room // (2 * len(table.columns) or 1), FEWEST))
    while True:
        held = largest(table, by, rows) if by else table.take(slice(rows))
        made = orjson.dumps({"rows": rows, "columns": [_column(column) for column in held.columns]})
        if len(made) <= room or rows <= FEWEST:
            return Embedded(made, rows, by)
        rows = max(int(0.9 * rows * room / len(made)), FEWEST)


def _column(column: Column) -> dict[str, Any]:
    described = {"key": column.name, "kind": kind(column)}
    if not isinstance(column.values, list):
        return described | {"values": _numbers(column)}
    number: dict[str, int] = {}
    values = [number.setdefault(text, len(number)) for text in column.values]
    return described | {"values": values, "texts": [short_and_full(text) for text in number]}


def _numbers(column: Column) -> list[Any]:
    """Returns times to the ns, other fractions to six digits, null for unknown numbers."""
    values = np.asarray(column.values)
    if values.dtype.kind != "f":
        return [int(value) for value in values.tolist()]
    rounded = values.round(3).tolist() if column.unit == "µs" else [float(f"{value:.6g}") for value in values.tolist()]
    return [int(value) if value.is_integer() else value if value == value else None for value in rounded]
