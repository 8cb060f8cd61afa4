"""The workspace: files without a name, in a folder that the command chooses, which hold the large columns of tables.

They are mapped, so that the system takes memory for what is looked at and takes it back where it needs room. Nothing
stays of them in any ending. Without a folder, or where it has no room, all stays in memory.
"""

import mmap
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import IO, Any
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from .column_types import Categorical, SummaryRepr
from .frames import Tabular, Values, column_of, nullable

Buffer = bytes | memoryview
LARGE = 1 << 18
"""Bytes from which on a column goes to the workspace."""
ALIGNED = 64
WRITTEN_AT_ONCE = 1 << 16
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


def workspace_folder() -> Path | None:
    """Returns the folder that large columns go to, None for memory."""
    return _folder.get()


def unnamed_file(folder: Path) -> IO[bytes]:
    """Opens a new file that the system removes with the process. Raises OSError where the folder takes none."""
    return tempfile.TemporaryFile(dir=folder, prefix=".columns.", buffering=0)


def append(file: IO[bytes], content: Buffer) -> None:
    """Writes all of the content where the file stands. Raises OSError where there is no room."""
    remaining = memoryview(content)
    while remaining:
        # written in small pieces it comes back in small pieces: Linux brings at once what was written at once, up to 2
        # MB
        remaining = remaining[file.write(remaining[:WRITTEN_AT_ONCE]) :]


def mapped(file: IO[bytes]) -> npt.NDArray[np.uint8]:
    """Returns the bytes of a file that is not empty; changes go to the file."""
    return np.memmap(file, np.uint8, "r+").view(np.ndarray)


def to_workspace(columns: Sequence[Any]) -> list[Any]:
    """Moves large columns (arrays and byte strings) that are not in a table's file yet to one new file.

    Returns the columns in the same order; moved ones are views of the file.
    """
    folder = _folder.get()
    large = {id(column): column for column in columns if _belongs_there(column)} if folder is not None else {}
    if folder is None or not large:
        return [*columns]
    sizes = [-(-memoryview(column).nbytes // ALIGNED) * ALIGNED for column in large.values()]
    starts = np.cumsum([0, *sizes]).tolist()
    try:
        with unnamed_file(folder) as file:
            for column, start in zip(large.values(), starts, strict=False):
                file.seek(start)
                append(file, memoryview(column).cast("B"))
            file.truncate(starts[-1])
            content = mapped(file)
    except OSError:
        return [*columns]
    if (mapping := _mapping(content)) is not None:
        _shared.add(mapping)
    views = {key: _view(content, column, start) for (key, column), start in zip(large.items(), starts, strict=False)}
    return [views.get(id(column), column) for column in columns]


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


class Table(SummaryRepr):
    """A dataclass of columns whose constructor moves large columns to the workspace.

    Columns that are there already stay where they are, so that `dataclasses.replace` moves only what is new.
    """

    __slots__ = ()

    def __post_init__(self) -> None:
        if workspace_folder() is not None:
            record = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
            for name, column in _moved(record).items():
                object.__setattr__(self, name, column)


TIMES = ("start", "end", "exclusive")
"""Columns of times in ns, whose names say so in data frames."""


class RowTable(Tabular, Table):
    """A table that data-frame libraries take: its columns of numbers and texts, null where nothing was recorded."""

    __slots__ = ()

    def __getitem__(self, name: str) -> Values:
        """Returns the values of a column of `frame_columns`; KeyError where there is none of that name."""
        return column_of(type(self).__name__, self.frame_columns(), name)

    def frame_columns(self) -> Mapping[str, Values]:
        """Returns the columns of the table by name."""
        columns = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return {
            f"{name}_ns" if name in TIMES else name: _with_nulls(column)
            for name, column in columns.items()
            if isinstance(column, np.ndarray | Categorical)
        }


def _with_nulls(column: Any) -> Values:
    is_integer = isinstance(column, np.ndarray) and column.dtype == np.int64
    values: Values = nullable(column) if is_integer else column
    return values


class AttributeTable(dict[str, Any]):
    """Columns by name, which move to the workspace one by one as they are set."""

    def __setitem__(self, name: str, column: Any) -> None:
        super().__setitem__(name, _moved(column) if workspace_folder() is not None else column)

    def extend(self, columns: Iterable[tuple[str, Any]]) -> None:
        """Sets some columns, of which each is made when the one before has moved."""
        for name, column in columns:
            self[name] = column


def _moved(record: Any) -> Any:
    """Returns the record with its large columns in the workspace."""
    arrays = [*_arrays(record)]
    return _with(
        record, {id(old): new for old, new in zip(arrays, to_workspace(arrays), strict=True) if new is not old}
    )


def _arrays(value: Any) -> Iterator[Any]:
    if isinstance(value, np.ndarray | bytes):
        yield value
    for part in _parts(value).values():
        yield from _arrays(part)


def _with(value: Any, moved: dict[int, Any]) -> Any:
    """Returns the value with these arrays, by identity, in place of its own."""
    if isinstance(value, np.ndarray | bytes):
        return moved.get(id(value), value)
    changed = {name: new for name, old in _parts(value).items() if (new := _with(old, moved)) is not old}
    if not changed:
        return value
    if isinstance(value, list):
        return [changed.get(index, old) for index, old in enumerate(value)]
    return {**value, **changed} if isinstance(value, dict) else replace(value, **changed)


def _parts(value: Any) -> dict[Any, Any]:
    """Returns the parts of a column or record: its fields, or the buffers of a list; not tables, which moved theirs."""
    if is_dataclass(value) and not isinstance(value, type | Table):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, list) and value and isinstance(value[0], bytes | memoryview):
        return dict(enumerate(value))
    return value if isinstance(value, dict) and isinstance(next(iter(value), None), str) else {}
