"""Large columns go to disk: to files without a name, in a folder that the command chooses, so that nothing stays of them in any ending.

What is on disk is mapped: it takes memory only where it was looked at since `let_go`, which is done whenever more goes there. Without a
folder, or where that has no room, all stays in memory.
"""

import ctypes
import mmap
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import IO, Any, TypeVar, cast
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from .texts import Buffer, Texts

T = TypeVar("T")
LARGE = 1 << 18
"""Bytes from which on a column goes to disk."""
ALIGNED, AT_ONCE = 64, 1 << 16
ROWS_AT_ONCE = 1 << 16
SMALL_BLOCK = 1 / 16
SECONDS_BETWEEN_TRIMS = 0.25
_trimmed_at = 0.0
_looked_at = 0.0
_folder: "ContextVar[Path | None]" = ContextVar("folder for large columns", default=None)

_mappings: "WeakSet[mmap.mmap]" = WeakSet()
_passing: "WeakSet[mmap.mmap]" = WeakSet()
"""Files of one column each, of which a settled record needs only one for all, as the system limits how many are open."""


@contextmanager
def columns_in(folder: Path) -> Iterator[None]:
    """While the block runs, columns that are `settled` go to files in this folder."""
    token = _folder.set(folder)
    try:
        yield
    finally:
        _folder.reset(token)


def settled(record: T) -> T:
    """The same record (a column, or a dataclass or dict of columns and records) with its large columns on disk, where changes go, too."""
    folder = _folder.get()
    if folder is None:
        return record
    large = {id(column): column for column in _columns(record) if _is_large(column)}
    places = np.cumsum([0, *(-(-len(_bytes(column)) // ALIGNED) * ALIGNED for column in large.values())]).tolist()
    mapping = _mapped([*large.values()], places, folder) if large else None
    if mapping is None:
        return record
    views = {
        key: np.frombuffer(mapping, column.dtype, column.size, place).reshape(column.shape)
        if isinstance(column, np.ndarray)
        else mapping[place : place + len(column)]
        for (key, column), place in zip(large.items(), places, strict=False)
    }
    let_go()
    return cast(T, _with_views(record, views))


def _is_large(column: Any) -> bool:
    """Whether it is worth a place on disk, and has none."""
    if isinstance(column, np.ndarray):
        mapping = _mapping(column)
        return mapping in _passing or (mapping is None and column.nbytes >= LARGE and column.flags.c_contiguous)
    return isinstance(column, bytes) and len(column) >= LARGE


def _bytes(column: Any) -> memoryview:
    return column.reshape(-1).data.cast("B") if isinstance(column, np.ndarray) else memoryview(column)


def _mapped(columns: Sequence[Any], places: Sequence[int], folder: Path) -> memoryview | None:
    """A file that has the columns at these places and the end at the last; None where the folder takes none."""
    try:
        with unnamed(folder) as file:
            for column, place in zip(columns, places, strict=False):
                file.seek(place)
                append(file, _bytes(column))
                let_go()
            file.truncate(places[-1])
            return mapped_file(file)
    except OSError:
        return None


def filled(count: int, value: int, kind: "type[np.generic]" = np.int64) -> npt.NDArray[Any]:
    """A column of one value, for what is filled in row by row; on disk from the start if it is large."""
    column, folder = None, _folder.get()
    if folder is not None and count * np.dtype(kind).itemsize >= LARGE:
        with suppress(OSError), unnamed(folder) as file:
            for rows in in_blocks(count):
                append(file, np.full(min(rows.stop, count) - rows.start, value, kind).data.cast("B"))
            column = np.frombuffer(mapped_file(file), kind)
    return column if column is not None else np.full(count, value, kind)


def in_blocks(count: int, at_once: int | None = None) -> Iterator[slice]:
    """Slices of so many rows, for what looks at columns a block at a time: behind each, what is on disk is let go.

    Small blocks, as of many threads, have that done once for several: it takes as long for few rows as for many.
    """
    size = at_once or ROWS_AT_ONCE
    for first in range(0, count, size):
        yield slice(first, first + size)
        _let_go_behind(min(size, count - first) / size)


def _let_go_behind(share: float) -> None:
    """Lets go of what is on disk, but not before such shares of a block make a small one."""
    global _looked_at
    _looked_at += share
    if _looked_at >= SMALL_BLOCK:
        let_go()
        _looked_at = 0.0


def chosen_folder() -> Path | None:
    """Where large columns go, None for memory."""
    return _folder.get()


def unnamed(folder: Path) -> IO[bytes]:
    """A new file that the system removes with the process. Raises OSError where the folder takes none."""
    return tempfile.TemporaryFile(dir=folder, prefix=".columns.", buffering=0)


def append(file: IO[bytes], content: Buffer) -> None:
    """Writes all of it where the file stands. Raises OSError where there is no room."""
    rest = memoryview(content)
    while rest:
        # written in small pieces it comes back in small pieces: Linux brings at once what was written at once, up to 2 MB
        rest = rest[file.write(rest[:AT_ONCE]) :]


def mapped_file(file: IO[bytes], passing: bool = False) -> memoryview:
    """The content of a file that is not empty, which `let_go` knows of. Columns in a `passing` one are still to be settled."""
    mapping = mmap.mmap(file.fileno(), 0)
    _mappings.add(mapping)
    if passing:
        _passing.add(mapping)
    return memoryview(mapping)


def _with_views(value: Any, views: dict[int, Any]) -> Any:
    """The value with these columns, by identity, in place of its own."""
    if isinstance(value, np.ndarray):
        return views.get(id(value), value)
    if isinstance(value, Texts):
        rows = (_with_views(column, views) for column in (value.part, value.start, value.length))
        return Texts([views.get(id(part), part) for part in value.parts], *rows)
    changed = {name: new for name, old in _parts(value).items() if (new := _with_views(old, views)) is not old}
    if not changed:
        return value
    return {**value, **changed} if isinstance(value, dict) else replace(value, **changed)


def let_go() -> None:
    """Takes all that is on disk, and what was freed, out of memory; what is looked at comes back."""
    with suppress(AttributeError, OSError, ValueError):  # where the system has no such advice
        for mapping in _mappings:
            mapping.madvise(mmap.MADV_DONTNEED)
    # what is freed beside small columns is little, and to look for it takes longer than a small trace
    if _mappings:
        _trim()


def _columns(value: Any) -> Iterator[Any]:
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, Texts):
        yield from (*value.parts, value.part, value.start, value.length)
    else:
        for column in _parts(value).values():
            yield from _columns(column)


def _parts(value: Any) -> dict[str, Any]:
    """The columns and records that a record is made of, by name."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return value if isinstance(value, dict) and isinstance(next(iter(value), None), str) else {}


def _mapping(column: Any) -> mmap.mmap | None:
    """What a column or buffer that is on disk is a view of."""
    while column is not None and not isinstance(column, mmap.mmap):
        column = column.obj if isinstance(column, memoryview) else getattr(column, "base", None)
    return column


def _trim() -> None:
    """Hands back to the system what the C library keeps of freed memory; only glibc can. To take it again costs time, so not too often."""
    global _trimmed_at
    if time.monotonic() - _trimmed_at < SECONDS_BETWEEN_TRIMS:
        return
    with suppress(AttributeError, OSError):
        _c_library().malloc_trim(0)
    _trimmed_at = time.monotonic()


@cache
def _c_library() -> ctypes.CDLL:
    return ctypes.CDLL(None)
