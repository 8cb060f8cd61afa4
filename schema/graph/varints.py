"""Columns of integers as varints, protobuf's encoding of seven bits per byte, and back.

Eight bytes are taken as one word, in which the groups of seven bits are spread or squeezed together by shifts and
masks.
"""

import numpy as np
import numpy.typing as npt

from ..columns import Bytes, Int64, Spans

UInt64 = npt.NDArray[np.uint64]

LONGEST_VARINT = 10
NO_END = -1
"""Stands for the end of a varint that goes on for more than ten bytes."""


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
    """Returns `prefix` and the value as a varint in each row.

    With `length_at` the byte at this position of the prefix is the length of what follows it in the row, below 128.
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
    return Spans(rows.reshape(-1), np.arange(len(values)) * width, lengths + len(prefix))


def _spread(values: UInt64) -> UInt64:
    """Returns the low 56 bits as eight groups of seven, one per byte."""
    spread = values & np.uint64((1 << 56) - 1)
    for shift, keep in ((4, 0x000000000FFFFFFF), (2, 0x00003FFF00003FFF), (1, 0x007F007F007F007F)):
        low = np.uint64(keep)
        spread = spread & low | (spread & ~low) << np.uint64(shift)
    return spread


def _squeeze(encoded: UInt64) -> UInt64:
    """Returns the inverse of `_spread`; the high bit of each byte is ignored."""
    squeezed = encoded & np.uint64(0x7F7F7F7F7F7F7F7F)
    for shift, keep in ((1, 0x007F007F007F007F), (2, 0x00003FFF00003FFF), (4, 0x000000000FFFFFFF)):
        low = np.uint64(keep)
        squeezed = squeezed & low | (squeezed & low << np.uint64(8 * shift)) >> np.uint64(shift)
    return squeezed


def read_varints(data: Bytes, at: Int64) -> tuple[UInt64, Int64]:
    """Returns the varints at these positions and where each ends: at NO_END if it is longer than ten bytes."""
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
        lengths[more] = np.where(ninth < 0x80, 9, np.where(tenth < 0x80, 10, NO_END))
    return values, np.where(lengths < 0, NO_END, at + lengths)
