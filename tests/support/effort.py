"""How much work a function does, counted: the same on every machine, so that a test can say how it grows."""

import sys
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np

Table = TypeVar("Table")


class Counted(np.ndarray):  # type: ignore[type-arg]
    """A column that counts the values that are taken from it, compared or sorted."""

    looked_at = 0

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        Counted.looked_at += np.size(found)
        return found

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return getattr(ufunc, method)(*map(_plain, inputs), **options)

    def __array_function__(self, function: Any, _: Any, inputs: Any, options: Any) -> Any:
        if function is np.searchsorted:
            # it looks at few of those that it searches
            inputs = (np.asarray(inputs[0]).view(np.ndarray), *inputs[1:])
        return function(*_plain(inputs), **options)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return type(value)(map(_plain, value))
    if not isinstance(value, Counted):
        return value
    Counted.looked_at += value.size
    return value.view(np.ndarray)


def counting_columns(table: Table) -> Table:
    """The same table, whose columns of numbers count."""
    columns = {field.name: getattr(table, field.name) for field in fields(table)}  # type: ignore[arg-type]
    numbers = {name: column.view(Counted) for name, column in columns.items() if isinstance(column, np.ndarray)}
    return replace(table, **numbers)  # type: ignore[type-var]


def effort(work: Callable[[], object]) -> int:
    """How many functions were called, and how many values of counted columns were looked at."""
    calls, before = 0, Counted.looked_at

    def count(_: object, event: str, __: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls + Counted.looked_at - before


def growth(work: Callable[[int], Callable[[], object]], size: int) -> float:
    """How many times more the effort grows in the second doubling than in the first: 2 if linear, 4 if quadratic.

    What does not grow with the size is in none of both. `work` prepares what is then done.
    """
    # what is loaded when it is first needed is no part of it
    work(size)()
    small, middle, large = (effort(work(size << doublings)) for doublings in range(3))
    return (large - middle) / (middle - small)
