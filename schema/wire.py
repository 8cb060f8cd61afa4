"""Protobuf's wire format on whole columns: numpy arrays of values to encoded bytes and back, without one Python step per value.

A column of encoded texts is a `Spans`: row i is `lengths[i]` bytes of one buffer. Messages are written as columns of spans that
stand side by side, and read by walking all messages at once, one field of each per round.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .columns import Bool, Int64

Bytes = npt.NDArray[np.uint8]
UInt64 = npt.NDArray[np.uint64]

VARINT, FIXED64, DELIMITED, FIXED32 = 0, 1, 2, 5
FIXED_SIZES = {FIXED64: 8, FIXED32: 4}
LONGEST_VARINT = 10
LARGEST_FIELD_NUMBER = (1 << 29) - 1
PADDING = 32
"""Bytes that must follow the last message in a buffer that is walked, so that reading ahead stays inside it."""
NO_FIELD = -1
TEXT_FIELD_1 = 1 << 3 | DELIMITED


class Spans(NamedTuple):
    """A column of byte strings: row i is `source[starts[i] : starts[i] + lengths[i]]`."""

    source: Bytes
    starts: Int64
    lengths: Int64

    def take(self, rows: npt.NDArray[np.integer]) -> "Spans":
        return Spans(self.source, self.starts[rows], self.lengths[rows])

    def placed(self, rows: Int64, count: int) -> "Spans":
        """`count` rows that are empty but for these."""
        starts, lengths = np.zeros(count, np.int64), np.zeros(count, np.int64)
        starts[rows], lengths[rows] = self.starts, self.lengths
        return Spans(self.source, starts, lengths)

    @staticmethod
    def of(texts: Sequence[bytes]) -> "Spans":
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        return Spans(np.frombuffer(b"".join(texts), np.uint8), np.cumsum(lengths) - lengths, lengths)


class Fields(NamedTuple):
    """All fields of some messages, in order of appearance within each message.

    `value` is a varint's or a fixed number's bits, for a delimited field the length of its content, which begins at `start`;
    for the others `start` is where the value stands.
    """

    message: Int64
    number: Int64
    wire: npt.NDArray[np.uint8]
    value: UInt64
    start: Int64

    def where(self, chosen: Bool | Int64 | slice) -> "Fields":
        if not isinstance(chosen, slice) and chosen.dtype == np.bool_ and chosen.all():
            return self
        return Fields(
            self.message[chosen], self.number[chosen], self.wire[chosen], self.value[chosen], self.start[chosen]
        )

    def of(self, number: int, wire: int) -> "Fields":
        """The fields of this number; one of another wire type is, as in the protobuf library, an unknown field."""
        return self.where((self.number == number) & (self.wire == wire))

    def in_message_order(self) -> "Fields":
        count = int(self.message.max(initial=0))
        # sorting two-byte keys takes numpy's radix sort
        return self.where(np.argsort(self.message.astype(np.uint16 if count < 1 << 16 else np.int64), kind="stable"))

    def last_given(self, count: int) -> "Fields":
        """Only the last field of each of `count` messages."""
        if np.bincount(self.message, minlength=count).max(initial=0) < 2:
            return self
        ordered = self.where(np.argsort(self.start))
        last = np.full(count, -1)
        last[ordered.message] = np.arange(len(ordered.message))
        return ordered.where(last[last >= 0])

    @staticmethod
    def concatenated(parts: "Sequence[Fields]") -> "Fields":
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
        return self if chosen.all() else Pairs(self.row[chosen], self.name.where(chosen), self.value.where(chosen))


class Messages(NamedTuple):
    """Encoded messages `raw[starts[i] : ends[i]]`; `data` is `raw` as an array that goes on for PADDING bytes."""

    raw: bytes
    data: Bytes
    starts: Int64
    ends: Int64

    @staticmethod
    def of(raw: bytes, starts: Int64, ends: Int64) -> "Messages":
        return Messages(raw, np.frombuffer(raw + bytes(PADDING), np.uint8), starts, ends)

    def rows(self, chosen: slice | Int64) -> "Messages":
        return self._replace(starts=self.starts[chosen], ends=self.ends[chosen])

    def contents(self, fields: Fields) -> list[bytes]:
        """What delimited fields of these messages contain."""
        raw = self.raw
        return [raw[start:end] for start, end in zip(fields.start.tolist(), fields.end.tolist(), strict=True)]


class WireError(Exception):
    """The bytes are no protobuf message; `at` is the position in the buffer of the field that is not one."""

    def __init__(self, what: str, at: int) -> None:
        super().__init__(what)
        self.what = what
        self.at = at


def varint(value: int) -> bytes:
    """One non-negative integer of up to 64 bits as a varint."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def tag(number: int, wire: int) -> bytes:
    return varint(number << 3 | wire)


def first_not_utf8(texts: Sequence[bytes]) -> int | None:
    """The place of the first text that is not UTF-8, None if all are."""
    try:
        # a character cannot go on across a line end, so the joined text is valid only if each text is
        b"\n".join(texts).decode()
    except UnicodeDecodeError as error:
        starts = np.cumsum([0, *(len(text) + 1 for text in texts)])
        return int(np.searchsorted(starts, error.start, side="right")) - 1
    return None


def copy_spans(spans: Spans, target: Bytes, positions: Int64) -> None:
    """Copies each row of `spans` to its position in `target`; linear in the bytes and rows.

    Rows of one length go together: a view of the buffer as overlapping items of that length makes them one gather and scatter.
    """
    for length, rows in _by_length(spans.lengths):
        _windows(target, length)[positions[rows]] = _windows(spans.source, length)[spans.starts[rows]]


def _by_length(lengths: Int64) -> Iterator[tuple[int, Int64 | slice]]:
    """Each length above zero with the rows that have it."""
    longest = int(lengths.max(initial=0))
    if longest == int(lengths.min(initial=longest)):
        if longest:
            yield longest, slice(None)
        return
    # sorting two-byte keys takes numpy's radix sort
    order = np.argsort(lengths.astype(np.uint16) if longest < 1 << 16 else lengths, kind="stable")
    ranked = lengths[order]
    bounds = np.flatnonzero(np.diff(ranked)) + 1
    for rows in np.split(order, bounds):
        if length := int(lengths[rows[0]]):
            yield length, rows


def _windows(buffer: Bytes, length: int) -> npt.NDArray[np.void]:
    """The items of `length` bytes that begin at each byte of `buffer`; they overlap."""
    return np.ndarray((len(buffer) - length + 1,), f"V{length}", buffer, 0, (1,))


def words(buffer: Bytes, first: int = 0, stride: int = 1) -> UInt64:
    """The eight-byte little-endian words that begin at every `stride`-th byte of `buffer` from `first` on."""
    count = (buffer.size - first - 8) // stride + 1
    return np.ndarray((count,), "<u8", buffer, first, (stride,)) if count > 0 else np.empty(0, np.uint64)


def join(columns: Iterable[Spans], count: int) -> Spans:
    """The columns side by side: row i of the result is the concatenation of row i of each column."""
    return join_parts([(slice(None), column) for column in columns], count)


def join_parts(parts: Sequence[tuple[Int64 | slice, Spans]], count: int) -> Spans:
    """`count` rows, each the concatenation of what the parts have for it; a part says which rows it has something for."""
    lengths = np.zeros(count, np.int64)
    for rows, part in parts:
        lengths[rows] += part.lengths
    starts = np.cumsum(lengths) - lengths
    buffer = np.empty(int(lengths.sum()), np.uint8)
    position = starts.copy()
    for rows, part in parts:
        copy_spans(part, buffer, position[rows])
        position[rows] += part.lengths
    return Spans(buffer, starts, lengths)


def total_lengths(columns: Iterable[Spans], count: int) -> Int64:
    """The length of each row over all columns."""
    lengths = np.zeros(count, np.int64)
    for column in columns:
        lengths += column.lengths
    return lengths


def delimited(prefix: bytes, content: Sequence[Spans], present: Bool) -> list[Spans]:
    """`content` with `prefix` (a tag, or more) and its length before it, where `present`; its rows must be empty elsewhere."""
    lengths = total_lengths(content, len(present))
    return [prefixed_varints(prefix, lengths.view(np.uint64), present), *content]


def varint_lengths(values: UInt64) -> Int64:
    """The number of bytes of each value as a varint, 1 to 10."""
    lengths = np.ones(len(values), np.int64)
    largest = int(values.max(initial=0))
    for bits in range(7, largest.bit_length(), 7):
        lengths += values >> np.uint64(bits) != 0
    return lengths


def prefixed_varints(prefix: bytes, values: UInt64, present: Bool, length_at: int | None = None) -> Spans:
    """`prefix` and the value as a varint in each row that is `present`.

    With `length_at` the byte at this place of the prefix is the length of what follows it in the row (which must stay below 128).
    """
    lengths = varint_lengths(values)
    width = len(prefix) + LONGEST_VARINT
    rows = np.empty((len(values), width), np.uint8)
    rows[:, : len(prefix)] = np.frombuffer(prefix, np.uint8)
    if length_at is not None:
        rows[:, length_at] = len(prefix) - length_at - 1 + lengths
    # a shift by 64 gives 0, and 0 - 1 sets all bits
    continued = (np.uint64(1) << (8 * np.minimum(lengths, 9) - 8).view(np.uint64)) - np.uint64(1)
    words(rows.reshape(-1), len(prefix), width)[:] = _spread(values) | continued & np.uint64(0x8080808080808080)
    if lengths.max(initial=0) > 8:
        high = (values >> np.uint64(56)).astype(np.uint8)
        rows[:, -2] = high & 0x7F | (lengths > 9) << 7
        rows[:, -1] = high >> 7
    return Spans(rows.reshape(-1), np.arange(len(values)) * width, (lengths + len(prefix)) * present)


def _spread(values: UInt64) -> UInt64:
    """The low 56 bits as eight groups of seven, one per byte."""
    spread = values & np.uint64((1 << 56) - 1)
    for shift, keep in ((4, 0x000000000FFFFFFF), (2, 0x00003FFF00003FFF), (1, 0x007F007F007F007F)):
        low = np.uint64(keep)
        spread = spread & low | (spread & ~low) << np.uint64(shift)
    return spread


def _squeeze(encoded: UInt64) -> UInt64:
    """The inverse of `_spread`; the high bit of each byte is ignored."""
    squeezed = encoded & np.uint64(0x7F7F7F7F7F7F7F7F)
    for shift, keep in ((1, 0x007F007F007F007F), (2, 0x00003FFF00003FFF), (4, 0x000000000FFFFFFF)):
        low = np.uint64(keep)
        squeezed = squeezed & low | (squeezed & low << np.uint64(8 * shift)) >> np.uint64(shift)
    return squeezed


def read_varints(data: Bytes, at: Int64) -> tuple[UInt64, Int64]:
    """The varints at these positions and where each ends: at NO_FIELD if it is longer than ten bytes."""
    first = data[at]
    values, ends = first.astype(np.uint64), at + 1
    if (more := np.flatnonzero(first > 0x7F)).size:
        values[more], ends[more] = _read_long_varints(data, at[more])
    return values, ends


def _read_long_varints(data: Bytes, at: Int64) -> tuple[UInt64, Int64]:
    encoded = words(data)[at]
    stops = ~encoded & np.uint64(0x8080808080808080)
    through_stop = stops ^ (stops - np.uint64(1))
    values = _squeeze(encoded & through_stop)
    # the lowest stop bit is 2 ** (8 k - 1) in a varint of k bytes
    lengths = np.frexp((stops & through_stop).astype(np.float64))[1].astype(np.int64) >> 3
    if (more := np.flatnonzero(stops == 0)).size:
        ninth, tenth = data[at[more] + 8], data[at[more] + 9]
        values[more] |= (ninth & 0x7F).astype(np.uint64) << np.uint64(56)
        values[more] |= np.where(ninth > 0x7F, tenth, 0).astype(np.uint64) << np.uint64(63)
        lengths[more] = np.where(ninth < 0x80, 9, np.where(tenth < 0x80, 10, NO_FIELD))
    return values, np.where(lengths < 0, NO_FIELD, at + lengths)


def walk(data: Bytes, starts: Int64, ends: Int64) -> Fields:
    """The fields of the messages `data[starts[i] : ends[i]]`; those of one message in order, those of different ones interleaved.

    Takes one round of numpy operations per field of the longest message. `data` must go on for PADDING bytes after the last end.
    Raises WireError with a position at which no field stands.
    """
    message = np.flatnonzero(starts < ends)
    at, end = starts[message], ends[message]
    rounds = [Fields(message[:0], message[:0], np.empty(0, np.uint8), np.empty(0, np.uint64), message[:0])]
    while len(message):
        fields, following = _next_fields(data, message, at)
        if (wrong := np.flatnonzero((following > end) | (following < at))).size:
            raise WireError("no field, or one that goes beyond its message", int(at[wrong[0]]))
        rounds.append(fields)
        going = np.flatnonzero(following < end)
        message, at, end = message[going], following[going], end[going]
    return Fields.concatenated(rounds)


def walk_pairs(data: Bytes, starts: Int64, ends: Int64) -> Pairs:
    """Those of the messages that have just a short text as field 1 and then one other field, in one round; `data` as for `walk`."""
    length, after = data[starts + 1], starts + 2 + data[starts + 1]
    row = np.flatnonzero((data[starts] == TEXT_FIELD_1) & (length < 0x80) & (after < ends))
    other, following = _next_fields(data, row, after[row])
    ones, delimited = np.ones(len(row), np.int64), np.full(len(row), DELIMITED, np.uint8)
    texts = Fields(row, ones, delimited, length[row].astype(np.uint64), starts[row] + 2)
    return Pairs(row, texts, other).where(following == ends[row])


def _next_fields(data: Bytes, message: Int64, at: Int64) -> tuple[Fields, Int64]:
    """The field that begins at `at` in each message, and where the next one begins: NO_FIELD if it is none."""
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
    """All numbers of packed fields: for each its field, its bits and its position. Raises WireError where a field ends inside one."""
    if wire == VARINT:
        field, position = _packed_varints(data, starts, ends)
        bits, following = read_varints(data, position)
        if (wrong := np.flatnonzero(following == NO_FIELD)).size:
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
    """The field and the position of each varint in packed fields."""
    packed = join([Spans(data, starts, ends - starts)], len(starts))
    limits = packed.starts + packed.lengths
    is_last = packed.source < 0x80
    filled = np.flatnonzero(packed.lengths)
    if (broken := filled[~is_last[limits[filled] - 1]]).size:
        raise WireError("a packed field that ends inside a number", int(starts[broken[0]]))
    after = np.flatnonzero(is_last) + 1
    first = np.concatenate((np.zeros(1, np.int64), after[:-1]))[: len(after)]
    field = np.searchsorted(limits, first, side="right")
    return field, starts[field] + first - packed.starts[field]


def _fixed(data: Bytes, at: Int64, size: int) -> UInt64:
    return words(data)[at] & np.uint64((1 << 8 * size) - 1)
