"""Opens SQLite databases of strangers, compressed or not: read-only, and of their schema only plain tables.

No views, virtual tables or functions are touched.
"""

import shutil
import sqlite3
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import chain
from pathlib import Path

import numpy as np

from ...schema.columns import Int64
from ...schema.errors import DataError
from ...schema.io import STANDARD_STREAM, beginning_of, open_input

MAGIC = b"SQLite format 3\x00"
LONGEST_TEXT = 1 << 16
ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ}
FUNCTIONS, PRAGMAS = {"coalesce", "count", "like", "substr"}, {"table_info"}
"""The functions that queries here need. All others are refused, as the schema of the file could call them."""
STEPS_PER_BYTE, LEAST_LOOKS, STEPS_BETWEEN_LOOKS = 1000, 1 << 6, 1 << 18
"""Limits of the steps that SQLite takes with a file, whose pages may lead to each other for ever."""


def is_database(path: str) -> bool:
    """Returns whether the file, decompressed, starts as SQLite databases do."""
    return beginning_of(path, len(MAGIC))[0] == MAGIC


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

    def integers(self, table: str, *columns: str) -> Int64:
        """Returns columns of a table by id, shape (rows, columns): -1 where missing, no rows for an absent table."""
        present = self.columns(table)
        if not present:
            return np.empty((0, len(columns)), np.int64)
        terms = (f'COALESCE(CAST("{name}" AS INTEGER), -1)' if name in present else "-1" for name in columns)
        order = ' ORDER BY "id"' if "id" in present else ""
        rows = self.read(f'SELECT {", ".join(terms)} FROM "{table}"{order}')
        return np.fromiter(chain.from_iterable(rows), np.int64).reshape(-1, len(columns))

    def strings(self, table: str, ids: str) -> dict[int, str]:
        """Returns the strings of a table, by id, for the ids that the query `ids` returns."""
        if not self.columns(table):
            return {}
        query = f'SELECT CAST(id AS INTEGER), substr(string, 1, {LONGEST_TEXT}) FROM "{table}" WHERE id IN ({ids})'
        return {code: str(text) for code, text in self.read(query) if text is not None}

    def read(self, query: str) -> sqlite3.Cursor:
        """Returns the rows of a query, which is run as they are taken."""
        return self._connection.execute(query)


@contextmanager
def opened(path: str) -> Iterator[Database]:
    """Opens the database at `path`, without what its schema could make SQLite do. Its errors become a DataError.

    Of a compressed one, and of standard input, a temporary file is made.
    """
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
    if path != STANDARD_STREAM and not beginning_of(path, 1)[1]:
        yield Path(path).resolve()
        return
    with tempfile.TemporaryDirectory(prefix="execgraph-") as folder:
        file = Path(folder, "database")
        with open_input(path) as content, file.open("wb") as copy:
            shutil.copyfileobj(content, copy)
        yield file


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
