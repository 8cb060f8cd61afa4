"""Some rows of a table, as such or as dicts, without making dicts of all of them."""

from typing import Any

import numpy as np

from ...schema.columns import Int64
from ..analyses import Column, Table

Row = dict[str, Any]


def first_rows(table: Table, most: int) -> list[Row]:
    """Returns the first rows, at most `most`."""
    return first(table, most).rows()


def largest_rows(table: Table, by: str, most: int) -> list[Row]:
    """Returns the rows with the largest numbers in a column, the largest first; unknown numbers last."""
    return largest(table, by, most).rows()


def first(table: Table, most: int) -> Table:
    """Returns the table of its first rows."""
    return _taken(table, np.arange(min(len(table), most)))


def largest(table: Table, by: str, most: int) -> Table:
    """Returns the table of its rows with the largest numbers in a column."""
    values = np.nan_to_num(np.asarray(table[by], np.float64), nan=-np.inf)
    return _taken(table, np.argsort(-values, kind="stable")[:most])


def _taken(table: Table, rows: Int64) -> Table:
    columns = [
        Column(name, unit, [values[row] for row in rows.tolist()] if isinstance(values, list) else values[rows])
        for name, unit, values in table.columns
    ]
    return Table(table.name, table.title, columns, table.note)
