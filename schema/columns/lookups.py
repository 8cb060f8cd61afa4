"""Columns for what looks at single numbers: they are Python's own only while they are looked at."""

from bisect import bisect_left

import numpy as np

from .column_types import Int64
from .groups import begins, taken
from .on_disk import filled, in_blocks, settled


def one_by_one(column: Int64) -> "memoryview[int]":
    """The column, of which each number that is looked up or set is an int; on disk if it is large."""
    return settled(column).data


class Lookup:
    """Numbers by number, as a dict has them, but in columns; of a key that comes again the last value holds."""

    def __init__(self, keys: Int64, values: Int64) -> None:
        order = settled(np.argsort(keys, kind="stable"))
        order = settled(order[np.append(begins(taken(keys, order))[1:], True)[: len(order)]])
        self._keys, self._values = one_by_one(taken(keys, order)), one_by_one(taken(values, order))

    def __contains__(self, key: int) -> bool:
        return self._place(key) >= 0

    def get(self, key: int) -> int:
        """The value of a key, -1 for none."""
        place = self._place(key)
        return self._values[place] if place >= 0 else -1

    def of(self, keys: Int64) -> Int64:
        """The value of each key, -1 for none."""
        known, values, found = np.asarray(self._keys), np.asarray(self._values), filled(len(keys), -1)
        for rows in in_blocks(len(keys) if len(known) else 0):
            place = np.minimum(np.searchsorted(known, keys[rows]), len(known) - 1)
            found[rows] = np.where(known[place] == keys[rows], values[place], -1)
        return found

    def _place(self, key: int) -> int:
        place = bisect_left(self._keys, key)
        return place if place < len(self._keys) and self._keys[place] == key else -1
