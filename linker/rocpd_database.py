"""Opens a rocpd database (SQLite) that nobody vouches for: read-only, no extensions, views or virtual tables, no more rows than bytes.

In: a path. Out: its tables as columns of integers, its texts, and the dialect it is written in.
"""

import re
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..schema.columns import Int64
from ..schema.errors import DataError

MAGIC = b"SQLite format 3\x00"
GUID_TABLE = re.compile(r"rocpd_\w+_[0-9a-f]{8}_?(?:[0-9a-f]{4}_?){3}[0-9a-f]{12}", re.IGNORECASE)
NEEDED = {"rocpd_op", "rocpd_string"}
MERGED = {"rank", "device", "edge"}
"""Tables that only a database for counting has."""
LONGEST_TEXT = 1 << 16
LARGEST_VALUE = 1 << 24
ROWS_AT_A_TIME = 1 << 16


class Dialect(NamedTuple):
    """Who writes such files, and the table in which API arguments stand."""

    name: str
    arguments: str


def is_database(path: str) -> bool:
    """Does the file start as SQLite databases do?"""
    try:
        with Path(path).open("rb") as stream:
            return stream.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


class Database:
    """The real tables of one file."""

    def __init__(self, path: str, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        self._most_rows = Path(path).stat().st_size
        real = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
        self.tables = {str(name) for rows in self.read(real) for (name,) in rows}

    def columns(self, table: str) -> set[str]:
        return {str(row[1]) for row in self._connection.execute(f'PRAGMA table_info("{table}")')}

    def integers(self, table: str, *columns: str) -> Int64:
        """The table in the order of its ids, shape (rows, columns); -1 for what is absent. A table that is absent has no rows."""
        known = self.columns(table) if table in self.tables else set()
        if not known:
            return np.empty((0, len(columns)), np.int64)
        chosen = ", ".join(f'COALESCE(CAST("{name}" AS INTEGER), -1)' if name in known else "-1" for name in columns)
        order = ' ORDER BY "id"' if "id" in known else ""
        pieces = [np.array(rows, np.int64) for rows in self.read(f'SELECT {chosen} FROM "{table}"{order}')]
        return np.concatenate(pieces) if pieces else np.empty((0, len(columns)), np.int64)

    def texts(self, table: str, ids: str) -> dict[int, str]:
        """The texts of a table of strings, by id, for the ids that the query `ids` gives."""
        if table not in self.tables:
            return {}
        query = f'SELECT id, substr(string, 1, {LONGEST_TEXT}) FROM "{table}" WHERE id IN ({ids})'
        return {int(str(code)): str(text) for rows in self.read(query) for code, text in rows if text is not None}

    def read(self, query: str) -> Iterator[list[tuple[object, ...]]]:
        """The rows of a query in pieces, never more of them than the file has bytes."""
        cursor, count = self._connection.execute(query), 0
        while rows := cursor.fetchmany(ROWS_AT_A_TIME):
            count += len(rows)
            if count > self._most_rows:
                raise DataError(f"{self.path}: damaged database, it has more rows than bytes; copy it again")
            yield rows


@contextmanager
def opened(path: str) -> Iterator[Database]:
    """The database under `path`. Whatever SQLite finds wrong with it while it is open becomes a DataError."""
    try:
        connection = sqlite3.connect(_read_only(Path(path)), uri=True)
    except (sqlite3.Error, OSError) as error:
        raise DataError(f"{path}: cannot be opened as a database ({error}); check the path") from error
    try:
        connection.text_factory = lambda text: text.decode("utf-8", "replace")
        if sys.version_info >= (3, 11):
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST_VALUE)
        for setting in ("trusted_schema = OFF", "query_only = ON", "cell_size_check = ON"):
            connection.execute(f"PRAGMA {setting}")
        yield Database(path, connection)
    except (sqlite3.Error, OSError, OverflowError) as error:
        raise DataError(f"{path}: damaged database ({error}); was its writer killed? copy it again") from error
    finally:
        connection.close()


def _read_only(path: Path) -> str:
    """An address under which nothing is written beside the file; one with a log of unwritten changes is read with that log."""
    log = path.with_name(path.name + "-wal")
    unwritten = log.exists() and log.stat().st_size > 0
    return path.resolve().as_uri() + ("?mode=ro" if unwritten else "?mode=ro&immutable=1")


def is_merged(database: Database) -> bool:
    """Several ranks merged into a database for counting."""
    return database.tables >= MERGED


def is_rocpd(database: Database) -> bool:
    """Some profiler's rocpd file, whether its schema is read here or not."""
    return any(table.startswith("rocpd_") for table in database.tables)


def dialect(database: Database) -> Dialect:
    """Raises DataError for a database that is no rocpd one, or one of ROCm 7's schema, saying what it is."""
    tables = database.tables
    by_guid = next((name for name in sorted(tables) if GUID_TABLE.fullmatch(name)), None)
    if by_guid:
        raise DataError(
            f"{database.path}: a rocpd database of ROCm 7 (rocprofv3), with tables named by a GUID ({by_guid}); this schema is not "
            "read, trace with RPD, rocm-trace-lite or the PyTorch profiler"
        )
    if is_merged(database):
        raise DataError(
            f"{database.path}: several ranks merged into a database for counting; link each rank's own file, or merge to "
            ".json.gz and take one out with --rank N"
        )
    if not tables >= NEEDED:
        names = ", ".join(sorted(tables)[:4]) or "none"
        raise DataError(f"{database.path}: no rocpd database, it lacks rocpd_op or rocpd_string (its tables: {names})")
    if "rocpd_ustring" in tables:
        return Dialect("RPD, schema 3", "rocpd_ustring")
    lite = "rocpd_kernelapi" in tables and "api_id" in database.columns("rocpd_kernelapi")
    return Dialect("rocm-trace-lite" if lite else "RPD, schema 2", "rocpd_string")


def recorded_processes(database: Database) -> list[int]:
    """The processes that the file says it is of, ascending; RPD does not say."""
    if "rocpd_metadata" not in database.tables:
        return []
    query = "SELECT DISTINCT CAST(value AS INTEGER) FROM rocpd_metadata WHERE tag = 'pid' ORDER BY 1"
    return [int(str(pid)) for rows in database.read(query) for (pid,) in rows]
