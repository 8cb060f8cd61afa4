"""Numbering byte strings by what they are, in the order in which they first come, all at once."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from .columns import Int64
from .spans import Spans
from .varints import UInt64, words

WORD = 8
PADDING = 32
"""Bytes that must follow the last text in its source."""
FACTOR = np.uint64(0x9E3779B97F4A7C15)


class TextNumbers:
    """Numbers the texts that it is shown; tells `learn` of each new one."""

    def __init__(self, learn: Callable[[bytes], object]) -> None:
        self._learn = learn
        self._numbers: dict[bytes, int] = {}
        self._index()

    def look_up(self, texts: Spans) -> Int64:
        """The number of each text. O(bytes)."""
        heads = _heads(texts)
        found = np.searchsorted(self._mixed, _mixed(texts, heads))
        numbers = self._order[np.minimum(found, len(self._order) - 1)]
        equal = texts.lengths == self._texts.lengths[numbers]
        for word, known_word in zip(heads, self._heads, strict=True):
            equal &= word == known_word[numbers]
        known = self._texts.take(numbers)
        for place, rows in _tail_places(texts, np.flatnonzero(equal)):
            equal[rows] &= _word(texts, place, rows) == _word(known, place, rows)
        others = np.flatnonzero(~equal)
        if len(others):
            numbers[others] = [self._number(text) for text in texts.take(others).tolist()]
            self._index()
        return numbers

    def _number(self, text: bytes) -> int:
        number = self._numbers.get(text)
        if number is None:
            self._learn(text)
            number = self._numbers[text] = len(self._numbers)
        return number

    def _index(self) -> None:
        # the last one only lets the source go on; it is equal to none
        self._texts = Spans.of([*self._numbers, bytes(PADDING)])
        self._texts.lengths[-1] = -1
        self._heads = _heads(self._texts)
        mixed = _mixed(self._texts, self._heads)
        self._order = np.argsort(mixed, kind="stable")
        self._mixed = mixed[self._order]


def _word(texts: Spans, place: int, rows: Int64 | slice) -> UInt64:
    """The eight bytes of each text at a place, less those that are not its own."""
    others = np.minimum(np.maximum(place + WORD - texts.lengths[rows], 0), WORD).view(np.uint64)
    found: UInt64 = words(texts.source)[texts.starts[rows] + place] << np.uint64(8) * others
    return found


def _heads(texts: Spans) -> list[UInt64]:
    """The words that the first bytes of all texts consist of."""
    return [_word(texts, place, slice(None)) for place in range(0, PADDING, WORD)]


def _tail_places(texts: Spans, rows: Int64) -> Iterator[tuple[int, Int64]]:
    """The places of the words after these, and the rows that have them."""
    for place in range(PADDING, int(texts.lengths[rows].max(initial=0)), WORD):
        rows = rows[texts.lengths[rows] > place]
        yield place, rows


def _mixed(texts: Spans, heads: Sequence[UInt64]) -> UInt64:
    """A number for each text, the same for equal ones; seldom the same for others."""
    mixed = texts.lengths.view(np.uint64)
    for word in heads:
        mixed = mixed * FACTOR + word
    for place, rows in _tail_places(texts, np.arange(len(mixed))):
        mixed[rows] = mixed[rows] * FACTOR + _word(texts, place, rows)
    return mixed
