"""Texts in rows that differ in digits alone: their shape is looked at once, their numbers are read in columns.

Arguments of ops have few shapes, and what a shape means holds for all texts that have it.
"""

import re
import zlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from .byte_strings import Bytes
from .column_types import Int64, Interner

LINE = b"\n"
PADDING = 8 * LINE
"""Before the text, so that eight bytes end at every digit."""
MOST_DIGITS = 18
"""Numbers of more may not fit 64 bits."""
FIRST_LABEL = 1000
"""Labels have digits enough to be no number that stands for none, as -1."""
LABEL = re.compile(rb"\d+")
RUN, ZERO = re.compile(rb"0"), ord("0")
AS_ZERO = bytes.maketrans(b"123456789", 9 * b"0")
HALVES = ((0x0F0F0F0F0F0F0F0F, 2561, 8), (0x00FF00FF00FF00FF, 6553601, 16), (0x0000FFFF0000FFFF, 42949672960001, 32))
"""Masks, factors and shifts that join eight digits in a word to numbers of two, four and eight."""


class DigitRuns(NamedTuple):
    """The runs of digits in lines of a text: `starts` and `lengths` of each, the first of row i at `first[i]`.

    Row i begins at `begin[i]` in the text; `shape` numbers the shapes of the rows: their texts with one `0` for each
    run.
    """

    text: Bytes
    begin: Int64
    shape: Int64
    first: Int64
    starts: Int64
    lengths: Int64

    @staticmethod
    def of(lines: bytes, shapes: Interner[bytes]) -> "DigitRuns":
        """Returns the runs in lines; `shapes` takes the new shapes. Linear in the bytes."""
        text = np.frombuffer(PADDING + lines + LINE, np.uint8)
        is_digit = text - np.uint8(ZERO) < 10
        edges = np.flatnonzero(is_digit[1:] != is_digit[:-1]) + 1
        starts, ends = edges[::2], edges[1::2]
        is_kept = ~is_digit
        is_kept[starts] = True
        rows = text[is_kept][len(PADDING) : -1].tobytes().translate(AS_ZERO).split(LINE)
        begin = np.flatnonzero(text == ord(LINE))[len(PADDING) - 1 : -1] + 1
        shape = shapes.codes(rows, len(rows)).astype(np.int64)
        return DigitRuns(text, begin, shape, np.searchsorted(starts, begin), starts, ends - starts)

    @staticmethod
    def of_texts(texts: Sequence[bytes], shapes: Interner[bytes]) -> "DigitRuns":
        """Returns the same of JSON texts, of which each is a row. Line ends in them count as blanks."""
        lines = LINE.join(texts)
        if lines.count(LINE) >= len(texts):
            lines = LINE.join([text.replace(LINE, b" ") for text in texts])
        return DigitRuns.of(lines, shapes)

    def integers(self, runs: Int64) -> Int64:
        """Returns the numbers that these runs are, without signs; at most MOST_DIGITS of their digits count."""
        return _integers(self.text, self.starts[runs] + self.lengths[runs], self.lengths[runs])

    def distinct_integers(self) -> Int64:
        """Returns a number for each run, the same for runs of the same digits alone: negative ones for those that are
        no plain numbers, as `007` or what has too many digits.
        """
        numbers = _integers(self.text, self.starts + self.lengths, self.lengths)
        odd = (self.text[self.starts] == ZERO) & (self.lengths > 1) | (self.lengths > MOST_DIGITS)
        for run in np.flatnonzero(odd).tolist():
            start = int(self.starts[run])
            numbers[run] = -1 - zlib.crc32(self.text[start : start + int(self.lengths[run])].tobytes())
        return numbers


def _integers(text: Bytes, end: Int64, length: Int64) -> Int64:
    words = np.ndarray(len(text) - 7, "<u8", text, 0, (1,))[end - 8]
    word = words & (np.uint64(0xFFFFFFFFFFFFFFFF) << (8 * (8 - np.minimum(length, 8))).astype(np.uint64))
    for mask, factor, shift in HALVES:
        word = (word & np.uint64(mask)) * np.uint64(factor) >> np.uint64(shift)
    numbers: Int64 = word.astype(np.int64)
    longer = length > 8
    if longer.any():
        numbers[longer] += 10**8 * _integers(text, end[longer] - 8, np.minimum(length[longer], MOST_DIGITS) - 8)
    return numbers


def labelled(shape: bytes) -> bytes:
    """Returns the text of a shape with a label in place of each run: from FIRST_LABEL on, in order.

    >>> labelled(b'{"id":0,"ts":0.0}')
    b'{"id":1000,"ts":1001.1002}'
    """
    return RUN.sub(_numbering(), shape)


def _numbering() -> "Callable[[re.Match[bytes]], bytes]":
    numbers = iter(range(FIRST_LABEL, 1 << 31))
    return lambda _: b"%d" % next(numbers)
