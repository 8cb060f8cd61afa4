"""The largest rows of a table, without making dicts of all of them."""

from typing import Any

import numpy as np

from ..analyses import Table

Row = dict[str, Any]


def largest(table: Table, by: str, count: int) -> Table:
    """Returns the table of the `count` rows with the largest numbers in a column, the largest first; NaN comes last."""
    values = np.nan_to_num(np.asarray(table[by], np.float64), nan=-np.inf)
    return table.take(np.argsort(-values, kind="stable")[:count])
