"""Splits a stream of bytes into varint-framed messages, in blocks, with bounded memory whatever lengths the stream
claims.

A frame is the length of a message as a varint, followed by the message.
"""

import zlib
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

import numpy as np

from ..columns import Int64
from ..errors import DataError

READ_SIZE = 1 << 20
LARGEST_MESSAGE = (1 << 31) - 1
"""Protobuf's own limit; a longer length is damage."""
MOST_EMPTY = 1000
"""The most empty messages in a block. A graph has at most one; a file of zeros has many."""
LONGEST_LENGTH = 10
"""The most bytes of a varint, which need not be the shortest form of its value."""


class FrameBlock(NamedTuple):
    """Consecutive whole messages `data[starts[i] : ends[i]]`; `offset` is where `data` begins in the (decompressed)
    file.
    """

    data: bytes
    starts: Int64
    ends: Int64
    offset: int


def no_graph(beginning: bytes) -> str:
    """Returns the message for a file that is not a graph."""
    if beginning.lstrip()[:1] in (b"{", b"["):
        return "is JSON; make it a graph, a linked trace by trace-convert, a graph's own JSON by trace-jsonize"
    return "is not an execution graph, or damaged"


def read_frames(stream: BinaryIO, path: str) -> Iterator[FrameBlock]:
    """Yields the messages of a stream in blocks of a few megabytes.

    Memory is that of the longest message, which is read only as far as the stream has bytes. Raises DataError with the
    byte at which a message is truncated or has an impossible length.
    """
    data, offset = b"", 0
    # for a message longer than what was read so far, reads double in size
    while more := read_bytes(stream, path, max(READ_SIZE, len(data))):
        data += more
        try:
            starts, ends = _whole_messages(data)
        except _ImpossibleLengthError as error:
            raise DataError(
                f"{path}: {no_graph(data)}: the length at byte {offset + error.at} is impossible"
            ) from error
        if starts:
            block = FrameBlock(data, np.array(starts, np.int64), np.array(ends, np.int64), offset)
            if (empty := np.flatnonzero(block.starts == block.ends)).size > MOST_EMPTY:
                position = offset + starts[empty[0]]
                raise DataError(
                    f"{path}: is no execution graph: {empty.size} messages are empty, the first at byte {position}"
                )
            yield block
            data, offset = data[ends[-1] :], offset + ends[-1]
    if data:
        raise DataError(f"{path}: is cut off: the message at byte {offset} goes beyond the end; write or copy it again")


def read_bytes(stream: BinaryIO, path: str, size: int) -> bytes:
    """Returns up to `size` bytes. Raises DataError for a file that cannot be read, or whose compression is damaged."""
    try:
        return stream.read(size)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read to its end ({error}); copy or record it again") from error


class _ImpossibleLengthError(Exception):
    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at


def _whole_messages(data: bytes) -> tuple[list[int], list[int]]:
    """Returns where the complete messages of `data` begin and end."""
    starts: list[int] = []
    ends: list[int] = []
    at, size = 0, len(data)
    while at < size:
        length, start = data[at], at + 1
        if length > 0x7F:
            # most lengths take two bytes
            second = data[start] if start < size else 0x80
            length, start = _read_length(data, at) if second > 0x7F else (length & 0x7F | second << 7, start + 1)
        at = start + length
        starts.append(start)
        ends.append(at)
    # only the last one can go beyond the data
    return (starts[:-1], ends[:-1]) if at > size else (starts, ends)


def _read_length(data: bytes, at: int) -> tuple[int, int]:
    """Returns the length at `at`, and where its message begins; beyond the data if the length is incomplete."""
    length = shift = 0
    for position, byte in enumerate(data[at : at + LONGEST_LENGTH], at + 1):
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            if length > LARGEST_MESSAGE:
                break
            return length, position
        shift += 7
    else:
        if len(data) < at + LONGEST_LENGTH:
            return 0, len(data) + 1
    raise _ImpossibleLengthError(at)
