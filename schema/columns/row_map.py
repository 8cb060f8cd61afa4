"""Rows of one table for the rows of another."""

import numpy as np

from .column_types import Int64, Rows


class RowMap:
    """For each row of a table a number, mostly the row of another table; the row -1, which stands for none, has -1.

    >>> RowMap(np.array([7, 5]))[np.array([1, -1, 0])].tolist()
    [5, -1, 7]
    """

    def __init__(self, rows: Int64) -> None:
        # the index -1 finds the last
        self._rows = np.append(rows, -1)

    def __getitem__(self, rows: Rows) -> Int64:
        return self._rows[rows]
