"""Reads a rocpd database (SQLite, as RPD and rocm-trace-lite write it) into the columns of a device trace.

One activity per device op, one call per API row, roctx ranges as annotations. Times are the file's own ns. The file is opened read-only
and not trusted: views, virtual tables and extensions are not used, and what is read is bounded by the file's size.
"""

import re
import sqlite3
import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..schema.columns import Bool, Int64, Strings
from ..schema.errors import DataError
from .device_trace import ActivityRows, CallRows, DeviceTrace, EventRecordRows, OpRows, SyncRows, integer

MAGIC = b"SQLite format 3\x00"
GUID_TABLE = re.compile(r"rocpd_\w+_[0-9a-f]{8}_?(?:[0-9a-f]{4}_?){3}[0-9a-f]{12}", re.IGNORECASE)
MERGED_TABLES = {"rank", "activities", "edge"}
HARDWARE_QUEUE = re.compile(r"\bhwq\s*[=:]\s*(0x[0-9a-f]+|\d+)", re.IGNORECASE)
MARKER = "UserMarker"
KINDS = (
    (re.compile(r"copy|memcpy", re.IGNORECASE), "gpu_memcpy"),
    (re.compile(r"fill|memset", re.IGNORECASE), "gpu_memset"),
    (re.compile(r"barrier|marker", re.IGNORECASE), "wait"),
    (re.compile(r"kernel|dispatch|task", re.IGNORECASE), "kernel"),
)
"""The category of an activity by its opType."""

LONGEST_TEXT = 1 << 16
LARGEST_VALUE = 1 << 24
ROWS_AT_A_TIME = 1 << 16
FEW_QUEUES = 128
OPS_PER_QUEUE = 2
"""More than FEW_QUEUES queues on a device with fewer ops each than this number dispatches; they are no queues."""
NO_RANGES = np.empty((0, 5), np.int64)


class Dialect(NamedTuple):
    """Who wrote the file, where API arguments stand, and whether ops tell their hardware queue."""

    name: str
    arguments: str
    completion_signal: bool


def is_database(path: str) -> bool:
    """Does the file start as SQLite databases do?"""
    try:
        with Path(path).open("rb") as stream:
            return stream.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def read_rocpd(path: str) -> DeviceTrace:
    """Reads the ops, API rows and roctx ranges of a database.

    Launch links are those of `rocpd_api_ops`; where it is empty activities have none. Streams are hardware queues where recorded, else
    queue ids. A file in which several processes launched is marked as merged, its processes labelled by their order as ranks. Raises
    DataError for another database, one of ROCm 7's schema, or a damaged one.
    """
    with _opened(path) as database:
        dialect = _dialect(database)
        strings, messages = _strings(database, dialect)
        api = database.rows("rocpd_api", "id", "pid", "tid", "start", "end", "apiName_id", "args_id")
        ops = database.rows("rocpd_op", "id", "gpuId", "queueId", "start", "end", "description_id", "opType_id")
        links = database.rows("rocpd_api_ops", "op_id", "api_id")
        queues = _hardware_queues(database) if dialect.completion_signal else {}
        recorded = _processes_of(database)
    skipped: Counter[str] = Counter()
    process = recorded[0] if recorded else int(api[0, 1]) if len(api) else -1
    is_marker = np.isin(api[:, 5], [code for code, text in strings.items() if text == MARKER])
    calls = _calls(api[~is_marker], strings, skipped)
    on_device = ops[:, 1] >= 0
    activities, launcher = _activities(ops[on_device], links, queues, strings, skipped)
    activities.process = _owners(activities, launcher, api, process)
    marks = (
        _ranges(api[is_marker][:, [1, 2, 3, 4, 6]], messages, skipped),
        _ranges(_markers(ops[~on_device], process), strings, skipped),
    )
    trace = _trace(path, calls, activities, _annotations(marks), skipped)
    _mark_merged(trace, recorded)
    return trace


def rocpd_facts(path: str) -> tuple[str, list[int]]:
    """Which dialect a database is in, and the processes that it says it is of. Raises DataError as `read_rocpd` does."""
    with _opened(path) as database:
        return _dialect(database).name, _processes_of(database)


# opening and reading


class _Database:
    """The tables of one file, by columns of integers."""

    def __init__(self, path: str, connection: sqlite3.Connection) -> None:
        self.path, self.connection = path, connection
        self.most_rows = Path(path).stat().st_size
        found = connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
        )
        self.tables = {str(name) for (name,) in found.fetchmany(ROWS_AT_A_TIME)}

    def columns(self, table: str) -> set[str]:
        return {str(row[1]) for row in self.connection.execute(f'PRAGMA table_info("{table}")')}

    def rows(self, table: str, *columns: str) -> Int64:
        """The rows of a table in the order of their ids as an array of n rows, -1 for what is absent or no number."""
        known = self.columns(table) if table in self.tables else set()
        if not known:
            return np.empty((0, len(columns)), np.int64)
        chosen = ", ".join(f'COALESCE(CAST("{name}" AS INTEGER), -1)' if name in known else "-1" for name in columns)
        order = ' ORDER BY "id"' if "id" in known else ""
        pieces = [np.array(rows, np.int64) for rows in self.read(f'SELECT {chosen} FROM "{table}"{order}')]
        return np.concatenate(pieces) if pieces else np.empty((0, len(columns)), np.int64)

    def read(self, query: str) -> Iterator[list[tuple[object, ...]]]:
        """The query's rows in pieces, never more than the file can hold."""
        cursor, read = self.connection.execute(query), 0
        while rows := cursor.fetchmany(ROWS_AT_A_TIME):
            read += len(rows)
            if read > self.most_rows:
                raise DataError(f"{self.path}: damaged database: it has more rows than bytes; copy it again")
            yield rows


@contextmanager
def _opened(path: str) -> Iterator[_Database]:
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
        yield _Database(path, connection)
    except (sqlite3.Error, OverflowError) as error:
        raise DataError(f"{path}: damaged database ({error}); was its writer killed? copy it again") from error
    finally:
        connection.close()


def _read_only(path: Path) -> str:
    """An address that leaves no file beside the database; one with a journal of unwritten changes needs that journal."""
    journal = path.with_name(path.name + "-wal")
    unwritten = journal.exists() and journal.stat().st_size > 0
    return path.resolve().as_uri() + ("?mode=ro" if unwritten else "?mode=ro&immutable=1")


def _dialect(database: _Database) -> Dialect:
    """Raises DataError for a database that is no rocpd one, naming what it is instead."""
    tables = database.tables
    by_guid = next((name for name in sorted(tables) if GUID_TABLE.fullmatch(name)), None)
    if by_guid:
        raise DataError(
            f"{database.path}: a rocpd database of ROCm 7 (rocprofv3), whose tables are named by a GUID ({by_guid}); this schema is "
            "not read: trace with RPD, rocm-trace-lite or the PyTorch profiler"
        )
    if tables >= MERGED_TABLES:
        raise DataError(
            f"{database.path}: several ranks merged into one database to count in; link each rank's own file, or merge "
            "to .json.gz and take one out with --rank N"
        )
    if not {"rocpd_op", "rocpd_string"} <= tables:
        names = ", ".join(sorted(tables)[:4]) or "none"
        raise DataError(f"{database.path}: a database without rocpd_op and rocpd_string tables (it has {names})")
    signal = "completionSignal" in database.columns("rocpd_op")
    if "rocpd_ustring" in tables:
        return Dialect("RPD, schema 3", "rocpd_ustring", signal)
    lite = "rocpd_kernelapi" in tables and "api_id" in database.columns("rocpd_kernelapi")
    return Dialect("rocm-trace-lite" if lite else "RPD, schema 2", "rocpd_string", signal)


def _strings(database: _Database, dialect: Dialect) -> tuple[dict[int, str], dict[int, str]]:
    """The texts that name ops and calls, and those that name roctx ranges. API arguments, of which there are many, are left out."""
    names = "SELECT description_id FROM rocpd_op UNION SELECT opType_id FROM rocpd_op"
    has_api = "rocpd_api" in database.tables
    names += " UNION SELECT apiName_id FROM rocpd_api" if has_api else ""
    strings = _texts(database, "rocpd_string", names)
    marker = [str(code) for code, text in strings.items() if text == MARKER]
    if not has_api or not marker or dialect.arguments not in database.tables:
        return strings, {}
    messages = f"SELECT args_id FROM rocpd_api WHERE apiName_id IN ({', '.join(marker)})"
    return strings, _texts(database, dialect.arguments, messages)


def _texts(database: _Database, table: str, ids: str) -> dict[int, str]:
    query = f'SELECT id, substr(string, 1, {LONGEST_TEXT}) FROM "{table}" WHERE id IN ({ids})'
    return {int(str(code)): str(text) for rows in database.read(query) for code, text in rows if text is not None}


def _hardware_queues(database: _Database) -> dict[int, int]:
    """The hardware queue of each op that tells it."""
    query = "SELECT id, substr(completionSignal, 1, 256) FROM rocpd_op WHERE completionSignal LIKE '%hwq%'"
    found = (
        (code, HARDWARE_QUEUE.search(str(text))) for rows in database.read(query) for code, text in rows
    )
    return {int(str(code)): integer(queue.group(1), 0) for code, queue in found if queue}


def _processes_of(database: _Database) -> list[int]:
    if "rocpd_metadata" not in database.tables:
        return []
    query = "SELECT DISTINCT CAST(value AS INTEGER) FROM rocpd_metadata WHERE tag = 'pid' ORDER BY 1"
    return [int(str(pid)) for rows in database.read(query) for (pid,) in rows]


# columns


def _calls(api: Int64, strings: dict[int, str], skipped: Counter[str]) -> CallRows:
    ended = (api[:, 3] >= 0) & (api[:, 4] >= api[:, 3])
    skipped["API rows without an end"] += int((~ended).sum())
    api = api[ended]
    return CallRows(
        name=_named(api[:, 5], strings, api[:, 5]),
        process=api[:, 1],
        thread=api[:, 2],
        start=api[:, 3],
        end=api[:, 4],
        correlation=api[:, 0],
        external_id=np.zeros(len(api), np.int64),
    )


def _activities(
    ops: Int64, links: Int64, queues: dict[int, int], strings: dict[int, str], skipped: Counter[str]
) -> tuple[ActivityRows, Int64]:
    """The activities, and for each the id of the API row that launched it, 0 for none."""
    kinds = _kinds(ops[:, 6], strings)
    timed, category = ops[:, 4] > ops[:, 3], np.array([kinds[code] for code in ops[:, 6].tolist()], object)
    known = np.isin(category, ("kernel", "gpu_memcpy", "gpu_memset"))
    skipped["ops of zero length"] += int((known & ~timed).sum())
    skipped["device rows that record waiting"] += int((category == "wait").sum())
    for code, count in zip(*np.unique(ops[~known & (category != "wait"), 6], return_counts=True), strict=True):
        skipped[f"unknown opType {strings.get(int(code), '')}"] += int(count)
    kept = known & timed
    launcher = _launcher(ops[:, 0], links, skipped)[kept]
    ops, category = ops[kept], category[kept]
    stream = np.array([queues.get(op, queue) for op, queue in ops[:, [0, 2]].tolist()], np.int64)
    rows = ActivityRows(
        name=_named(ops[:, 5], strings, ops[:, 6]),
        category=Strings.of(category.tolist()),
        process=ops[:, 1],
        device=ops[:, 1],
        stream=_real_queues(ops[:, 1], stream, skipped),
        start=ops[:, 3],
        end=ops[:, 4],
        correlation=launcher,
        external_id=np.zeros(len(ops), np.int64),
        graph_node=np.full(len(ops), -1, np.int64),
    )
    return rows, launcher


def _kinds(types: Int64, strings: dict[int, str]) -> dict[int, str]:
    def kind(text: str) -> str:
        return next((category for pattern, category in KINDS if pattern.search(text)), "")

    return {code: kind(strings.get(code, "")) for code in np.unique(types).tolist()}


def _launcher(ops: Int64, links: Int64, skipped: Counter[str]) -> Int64:
    """For each op, in the order of ids, the first API row linked to it."""
    order = np.argsort(links[:, 0], kind="stable")
    links = links[order]
    there = np.isin(links[:, 0], ops)
    skipped["launch links of ops that are not there"] += int((~there).sum())
    place = np.searchsorted(links[:, 0], ops)
    found = place < len(links)
    found[found] = links[place[found], 0] == ops[found]
    launcher = np.zeros(len(ops), np.int64)
    launcher[found] = links[place[found], 1]
    skipped["launch links of ops that have one already"] += int(there.sum()) - int(found.sum())
    return launcher


def _real_queues(device: Int64, queue: Int64, skipped: Counter[str]) -> Int64:
    """The queues, but 0 on devices where every dispatch has a number of its own."""
    queue = queue.copy()
    for number in np.unique(device).tolist():
        mine = device == number
        queues = len(np.unique(queue[mine]))
        if queues > FEW_QUEUES and queues * OPS_PER_QUEUE > int(mine.sum()):
            skipped["queue ids that name dispatches, put on one stream"] += int(mine.sum())
            queue[mine] = 0
    return queue


def _owners(activities: ActivityRows, launcher: Int64, api: Int64, process: int) -> Int64:
    """The process that launched each activity, that of the file where no API row tells."""
    owners = np.where(activities.device >= 0, process, -1) if process >= 0 else activities.device
    if len(api):
        place = np.minimum(np.searchsorted(api[:, 0], launcher), len(api) - 1)
        owners = np.where(api[place, 0] == launcher, api[place, 1], owners)
    return owners.astype(np.int64)


def _named(codes: Int64, strings: dict[int, str], otherwise: Int64) -> Strings:
    """Names by code; where a name is empty the text of the other code, as ops without a description are known by their type."""
    names = (
        strings.get(code) or strings.get(other) or "unknown"
        for code, other in zip(codes.tolist(), otherwise.tolist(), strict=True)
    )
    return Strings.of(names)


# roctx ranges


class Ranges(NamedTuple):
    """Rows of (process, thread or -1, start, end, code of the message), and the messages."""

    rows: Int64
    messages: dict[int, str]


def _markers(ops: Int64, process: int) -> Int64:
    """roctx ranges that were recorded as ops of no device, by the process of the file."""
    columns = (np.full(len(ops), process), np.full(len(ops), -1), ops[:, 3], ops[:, 4], ops[:, 5])
    return np.stack(columns, axis=1).astype(np.int64)


def _ranges(rows: Int64, messages: dict[int, str], skipped: Counter[str]) -> Ranges:
    lasting = rows[:, 3] > rows[:, 2]
    skipped["roctx marks, which last no time"] += int((~lasting).sum())
    rows = rows[lasting]
    return Ranges(rows[np.lexsort((-rows[:, 3], rows[:, 2]))], messages)


def _annotations(tables: Iterable[Ranges]) -> OpRows:
    parts = [table for table in tables if len(table.rows)]
    rows = np.concatenate([part.rows for part in parts]) if parts else NO_RANGES
    names = [part.messages.get(code, "") for part in parts for code in part.rows[:, 4].tolist()]
    zero, none = np.zeros(len(rows), np.int64), np.full(len(rows), -1, np.int64)
    return OpRows(
        name=Strings.of(names),
        process=rows[:, 0],
        thread=np.where(rows[:, 1] < 0, _lanes(rows), rows[:, 1]),
        start=rows[:, 2],
        end=rows[:, 3],
        annotation=np.ones(len(rows), np.bool_),
        rf_id=zero,
        external_id=zero,
        event_index=none,
        sequence=none,
        forward_thread=zero,
    )


def _lanes(rows: Int64) -> Int64:
    """For ranges of unknown thread, sorted by start, the first of the lanes 0, 1, … on which they nest."""
    lanes: list[list[int]] = []
    chosen = np.zeros(len(rows), np.int64)
    for row in np.flatnonzero(rows[:, 1] < 0).tolist():
        start, end = rows[row, 2:4].tolist()
        chosen[row] = next((n for n, lane in enumerate(lanes) if _nests(lane, start, end)), len(lanes))
        if chosen[row] == len(lanes):
            lanes.append([])
        lanes[chosen[row]].append(-end)
    return chosen


def _nests(ends: list[int], start: int, end: int) -> bool:
    """Closes the ranges that ended before `start`; does the new one end within the innermost still open? `ends` are negated."""
    del ends[bisect_right(ends, -start - 1) if False else _open(ends, start) :]
    return not ends or -ends[-1] >= end


def _open(ends: list[int], start: int) -> int:
    count = len(ends)
    while count and -ends[count - 1] <= start:
        count -= 1
    return count


# the trace


def _trace(
    path: str, calls: CallRows, activities: ActivityRows, annotations: OpRows, skipped: Counter[str]
) -> DeviceTrace:
    if not len(activities.start) and not len(calls.start) and not len(annotations.start):
        raise DataError(f"{path}: holds no device op, API row or roctx range; was anything recorded?")
    none = np.empty(0, np.int64)
    return DeviceTrace(
        path=path,
        rank=None,
        world_size=None,
        base_time_ns=0,
        groups=[],
        ops=annotations,
        calls=calls,
        activities=activities,
        syncs=SyncRows(Strings.of(()), none, none, none, none, none, none, none, none, none),
        event_records=EventRecordRows(none, none, none),
        communication={},
        skipped=Counter({reason: count for reason, count in skipped.items() if count}),
    )


def _mark_merged(trace: DeviceTrace, recorded: Sequence[int]) -> None:
    """Says so where several processes launched. Launchers start ranks in order, so processes are labelled by theirs."""
    linked: Bool = trace.activities.correlation > 0
    launching = np.unique(trace.activities.process[linked]).tolist()
    if len(launching) > 1:
        trace.merge_marks.append(f"{len(launching)} processes launched")
        trace.labels = [(process, f"rank {number}") for number, process in enumerate(launching)]
    elif len(recorded) > 1:
        trace.merge_marks.append(f"{len(recorded)} processes recorded")
