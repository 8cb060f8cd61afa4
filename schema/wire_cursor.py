"""Reading many encoded messages side by side, field after field as the protobuf library writes them.

A message that is encoded otherwise is not sound; whether the library takes it, and where it ends being a message, is for it to tell.
"""

from typing import NamedTuple

import numpy as np

from .columns import Bool, Int64
from .spans import Bytes, Spans
from .varints import LONGEST_VARINT, UInt64, read_varints, varint_lengths
from .wire import DELIMITED, VARINT, read_packed


class Ranges(NamedTuple):
    """What some messages have of a field: the rows of the messages, and where the content begins and ends."""

    row: Int64
    start: Int64
    end: Int64

    def where(self, chosen: Bool | Int64) -> "Ranges":
        if chosen.dtype == np.bool_ and chosen.all():
            return self
        return Ranges(self.row[chosen], self.start[chosen], self.end[chosen])

    def spans(self, data: Bytes) -> Spans:
        return Spans(data, self.start, self.end - self.start)


def is_shortest(data: Bytes, at: Int64, after: Int64) -> Bool:
    """Which varints between these places are whole and take no more bytes than they need."""
    last, length = data[after - 1], after - at
    shortest: Bool = (length > 0) & ((last > 0) | (length == 1)) & ((length < LONGEST_VARINT) | (last == 1))
    return shortest


class Cursor:
    """Stands in each of the messages `data[starts[i] : ends[i]]` where the fields end that were read; these are asked for in order.

    `data` must go on for PADDING bytes after the last end. `sound` is cleared for messages that are not as the library writes them.
    """

    def __init__(self, data: Bytes, starts: Int64, ends: Int64) -> None:
        self.data = data
        self.at = starts.copy()
        self.ends = ends
        self.sound = np.ones(len(starts), np.bool_)

    def finish(self) -> Bool:
        """Which messages are sound and end here."""
        self.sound &= self.at == self.ends
        return self.sound

    def integers(self, number: int) -> UInt64:
        """The integer in each message, 0 where it is not."""
        rows = self._rows(number << 3 | VARINT)
        value, after = read_varints(self.data, self.at[rows] + 1)
        column = np.zeros(len(self.at), np.uint64)
        column[rows] = value
        self._advance(rows, after, is_shortest(self.data, self.at[rows] + 1, after) & (value != 0))
        return column

    def contents(self, number: int, empty: bool = False) -> Ranges:
        """What stands in a text, message or packed list, in the messages that have it. With `empty` it may be there and be empty."""
        rows = self._rows(number << 3 | DELIMITED)
        at = self.at[rows] + 1
        length, start = read_varints(self.data, at)
        # a length that goes beyond the data must not overflow the sum
        end = start + np.minimum(length, np.uint64(len(self.data))).view(np.int64)
        good = is_shortest(self.data, at, start) & ((length > 0) | empty)
        return Ranges(rows, start, end).where(self._advance(rows, end, good))

    def repeated(self, number: int) -> Ranges:
        """The contents of all fields of this number, in the order of the messages."""
        found = [self.contents(number, empty=True)]
        while len(found[-1].row):
            found.append(self.contents(number, empty=True))
        row, start, end = (np.concatenate(column) for column in zip(*found, strict=True))
        # sorting two-byte keys takes numpy's radix sort
        few = len(self.at) <= 1 << 16
        return Ranges(row, start, end).where(np.argsort(row.astype(np.uint16) if few else row, kind="stable"))

    def _rows(self, tag: int) -> Int64:
        return np.flatnonzero((self.data[self.at] == tag) & (self.at < self.ends))

    def _advance(self, rows: Int64, after: Int64, good: Bool) -> Bool:
        good &= after <= self.ends[rows]
        self.at[rows] = np.where(good, after, self.ends[rows])
        self.sound[rows] &= good
        return good


class Lists(NamedTuple):
    """The integers of packed fields: the place of each one's field, its bits, and which fields hold whole and shortest ones only."""

    field: Int64
    bits: UInt64
    sound: Bool

    @staticmethod
    def read(data: Bytes, packed: Ranges) -> "Lists":
        """Raises WireError where a field ends inside a number."""
        field, bits, _ = read_packed(data, packed.start, packed.end, VARINT)
        needed = np.bincount(field, weights=varint_lengths(bits), minlength=len(packed.row))
        return Lists(field, bits, np.equal(needed, packed.end - packed.start))
