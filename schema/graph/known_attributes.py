"""Finds the names of known attributes in encoded messages, all at once."""

from typing import NamedTuple

import numpy as np

from ..columns import Bytes, Int64, Spans
from .attributes import ATTRIBUTES
from .varints import UInt64, words
from .wire import PADDING, Fields


class NameKeys(NamedTuple):
    """Names of up to 16 bytes as two words and a length, which identify them, and a hash of the words for look-up."""

    first: UInt64
    second: UInt64
    length: Int64
    mix: UInt64

    def where(self, rows: Int64) -> "NameKeys":
        """Returns the keys of these rows."""
        return NameKeys(self.first[rows], self.second[rows], self.length[rows], self.mix[rows])


def _name_keys(data: Bytes, start: Int64, length: Int64) -> NameKeys:
    first = words(data)[start] & FIRST_BYTES[np.minimum(length, 8)]
    second = words(data)[start + 8] & FIRST_BYTES[np.clip(length - 8, 0, 8)]
    return NameKeys(first, second, length, first ^ second * np.uint64(0x9E3779B97F4A7C15))


FIRST_BYTES = np.array([(1 << 8 * count) - 1 for count in range(9)], np.uint64)
"""Masks for the first 0 to 8 bytes of a word."""
_known_names = Spans.of([attribute.name.encode() for attribute in ATTRIBUTES])
_known_keys = _name_keys(np.append(_known_names.source, np.zeros(PADDING, np.uint8)), *_known_names[1:])
KNOWN_POSITIONS = np.argsort(_known_keys.mix)
KNOWN_KEYS = _known_keys.where(KNOWN_POSITIONS)


def known_attributes(data: Bytes, names: Fields) -> Int64:
    """Returns the position of each name in ATTRIBUTES, len(ATTRIBUTES) for a name that is not there."""
    keys = _name_keys(data, names.start, names.value.view(np.int64))
    position = np.minimum(np.searchsorted(KNOWN_KEYS.mix, keys.mix), len(ATTRIBUTES) - 1)
    candidate = KNOWN_KEYS.where(position)
    same = (candidate.first == keys.first) & (candidate.second == keys.second) & (candidate.length == keys.length)
    return np.where(same, KNOWN_POSITIONS[position], len(ATTRIBUTES))
