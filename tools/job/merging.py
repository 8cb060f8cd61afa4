"""Merges the device traces of all ranks into a Chrome trace to look at, or a SQLite database to count in."""

import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np

from ...linker.joining import enclosing_ops, launching_calls
from ...linker.readers import read_device_trace
from ...schema.columns import Bool, Categorical, Int64, ThreadIntervals, nest
from ...schema.errors import DataError, RequestError, Spelled, WrongUsage
from ...schema.io import path_is
from ...schema.linked import are_step_marks, previous_on_stream
from ...schema.progress import Progress, unwatched
from ...schema.reasons import AnyReason, Counts, Reason
from ..recognise import InputKind, wrong_kind
from ..terminal import list_counts
from ..trace_files import RankFile, by_rank, find_traces, hosts_of
from .merge_survey import MergeReport, RankReport, Survey, survey
from .viewing import merge_for_viewing

ROWS_AT_A_TIME = 1 << 16
TABLES_AND_QUERIES = """\
rank(rank, pid, file, world_size, base_time_ns, shift_ns)   a process; its file's times are shift_ns smaller
device(rank, device, activities)                            a device as that process numbers it
op(id, rank, pid, thread, name, start_ns, end_ns, annotation, rf_id)      host ops; annotations, as steps, roctx ranges
call(id, rank, pid, thread, name, start_ns, end_ns, correlation)          runtime and driver calls
activity(id, rank, device, stream, name, category, start_ns, end_ns, correlation)
launch(rank, call, activity, delay_ns)                      which call launched what, how long after its return
edge(rank, kind, source, target)                            nested: op in op; calls: op, call; launches: call, activity;
                                                            stream: activity, the next one on its stream
dropped(rank, reason, count)                                what of a file is in no table

SELECT rank, device, count(*) FROM activity GROUP BY 1, 2;
SELECT name, count(*), sum(end_ns - start_ns) / 1e3 AS total_us FROM activity GROUP BY 1 ORDER BY 3 DESC LIMIT 10;
SELECT rank, device, stream, 1. * sum(end_ns - start_ns) / (max(end_ns) - min(start_ns)) FROM activity GROUP BY 1, 2, 3;
SELECT call.name, count(*), avg(delay_ns) FROM launch JOIN call ON call.id = launch.call GROUP BY 1;
SELECT rank, count(*) FROM activity WHERE id NOT IN (SELECT activity FROM launch) GROUP BY 1;
SELECT op.name, count(*) FROM op JOIN edge ON source = op.id AND kind = 'calls' JOIN launch ON call = target GROUP BY 1;"""
"""What the help of trace-merge says of a database."""
AnyColumn = Int64 | Bool
SCHEMA = """
CREATE TABLE rank (rank INTEGER PRIMARY KEY, pid INTEGER, file TEXT, world_size INTEGER, base_time_ns INTEGER, shift_ns INTEGER);
CREATE TABLE device (rank INTEGER, device INTEGER, activities INTEGER, PRIMARY KEY (rank, device));
CREATE TABLE text (id INTEGER PRIMARY KEY, text TEXT UNIQUE);
CREATE TABLE ops (id INTEGER PRIMARY KEY, rank INTEGER, pid INTEGER, thread INTEGER, name INTEGER, start_ns INTEGER,
    end_ns INTEGER, annotation INTEGER, rf_id INTEGER);
CREATE TABLE calls (id INTEGER PRIMARY KEY, rank INTEGER, pid INTEGER, thread INTEGER, name INTEGER, start_ns INTEGER,
    end_ns INTEGER, correlation INTEGER);
CREATE TABLE activities (id INTEGER PRIMARY KEY, rank INTEGER, device INTEGER, stream INTEGER, name INTEGER, category INTEGER,
    start_ns INTEGER, end_ns INTEGER, correlation INTEGER);
CREATE TABLE edge (rank INTEGER, kind TEXT, source INTEGER, target INTEGER);
CREATE TABLE dropped (rank INTEGER, reason TEXT, count INTEGER);
CREATE VIEW op AS SELECT ops.id, rank, pid, thread, text AS name, start_ns, end_ns, annotation, rf_id
    FROM ops LEFT JOIN text ON text.id = name;
CREATE VIEW call AS SELECT calls.id, rank, pid, thread, text AS name, start_ns, end_ns, correlation
    FROM calls LEFT JOIN text ON text.id = name;
CREATE VIEW activity AS SELECT activities.id, rank, device, stream, names.text AS name, categories.text AS category, start_ns, end_ns,
    correlation FROM activities LEFT JOIN text AS names ON names.id = name LEFT JOIN text AS categories ON categories.id = category;
CREATE VIEW launch AS SELECT edge.rank, calls.id AS call, activities.id AS activity,
    max(0, activities.start_ns - calls.end_ns) AS delay_ns
    FROM edge JOIN calls ON calls.id = source JOIN activities ON activities.id = target WHERE kind = 'launches';
"""
INDEXES = """
CREATE INDEX edges_of_source ON edge (kind, source);
CREATE INDEX edges_of_target ON edge (kind, target);
CREATE INDEX activities_of_device ON activities (rank, device, stream, start_ns);
"""


def merge_for_counting(ranks: Sequence[RankFile], output: str, progress: Progress = unwatched) -> MergeReport:
    """Writes the database, whole or not at all, with one rank in memory. Raises DataError if a trace cannot be read."""
    job = survey(ranks, progress)
    report = MergeReport(output, notes=[*job.notes])
    with _written_beside(output) as connection:
        connection.executescript(SCHEMA)
        for trace in progress(ranks, "merging ranks", len(ranks), "rank"):
            rank = _Rank(connection, trace, job)
            report.ranks.append(rank.write())
            report.notes += rank.trace.notes
            connection.commit()
        connection.executescript(INDEXES)
    return report


@contextmanager
def _written_beside(output: str) -> Iterator[sqlite3.Connection]:
    """Opens a new database that takes its name when the block ends without an exception; links are followed."""
    target = Path(output).resolve()
    if path_is(target, Path.exists) and not target.is_file():
        raise DataError(f"{output}: is no file that a database could be written to; name another one")
    try:
        with tempfile.TemporaryDirectory(prefix=".", suffix=".partial", dir=target.parent) as folder:
            with closing(sqlite3.connect(Path(folder) / "merged.db")) as connection:
                for setting in ("journal_mode = OFF", "synchronous = OFF"):
                    connection.execute(f"PRAGMA {setting}")
                yield connection
                connection.commit()
            (Path(folder) / "merged.db").replace(target)
    except (OSError, sqlite3.Error) as error:
        raise DataError(f"{output}: cannot be written ({error})") from error


class _Rank:
    """Writes one rank's tables."""

    def __init__(self, connection: sqlite3.Connection, of: RankFile, job: Survey) -> None:
        self.connection, self.rank, self.file = connection, of.rank, str(of.path)
        self.clock, self.hosts = job.clocks[of.rank], job.hosts[of.rank]
        self.trace = read_device_trace(str(of.path))
        unused_id, tables = "SELECT COALESCE(max(id), 0) + 1 FROM {}", ("ops", "calls", "activities")
        self.first = {table: int(connection.execute(unused_id.format(table)).fetchone()[0]) for table in tables}

    def write(self) -> RankReport:
        trace, clock = self.trace, self.clock
        ops, calls, activities = trace.ops, trace.calls, trace.activities
        rank = self.rank, min(self.hosts, default=None), self.file, trace.world_size, clock.base_time_ns, clock.shift_ns
        self.connection.execute("INSERT INTO rank VALUES (?, ?, ?, ?, ?, ?)", rank)
        self._insert("device", *np.unique(activities.device, return_counts=True))
        lost: dict[AnyReason, int] = {
            Reason.SYNC_RECORDS: len(trace.syncs.start),
            Reason.EVENT_RECORDS: len(trace.event_records.event),
        }
        dropped = Counts(lost).add(trace.skipped).in_words()
        reasons = [(self.rank, reason, count) for reason, count in dropped.items()]
        self.connection.executemany("INSERT INTO dropped VALUES (?, ?, ?)", reasons)
        times = [(rows.start + clock.shift_ns, rows.end + clock.shift_ns) for rows in (ops, calls, activities)]
        self._insert("ops", ops.process, ops.thread, self._ids(ops.name), *times[0], ops.annotation, ops.rf_id)
        self._insert("calls", calls.process, calls.thread, self._ids(calls.name), *times[1], calls.correlation)
        texts = self._ids(activities.name), self._ids(activities.category)
        self._insert("activities", activities.device, activities.stream, *texts, *times[2], activities.correlation)
        nesting = nest(ThreadIntervals(ops.thread, ops.start, ops.end), ops.event_index)
        op_of_call = enclosing_ops(calls, ops, nesting, are_step_marks(ops.name))
        self._edges("nested", "ops", "ops", nesting.parent)
        self._edges("calls", "ops", "calls", op_of_call)
        self._edges("launches", "calls", "activities", launching_calls(activities, calls))
        self._edges("stream", "activities", "activities", previous_on_stream(activities))
        rows = len(ops.start) + len(calls.start) + len(activities.start)
        return RankReport(self.rank, self.file, rows, len(activities.start), clock.correction_ns)

    def _insert(self, table: str, *columns: AnyColumn) -> None:
        """Rows of this rank, numbered where the table numbers its rows."""
        count = len(columns[0])
        rank = np.full(count, self.rank)
        lead = (np.arange(count) + self.first[table], rank) if table in self.first else (rank,)
        placeholders = ", ".join("?" * (len(lead) + len(columns)))
        for begin in range(0, count, ROWS_AT_A_TIME):
            part = [column[begin : begin + ROWS_AT_A_TIME].tolist() for column in (*lead, *columns)]
            self.connection.executemany(f"INSERT INTO {table} VALUES ({placeholders})", zip(*part, strict=True))

    def _ids(self, column: Categorical) -> Int64:
        """Returns the ids of the texts, which are added where they are new."""
        self.connection.executemany("INSERT OR IGNORE INTO text (text) VALUES (?)", ((text,) for text in column.table))
        query = "SELECT id FROM text WHERE text = ?"
        ids = [self.connection.execute(query, (text,)).fetchone()[0] for text in column.table]
        return np.array([*ids, 0], np.int64)[column.codes]

    def _edges(self, kind: str, sources: str, targets: str, source: Int64) -> None:
        """Adds an edge to each target row that has a source row (not -1)."""
        target = np.flatnonzero(source >= 0)
        pairs = (source[target] + self.first[sources]).tolist(), (target + self.first[targets]).tolist()
        query = f"INSERT INTO edge VALUES ({self.rank}, '{kind}', ?, ?)"
        self.connection.executemany(query, zip(*pairs, strict=True))


WRITERS = {".db": merge_for_counting, ".json": merge_for_viewing, ".json.gz": merge_for_viewing}
"""What writes a merged file, by how its name ends."""


def merge_traces(
    inputs: Sequence[str], output: str, progress: Progress = unwatched, allow_mismatch: bool = False
) -> MergeReport:
    """Writes the device traces of all ranks to one file, whose name says what it is for: one to look at or to count in.

    Raises WrongUsage for a name that does not say it; RequestError where the output is one of the traces; DataError
    where no trace is of a single rank, one cannot be used, or they seem to be of two jobs, without `allow_mismatch`.
    """
    merge = next((writer for suffix, writer in WRITERS.items() if output.lower().endswith(suffix)), None)
    if merge is None:
        raise WrongUsage(f"{Spelled('--output ', '')}{output}: end it in {', '.join(WRITERS)} to say what to write")
    made = Path(output).resolve()
    files = find_traces([Path(path) for path in inputs], progress=progress)
    devices, merged = files.devices, [trace for trace in files.merged if Path(trace.name).resolve() != made]
    if any(Path(trace.name).resolve() == made for trace in (*devices, *files.hosts, *files.details)):
        raise RequestError(f"{output} is a trace of one rank, which is read: give another name for the output")
    if files.failures:
        raise DataError("; ".join(files.failures))
    if not devices:
        of_files = (wrong_kind(path, InputKind.DEVICE) for path in map(Path, inputs) if path.is_file())
        counts = {"host traces": len(files.hosts), "merged ones": len(files.merged), **files.skipped}
        remedy = "; a merged one is opened as it is" if files.merged else ""
        nothing = f"{', '.join(inputs)}: no device trace of a single rank{list_counts(', but ', counts)}{remedy}"
        raise DataError(next(filter(None, of_files), nothing))
    ranks, notes = by_rank(devices, hosts_of(devices, files.hosts), allow_mismatch)
    report = merge(ranks, output, progress)
    others = {"host traces, which have no times": len(files.hosts), "detail traces": len(files.details)}
    report.skipped = files.skipped | {kind: count for kind, count in others.items() if count}
    report.notes += notes + [f"{trace.name}: merged of several ranks already; left out" for trace in merged]
    return report
