"""Rows of one table for the rows of another."""

from typing import Generic, TypeVar, cast

import numpy as np

from .column_types import Int64, Rows

Target = TypeVar("Target", bound=Int64)


class RowMap(Generic[Target]):
    """For each row of a table a number, mostly the row of another table; the row -1, which stands for none, has -1.

    What it returns has the type of the column that it is made of.

    >>> RowMap(np.array([7, 5]))[np.array([1, -1, 0])].tolist()
    [5, -1, 7]
    """

    def __init__(self, rows: Target) -> None:
        # the index -1 finds the last
        self._rows = np.append(rows, -1)

    def __getitem__(self, rows: Rows) -> Target:
        return cast(Target, self._rows[rows])
