"""Opens an untrusted rocpd database (SQLite): read-only, no extensions, views or virtual tables, no more rows than
bytes.

It returns tables as columns of integers, strings, and the dialect that the file is written in.
"""

import re
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...schema.columns import Int64
from ...schema.errors import DataError, Remedy

MAGIC = b"SQLite format 3\x00"
GUID_TABLE = re.compile(r"rocpd_\w+_[0-9a-f]{8}_?(?:[0-9a-f]{4}_?){3}[0-9a-f]{12}", re.IGNORECASE)
NSIGHT_TABLE = ("CUPTI_ACTIVITY_KIND_", "NVTX_EVENTS")
"""How tables begin that Nsight Systems writes."""
REQUIRED_TABLES = {"rocpd_op", "rocpd_string"}
READ = REQUIRED_TABLES | {"rocpd_api", "rocpd_api_ops", "rocpd_kernelapi", "rocpd_metadata", "rocpd_ustring"}
MERGED = {"rank", "device", "edge"}
"""Tables that only a database for counting has."""
LONGEST_TEXT = 1 << 16
LARGEST_VALUE = 1 << 24
ROWS_AT_A_TIME, TEXTS_AT_A_TIME = 1 << 16, 1 << 10
ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ}
FUNCTIONS, PRAGMAS = {"coalesce", "like", "substr"}, {"table_xinfo"}
"""The functions that queries here need. All others are refused, as the schema of the file could call them."""
GENERATED = (2, 3)
"""The values by which `table_xinfo` marks columns that are computed when they are read or written."""
STEPS_PER_BYTE, LEAST_STEPS, STEPS_BETWEEN_LOOKS = 100, 1 << 24, 1 << 18
"""Limits of steps of SQLite's virtual machine in a query. Queries here take less than ten for each byte of the file."""


class Dialect(NamedTuple):
    """The name of the format, and the table with the arguments of API calls."""

    name: str
    arguments: str


def is_database(path: str) -> bool:
    """Returns whether the file starts as SQLite databases do."""
    try:
        with Path(path).open("rb") as stream:
            return stream.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


class Database:
    """The real tables of one file."""

    def __init__(self, path: str, connection: sqlite3.Connection) -> None:
        self.path, self._connection, self._steps = path, connection, 0
        file = Path(path).resolve()
        log = _beside(file, "-wal")
        self._size = file.stat().st_size + (log.stat().st_size if log.exists() else 0)
        connection.set_progress_handler(self._is_too_long, STEPS_BETWEEN_LOOKS)
        # virtual tables have no page of their own
        self.tables = self._names("type = 'table' AND rootpage > 0")
        self.views = self._names("type = 'view'")

    def _names(self, condition: str) -> set[str]:
        query = f"SELECT name FROM sqlite_master WHERE {condition}"
        return {str(name) for rows in self.read(query) for (name,) in rows}

    def _is_too_long(self) -> bool:
        """Returns whether the running query takes too many steps and must stop."""
        self._steps += STEPS_BETWEEN_LOOKS
        return self._steps > max(STEPS_PER_BYTE * self._size, LEAST_STEPS)

    def columns(self, table: str) -> set[str]:
        """Returns the names of a table's columns, none if the table is absent.

        Raises DataError where a column is computed, by rules of the file.
        """
        if table not in self.tables:
            return set()
        rows = [row for rows in self.read(f'PRAGMA table_xinfo("{table}")') for row in rows]
        if generated := [str(row[1]) for row in rows if row[-1] in GENERATED]:
            raise DataError(
                f"{self.path}: the column {generated[0]} of {table} is computed, which no profiler's is; copy it again"
            )
        return {str(row[1]) for row in rows}

    def different(self, column: str, table: str, where: str = "TRUE") -> list[int]:
        """Returns the distinct integers in a column, ascending, of the rows that meet a condition."""
        query = f"SELECT DISTINCT CAST({column} AS INTEGER) FROM {table} WHERE {column} NOT NULL AND {where} ORDER BY 1"
        return [int(str(number)) for rows in self.read(query) for (number,) in rows]

    def integers(self, table: str, *columns: str) -> Int64:
        """Returns columns of a table in the order of its ids, shape (rows, columns).

        Missing values and columns are -1; a table that is absent has no rows.
        """
        present = self.columns(table)
        if not present:
            return np.empty((0, len(columns)), np.int64)
        terms = (f'COALESCE(CAST("{name}" AS INTEGER), -1)' if name in present else "-1" for name in columns)
        order = ' ORDER BY "id"' if "id" in present else ""
        pieces = [np.array(rows, np.int64) for rows in self.read(f'SELECT {", ".join(terms)} FROM "{table}"{order}')]
        return np.concatenate(pieces) if pieces else np.empty((0, len(columns)), np.int64)

    def strings(self, table: str, ids: str) -> dict[int, str]:
        """Returns the strings of a table, by id, for the ids that the query `ids` returns."""
        if not self.columns(table):
            return {}
        query = f'SELECT CAST(id AS INTEGER), substr(string, 1, {LONGEST_TEXT}) FROM "{table}" WHERE id IN ({ids})'
        strings, length = dict[int, str](), 0
        for rows in self.read(query, TEXTS_AT_A_TIME):
            piece = {int(str(code)): str(text) for code, text in rows if text is not None}
            # rows that are older than their column share one text
            length += sum(map(len, piece.values()))
            if length > self._size:
                raise DataError(f"{self.path}: damaged database, it has more text than bytes; copy it again")
            strings |= piece
        return strings

    def read(self, query: str, at_a_time: int = ROWS_AT_A_TIME) -> Iterator[list[tuple[object, ...]]]:
        """Yields the rows of a query in pieces. Raises DataError for more rows, or steps, than the size explains."""
        self._steps = 0
        try:
            cursor, count = self._connection.execute(query), 0
            while rows := cursor.fetchmany(at_a_time):
                count += len(rows)
                if count > self._size:
                    raise DataError(f"{self.path}: damaged database, it has more rows than bytes; copy it again")
                yield rows
        except sqlite3.OperationalError as error:
            if self._is_too_long():
                raise DataError(
                    f"{self.path}: damaged database, to read it takes more steps than its size explains; copy it again"
                ) from error
            raise


@contextmanager
def opened(path: str) -> Iterator[Database]:
    """Opens the database at `path`, without what its schema could make SQLite do. Its errors become a DataError."""
    file = Path(path).resolve()
    try:
        with _address(file) as address, closing(sqlite3.connect(address, uri=True)) as connection:
            connection.text_factory = lambda text: text.decode("utf-8", "replace")
            if sys.version_info >= (3, 11):
                connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST_VALUE)
                connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
            for setting in ("trusted_schema = OFF", "query_only = ON", "cell_size_check = ON"):
                connection.execute(f"PRAGMA {setting}")
            connection.set_authorizer(_authorize)
            yield Database(path, connection)
    except (sqlite3.Error, OSError, OverflowError, UnicodeDecodeError, MemoryError) as error:
        if _holds_something(_beside(file, "-journal")):
            raise DataError(
                f"{path}: amid a change ({error}); its writer is at work, or was killed: then sqlite3 undoes the change"
            ) from error
        raise DataError(f"{path}: damaged database ({error}); was its writer killed? copy it again") from error


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


def is_merged(database: Database) -> bool:
    """Returns whether this is a database for counting, into which several ranks were merged."""
    return database.tables >= MERGED


def is_rocpd(database: Database) -> bool:
    """Returns whether this is a rocpd file of any profiler, even of a schema that cannot be read here."""
    return any(table.startswith("rocpd_") for table in database.tables)


def dialect(database: Database) -> Dialect:
    """Returns the format of the file. Raises DataError for other databases and for the schema of ROCm 7."""
    tables = database.tables
    by_guid = next((name for name in sorted(tables) if GUID_TABLE.fullmatch(name)), None)
    if by_guid:
        raise DataError(
            f"{database.path}: a rocpd database of ROCm 7 (rocprofv3), with tables named by a GUID ({by_guid}); this "
            "schema is not read, trace with RPD, rocm-trace-lite or the PyTorch profiler"
        )
    if is_merged(database):
        raise DataError(
            f"{database.path}: several ranks merged into a database for counting; link each rank's own file, or "
            "merge to .json.gz and take one out with ",
            Remedy.LINK_RANK,
        )
    if as_views := sorted(READ & database.views):
        raise DataError(
            f"{database.path}: {as_views[0]} is a view, where profilers write a table; link the file that it was "
            "made of"
        )
    if any(table.startswith(NSIGHT_TABLE) for table in tables):
        raise DataError(
            f"{database.path}: a database of Nsight Systems, which execgraph does not read; record with the PyTorch "
            "profiler"
        )
    if not tables >= REQUIRED_TABLES:
        names = ", ".join(sorted(tables)[:4]) or "none"
        raise DataError(f"{database.path}: no rocpd database, it lacks rocpd_op or rocpd_string (its tables: {names})")
    if "rocpd_ustring" in tables:
        return Dialect("RPD, schema 3", "rocpd_ustring")
    lite = "rocpd_kernelapi" in tables and "api_id" in database.columns("rocpd_kernelapi")
    return Dialect("rocm-trace-lite" if lite else "RPD, schema 2", "rocpd_string")


def processes(database: Database) -> list[int]:
    """Returns the traced processes, ascending: those recorded as such, else those that launched, else all callers."""
    recorded: list[int] = []
    if {"tag", "value"} <= database.columns("rocpd_metadata"):
        recorded = database.different("value", "rocpd_metadata", "tag = 'pid'")
    if recorded or not {"id", "pid"} <= database.columns("rocpd_api"):
        return recorded
    with_calls = database.different("pid", "rocpd_api")
    if len(with_calls) < 2 or "api_id" not in database.columns("rocpd_api_ops"):
        return with_calls
    return database.different("pid", "rocpd_api", "id IN (SELECT api_id FROM rocpd_api_ops)") or with_calls
