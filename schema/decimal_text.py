"""Columns of integers as decimal text."""

import numpy as np

from .columns import Int64
from .spans import Spans, join
from .varints import UInt64

WIDTH = 20
"""The most digits that 64 bits take."""
POWERS = np.array([10**exponent for exponent in range(1, WIDTH)], np.uint64)
FOUR_DIGITS = np.frombuffer(b"".join(b"%04d" % number for number in range(10_000)), "<u4")


def decimals(numbers: Int64 | UInt64, suffix: bytes) -> Spans:
    """Each integer as decimal digits, with a minus before where it is negative, and the suffix after."""
    negative = numbers < 0
    magnitude = np.where(negative, -numbers, numbers).view(np.uint64)
    digits = 1 + np.searchsorted(POWERS, magnitude, side="right")
    end = 1 + WIDTH
    rows = np.empty((len(numbers), end + len(suffix)), np.uint8)
    rows[:, end:] = np.frombuffer(suffix, np.uint8)
    rest = magnitude
    for place in range(end - 4, end - 4 - int(digits.max(initial=0)), -4):
        higher = rest // np.uint64(10_000)
        rows[:, place : place + 4].view("<u4")[:, 0] = FOUR_DIGITS[rest - higher * np.uint64(10_000)]
        rest = higher
    minus = np.flatnonzero(negative)
    rows[minus, end - 1 - digits[minus]] = ord("-")
    lengths = digits + negative
    starts = np.arange(len(numbers)) * rows.shape[1] + end - lengths
    return Spans(rows.reshape(-1), starts, lengths + len(suffix))


def decimal_lists(numbers: Int64 | UInt64, row: Int64, count: int) -> Spans:
    """`count` lists of integers with commas between, from integers in the order of their (ascending) `row`."""
    texts = join([decimals(numbers, b",")], len(row))
    limits = np.append(texts.starts, len(texts.source))[np.searchsorted(row, np.arange(count + 1))]
    lengths = np.diff(limits)
    # no comma after the last
    return Spans(texts.source, limits[:-1], lengths - (lengths > 0))
