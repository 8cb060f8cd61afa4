"""Numbers looked up by number, in columns."""

from bisect import bisect_left

import numpy as np

from .column_types import Int64
from .groups import is_group_start


class Lookup:
    """Numbers by number, as a dict has them, but in columns; of a key that comes again the last value holds."""

    def __init__(self, keys: Int64, values: Int64) -> None:
        order = np.argsort(keys, kind="stable")
        order = order[np.append(is_group_start(keys[order])[1:], True)[: len(order)]]
        self._keys, self._values = keys[order].data, values[order].data

    def __contains__(self, key: int) -> bool:
        return self._place(key) >= 0

    def get(self, key: int) -> int:
        """Returns the value of a key, -1 for none."""
        place = self._place(key)
        return self._values[place] if place >= 0 else -1

    def of(self, keys: Int64) -> Int64:
        """Returns the value of each key, -1 for none."""
        known, values = np.asarray(self._keys), np.asarray(self._values)
        if not len(known):
            return np.full(len(keys), -1, np.int64)
        place = np.minimum(np.searchsorted(known, keys), len(known) - 1)
        return np.where(known[place] == keys, values[place], -1)

    def _place(self, key: int) -> int:
        place = bisect_left(self._keys, key)
        return place if place < len(self._keys) and self._keys[place] == key else -1
