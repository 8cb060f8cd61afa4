"""Opens device traces of every format as Kineto's JSON: what is no JSON is transcoded, a piece at a time.

So whoever reads rows of a trace reads those of every format.
"""

import io
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, BinaryIO, NamedTuple, cast

from ...schema.errors import DataError
from ...schema.io import open_input
from . import nsight
from .database import MAGIC, is_database
from .perfetto import begins_perfetto, transcode_perfetto

BEGINNING = 1 << 10
"""Bytes by which a format is told."""


class Format(NamedTuple):
    """A format that is no JSON: whether a file's first bytes are of it, and its rows as the text of a Kineto trace."""

    begins: Callable[[bytes], bool]
    transcode: Callable[[BinaryIO, str], Iterator[bytes]]


FORMATS: tuple[Format, ...] = (
    Format(begins_perfetto, transcode_perfetto),
    Format(lambda head: head.startswith(MAGIC), nsight.transcode),
)
NSIGHT_REPORTS = (".nsys-rep", ".qdrep", ".qdstrm")


def is_for_rocpd(path: str) -> bool:
    """Returns whether the reader of rocpd databases takes the file: any database that has no transcoder."""
    return is_database(path) and not nsight.is_export(path)


class _Transcoded(io.RawIOBase):
    """The pieces of a text as a stream."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._rest = pieces, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = memoryview(piece)
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size


def open_trace(path: str, protected: bool = False) -> BinaryIO:
    """Returns a device trace as a stream of Kineto's JSON, whatever its format; the rest is as of `open_input`."""
    stream = cast(io.BufferedReader, open_input(path, protected))
    head = b""
    with suppress(OSError, EOFError, zlib.error):  # who reads the text comes to the damage again, and says it
        head = stream.peek(BEGINNING)[:BEGINNING]
    known = next((format for format in FORMATS if format.begins(head)), None)
    if known is None:
        if path.endswith(NSIGHT_REPORTS) and not head.lstrip().startswith((b"{", b"[")):
            stream.close()
            raise DataError(
                f"{path}: a report of Nsight Systems; export it, and give what that writes: nsys export --type sqlite {path}"
            )
        return cast(BinaryIO, stream)
    return cast(BinaryIO, io.BufferedReader(_Transcoded(known.transcode(cast(BinaryIO, stream), path)), 1 << 17))
