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
        return self._index(key) >= 0

    def get(self, key: int) -> int:
        """Returns the value of a key, -1 for none."""
        index = self._index(key)
        return self._values[index] if index >= 0 else -1

    def of(self, keys: Int64) -> Int64:
        """Returns the value of each key, -1 for none."""
        sorted_keys, values = np.asarray(self._keys), np.asarray(self._values)
        if not len(sorted_keys):
            return np.full(len(keys), -1, np.int64)
        index = np.minimum(np.searchsorted(sorted_keys, keys), len(sorted_keys) - 1)
        return np.where(sorted_keys[index] == keys, values[index], -1)

    def _index(self, key: int) -> int:
        index = bisect_left(self._keys, key)
        return index if index < len(self._keys) and self._keys[index] == key else -1
