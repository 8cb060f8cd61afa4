"""Opening inputs and outputs: gzip and zstd by content in, gzip by suffix out, `-` for the standard streams.

Outputs are whole or not there at all. Terminals, which obey what they are sent, get plain text: names may be hostile.
Whatever decompresses comes out before damage is raised, which is the same error with isal and without.
"""

import codecs
import contextlib
import errno
import io
import logging
import os
import re
import stat
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from gzip import GzipFile
from itertools import islice
from pathlib import Path
from typing import IO, Any, BinaryIO, TypeVar, cast

from ..errors import DataError, Remedy, RequestError, require
from ..progress import beside, give_up
from .alone import in_use, remove_abandoned

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
LARGEST_WINDOW = 1 << 27
"""Bytes of memory that a zstd stream may ask for; what the format's own tools accept."""
CONTENT_PIECE, PIECES_AHEAD = 1 << 17, 8
AT_A_TIME = 512
"""Bytes of a zstd file that are decompressed in one step, whose result is lost if damaged. A trace's block has more."""
ENOUGH = 10
"""Times a limit that was passed, which is named as one to try."""
T = TypeVar("T")
ACTING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters but line ends and tabs, characters that turn the direction of writing, halves of characters."""
BOLD, NORMAL = "\x1b[1m", "\x1b[0m"
OBEYED = re.compile(f"(?!{re.escape(BOLD)}|{re.escape(NORMAL)}){ACTING.pattern}")
"""The same but for bold letters, which do no harm."""
STANDARD_STREAM = "-"
PIECE = 1 << 20
LARGEST_RATIO = {GZIP_MAGIC: 200, ZSTD_MAGIC: 500}
"""Of a trace's size to its compressed size: gzipped host traces have up to 45, under zstd twice that."""
LEAST_SUSPECT = 1 << 28
ITEMS_AT_ONCE = 512
MAX_SIZE = "EXECGRAPH_MAX_SIZE"
"""The environment variable with the most bytes that a file may decompress to, as all processes of a command have it."""
SIZE = re.compile(r"(\d{1,18})([KMGT]?)B?", re.IGNORECASE)
UNITS = " KMGT"
FOREIGN = {
    b"\xff\xfe": "is UTF-16 text; make it UTF-8: iconv -f UTF-16 -t UTF-8",
    b"\xfe\xff": "is UTF-16 text; make it UTF-8: iconv -f UTF-16 -t UTF-8",
    b"PK\x03\x04": "is a zip archive; unpack it and give the file inside",
}
WHEN_NOT_WRITTEN = {
    errno.EISDIR: "name a file in it",
    **dict.fromkeys((errno.EACCES, errno.EPERM), "choose a place that you may write to"),
    **dict.fromkeys((errno.ELOOP, errno.ENAMETOOLONG), "check the path"),
}
"""What to do where an output cannot be written, by the system's reason."""
log = logging.getLogger("execgraph")
_inputs: ContextVar[dict[tuple[int, ...], str] | None] = ContextVar("inputs", default=None)
"""The protected files that were read since `protecting_inputs`: the path by device and inode."""


class _Gunzip:
    """Inflates with isal, about three times as fast; from damage on with zlib, which recovers more before it."""

    def __init__(self, raw: io.BufferedReader) -> None:
        self._raw, self._read, self._slow = raw, 0, GzipFile(fileobj=raw)
        self._fast: Any = None
        if raw.seekable():
            with contextlib.suppress(ImportError):
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


def _unzstd(raw: io.BufferedReader, path: str) -> Callable[[int], bytes]:
    """Returns what reads the content of the zstd frames in `raw`; no zstd library is a DataError."""
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

    return read1


class _Content(io.RawIOBase):
    """What a file decompresses to, at most `limit` bytes. A thread reads ahead, but of no pipe: its wait has no end."""

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
        piece = self._read1(CONTENT_PIECE)
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


def plain_on_terminals(stream: IO[bytes]) -> IO[bytes]:
    """Returns the stream; a terminal gets JSON escapes for control characters and for what is no text."""
    return cast(IO[bytes], _Plain(stream)) if stream.isatty() else stream


class _Plain(io.RawIOBase):
    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._decode = stream, codecs.getincrementaldecoder("utf-8")("backslashreplace").decode

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        text = OBEYED.sub(lambda match: f"\\u{ord(match[0]):04x}", self._decode(bytes(content)))
        self._stream.write(text.encode())
        return len(content)


@contextlib.contextmanager
def protecting_inputs() -> Iterator[None]:
    """Makes `open_output` raise RequestError for a protected file that was read in the block."""
    token = _inputs.set({})
    try:
        yield
    finally:
        _inputs.reset(token)


def note_input(path: str, protected: bool = True) -> None:
    """Says with --verbose that a file is read, and how large it is; no output replaces a `protected` one."""
    state = state_of(Path(path))
    log.debug(f"reading {path}" + (f", {state[2]:,} bytes" if state else ""))
    if protected and state and (inputs := _inputs.get()) is not None:
        inputs[state[:2]] = path


def _refuse_input(path: str) -> None:
    read = (_inputs.get() or {}).get(state_of(Path(path))[:2])
    if read is not None:
        raise RequestError(f"{path} is {read}, which was read: give another name for the output")


def open_input(path: str, protected: bool = False) -> BinaryIO:
    """Returns the bytes of `path` as a stream, decompressed if they are gzip or zstd, whatever the file is called.

    No output of the same command replaces a `protected` file. What is damaged inside the compression is an OSError, an
    EOFError or a zlib.error of the read that comes to it. Raises DataError for all else, and so do its reads.
    """
    note_input(path, protected)
    return _opened(path)


def is_compressed(path: str) -> bool:
    """Returns whether a file is a regular one that can be read, and gzip or zstd."""
    with contextlib.suppress(DataError):
        if path != STANDARD_STREAM and path_is(path, Path.is_file):
            with _opened(path) as stream:
                return isinstance(getattr(stream, "raw", None), _Content)
    return False


def _opened(path: str) -> BinaryIO:
    try:
        if path == STANDARD_STREAM and sys.stdin is None:
            raise DataError("-: standard input is closed; give a file name")
        opened = sys.stdin.buffer if path == STANDARD_STREAM else io.BufferedReader(_Watched(path), PIECE)
        raw = cast(io.BufferedReader, opened)
        head = raw.peek(4)[:4]
    except IsADirectoryError:
        raise DataError(f"{path}: is a folder; name a file in it") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error}); check the path") from error
    if not head:
        raise DataError(f"{path}: is empty; was it written to its end?")
    for magic, what in FOREIGN.items():
        if head.startswith(magic):
            raise DataError(f"{path}: {what}")
    magic = GZIP_MAGIC if head.startswith(GZIP_MAGIC) else head
    if magic not in LARGEST_RATIO:
        return cast(BinaryIO, raw)
    read1 = _Gunzip(raw).read1 if magic == GZIP_MAGIC else _unzstd(raw, path)
    content = _Content(read1, raw, _largest_content(path, LARGEST_RATIO[magic]), path)
    return cast(BinaryIO, io.BufferedReader(content, CONTENT_PIECE))


class _Watched(io.FileIO):
    """A file that raises at its end if somebody wrote to it since it was opened."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._path, self._state = path, _state(os.fstat(self.fileno()))

    def readinto(self, buffer: Any) -> int | None:
        size = super().readinto(buffer)
        return size or self._checked(size)

    def readall(self) -> bytes:
        return self._checked(super().readall())

    def _checked(self, last_read: T) -> T:
        if _state(os.fstat(self.fileno())) != self._state:
            raise DataError(f"{self._path}: was written to while it was read; run again when that is done")
        return last_read


def state_of(path: Path) -> tuple[int, ...]:
    """Returns what changes when a file is written to or replaced; nothing where it is no regular file."""
    try:
        return _state(path.stat())
    except OSError:
        return ()


def _state(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns) if stat.S_ISREG(status.st_mode) else ()


def _largest_content(path: str, largest_ratio: int) -> int:
    """Returns the most bytes that a file may decompress to: the limit asked for, or far beyond any trace."""
    if asked := os.environ.get(MAX_SIZE):
        return bytes_of(asked)
    size = 0
    with contextlib.suppress(OSError):
        size = 0 if path == STANDARD_STREAM else Path(path).stat().st_size
    return max(largest_ratio * size, LEAST_SUSPECT) if size else sys.maxsize


def bytes_of(text: str) -> int:
    """Returns a size such as 300M or 20G in bytes, by powers of 1024. Raises DataError where it is none."""
    match = SIZE.fullmatch(text)
    if match is None or not int(match[1]):
        raise DataError(f"{text} is no size such as 300M or 20G")
    return int(match[1]) << 10 * UNITS.index(match[2].upper() or " ")


@contextlib.contextmanager
def decompressing_at_most(size: str | None) -> Iterator[None]:
    """Sets the most bytes to decompress to, such as 20G, in this process and those it starts; None changes nothing."""
    before = os.environ.get(MAX_SIZE)
    if size is not None:
        os.environ[MAX_SIZE] = size
    try:
        yield
    finally:
        os.environ.pop(MAX_SIZE, None)
        if before is not None:
            os.environ[MAX_SIZE] = before


@contextlib.contextmanager
def open_output(path: str) -> Iterator[IO[bytes]]:
    """Yields a stream whose bytes stand under `path` only when the block ends without an exception.

    They go to a file beside it, which is then renamed, links followed; such files of killed processes are removed. What
    is no regular file is written directly. Gzip has no time stamp: equal content gives equal bytes.
    """
    try:
        if path == STANDARD_STREAM:
            if sys.stdout is None:
                raise DataError("-: standard output is closed; open it, or send it to a file: > FILE")
            yield plain_on_terminals(sys.stdout.buffer)
            sys.stdout.buffer.flush()
            return
        _refuse_input(path)
        target = Path(path).resolve()
        with target.open("wb") if _is_special(target) else _beside(target) as raw:
            if path.endswith(".gz"):
                with GzipFile(filename="", mode="wb", fileobj=raw, mtime=0, compresslevel=6) as compressed:
                    yield cast(IO[bytes], compressed)
            else:
                yield plain_on_terminals(raw)
            _refuse_input(path)  # what was read while the output was made
    except BrokenPipeError:
        raise
    except OSError as error:
        remedy = WHEN_NOT_WRITTEN.get(error.errno or 0, "check that its folder is there and has room")
        raise DataError(f"{path}: cannot be written ({error.strerror or error}); {remedy}") from error


def write_items(file: IO[bytes], items: Iterable[str]) -> None:
    """Writes the items of a JSON list, each on a line of its own, many at once."""
    pending, separator = iter(items), "\n"
    while piece := [*islice(pending, ITEMS_AT_ONCE)]:
        file.write((separator + ",\n".join(piece)).encode())
        separator = ",\n"


def put_in_place(made: Path, path: Path) -> None:
    """Gives a finished file a name that a command made up, in place of a link there. Raises DataError if it cannot."""
    try:
        _replace(made, path)
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror or error}); is it a file?") from error


def without_link(path: Path) -> Path:
    """Returns a path that a command made up, without the link or the like there, whose target nobody named."""
    try:
        if path.is_symlink() or (_is_special(path) and not path.is_dir()):
            path.unlink()
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror or error}); remove it") from error
    return path


def _replace(made: Path, target: Path) -> None:
    if target.is_file() and not target.is_symlink():
        made.chmod(stat.S_IMODE(target.stat().st_mode))
    made.replace(target)


def _is_special(target: Path) -> bool:
    return target.exists() and not stat.S_ISREG(target.stat().st_mode)


@contextlib.contextmanager
def _beside(target: Path) -> Iterator[IO[bytes]]:
    hidden = f".{target.name[:200]}."
    remove_abandoned(target.parent, re.compile(rf"{re.escape(hidden)}[0-9a-f]{{8}}\.partial"))
    beside = target.with_name(f"{hidden}{os.urandom(4).hex()}.partial")
    with contextlib.ExitStack() as until_renamed:
        until_renamed.callback(beside.unlink, missing_ok=True)
        unnamed = None
        # a file without a name, where the system has such, of which a killed process leaves no trace
        with contextlib.suppress(AttributeError, OSError):
            if Path("/proc/self/fd").is_dir():
                unnamed = os.open(target.parent, os.O_TMPFILE | os.O_WRONLY, 0o666)
        with (
            beside.open("xb", buffering=PIECE) if unnamed is None else os.fdopen(unnamed, "wb", buffering=PIECE) as raw
        ):
            until_renamed.enter_context(in_use(raw.fileno()))
            yield raw
            raw.flush()
            if unnamed is not None:
                # os.link follows a link only where it is given a folder's descriptor, which an absolute path does not
                # use
                os.link(f"/proc/self/fd/{unnamed}", beside, src_dir_fd=unnamed)
        _replace(beside, target)


def path_is(path: str | os.PathLike[str], test: Callable[[Path], bool]) -> bool:
    """Returns what `Path.exists`, `Path.is_dir` or `Path.is_file` says. Raises DataError for what can be no name."""
    try:
        return test(Path(path))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path}: cannot be used ({reason}); check the path") from error
