"""Compressed input as a stream: gzip, by isal where it is installed, and zstd by the package of that name.

Whatever decompresses comes out before damage is raised, and the damage is the same error with isal and without.
"""

import io
from gzip import GzipFile
from typing import Any

from .errors import DataError

try:
    from isal.igzip import IGzipFile
except ImportError:
    IGzipFile = None  # type: ignore[assignment,misc,unused-ignore]

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
LARGEST_WINDOW = 1 << 27
"""Bytes of memory that a zstd stream may ask for; what the format's own tools accept."""


def gunzipped(raw: io.BufferedReader) -> GzipFile:
    """The content of the gzip members in `raw`, one after the other."""
    return GzipFile(fileobj=raw) if IGzipFile is None or not raw.seekable() else _FastGzipFile(raw)


class _FastGzipFile(GzipFile):
    """Inflated by isal, about three times as fast; from damage on by zlib, which gives out more of what comes before it."""

    def __init__(self, raw: io.BufferedReader) -> None:
        super().__init__(fileobj=raw)
        self._raw_input, self._begin, self._given = raw, raw.tell(), 0
        self._fast: Any = IGzipFile(fileobj=raw)  # type: ignore[no-untyped-call,unused-ignore]

    def read(self, size: int | None = -1) -> bytes:
        return self._ask("read", size)

    def read1(self, size: int = -1) -> bytes:
        return self._ask("read1", size)

    def _ask(self, method: str, size: int | None) -> bytes:
        if self._fast is not None:
            try:
                data: bytes = getattr(self._fast, method)(size)
            except Exception:  # whatever it is, zlib is asked again and raises what the standard library does
                self._fast = None
                self._raw_input.seek(self._begin)
                self.seek(self._given)
            else:
                self._given += len(data)
                return data
        slow: bytes = getattr(super(), method)(size)
        return slow


def unzstd(raw: io.BufferedReader, path: str) -> io.BufferedReader:
    """The content of the zstd frames in `raw`. Raises DataError when the package that reads them is not installed."""
    try:
        import zstandard
    except ImportError as error:
        raise DataError(f"{path}: is compressed with zstd; pip install execgraph[zstd], or decompress it") from error
    decompressor = zstandard.ZstdDecompressor(max_window_size=LARGEST_WINDOW)
    return io.BufferedReader(_Unzstd(decompressor.stream_reader(raw, read_across_frames=True), zstandard.ZstdError))


class _Unzstd(io.RawIOBase):
    """zstandard's reader with damage as an OSError, as other streams have it."""

    def __init__(self, reader: Any, error: type[Exception]) -> None:
        self._reader, self._error = reader, error

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            return int(self._reader.readinto(buffer))
        except self._error as error:
            raise OSError(str(error)) from error
