"""The workspace: files without a name, in a folder that the command chooses, which hold the large columns of tables.

They are mapped, so that the system takes memory for what is looked at and takes it back where it needs room. Nothing
stays of them in any ending. Without a folder, or where it has no room, all stays in memory.
"""

import mmap
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import IO, Any
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from .column_types import SummaryRepr

Buffer = bytes | memoryview
LARGE = 1 << 18
"""Bytes from which on a column goes to the workspace."""
ALIGNED = 64
WRITTEN_AT_ONCE = 1 << 16
JOINED_AT_ONCE = 64
_folder: "ContextVar[Path | None]" = ContextVar("folder of the workspace", default=None)

_shared: "WeakSet[mmap.mmap]" = WeakSet()
"""The files that hold all columns of a table. A table has one, as the system limits how many files are open."""


@contextmanager
def workspace_in(folder: Path) -> Iterator[None]:
    """While the block runs, large columns of tables go to files in this folder."""
    token = _folder.set(folder)
    try:
        yield
    finally:
        _folder.reset(token)


class Table(SummaryRepr):
    """A dataclass of columns whose constructor moves large columns to the workspace.

    Columns that are there already stay where they are, so that `dataclasses.replace` moves only what is new.
    """

    __slots__ = ()

    def __post_init__(self) -> None:
        if _folder.get() is not None:
            record = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
            for name, column in _moved(record).items():
                object.__setattr__(self, name, column)


class AttributeTable(dict[str, Any]):
    """Columns by name, which move to the workspace one by one as they are set."""

    def __setitem__(self, name: str, column: Any) -> None:
        super().__setitem__(name, _moved(column))

    def extend(self, columns: Iterable[tuple[str, Any]]) -> None:
        """Sets some columns, of which each is made when the one before has moved."""
        for name, column in columns:
            self[name] = column


class Spilled:
    """Bytes in order, of which the last ones may still be in memory; all of them where no folder takes them."""

    def __init__(self, at_once: int) -> None:
        self._folder, self._at_once = _folder.get(), at_once
        self._file: IO[bytes] | None = None
        self._waiting: list[bytes] = []
        self._written = self._size = 0

    @property
    def size(self) -> int:
        """How many bytes have come."""
        return self._size

    def add(self, content: bytes) -> None:
        """Takes more of them."""
        self._waiting.append(content)
        self._size += len(content)
        if self._size - self._written > self._at_once:
            if self._folder is not None:
                self._write(self._folder)
            elif len(self._waiting) > JOINED_AT_ONCE:
                self._waiting = [*self._waiting[:-JOINED_AT_ONCE], b"".join(self._waiting[-JOINED_AT_ONCE:])]

    def buffers(self) -> list[Buffer]:
        """Returns all of them, of which the first are mapped."""
        in_file = [_mapped(self._file).data] if self._file is not None and self._written else []
        return [*in_file, *self._waiting]

    def buffer(self) -> Buffer:
        """Returns all of them in one, mapped if they are in a file and the rest goes there, too."""
        if self._file is not None and self._folder is not None:
            self._write(self._folder)
        buffers = self.buffers()
        return buffers[0] if len(buffers) == 1 and self._written else memoryview(bytearray(b"".join(buffers)))

    def _write(self, folder: Path) -> None:
        try:
            self._file = self._file or _unnamed_file(folder)
            for content in self._waiting:
                _append(self._file, content)
        except OSError:
            # what is not whole in the file stays in memory, as all that comes
            self._folder = None
        else:
            self._waiting, self._written = [], self._size
        if self._file is not None:
            self._file.truncate(self._written)


def _unnamed_file(folder: Path) -> IO[bytes]:
    """Opens a new file that the system removes with the process. Raises OSError where the folder takes none."""
    return tempfile.TemporaryFile(dir=folder, prefix=".columns.", buffering=0)


def _append(file: IO[bytes], content: Buffer) -> None:
    """Writes all of the content where the file stands. Raises OSError where there is no room."""
    remaining = memoryview(content)
    while remaining:
        # written in small pieces it comes back in small pieces: Linux brings at once what was written at once, up to 2
        # MB
        remaining = remaining[file.write(remaining[:WRITTEN_AT_ONCE]) :]


def _mapped(file: IO[bytes]) -> npt.NDArray[np.uint8]:
    """Returns the bytes of a file that is not empty; changes go to the file."""
    return np.memmap(file, np.uint8, "r+").view(np.ndarray)


def _moved(record: Any) -> Any:
    """Returns the record with its large columns, those that are not in a table's file yet, as views of one new file."""
    folder, large = _folder.get(), dict[int, Any]()
    if folder is not None:
        _changed(record, lambda column: large.setdefault(id(column), column) if _belongs_there(column) else column)
    if folder is None or not large:
        return record
    sizes = [-(-memoryview(column).nbytes // ALIGNED) * ALIGNED for column in large.values()]
    starts = np.cumsum([0, *sizes]).tolist()
    try:
        with _unnamed_file(folder) as file:
            for column, start in zip(large.values(), starts, strict=False):
                file.seek(start)
                _append(file, memoryview(column).cast("B"))
            file.truncate(starts[-1])
            content = _mapped(file)
    except OSError:
        return record
    if (mapping := _mapping(content)) is not None:
        _shared.add(mapping)
    views = {key: _view(content, column, start) for (key, column), start in zip(large.items(), starts, strict=False)}
    return _changed(record, lambda column: views.get(id(column), column))


def _changed(value: Any, change: Callable[[Any], Any]) -> Any:
    """Returns a column, record or list of buffers with its arrays and byte strings changed; itself where none is.

    Tables stay as they are: they have moved theirs.
    """
    if isinstance(value, np.ndarray | bytes):
        return change(value)
    parts: dict[Any, Any] = {}
    if is_dataclass(value) and not isinstance(value, type | Table):
        parts = {field.name: getattr(value, field.name) for field in fields(value)}
    elif isinstance(value, list) and value and isinstance(value[0], Buffer):
        parts = dict(enumerate(value))
    elif isinstance(value, dict) and isinstance(next(iter(value), None), str):
        parts = value
    changed = {name: new for name, old in parts.items() if (new := _changed(old, change)) is not old}
    if not changed:
        return value
    if isinstance(value, list):
        return [changed.get(index, old) for index, old in enumerate(value)]
    return {**value, **changed} if isinstance(value, dict) else replace(value, **changed)


def _belongs_there(column: Any) -> bool:
    """Returns whether a column is large, or in a file of its own, and not in a table's file."""
    if not isinstance(column, np.ndarray):
        return isinstance(column, bytes) and len(column) >= LARGE
    mapping = _mapping(column)
    if mapping is not None:
        return mapping not in _shared
    return column.nbytes >= LARGE and column.flags.c_contiguous


def _mapping(column: Any) -> mmap.mmap | None:
    """Returns the file that a column is a view of, None for memory."""
    while column is not None and not isinstance(column, mmap.mmap):
        column = column.obj if isinstance(column, memoryview) else getattr(column, "base", None)
    return column


def _view(content: npt.NDArray[np.uint8], column: Any, start: int) -> Any:
    part = content[start : start + memoryview(column).nbytes]
    return part.view(column.dtype).reshape(column.shape) if isinstance(column, np.ndarray) else part.data
