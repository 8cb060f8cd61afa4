"""Encodes and decodes columns in protobuf's wire format: a field of all messages per round, no Python step per value.

Eight bytes of a varint are one word, whose groups of seven bits are spread or squeezed together by shifts and masks.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from ..columns import Bool, Bytes, Int64
from .spans import Part, Spans, join, total_lengths

UInt64 = npt.NDArray[np.uint64]

LONGEST_VARINT = 10
GROUPINGS = ((1, 0x007F007F007F007F), (2, 0x00003FFF00003FFF), (4, 0x000000000FFFFFFF))
"""By how much and from where bits move so that eight groups of seven, one per byte, become one number of 56 bits."""
NO_END = -1
"""Stands for the end of a varint that goes on for more than ten bytes."""
VARINT, FIXED64, DELIMITED, FIXED32 = 0, 1, 2, 5
FIXED_SIZES = {FIXED64: 8, FIXED32: 4}
LARGEST_FIELD_NUMBER = (1 << 29) - 1
PADDING = 32
"""Bytes that must follow the last message in a buffer that is walked, so that reading ahead stays inside it."""
MOST_FIELDS = 1 << 14
"""A node has tens of fields, as lists of numbers are one field each; more rounds than this would take minutes."""
NO_FIELD = -1
TEXT_FIELD_1 = 1 << 3 | DELIMITED
UNKNOWN = 0xFF
"""The wire type of a field that the message does not have."""
WIRES = {
    **dict.fromkeys(range(1, 19), VARINT),
    **dict.fromkeys(
        (FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FIXED64, FieldDescriptor.TYPE_SFIXED64), FIXED64
    ),
    **dict.fromkeys((FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_FIXED32, FieldDescriptor.TYPE_SFIXED32), FIXED32),
    **dict.fromkeys((FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES, FieldDescriptor.TYPE_MESSAGE), DELIMITED),
}


def varint(value: int) -> bytes:
    """Returns one non-negative integer of up to 64 bits as a varint."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def words(buffer: Bytes, first: int = 0, stride: int = 1) -> UInt64:
    """Returns the eight-byte little-endian words that begin at every `stride`-th byte of `buffer` from `first` on."""
    count = (buffer.size - first - 8) // stride + 1
    return np.ndarray((count,), "<u8", buffer, first, (stride,)) if count > 0 else np.empty(0, np.uint64)


def varint_lengths(values: UInt64) -> Int64:
    """Returns the number of bytes of each value as a varint, 1 to 10."""
    lengths = np.ones(len(values), np.int64)
    largest = int(values.max(initial=0))
    for bits in range(7, largest.bit_length(), 7):
        lengths += values >> np.uint64(bits) != 0
    return lengths


def prefixed_varints(prefix: bytes, values: UInt64, length_at: int | None = None) -> Spans:
    """Returns `prefix` and the value as a varint; the byte `length_at` of a prefix becomes the length behind it."""
    lengths = varint_lengths(values)
    width = len(prefix) + LONGEST_VARINT
    rows = np.empty((len(values), width), np.uint8)
    rows[:, : len(prefix)] = np.frombuffer(prefix, np.uint8)
    if length_at is not None:
        rows[:, length_at] = len(prefix) - length_at - 1 + lengths
    # a shift by 64 gives 0, and 0 - 1 sets all bits
    continued = (np.uint64(1) << (8 * np.minimum(lengths, 9) - 8).view(np.uint64)) - np.uint64(1)
    spread = values & np.uint64((1 << 56) - 1)
    for shift, kept in reversed(GROUPINGS):
        low = np.uint64(kept)
        spread = spread & low | (spread & ~low) << np.uint64(shift)
    words(rows.reshape(-1), len(prefix), width)[:] = spread | continued & np.uint64(0x8080808080808080)
    if lengths.max(initial=0) > 8:
        high = (values >> np.uint64(56)).astype(np.uint8)
        rows[:, -2] = high & 0x7F | (lengths > 9) << 7
        rows[:, -1] = high >> 7
    return Spans(rows.reshape(-1), np.arange(len(values)) * width, lengths + len(prefix))


def read_varints(data: Bytes, at: Int64) -> tuple[UInt64, Int64]:
    """Returns the varints at these positions and where each ends: at NO_END if it is longer than ten bytes."""
    first = data[at]
    values, ends = first.astype(np.uint64), at + 1
    if not (several := np.flatnonzero(first > 0x7F)).size:
        return values, ends
    starts = at[several]
    encoded = words(data)[starts]
    stops = ~encoded & np.uint64(0x8080808080808080)
    through_stop = stops ^ (stops - np.uint64(1))
    squeezed = encoded & through_stop & np.uint64(0x7F7F7F7F7F7F7F7F)
    for shift, kept in GROUPINGS:
        low = np.uint64(kept)
        squeezed = squeezed & low | (squeezed & low << np.uint64(8 * shift)) >> np.uint64(shift)
    # the lowest stop bit is 2 ** (8 k - 1) in a varint of k bytes
    lengths = np.frexp((stops & through_stop).astype(np.float64))[1].astype(np.int64) >> 3
    if (more := np.flatnonzero(stops == 0)).size:
        ninth, tenth = data[starts[more] + 8], data[starts[more] + 9]
        squeezed[more] |= (ninth & 0x7F).astype(np.uint64) << np.uint64(56)
        squeezed[more] |= np.where(ninth > 0x7F, tenth, 0).astype(np.uint64) << np.uint64(63)
        lengths[more] = np.where(ninth < 0x80, 9, np.where(tenth < 0x80, 10, NO_END))
    values[several], ends[several] = squeezed, np.where(lengths < 0, NO_END, starts + lengths)
    return values, ends


class Fields(NamedTuple):
    """All fields of messages, in order within each; `value` is a varint's bits or the length of what is at `start`."""

    message: Int64
    number: Int64
    wire: npt.NDArray[np.uint8]
    value: UInt64
    start: Int64

    def where(self, chosen: Bool | Int64 | slice) -> "Fields":
        """Returns the chosen fields."""
        if not isinstance(chosen, slice) and chosen.dtype == np.bool_ and chosen.all():
            return self
        return Fields(*(column[chosen] for column in self))  # type: ignore[arg-type]

    def of(self, number: int, wire: int) -> "Fields":
        """Returns the fields of this number; those of another wire type count as unknown, as in protobuf's library."""
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
        return Fields(*map(np.concatenate, zip(*parts, strict=True)))

    @property
    def end(self) -> Int64:
        """Where the content of delimited fields ends."""
        return self.start + self.value.view(np.int64)


class Messages(NamedTuple):
    """Encoded messages `raw[starts[i] : ends[i]]`; `data` is `raw` and PADDING bytes, `offset` its byte in the file."""

    raw: bytes
    data: Bytes
    starts: Int64
    ends: Int64
    offset: int

    @staticmethod
    def of(raw: bytes, starts: Sequence[int], ends: Sequence[int], offset: int) -> "Messages":
        """Returns the messages that lie in `raw` between these positions."""
        data = np.frombuffer(raw + bytes(PADDING), np.uint8)
        return Messages(raw, data, np.array(starts, np.int64), np.array(ends, np.int64), offset)

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
    """Returns the fields of the messages `data[starts[i] : ends[i]]`: in order within one, interleaved between several.

    `data` must go on for PADDING bytes. Raises WireError with the position of a damaged field, or of one too many.
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


def walk_pairs(data: Bytes, starts: Int64, ends: Int64) -> tuple[Fields, Fields]:
    """Returns both fields of messages that are a short text as field 1 and another field; `data` as for `walk`."""
    length, after = data[starts + 1], starts + 2 + data[starts + 1]
    row = np.flatnonzero((data[starts] == TEXT_FIELD_1) & (length < 0x80) & (after < ends))
    others, following = _next_fields(data, row, after[row])
    ones, delimited = np.ones(len(row), np.int64), np.full(len(row), DELIMITED, np.uint8)
    texts = Fields(row, ones, delimited, length[row].astype(np.uint64), starts[row] + 2)
    return texts.where(following == ends[row]), others.where(following == ends[row])


def _next_fields(data: Bytes, message: Int64, at: Int64) -> tuple[Fields, Int64]:
    """Returns the field that begins at `at` in each message, NO_FIELD if damaged, and where the next one begins."""
    tags, start = read_varints(data, at)
    number, wire = (tags >> np.uint64(3)).view(np.int64), (tags & np.uint64(7)).astype(np.uint8)
    value, following = read_varints(data, start)
    is_delimited = wire == DELIMITED
    if not (is_delimited | (wire == VARINT)).all():
        following[~is_delimited & (wire != VARINT)] = NO_FIELD
        for kind, size in FIXED_SIZES.items():
            following[wire == kind] = start[wire == kind] + size
    content = np.where(is_delimited, following, start)
    # a length that goes beyond the data must not overflow the sum
    following = following + is_delimited * np.minimum(value, np.uint64(len(data))).view(np.int64)
    following[(content < start) | (start < at) | (number == 0) | (number > LARGEST_FIELD_NUMBER)] = NO_FIELD
    return Fields(message, number, wire, value, content), following


def read_packed(data: Bytes, starts: Int64, ends: Int64) -> tuple[Int64, UInt64, Int64]:
    """Returns all varints of packed fields: field, bits, position. Raises WireError where one ends inside a number."""
    packed = join([(slice(None), Spans(data, starts, ends - starts))], len(starts))
    limits, is_last = packed.starts + packed.lengths, packed.source < 0x80
    nonempty = np.flatnonzero(packed.lengths)
    if (broken := nonempty[~is_last[limits[nonempty] - 1]]).size:
        raise WireError("a packed field that ends inside a number", int(starts[broken[0]]))
    after = np.flatnonzero(is_last) + 1
    first = np.concatenate((np.zeros(1, np.int64), after[:-1]))[: len(after)]
    field = np.searchsorted(limits, first, side="right")
    position = starts[field] + first - packed.starts[field]
    bits, following = read_varints(data, position)
    if (wrong := np.flatnonzero(following == NO_END)).size:
        raise WireError("a number of more than ten bytes", int(position[wrong[0]]))
    return field, bits, position


def wire_types(message: type[Message]) -> npt.NDArray[np.uint8]:
    """Returns the wire type of each field number; lists are packed."""
    fields = message.DESCRIPTOR.fields
    types = np.full(max(field.number for field in fields) + 1, UNKNOWN, np.uint8)
    for field in fields:
        types[field.number] = DELIMITED if field.default_value == [] else WIRES[field.type]
    return types
