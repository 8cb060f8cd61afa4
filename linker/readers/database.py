"""Opens SQLite databases of strangers, compressed or not: read-only, and of their schema only plain tables."""

import os
import shutil
import sqlite3
import tempfile
import weakref
import zlib
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from ...schema.columns import Int64
from ...schema.errors import DataError
from ...schema.io import STANDARD_STREAM, is_compressed, open_input, state_of

MAGIC = b"SQLite format 3\x00"
LONGEST_TEXT = 1 << 16
TEXTS = {"text", "name", "value", "string", "completionSignal", "binaryData"}
"""The columns that hold texts, or bytes; of all others the integers are read."""
ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ}
FUNCTIONS, PRAGMAS = {"coalesce", "count", "like", "substr"}, {"table_info"}
"""The functions that queries here need. All others are refused, as the schema of the file could call them."""
STEPS_PER_BYTE, LEAST_LOOKS, STEPS_BETWEEN_LOOKS = 1000, 1 << 6, 1 << 18
"""Limits of the steps that SQLite takes with a file, whose pages may lead to each other for ever."""
UNPACKED = 8
"""Compressed databases of which the content is kept; a machine has as many ranks."""


class Database:
    """The real tables of one file."""

    def __init__(self, path: str, file: Path, connection: sqlite3.Connection) -> None:
        self.path, self._connection = path, connection
        size = sum(part.stat().st_size for part in (file, _beside(file, "-wal")) if part.exists())
        looks = iter(range(LEAST_LOOKS + STEPS_PER_BYTE * size // STEPS_BETWEEN_LOOKS))
        connection.set_progress_handler(lambda: next(looks, None) is None, STEPS_BETWEEN_LOOKS)
        # virtual tables have no page of their own
        self.tables = self._names("type = 'table' AND rootpage > 0")
        self.views = self._names("type = 'view'")

    def _names(self, condition: str) -> set[str]:
        return {str(name) for (name,) in self.read(f"SELECT name FROM sqlite_master WHERE {condition}")}

    def columns(self, table: str) -> set[str]:
        """Returns the names of a table's columns but for computed ones, none if the table is absent."""
        return {str(row[1]) for row in self.read(f'PRAGMA table_info("{table}")')} if table in self.tables else set()

    def different(self, column: str, table: str, where: str = "TRUE") -> list[int]:
        """Returns the distinct integers in a column, ascending, of the rows that meet a condition."""
        query = f"SELECT DISTINCT CAST({column} AS INTEGER) FROM {table} WHERE {column} NOT NULL AND {where} ORDER BY 1"
        return [int(number) for (number,) in self.read(query)]

    def select(self, table: str, *columns: str, where: str = "TRUE", missing: int | None = None) -> Iterable[Any]:
        """Returns columns of a table by id: `missing` for what is not there, no rows for an absent table."""
        present, absent = self.columns(table), "NULL" if missing is None else str(missing)
        terms = {name: f'CAST("{name}" AS INTEGER)' for name in present - TEXTS}
        terms |= {name: f'substr("{name}", 1, {LONGEST_TEXT})' for name in present & TEXTS}
        chosen = ", ".join(f"COALESCE({terms.get(name, absent)}, {absent})" for name in columns)
        order = ' ORDER BY "id"' if "id" in present else ""
        return self.read(f'SELECT {chosen} FROM "{table}" WHERE {where}{order}') if present else ()

    def integers(self, table: str, *columns: str) -> Int64:
        """Returns columns of a table by id, shape (rows, columns): -1 where missing, no rows for an absent table."""
        rows = self.select(table, *columns, missing=-1)
        return np.fromiter(chain.from_iterable(rows), np.int64).reshape(-1, len(columns))

    def texts(self, table: str, text: str, *named: tuple[str, str], where: str = "TRUE") -> dict[Any, str]:
        """Returns the texts of a table that columns of others name, by id; `where` says of which of their rows."""
        ids = [f'SELECT "{column}" FROM "{of}" WHERE {where}' for of, column in named if column in self.columns(of)]
        rows = self.select(table, "id", text, where=f"id IN ({' UNION '.join(ids)})" if ids else "FALSE")
        return {code: str(found) for code, found in rows if found is not None}

    def read(self, query: str) -> sqlite3.Cursor:
        """Returns the rows of a query, which is run as they are taken."""
        return self._connection.execute(query)


@contextmanager
def opened(path: str) -> Iterator[Database]:
    """Opens a database, unpacked to a temporary file if need be; its errors become a DataError."""
    file = Path(path).resolve()
    try:
        with (
            _plain(path) as plain,
            _address(plain) as address,
            closing(sqlite3.connect(address, uri=True)) as connection,
        ):
            connection.text_factory = lambda text: text.decode("utf-8", "replace")
            for setting in ("trusted_schema = OFF", "query_only = ON", "cell_size_check = ON"):
                connection.execute(f"PRAGMA {setting}")
            connection.set_authorizer(_authorize)
            yield Database(path, plain, connection)
    except (sqlite3.Error, OSError, EOFError, zlib.error, OverflowError, UnicodeDecodeError, MemoryError) as error:
        if _holds_something(_beside(file, "-journal")):
            raise DataError(
                f"{path}: amid a change ({error}); its writer is at work, or was killed: then sqlite3 undoes the change"
            ) from error
        raise DataError(f"{path}: damaged database ({error}); was its writer killed? copy it again") from error


@contextmanager
def _plain(path: str) -> Iterator[Path]:
    """Yields a file with the content of `path`, decompressed."""
    if path == STANDARD_STREAM or is_compressed(path):
        unpacked = _Unpacked(path) if path == STANDARD_STREAM else _unpacked(path, state_of(Path(path)))
        yield unpacked.file
    else:
        yield Path(path).resolve()


class _Unpacked:
    """A temporary file with the content of `path`, which is removed when nothing refers to it any more."""

    def __init__(self, path: str) -> None:
        folder = tempfile.mkdtemp(prefix="execgraph-")
        weakref.finalize(self, _remove, folder, os.getpid())
        self.file = Path(folder, "database")
        with open_input(path) as content, self.file.open("wb") as copy:
            shutil.copyfileobj(content, copy)


_unpacked = lru_cache(maxsize=UNPACKED)(lambda path, _state: _Unpacked(path))


def _remove(folder: str, process: int) -> None:
    """Removes a folder in the process that made it; those that this has started may read there as well."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


def _authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    """Answers SQLite whether a statement may do something."""
    allowed_names = {sqlite3.SQLITE_FUNCTION: (second, FUNCTIONS), sqlite3.SQLITE_PRAGMA: (first, PRAGMAS)}
    name, allowed = allowed_names.get(action, (None, set[str]()))
    is_allowed = action in ALLOWED or (name is not None and name.lower() in allowed)
    return sqlite3.SQLITE_OK if is_allowed else sqlite3.SQLITE_DENY


@contextmanager
def _address(path: Path) -> Iterator[str]:
    """Yields an address for which SQLite writes nothing next to the file, and reads changes in the writer's log."""
    log = _beside(path, "-wal")
    if _holds_something(log) and not _beside(path, "-shm").exists():
        # SQLite would write an index of the log beside it
        with tempfile.TemporaryDirectory() as folder:
            copies = [shutil.copy(file, folder) for file in (path, log)]
            yield Path(copies[0]).as_uri() + "?mode=ro"
    else:
        complete = not _holds_something(log) and not _holds_something(_beside(path, "-journal"))
        yield path.as_uri() + "?mode=ro" + ("&immutable=1" if complete else "")


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def _holds_something(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0
