"""Columns in, a pandas or polars data frame out; neither is needed before."""

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ..optional import require
from .column_types import ABSENT, Categorical, Int64, Ragged

Values = npt.NDArray[Any] | list[Any] | Categorical | Ragged
"""One value per row, where a masked array has none null; strings null where a row has no text; a list per row of a
Ragged.
"""


def nullable(column: Int64) -> "np.ma.MaskedArray[Any, np.dtype[np.int64]]":
    """Returns the integers, ABSENT as null."""
    return np.ma.masked_array(column, column == ABSENT)


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
