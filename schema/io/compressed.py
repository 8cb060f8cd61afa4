"""Compressed input as a stream: gzip, by isal where it is installed, and zstd by the package of that name.

A thread decompresses a few pieces ahead of the reader. Whatever decompresses comes out before damage is raised, and the
damage is the same error with isal and without.
"""

import io
from collections import deque
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
    return _read_ahead(_Gunzip(raw, limit, path), raw)


class _Gunzip(GzipFile):
    """Inflates with isal, about three times as fast; from damage on with zlib, which recovers more before it."""

    def __init__(self, raw: io.BufferedReader, limit: int, path: str) -> None:
        super().__init__(fileobj=raw)
        self._raw_input, self._most, self._path, self._read_so_far = raw, limit, path, 0
        self._fast: Any = None
        if raw.seekable():
            with suppress(ImportError):
                from isal.igzip import IGzipFile

                self._begin = raw.tell()
                self._fast = IGzipFile(fileobj=raw)  # type: ignore[no-untyped-call,unused-ignore]

    def read(self, size: int | None = -1) -> bytes:
        return self._ask("read", size)

    def read1(self, size: int = -1) -> bytes:
        return self._ask("read1", size)

    def _ask(self, method: str, size: int | None) -> bytes:
        data = self._by_isal(method, size)
        if data is None:
            data = getattr(super(), method)(size)
        self._read_so_far += len(data)
        check_size(self._read_so_far, self._most, self._path)
        return data

    def _by_isal(self, method: str, size: int | None) -> bytes | None:
        if self._fast is not None:
            try:
                data: bytes = getattr(self._fast, method)(size)
                return data
            except Exception:  # whatever it is, zlib is asked again and raises what the standard library does
                self._fast = None
                self._raw_input.seek(self._begin)
                GzipFile.seek(self, self._read_so_far)
        return None


def check_size(size: int, limit: int, path: str) -> None:
    """Raises DataError for a file that is more when it is decompressed than is read of it, saying how to read more."""
    if size > limit:
        enough = -(-limit * ENOUGH // 1024**3)
        raise DataError(
            f"{path}: decompresses to more than {limit / 1024**2:,.1f} MB, the limit for a file of its size; if you "
            "trust it, raise the limit: ",
            Remedy.MAX_SIZE,
            f" {enough}G",
        )


def unzstd(raw: io.BufferedReader, limit: int, path: str) -> BinaryIO:
    """Returns the content of the zstd frames in `raw`; more than `limit` bytes or no zstd library is a DataError."""
    require("zstd", path)
    import zstandard

    decompressor = zstandard.ZstdDecompressor(max_window_size=LARGEST_WINDOW)
    reader = decompressor.stream_reader(raw, AT_A_TIME, read_across_frames=True)
    return _read_ahead(io.BufferedReader(_Unzstd(reader, zstandard.ZstdError, limit, path), PIECE), raw)


class _Unzstd(io.RawIOBase):
    """zstandard's reader with damage as an OSError, as other streams have it."""

    def __init__(self, reader: Any, error: type[Exception], limit: int, path: str) -> None:
        self._reader, self._error, self._most, self._path, self._read_so_far = reader, error, limit, path, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            size = int(self._reader.readinto1(buffer))
        except self._error as error:
            raise OSError(str(error)) from error
        self._read_so_far += size
        check_size(self._read_so_far, self._most, self._path)
        return size


def _read_ahead(stream: GzipFile | io.BufferedReader, raw: io.BufferedReader) -> BinaryIO:
    # a thread that waits for a pipe could not be stopped
    return cast(BinaryIO, io.BufferedReader(_Ahead(stream, raw), PIECE) if raw.seekable() else stream)


class _Ahead(io.RawIOBase):
    """A stream that a thread reads ahead: decompression releases the interpreter, so it costs a busy reader no time."""

    def __init__(self, stream: GzipFile | io.BufferedReader, raw: io.BufferedReader) -> None:
        self._stream, self._raw_input = stream, raw
        self._pieces = deque[bytes | Exception]()
        self._next = beside(self._read)
        self._rest = memoryview(b"")

    def _read(self) -> list[bytes | Exception]:
        """Returns a few pieces; the end, or an error, is the last."""
        pieces: list[bytes | Exception] = []
        try:
            while len(pieces) < PIECES_AHEAD and (not pieces or pieces[-1]):
                pieces.append(self._stream.read1(PIECE))
        except Exception as error:
            pieces.append(error)
        return pieces

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._rest:
            if not self._pieces:
                self._pieces.extend(self._next.result())
                self._next = beside(self._read)
            piece = self._pieces[0]
            if isinstance(piece, Exception):
                raise piece
            # the end, or an error, stays the first of the pieces
            if piece:
                self._pieces.popleft()
            self._rest = memoryview(piece)
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size

    def close(self) -> None:
        give_up(self._next)
        self._stream.close()
        # a GzipFile does not close what it was given open
        self._raw_input.close()
        super().close()
