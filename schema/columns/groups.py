"""Groups of rows that are equal in some columns: where each begins, which row of it comes before, and
numbers for them.
"""

from typing import Literal, NamedTuple

import numpy as np

from .column_types import Bool, Int32, Int64, Rows
from .row_map import RowMap

Numbers = Int64 | Int32
Side = Literal["left", "right"]


class Keys(NamedTuple):
    """The group and the value of n rows, such as a thread and a time. Sorted keys are by group, then by value."""

    group: Int64
    value: Int64


def is_group_start(*columns: Numbers) -> Bool:
    """Returns which of the rows, sorted by group, are the first of their group."""
    first = np.ones(len(columns[0]), np.bool_)
    if len(first):
        first[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    return first


def within(rows: Rows, parent: Rows) -> Rows:
    """Returns for each of `rows` the index of its parent among them, -1 if the parent is not one of them."""
    position = np.full(len(parent), -1, np.int64)
    position[rows] = np.arange(len(rows))
    return RowMap(position)[parent[rows]]


def cumcount(*columns: Int64) -> Int64:
    """Returns for each row how many before it are alike in all columns.

    >>> cumcount(np.array([7, 8, 7, 7])).tolist()
    [0, 0, 1, 2]
    """
    order = np.lexsort(columns)
    first = np.flatnonzero(is_group_start(*(column[order] for column in columns)))
    counts = np.empty(len(order), np.int64)
    counts[order] = np.arange(len(order)) - np.repeat(first, np.diff(np.append(first, len(order))))
    return counts


def previous_in_group(order: Int64, *columns: Int64) -> Int64:
    """Returns for each row the one before it in its group, -1 for the first; `order` holds the rows sorted by group."""
    follows = np.flatnonzero(~is_group_start(*(column[order] for column in columns)))
    previous = np.full(len(order), -1, np.int64)
    previous[order[follows]] = order[follows - 1]
    return previous


def group_ids(*columns: Int64) -> Int64:
    """Returns a number from 0 on for each distinct row of the columns, ascending with the rows."""
    number = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        code = _codes(column)
        number = _codes(number * (int(code.max(initial=0)) + 1) + code)
    return number


def _codes(column: Int64) -> Int64:
    """Returns a number from 0 on for each distinct value, ascending with the values."""
    if not len(column):
        return np.empty(0, np.int64)
    least, most = int(column.min()), int(column.max())
    if most - least > len(column):
        return np.unique(column, return_inverse=True)[1].reshape(-1).astype(np.int64)
    # a table of all values between is shorter than sorting, which takes several times as long
    offset = column.astype(np.int64) - least
    is_used = np.zeros(most - least + 1, np.bool_)
    is_used[offset] = True
    return (np.cumsum(is_used) - 1)[offset]


def group_sums(group: Numbers, values: Numbers | Bool | int, count: int) -> Int64:
    """Returns the exact sum of the values of each of the groups 0 … count - 1.

    >>> group_sums(np.array([1, 0, 1]), np.array([5, 7, 9]), 3).tolist()
    [7, 14, 0]
    """
    sums = np.zeros(count, np.int64)
    np.add.at(sums, group, values)
    return sums


def split_groups(order: Int64, *columns: Numbers) -> list[Int64]:
    """Returns the rows of each group; `order` holds the rows sorted by group."""
    first = np.flatnonzero(is_group_start(*(column[order] for column in columns)))
    return np.split(order, first[1:]) if len(first) else []


def rows_by_number(rows: Int64, column: Numbers) -> dict[int, Int64]:
    """Returns the rows of each number in a column, the numbers ascending. O(n log n) for however many numbers.

    >>> rows_by_number(np.array([0, 1, 3]), np.array([7, 5, 5, 7]))
    {5: array([1]), 7: array([0, 3])}
    """
    order = rows[np.argsort(column[rows], kind="stable")]
    return {int(column[group[0]]): group for group in split_groups(order, column)}


def rows_of_each(column: Numbers) -> dict[int, Int64]:
    """Returns the rows that have each of the numbers in a column, the numbers ascending. O(n log n).

    >>> rows_of_each(np.array([7, 5, 7]))
    {5: array([1]), 7: array([0, 2])}
    """
    return rows_by_number(np.arange(len(column)), column)


def group_searchsorted(rows: Keys, keys: Keys, side: Side = "left") -> Int64:
    """`np.searchsorted` within groups: where each of `keys` belongs in the sorted `rows`; 0 for no such group."""
    positions = np.zeros(len(keys.group), np.int64)
    first = np.flatnonzero(is_group_start(rows.group))
    bounds, numbers = np.append(first, len(rows.group)), rows.group[first]
    for members in split_groups(np.argsort(keys.group, kind="stable"), keys.group):
        number = keys.group[members[0]]
        index = int(np.searchsorted(numbers, number))
        if index < len(numbers) and numbers[index] == number:
            begin, end = bounds[index], bounds[index + 1]
            positions[members] = begin + np.searchsorted(rows.value[begin:end], keys.value[members], side)
    return positions


def asof_backward(rows: Keys, keys: Keys) -> Int64:
    """Returns for each of `keys` the last of the sorted `rows` in its group that is not above, -1 for none."""
    return _if_in_group(group_searchsorted(rows, keys, "right") - 1, rows, keys)


def asof_forward(rows: Keys, keys: Keys) -> Int64:
    """Returns for each of `keys` the first of the sorted `rows` in its group that is not below, -1 for none."""
    return _if_in_group(group_searchsorted(rows, keys), rows, keys)


def _if_in_group(row: Int64, rows: Keys, keys: Keys) -> Int64:
    in_group = (row >= 0) & (row < len(rows.group))
    in_group[in_group] = rows.group[row[in_group]] == keys.group[in_group]
    return np.where(in_group, row, -1)
