"""Reading a large JSON object whose bulk is one array of objects, in pieces, with a typed decoder.

A piece ends where the text looks like the start of another element, which decoding proves. Where none of a few looks
is right, brackets and quotes are followed, which takes longer. Memory stays at one piece, whatever the file's size.
"""

import io
import json
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any, BinaryIO, Generic, TypeVar, cast

import msgspec

from .errors import Damage, DataError
from .io import GZIP_MAGIC
from .json_repair import Elements, is_sound, mend, opening_of, structure_of
from .reasons import decoded

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)

PIECE = 1 << 19
LARGEST_PIECE = 8
"""How many times that much is read at once where most of it is left out."""
READ = 1 << 17
"""Bytes asked for at once: what a compressed stream holds back when it fails is at most this."""
CUTS_TRIED = 4
OPENING = 1 << 16
LONGEST_HEAD = 64 << 20
LONGEST_ELEMENT = 128 << 20
ENDS = 1 << 13
"""Bytes at each end of a piece in which needless elements are looked for."""
ENDS_TRIED = 64
END_READ = 1 << 20
POSITIONS_TRIED = 16
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
ANY_OBJECT = re.compile(rb"\},(?=\s*\{)")
ARRAY_END = re.compile(rb"\}\s*\]")
REFUSED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class CutOff(EOFError):
    """A stream whose text was made from a file that ends too early, behind a byte of it."""

    def __init__(self, at: int) -> None:
        super().__init__(f"cut off after byte {at}")
        self.at = at


class ArrayReader(Generic[T]):
    """Iterates over lists of decoded elements of the array under `key`; afterwards `document` is the text without them.

    `head` is what stands before the elements, known with the first list. Without an array, `document` is the text, of a
    long one the beginning; so is a damaged text, but with `damage` it is read as far as it goes. What matches
    `skip_pattern`, an element with the comma behind it, is cut out and counted in `skipped`.
    """

    def __init__(
        self,
        stream: BinaryIO,
        path: str,
        key: str,
        element: Any,
        on_bytes: Callable[[int], object],
        *,
        damage: Damage | None = None,
        skip_pattern: "re.Pattern[bytes] | None" = None,
    ) -> None:
        self.path = path
        self.document = self.head = b""
        self.has_array = False
        self.skipped = 0
        self._stream = cast(io.BufferedIOBase, stream)
        self._name = key
        self._list = list[element]
        self._decoder = msgspec.json.Decoder(self._list)
        self._elements = Elements(self._decoder, damage) if damage is not None else None
        self._damage = damage
        self._skip_pattern = skip_pattern
        self._on_bytes = on_bytes
        self._buffer, self._opening, self._read, self._ended = b"", b"", 0, False
        self._cut_at: int | None = None
        self._piece = PIECE

    def __iter__(self) -> Iterator[tuple[bytes, list[T]]]:
        """Yields pairs of (JSON text of a list, its decoded elements)."""
        self.head = head = self._head()
        if not self.has_array:
            self.document = head
            return
        # what stands between two elements, from how the first one begins
        first = re.match(rb'\s*\{\s*"\w+"', self._buffer)
        begin = re.escape(first.group().strip()) if first else rb"\{"
        boundary = re.compile(rb"\},(?=\s*" + begin + rb")")
        while not self._ended:
            yield from self._take(boundary)
            self._fill()
        yield from self._take(boundary)
        yield from self._close(head)

    def top_level(self, kind: type[S]) -> S:
        """Decodes `document`; of a damaged one what can be read of the keys that `kind` has, with `damage`."""
        if self._damage is None:
            return decode(self.document, kind, self.path)
        try:
            self.document.decode()
            return msgspec.json.decode(self.document, type=kind)
        except REFUSED as error:
            fields = [field for field in msgspec.structs.fields(kind) if field.encode_name != self._name]
            found = _known_keys(self.document, tuple(field.encode_name for field in fields))
            members, readable = {}, []
            for field in fields:
                with suppress(KeyError, msgspec.ValidationError):
                    members[field.name] = msgspec.convert(found[field.encode_name], field.type)
                    readable.append(field.encode_name)
            what = f"is damaged ({error}); read there: {', '.join(readable) or 'nothing'}"
            self._damage.note(f"the text around its {self._damage.rows} {what}")
            return kind(**members)

    def _head(self) -> bytes:
        """Returns what stands before the elements (all, where there are none), which is taken out of the buffer."""
        self._fill()
        self._buffer = self._buffer.removeprefix(BYTE_ORDER_MARK)
        while (opening := opening_of(self._buffer, self._name, self._ended)) is None:
            if self._ended or len(self._buffer) >= LONGEST_HEAD:
                return self._buffer
            self._fill()
        self.has_array = True
        head = self._drop(opening)
        self._opening = b"[" if head.lstrip() == b"[" else b'{"":['
        return head

    def _fill(self) -> None:
        """Reads on, at least as much as the buffer holds, so that a long element is not looked at too often."""
        size, parts = max(self._piece, len(self._buffer)), [self._buffer]
        while size > 0 and not self._ended:
            try:
                part = self._stream.read1(min(size, READ))
            except CutOff as error:
                self._cut_at, part = error.at, b""
            except (OSError, EOFError, zlib.error) as error:
                if self._damage is None:
                    what = f"damaged compressed file ({error}); decompress or copy it again"
                    raise DataError(f"{self.path}: {what}") from error
                what = "cut off" if isinstance(error, EOFError) else f"damaged ({error})"
                self._damage.note(f"is {what} after byte {self._read}")
                part = b""
            self._ended = not part
            self._read += len(part)
            self._on_bytes(len(part))
            size -= len(part)
            parts.append(part)
        self._buffer = b"".join(parts)

    def _drop(self, size: int) -> bytes:
        """Takes the buffer's first bytes out of it."""
        dropped, self._buffer = self._buffer[:size], self._buffer[size:]
        return dropped

    @property
    def unread(self) -> bytes:
        """What was read and not decoded."""
        return self._buffer

    @property
    def _at(self) -> int:
        """Where in the file the buffer begins."""
        return self._read - len(self._buffer)

    def _take(self, boundary: "re.Pattern[bytes]") -> Iterator[tuple[bytes, list[T]]]:
        """Yields as much of the buffer as decodes to whole elements, or can be saved of it."""
        cuts = _cuts(boundary, self._buffer) or _cuts(ANY_OBJECT, self._buffer)
        for cut in reversed(cuts):
            if (piece := self._decoded(self._buffer[: cut + 1])) is not None:
                self._drop(cut + 2)
                yield piece
                return
        if cuts:
            # an element is damaged, or holds what looks like starts of others; one that goes on is left
            sound = is_sound(self._opening + self._buffer)
            commas: list[int] = structure_of(self._buffer).commas.tolist() if sound else []
            if commas and (piece := self._decoded(self._buffer[: commas[-1]])) is not None:
                self._drop(commas[-1] + 1)
                yield piece
            elif self._elements is not None and (commas or not sound):
                yield from self._saved(self._elements, last=False, sound=sound)
        if len(self._buffer) > LONGEST_ELEMENT:
            what = f"an element of more than {LONGEST_ELEMENT >> 20} MB at byte {self._at}"
            raise DataError(f"{self.path}: {what}; is it a trace?")

    def _saved(self, elements: Elements, last: bool, sound: bool) -> Iterator[tuple[bytes, list[T]]]:
        """Yields the elements of a damaged buffer, one by one, but for the last unless the file ends there."""
        pieces, used = elements.take(self._buffer, self._at, last, sound)
        self._drop(used)
        if pieces:
            piece = b"[" + b",".join(pieces) + b"]"
            yield piece, decode(piece, self._list, self.path)

    def _decoded(self, elements: bytes) -> tuple[bytes, list[T]] | None:
        skipped = self._skip_pattern
        # elements of a kind stand together: where none is needless at either end there are hardly any between
        if skipped and (skipped.search(elements, 0, ENDS) or skipped.search(elements, max(0, len(elements) - ENDS))):
            remaining_elements, count = skipped.subn(b"", elements)
            if count and (piece := self._decoded_whole(remaining_elements)) is not None:
                self.skipped += count
                # as much text at once as leaves a piece of what is needed
                self._piece = PIECE * min(len(elements) // (len(remaining_elements) + 1) + 1, LARGEST_PIECE)
                return piece
        return self._decoded_whole(elements)

    def _decoded_whole(self, elements: bytes) -> tuple[bytes, list[T]] | None:
        piece = b"[" + elements + b"]"
        try:
            if self._damage is not None and not piece.isascii():
                piece.decode()
            return piece, self._decoder.decode(piece)
        except REFUSED:
            return None

    def _close(self, head: bytes) -> Iterator[tuple[bytes, list[T]]]:
        """Yields the last element, and `document` from what stands around the elements."""
        if re.match(rb"\s*\]", self._buffer):
            self.document = head + self._buffer
            return

        def ends() -> Iterator[int]:
            yield from (match.start() + 1 for match in islice(ARRAY_END.finditer(self._buffer), ENDS_TRIED))
            yield structure_of(self._buffer).end  # the exact one, which takes longest to find

        for end in ends():
            if end > 0 and (piece := self._decoded(self._buffer[:end])) is not None:
                self.document = head + self._buffer[end:]
                yield piece
                return
        if self._elements is not None:
            yield from self._saved(self._elements, last=True, sound=is_sound(self._opening + self._buffer))
            if not self._buffer:
                self._elements.damage.end_early(self._read if self._cut_at is None else self._cut_at)
                self._buffer = b"]}" if head.lstrip()[:1] == b"{" else b"]"
        self.document = head + self._buffer


def _known_keys(text: bytes, keys: tuple[str, ...]) -> dict[str, Any]:
    """Returns the first readable value of each key, mended, in a text that is no JSON; of a long one from its ends."""
    decoder, values = json.JSONDecoder(strict=False), {}
    ends = text if len(text) <= 2 * END_READ else text[:END_READ] + b"," + text[-END_READ:]
    document = mend(ends)[0].decode("utf-8", "replace")
    for key in keys:
        for match in islice(re.finditer(rf'"{re.escape(key)}"\s*:\s*', document), POSITIONS_TRIED):
            try:
                values[key] = decoder.raw_decode(document, match.end())[0]
                break
            except (ValueError, RecursionError):
                continue
    return values


def _cuts(boundary: "re.Pattern[bytes]", text: bytes) -> list[int]:
    """Returns the last positions in the text where an element may end."""
    near_end = [cut.start() for cut in boundary.finditer(text, max(0, len(text) - OPENING))]
    return (near_end or [cut.start() for cut in boundary.finditer(text)])[-CUTS_TRIED:]


def decode(document: bytes, kind: type[T], path: str, offset: int = 0) -> T:
    """Returns one typed decode; a failure is a DataError that says where."""
    try:
        return msgspec.json.decode(document, type=kind, dec_hook=decoded)
    except msgspec.ValidationError as error:
        raise DataError(f"{path}: unexpected content: {error}") from error
    except msgspec.DecodeError as error:
        raise DataError(f"{path}: is not valid JSON: {error} after byte {offset}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is not valid JSON: {error}") from error
    except RecursionError as error:
        raise DataError(f"{path}: is nested deeper than any trace; is it the right file?") from error


def kind_of_text(document: bytes, key: str) -> str:
    """Returns what a file is that has no array under `key`, in words."""
    beginning = document.lstrip()[:40].decode("utf-8", "replace")
    if not beginning:
        return "holds no text; was it written and copied to its end?"
    if document.startswith(GZIP_MAGIC):
        return "is compressed twice; decompress it once"
    if not all(character.isprintable() or character.isspace() for character in beginning):
        return "is not valid JSON but binary data"
    kind = f'JSON without "{key}"' if beginning[:1] == "{" else "is not valid JSON"
    return f"{kind}, it begins with {' '.join(beginning.split())!r}"
