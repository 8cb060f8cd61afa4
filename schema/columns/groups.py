"""Groups of rows that are equal in some columns, and rows looked up by group and value, all at once."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from .column_types import Bool, Floats, Int32, Int64, RowMap, Rows

Numbers = Int64 | Int32 | Bool
Side = Literal["left", "right"]
FEW = 1000


class Keys(NamedTuple):
    """The group and the value of n rows, such as a thread and a time. Sorted keys are by group, then by value."""

    group: Int64
    value: Int64


def is_group_start(*columns: Numbers) -> Bool:
    """Returns which of the rows, sorted by group, are the first of their group."""
    first = np.ones(len(columns[0]), np.bool_)
    first[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return first


def positions(chosen: Rows | Bool, count: int) -> Int64:
    """Returns for each of `count` rows its position among the chosen ones, -1 for others."""
    position = np.full(count, -1, np.int64)
    position[chosen] = np.arange(np.count_nonzero(chosen) if chosen.dtype == np.bool_ else len(chosen))
    return position


def within(rows: Rows, parent: Rows) -> Rows:
    """Returns for each of `rows` the index of its parent among them, -1 if the parent is not one of them."""
    return RowMap(positions(rows, len(parent)))[parent[rows]]


def cumcount(*columns: Int64) -> Int64:
    """Returns for each row how many before it are alike in all columns."""
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
    number = _codes(columns[0])
    for column in columns[1:]:
        code = _codes(column)
        number = _codes(number * (int(code.max(initial=0)) + 1) + code)
    return number


def _codes(column: Int64) -> Int64:
    """Returns a number from 0 on for each distinct value, ascending with the values."""
    if not len(column):
        return np.empty(0, np.int64)
    least, most = int(column.min()), int(column.max())
    if most - least > len(column):
        number, order = np.empty(len(column), np.int64), np.argsort(column)
        number[order] = np.cumsum(is_group_start(column[order])) - 1
        return number
    # a table of all values between is shorter than sorting, which takes several times as long
    offset = column.astype(np.int64) - least
    is_used = np.zeros(most - least + 1, np.bool_)
    is_used[offset] = True
    return (np.cumsum(is_used) - 1)[offset]


def isin(values: npt.NDArray[np.integer | np.bool_], numbers: npt.ArrayLike) -> Bool:
    """Returns what `numpy.isin` does, in a fifth of the time where there are few."""
    if len(values) + np.size(numbers) > FEW:
        return np.isin(values, numbers)
    ordered = np.sort(numbers, axis=None)
    return np.asarray(ordered.searchsorted(values, "right") > ordered.searchsorted(values))


def group_sums(group: Numbers, values: Numbers | Bool | int, count: int) -> Int64:
    """Returns the exact sum of the values of each of the groups 0 … count - 1."""
    sums = np.zeros(count, np.int64)
    np.add.at(sums, group, values)
    return sums


@dataclass(slots=True, frozen=True)
class Groups:
    """Rows by what is equal in some columns: the `number` of each row's group, and the `first` row of each group."""

    number: Int64
    first: Rows

    def __len__(self) -> int:
        return len(self.first)

    def count(self) -> Int64:
        """Returns the number of rows of each group."""
        return np.bincount(self.number, minlength=len(self)).astype(np.int64)

    def sum(self, values: Numbers | Bool) -> Int64:
        """Returns the exact sum of the values of each group."""
        return group_sums(self.number, values, len(self))

    def mean(self, values: npt.NDArray[Any]) -> Floats:
        """Returns the mean of the values of each group."""
        return np.bincount(self.number, values, len(self)) / self.count()

    def largest(self, values: Int64) -> Int64:
        """Returns the largest value of each group."""
        most = values[self.first]
        np.maximum.at(most, self.number, values)
        return most

    def smallest(self, values: Int64) -> Int64:
        """Returns the smallest value of each group."""
        least = values[self.first]
        np.minimum.at(least, self.number, values)
        return least

    def largest_first(self, values: npt.NDArray[Any]) -> "Groups":
        """Returns the groups in the order of their values, the largest first; of equal ones the earlier group."""
        return self.in_order(np.argsort(-values, kind="stable"))

    def in_order(self, order: Int64) -> "Groups":
        """Returns the groups renumbered: group `order[i]` becomes the i-th."""
        return Groups(positions(order, len(order))[self.number], self.first[order])

    def rows(self) -> list[Rows]:
        """Returns the rows of each group, ascending."""
        return np.split(np.argsort(self.number, kind="stable"), np.cumsum(self.count())[:-1]) if len(self) else []


def groupby(*columns: Numbers | Bool) -> Groups:
    """Returns the groups of rows that are alike in all columns, in the order of the first column, then the next.

    >>> device, duration = np.array([1, 0, 1]), np.array([5, 7, 9])
    >>> groups = groupby(device)
    >>> device[groups.first].tolist(), groups.sum(duration).tolist(), groups.largest(duration).tolist()
    ([0, 1], [7, 14], [7, 9])
    """
    number = group_ids(*(column.astype(np.int64) for column in columns))
    first = np.empty(int(number.max(initial=-1)) + 1, np.int64)
    first[number[::-1]] = np.arange(len(number))[::-1]
    return Groups(number, first)


def split_groups(order: Int64, *columns: Numbers) -> list[Int64]:
    """Returns the rows of each group; `order` holds the rows sorted by group."""
    first = np.flatnonzero(is_group_start(*(column[order] for column in columns)))
    return [order[begin:end] for begin, end in pairwise([*first.tolist(), len(order)])]


def rows_by_number(rows: Int64, column: Numbers) -> dict[int, Int64]:
    """Returns the rows of each number in a column, the numbers ascending. O(n log n) for however many numbers."""
    order = rows[np.argsort(column[rows], kind="stable")]
    return {int(column[group[0]]): group for group in split_groups(order, column)}


def rows_of_each(column: Numbers) -> dict[int, Int64]:
    """Returns all rows by the number that a column has there, the numbers ascending."""
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


class Lookup:
    """Numbers by number, as a dict has them, but in columns; of a key that comes again the last value holds."""

    def __init__(self, keys: Int64, values: Int64) -> None:
        order = np.argsort(keys, kind="stable")
        ordered = keys[order]
        order = np.concatenate((order[:-1][ordered[1:] != ordered[:-1]], order[-1:]))
        self._keys, self._values = keys[order], values[order]

    def of(self, keys: Int64) -> Int64:
        """Returns the value of each key, -1 for none."""
        if not len(self._keys):
            return np.full(len(keys), -1, np.int64)
        index = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[index] == keys, self._values[index], -1)
