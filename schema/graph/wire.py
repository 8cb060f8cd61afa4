"""Encodes and decodes whole columns in protobuf's wire format, without one Python step per value.

Messages are written as columns of spans that stand side by side, and read by walking all messages at once, one field of
each per round.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..columns import Bool, Bytes, Int64, Part, Spans, join, total_lengths
from .varints import NO_END, UInt64, prefixed_varints, read_varints, varint, words

VARINT, FIXED64, DELIMITED, FIXED32 = 0, 1, 2, 5
FIXED_SIZES = {FIXED64: 8, FIXED32: 4}
LARGEST_FIELD_NUMBER = (1 << 29) - 1
PADDING = 32
"""Bytes that must follow the last message in a buffer that is walked, so that reading ahead stays inside it."""
MOST_FIELDS = 1 << 14
"""What a node has are some tens of fields, as lists of numbers are one field each; more rounds than this would take
minutes.
"""
NO_FIELD = -1
TEXT_FIELD_1 = 1 << 3 | DELIMITED


class Fields(NamedTuple):
    """All fields of some messages, in order of appearance within each message.

    `value` is a varint's or a fixed number's bits, for a delimited field the length of its content, which begins at
    `start`; for the others `start` is where the value stands.
    """

    message: Int64
    number: Int64
    wire: npt.NDArray[np.uint8]
    value: UInt64
    start: Int64

    def where(self, chosen: Bool | Int64 | slice) -> "Fields":
        """Returns the chosen fields."""
        if not isinstance(chosen, slice) and chosen.dtype == np.bool_ and chosen.all():
            return self
        return Fields(
            self.message[chosen], self.number[chosen], self.wire[chosen], self.value[chosen], self.start[chosen]
        )

    def of(self, number: int, wire: int) -> "Fields":
        """Returns the fields of this number; one of another wire type is, as in the protobuf library, an
        unknown field.
        """
        return self.where((self.number == number) & (self.wire == wire))

    def last_given(self, count: int) -> "Fields":
        """Returns only the last field of each of `count` messages."""
        if np.bincount(self.message, minlength=count).max(initial=0) < 2:
            return self
        ordered = self.where(np.argsort(self.start))
        last = np.full(count, -1)
        last[ordered.message] = np.arange(len(ordered.message))
        return ordered.where(last[last >= 0])

    @staticmethod
    def concatenated(parts: "Sequence[Fields]") -> "Fields":
        """Returns the fields of all parts, one part after the other."""
        message, number, wire, value, start = (np.concatenate(column) for column in zip(*parts, strict=True))
        return Fields(message, number, wire, value, start)

    @property
    def end(self) -> Int64:
        """Where the content of delimited fields ends."""
        return self.start + self.value.view(np.int64)


class Pairs(NamedTuple):
    """Messages of a text and one other field: which of the messages they are, and the fields."""

    row: Int64
    name: Fields
    value: Fields

    def where(self, chosen: Bool) -> "Pairs":
        """Returns the chosen pairs."""
        return self if chosen.all() else Pairs(self.row[chosen], self.name.where(chosen), self.value.where(chosen))


class Messages(NamedTuple):
    """Encoded messages `raw[starts[i] : ends[i]]`; `data` is `raw` as an array that goes on for PADDING bytes."""

    raw: bytes
    data: Bytes
    starts: Int64
    ends: Int64

    @staticmethod
    def of(raw: bytes, starts: Int64, ends: Int64) -> "Messages":
        """Returns the messages that lie in `raw` between these positions."""
        return Messages(raw, np.frombuffer(raw + bytes(PADDING), np.uint8), starts, ends)

    def rows(self, chosen: slice | Int64) -> "Messages":
        """Returns the chosen messages."""
        return self._replace(starts=self.starts[chosen], ends=self.ends[chosen])

    def contents(self, fields: Fields) -> list[bytes]:
        """Returns what delimited fields of these messages contain."""
        raw = self.raw
        return [raw[start:end] for start, end in zip(fields.start.tolist(), fields.end.tolist(), strict=True)]


class WireError(Exception):
    """The bytes are no protobuf message; `at` is the position in the buffer of the field that is not one."""

    def __init__(self, what: str, at: int) -> None:
        super().__init__(what)
        self.what = what
        self.at = at


def tag(number: int, wire: int) -> bytes:
    """Returns the bytes before a field: its number and wire type."""
    return varint(number << 3 | wire)


def delimited(prefix: bytes, content: Sequence[Part], count: int) -> list[Part]:
    """Returns `content` of `count` rows behind `prefix` (a tag, or more) and its length, in rows that have any."""
    lengths = total_lengths(content, count)
    rows = rows_where(lengths > 0)
    return [(rows, prefixed_varints(prefix, lengths[rows].view(np.uint64))), *content]


def rows_where(chosen: Bool) -> Int64 | slice:
    """Returns the rows that are chosen; a slice if all are, so that taking them copies nothing."""
    return slice(None) if chosen.all() else np.flatnonzero(chosen)


def walk(data: Bytes, starts: Int64, ends: Int64) -> Fields:
    """Returns the fields of the messages `data[starts[i] : ends[i]]`: in order within a message, interleaved between
    messages.

    Takes one round of numpy operations per field of the longest message. `data` must go on for PADDING bytes after the
    last end. Raises WireError with the position of a damaged field, or of one field too many.
    """
    message = np.flatnonzero(starts < ends)
    at, end = starts[message], ends[message]
    rounds = [Fields(message[:0], message[:0], np.empty(0, np.uint8), np.empty(0, np.uint64), message[:0])]
    while len(message):
        if len(rounds) > MOST_FIELDS:
            raise WireError(f"a message of more than {MOST_FIELDS} fields", int(at[0]))
        fields, following = _next_fields(data, message, at)
        if (wrong := np.flatnonzero((following > end) | (following < at))).size:
            raise WireError("no field, or one that goes beyond its message", int(at[wrong[0]]))
        rounds.append(fields)
        going = np.flatnonzero(following < end)
        message, at, end = message[going], following[going], end[going]
    return Fields.concatenated(rounds)


def walk_pairs(data: Bytes, starts: Int64, ends: Int64) -> Pairs:
    """Returns the messages that consist of a short text as field 1 and one other field, in one round.

    `data` as for `walk`.
    """
    length, after = data[starts + 1], starts + 2 + data[starts + 1]
    row = np.flatnonzero((data[starts] == TEXT_FIELD_1) & (length < 0x80) & (after < ends))
    value_fields, following = _next_fields(data, row, after[row])
    ones, delimited = np.ones(len(row), np.int64), np.full(len(row), DELIMITED, np.uint8)
    names = Fields(row, ones, delimited, length[row].astype(np.uint64), starts[row] + 2)
    return Pairs(row, names, value_fields).where(following == ends[row])


def _next_fields(data: Bytes, message: Int64, at: Int64) -> tuple[Fields, Int64]:
    """Returns the field that begins at `at` in each message, and where the next one begins; NO_FIELD if
    it is damaged.
    """
    tags, start = read_varints(data, at)
    number, wire = (tags >> np.uint64(3)).view(np.int64), (tags & np.uint64(7)).astype(np.uint8)
    value, following = read_varints(data, start)
    is_delimited = wire == DELIMITED
    if not (is_delimited | (wire == VARINT)).all():
        following[~is_delimited & (wire != VARINT)] = NO_FIELD
        for kind, size in FIXED_SIZES.items():
            rows = np.flatnonzero(wire == kind)
            following[rows] = start[rows] + size
            value[rows] = _fixed(data, start[rows], size)
    content = np.where(is_delimited, following, start)
    # a length that goes beyond the data must not overflow the sum
    following = following + is_delimited * np.minimum(value, np.uint64(len(data))).view(np.int64)
    following[(content < start) | (start < at) | (number == 0) | (number > LARGEST_FIELD_NUMBER)] = NO_FIELD
    return Fields(message, number, wire, value, content), following


def read_packed(data: Bytes, starts: Int64, ends: Int64, wire: int) -> tuple[Int64, UInt64, Int64]:
    """Returns all numbers of packed fields: the field, the bits and the position of each. Raises WireError for a field
    that ends inside a number.
    """
    if wire == VARINT:
        field, position = _packed_varints(data, starts, ends)
        bits, following = read_varints(data, position)
        if (wrong := np.flatnonzero(following == NO_END)).size:
            raise WireError("a number of more than ten bytes", int(position[wrong[0]]))
        return field, bits, position
    size = FIXED_SIZES[wire]
    if (wrong := np.flatnonzero((ends - starts) % size)).size:
        raise WireError("a packed field that ends inside a number", int(starts[wrong[0]]))
    counts = (ends - starts) // size
    field = np.repeat(np.arange(len(starts)), counts)
    position = starts[field] + size * (np.arange(len(field)) - (np.cumsum(counts) - counts)[field])
    return field, _fixed(data, position, size), position


def _packed_varints(data: Bytes, starts: Int64, ends: Int64) -> tuple[Int64, Int64]:
    """Returns the field and the position of each varint in packed fields."""
    packed = join([Spans(data, starts, ends - starts)], len(starts))
    limits = packed.starts + packed.lengths
    is_last = packed.source < 0x80
    nonempty = np.flatnonzero(packed.lengths)
    if (broken := nonempty[~is_last[limits[nonempty] - 1]]).size:
        raise WireError("a packed field that ends inside a number", int(starts[broken[0]]))
    after = np.flatnonzero(is_last) + 1
    first = np.concatenate((np.zeros(1, np.int64), after[:-1]))[: len(after)]
    field = np.searchsorted(limits, first, side="right")
    return field, starts[field] + first - packed.starts[field]


def _fixed(data: Bytes, at: Int64, size: int) -> UInt64:
    return words(data)[at] & np.uint64((1 << 8 * size) - 1)
