"""Compressed input as a stream: gzip, by isal where it is installed, and zstd by the package of that name.

A thread decompresses a few pieces ahead of the reader. Whatever decompresses comes out before damage is raised, and the
damage is the same error with isal and without.
"""

import io
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from gzip import GzipFile
from typing import Any, BinaryIO, cast

from ..errors import DataError, Remedy, require
from ..progress import beside, give_up

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
LARGEST_WINDOW = 1 << 27
"""Bytes of memory that a zstd stream may ask for; what the format's own tools accept."""
PIECE, PIECES_AHEAD = 1 << 17, 8
AT_A_TIME = 512
"""Bytes of a zstd file that are decompressed in one step, whose result is lost where they are damaged. A block of a
trace has more.
"""
ENOUGH = 10
"""Times a limit that was passed, which is named as one to try."""


def gunzipped(raw: io.BufferedReader, limit: int, path: str) -> BinaryIO:
    """Returns the content of the gzip members in `raw`; more than `limit` bytes are a DataError."""
    return _content(_Gunzip(raw).read1, raw, limit, path)


class _Gunzip:
    """Inflates with isal, about three times as fast; from damage on with zlib, which recovers more before it."""

    def __init__(self, raw: io.BufferedReader) -> None:
        self._raw, self._read, self._slow = raw, 0, GzipFile(fileobj=raw)
        self._fast: Any = None
        if raw.seekable():
            with suppress(ImportError):
                from isal.igzip import IGzipFile

                self._begin = raw.tell()
                self._fast = IGzipFile(fileobj=raw)  # type: ignore[no-untyped-call,unused-ignore]

    def read1(self, size: int) -> bytes:
        if self._fast is not None:
            try:
                data: bytes = self._fast.read1(size)
            except Exception:  # whatever it is, zlib is asked again and raises what the standard library does
                self._fast = None
                self._raw.seek(self._begin)
                self._slow.seek(self._read)
            else:
                self._read += len(data)
                return data
        return self._slow.read1(size)


def unzstd(raw: io.BufferedReader, limit: int, path: str) -> BinaryIO:
    """Returns the content of the zstd frames in `raw`; more than `limit` bytes or no zstd library is a DataError."""
    require("zstd", path)
    import zstandard

    decompressor = zstandard.ZstdDecompressor(max_window_size=LARGEST_WINDOW)
    reader = decompressor.stream_reader(raw, AT_A_TIME, read_across_frames=True)

    def read1(size: int) -> bytes:
        try:
            data: bytes = reader.read1(size)
        except zstandard.ZstdError as error:  # damage is an OSError, as other streams have it
            raise OSError(str(error)) from error
        return data

    return _content(read1, raw, limit, path)


def _content(read1: Callable[[int], bytes], raw: io.BufferedReader, limit: int, path: str) -> BinaryIO:
    return cast(BinaryIO, io.BufferedReader(_Content(read1, raw, limit, path), PIECE))


class _Content(io.RawIOBase):
    """What a file decompresses to, at most `limit` bytes, which a thread reads ahead: decompression releases the
    interpreter, so it costs a busy reader no time. Of a pipe it is not read ahead: a thread that waits for one could
    not be stopped.
    """

    def __init__(self, read1: Callable[[int], bytes], raw: io.BufferedReader, limit: int, path: str) -> None:
        self._read1, self._raw_input, self._most, self._path = read1, raw, limit, path
        self._size = 0
        self._pieces = deque[bytes | Exception]()
        self._next = beside(self._read_some) if raw.seekable() else None
        self._rest = memoryview(b"")

    def _read_some(self) -> list[bytes | Exception]:
        """Returns a few pieces; the end, or an error, is the last."""
        pieces: list[bytes | Exception] = []
        try:
            while len(pieces) < PIECES_AHEAD and (not pieces or pieces[-1]):
                pieces.append(self._piece())
        except Exception as error:
            pieces.append(error)
        return pieces

    def _piece(self) -> bytes:
        piece = self._read1(PIECE)
        self._size += len(piece)
        if self._size > self._most:
            enough = -(-self._most * ENOUGH // 1024**3)
            raise DataError(
                f"{self._path}: decompresses to more than {self._most / 1024**2:,.1f} MB, the limit for a file of its "
                "size; if you trust it, raise the limit: ",
                Remedy.MAX_SIZE,
                f" {enough}G",
            )
        return piece

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._rest:
            if self._next is None:
                self._pieces.append(self._piece())
            elif not self._pieces:
                self._pieces.extend(self._next.result())
                self._next = beside(self._read_some)
            piece = self._pieces[0]
            if isinstance(piece, Exception):
                raise piece
            # the end, or an error, stays the first of the pieces
            if piece or self._next is None:
                self._pieces.popleft()
            self._rest = memoryview(piece)
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size

    def close(self) -> None:
        if self._next is not None:
            give_up(self._next)
        # what decompresses does not close what it was given open
        self._raw_input.close()
        super().close()
