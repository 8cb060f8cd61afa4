"""Columns of integers as decimal text, and back. Eight digits are taken as one word."""

import numpy as np

from .columns import Bool, Int64
from .spans import Bytes, Spans, join, join_parts, repeated
from .varints import UInt64, words

WIDTH = 20
"""The most digits that 64 bits take."""
POWERS = np.array([10**exponent for exponent in range(1, WIDTH)], np.uint64)
MOST_DIGITS = 19
"""So many digits always fit into 64 bits."""
MOST_WORDS = 3
COMMA, MINUS, ZERO = b",-0"
BLANK = np.full(8 * MOST_WORDS, ord(" "), np.uint8)
"""What must stand before a text whose digits are looked for."""
ZEROS, HIGH_BITS, LOW_BITS, BEYOND_NINE = (np.uint64(byte * 0x0101010101010101) for byte in (0x30, 0x80, 0x7F, 0x76))
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


def _not_digits(word: UInt64) -> UInt64:
    """The high bit of each byte that is no digit."""
    number = word ^ ZEROS
    found: UInt64 = ((number & LOW_BITS) + BEYOND_NINE | number) & HIGH_BITS
    return found


def digits_before(text: Bytes, end: Int64) -> Int64:
    """How many digits stand right before each place, up to 24; so many bytes must be there."""
    counts = np.zeros(len(end), np.int64)
    rows = np.arange(len(end))
    for place in range(8, 8 * MOST_WORDS + 1, 8):
        others = _not_digits(words(text)[end[rows] - place])
        # the highest bit is 2 ** (8 k + 7) where byte k is the last that is no digit
        count = 8 - (np.frexp(others.astype(np.float64))[1].astype(np.int64) >> 3)
        counts[rows] += count
        rows = rows[count == 8]
        if not len(rows):
            break
    return counts


def decimal_values(text: Bytes, end: Int64, count: Int64) -> UInt64:
    """The integers of `count` digits that end at these places; of up to MOST_DIGITS."""
    values = np.zeros(len(end), np.uint64)
    rows, scale = np.arange(len(end)), 1
    for place in range(8, 8 * MOST_WORDS + 1, 8):
        other_bits = (8 * np.clip(place - count[rows], 0, 8)).view(np.uint64)
        word = (words(text)[end[rows] - place] ^ ZEROS) >> other_bits << other_bits
        values[rows] += _eight_digits(word) * np.uint64(scale)
        rows, scale = rows[count[rows] > place], scale * 10**8
        if not len(rows):
            break
    return values


def _eight_digits(word: UInt64) -> UInt64:
    """The number that eight bytes of one digit each stand for, the first byte for the highest digit."""
    pairs = word * np.uint64(1 + (10 << 8)) >> np.uint64(8) & np.uint64(0x00FF00FF00FF00FF)
    fours = pairs * np.uint64(1 + (100 << 16)) >> np.uint64(16) & np.uint64(0x0000FFFF0000FFFF)
    return fours * np.uint64(1 + (10_000 << 32)) >> np.uint64(32)


def signed_values(text: Bytes, end: Int64, count: Int64) -> tuple[Int64, Int64, Bool]:
    """The integers of so many digits that end at these places, perhaps after a minus: values, where they begin, and which are sound.

    Sound are those that fit into 64 bits and have no needless zero before them.
    """
    first = end - count
    negative = text[first - 1] == MINUS
    magnitude = decimal_values(text, end, np.minimum(count, MOST_DIGITS))
    values = np.where(negative, (~magnitude + np.uint64(1)).view(np.int64), magnitude.view(np.int64))
    sound = (count == 1) | (count > 1) & (count <= MOST_DIGITS) & (text[first] != ZERO)
    return values, first - negative, sound & ((values < 0) == negative)


def integer_lists(lists: Spans) -> tuple[Int64, Int64, Bool]:
    """Integers between commas: all of them, the row of the list that each is in, and which of the lists consist of such numbers."""
    count = len(lists.lengths)
    filled = np.flatnonzero(lists.lengths)
    text = join_parts([(slice(None), lists), (filled, repeated(b",", len(filled)))], count)
    source = np.concatenate((BLANK, text.source))
    ends = np.flatnonzero(source == COMMA)
    begins = np.append(len(BLANK), ends + 1)[:-1]
    row = np.searchsorted(text.starts + text.lengths, ends - len(BLANK), side="right")
    values, first, sound = signed_values(source, ends, digits_before(source, ends))
    good = np.ones(count, np.bool_)
    good[row[~sound | (first != begins)]] = False
    return values, row, good
