"""Reading a large JSON object whose bulk is one array of objects, in pieces, with a typed decoder.

A piece ends where the text looks like the start of another element. The look is proven by decoding: a wrong cut leaves brackets or
quotes open, and the next cut is tried. Memory stays at one piece, whatever the size of the file.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, Generic, TypeVar

import msgspec

from .errors import DataError

T = TypeVar("T")

PIECE = 8 << 20
CUTS_TRIED = 4
OPENING = 1 << 16


class ArrayReader(Generic[T]):
    """Iterates over lists of decoded elements of the array under `key`; afterwards `document` is the text without them.

    `document` still holds the elements of the last piece; decode it with a type for the whole file.
    """

    def __init__(self, stream: BinaryIO, path: str, key: str, element: Any, on_bytes: Callable[[int], object]) -> None:
        self.path = path
        self.document = b""
        self._stream = stream
        self._key = re.compile(rb'"' + key.encode() + rb'"\s*:\s*\[|^\s*\[')
        self._decoder = msgspec.json.Decoder(list[element])
        self._on_bytes = on_bytes

    def __iter__(self) -> Iterator[tuple[bytes, list[T]]]:
        """Pairs of (JSON text of a list, its decoded elements)."""
        buffer, ended = self._read(b"", PIECE)
        opening = self._key.search(buffer)
        while opening is None and not ended:
            buffer, ended = self._read(buffer, PIECE)
            opening = self._key.search(buffer)
        if opening is None:
            self.document = buffer
            return
        head, buffer = buffer[: opening.end()], buffer[opening.end() :]
        boundary = _boundary(buffer)
        while not ended:
            piece, elements, buffer = self._take(buffer, boundary)
            if piece:
                yield piece, elements
            buffer, ended = self._read(buffer, PIECE)
        self.document = head + buffer

    def _read(self, buffer: bytes, size: int) -> tuple[bytes, bool]:
        try:
            more = self._stream.read(size)
        except (OSError, EOFError) as error:
            raise DataError(f"{self.path}: damaged compressed file ({error}); decompress or copy it again") from error
        self._on_bytes(len(more))
        return buffer + more, len(more) < size

    def _take(self, buffer: bytes, boundary: "re.Pattern[bytes]") -> tuple[bytes, list[T], bytes]:
        """As much of the buffer as decodes to whole elements, the elements, and the rest."""
        cuts = [cut.start() for cut in boundary.finditer(buffer, max(0, len(buffer) - OPENING))]
        cuts = cuts or [cut.start() for cut in boundary.finditer(buffer)]
        for cut in reversed(cuts[-CUTS_TRIED:]):
            piece = b"[" + buffer[: cut + 1] + b"]"
            try:
                return piece, self._decoder.decode(piece), buffer[cut + 2 :]
            except msgspec.DecodeError:
                continue
        return b"", [], buffer


def _boundary(elements: bytes) -> "re.Pattern[bytes]":
    """A pattern for the text between two elements, from how the first element begins."""
    first = re.match(rb'\s*\{\s*"\w+"', elements)
    begin = re.escape(first.group().strip()) if first else rb"\{"
    return re.compile(rb"\},(?=\s*" + begin + rb")")


def decode(document: bytes, kind: type[T], path: str, offset: int = 0) -> T:
    """One typed decode; a failure is a DataError that says where."""
    try:
        return msgspec.json.decode(document, type=kind)
    except msgspec.ValidationError as error:
        raise DataError(f"{path}: unexpected content: {error}") from error
    except msgspec.DecodeError as error:
        raise DataError(f"{path}: is not valid JSON: {error} after byte {offset}") from error
    except (UnicodeDecodeError, RecursionError) as error:
        raise DataError(f"{path}: is not valid JSON: {error}") from error
