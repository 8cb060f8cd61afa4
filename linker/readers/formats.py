"""Opens device traces of every format as Kineto's JSON: what is no JSON is transcoded, a piece at a time."""

import io
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, BinaryIO, cast

from ...schema.errors import DataError, Remedy
from ...schema.io import open_input
from .database import MAGIC, opened
from .nsight import is_nsight, transcode_nsight
from .rocpd import is_rocpd, transcode_rocpd

BEGINNING = 1 << 17
"""Bytes by which a format is told."""


NSIGHT_REPORTS = (".nsys-rep", ".qdrep", ".qdstrm")


class NoTraceError(DataError):
    """A database that is no trace: of another program, or one for counting, of which one rank's trace is the remedy."""


MERGED = {"rank", "device", "edge"}
"""Tables that only a database for counting has."""


def _transcode_database(stream: BinaryIO, path: str) -> Iterator[bytes]:
    """Yields the database at `path`, of which `stream` is open, as the text of a Kineto trace."""
    with stream, opened(path) as database:
        if database.tables >= MERGED:
            what = "several ranks merged into a database for counting; link each rank's own file"
            raise NoTraceError(f"{path}: {what}, or merge to .json.gz and take one out with ", Remedy.LINK_RANK)
        elif is_nsight(database):
            yield from transcode_nsight(database)
        elif is_rocpd(database):
            yield from transcode_rocpd(database)
        else:
            tables = ", ".join(sorted(database.tables)[:4]) or "none"
            what = f"a database, but no export of Nsight Systems and no rocpd database (its tables: {tables})"
            raise NoTraceError(f"{path}: {what}; expected a Kineto device trace, or its file by name")


def _transcoder(head: bytes) -> Callable[[BinaryIO, str], Iterator[bytes]] | None:
    """Returns what makes the text of a Kineto trace of a file that begins so, nothing where it may be JSON."""
    if head.startswith(MAGIC):
        return _transcode_database
    if head.startswith(b"\n"):
        # whoever reads JSON starts without protobuf
        from .perfetto import begins_perfetto, transcode_perfetto

        return transcode_perfetto if begins_perfetto(head) else None
    return None


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
    transcode = _transcoder(head)
    if transcode is None:
        if path.endswith(NSIGHT_REPORTS) and not head.lstrip().startswith((b"{", b"[")):
            stream.close()
            raise DataError(
                f"{path}: a report of Nsight Systems; export it, and give what that writes: nsys export --type sqlite {path}"
            )
        return cast(BinaryIO, stream)
    return cast(BinaryIO, io.BufferedReader(_Transcoded(transcode(cast(BinaryIO, stream), path)), 1 << 17))


def is_transcoded(stream: BinaryIO) -> bool:
    """Returns whether an open trace is no JSON: then the members that say its process and rank come before its rows."""
    return isinstance(getattr(stream, "raw", None), _Transcoded)
