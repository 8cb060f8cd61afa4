"""Merges the device traces of all ranks into one Chrome trace, from which each rank's trace can be taken again.

Ids become unique, times move by a whole number of µs, rows that cross others, which viewers drop, go to a lane beside
their thread; nothing else changes. Memory is that of one rank's columns and one piece of its file.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec
import numpy as np

from ...linker.readers import DEVICE_SIDE_WAITS, FIRST_DEPENDENCY, Role, open_trace, role_of
from ...schema import linked
from ...schema.columns import ABSENT, Int64, Interner, ThreadIntervals, nesting_lanes
from ...schema.errors import Damage
from ...schema.io import open_output
from ...schema.json_stream import ArrayReader
from ...schema.linked import DeviceFile, InexactTime, MergedRank, identity, json_value
from ...schema.progress import Progress, unwatched
from ..trace_files import RankFile
from .merge_survey import MergeReport, RankReport, survey

FIRST_LANE = 1 << 30
"""Above the numbers of threads and streams."""
Row = dict[str, msgspec.Raw]
CORRELATIONS = ("correlation", "wait_on_cuda_event_record_corr_id")
FLOW_IDS = ("id", "bind_id")
NAMES = (b'"process_name"', b'"process_sort_index"')
"""Metadata rows that are made anew."""
THREAD_NAMES = (b'"thread_name"', b'"thread_sort_index"')
FLOWS = (b'"s"', b'"t"', b'"f"')
PROCESSES_OF_RANK = 100
ROW = msgspec.json.Decoder(Row)
NULL, EMPTY, METADATA = msgspec.Raw(b"null"), msgspec.Raw(b'""'), msgspec.Raw(b'"M"')
DEVICE_WAITS = tuple(f'"{name}"'.encode() for name in DEVICE_SIDE_WAITS)
EVENTS = "traceEvents"


class PlacedRow(msgspec.Struct, gc=False):
    """Where and when a row is shown."""

    ph: Any = ""
    pid: msgspec.Raw = msgspec.Raw(b"null")
    tid: msgspec.Raw = msgspec.Raw(b"null")
    ts: msgspec.Raw = msgspec.Raw(b"null")
    dur: msgspec.Raw = msgspec.Raw(b"null")


class Thread(NamedTuple):
    """A process and a thread as they stand in the file."""

    process: bytes
    thread: bytes


class Lanes:
    """The lane of each row that is not shown on its own thread, by row; `numbers` are those of the lanes."""

    def __init__(self, pieces: Iterable[list[PlacedRow]], first: int) -> None:
        self.of_row: dict[int, int] = {}
        self.numbers: dict[tuple[Thread, int], int] = {}
        self._first = first
        self._starts, self._ends = (defaultdict[Thread, dict[int, int]](dict) for _ in range(2))
        codes, columns, count = Interner[Thread](), [np.empty((4, 0), np.int64)], 0
        for piece in pieces:
            rows = [(row_number, row) for row_number, row in enumerate(piece, count) if row.ph == "X"]
            count += len(piece)
            threads = [codes[Thread(bytes(row.pid), bytes(row.tid))] for _, row in rows]
            start, length = _times([bytes(row.ts) for _, row in rows]), _times([bytes(row.dur) for _, row in rows])
            of_piece = np.array([[row_number for row_number, _ in rows], threads, start, start + length], np.int64)
            columns.append(of_piece[:, (start != ABSENT) & (length != ABSENT)])
        number, thread, start, end = np.concatenate(columns, axis=1)
        depth = nesting_lanes(ThreadIntervals(thread, start, end))
        names = list(codes)
        for row in np.flatnonzero(depth).tolist():
            beside = names[thread[row]]
            lane = self.numbers.setdefault((beside, int(depth[row])), self.end)
            self.of_row[int(number[row])] = lane
            self._starts[beside][int(start[row])] = self._ends[beside][int(end[row])] = lane

    @property
    def end(self) -> int:
        """The number after that of the last lane."""
        return self._first + len(self.numbers)

    def of_flow(self, thread: Thread, time: bytes, at_end: bool) -> int | None:
        """Returns the lane of the row at whose start, or end, a flow begins or ends."""
        times = (self._ends if at_end else self._starts).get(thread)
        return times.get(int(linked.exact_times([time]).ns[0])) if times else None


def _times(numbers: list[bytes]) -> Int64:
    try:
        return linked.nanoseconds(np.array(numbers).astype(np.float64).tolist())
    except (ValueError, InexactTime):
        return linked.exact_times(numbers).ns


class RankRows:
    """The rows of one rank on their way; `record` then says how to undo what was done to them."""

    def __init__(self, record: MergedRank, hosts: frozenset[int], last_process: int, lanes: Lanes) -> None:
        self.record, self.lanes = record, lanes
        for (beside, _), number in lanes.numbers.items():
            record.threads[number] = identity(json_value(beside.thread))
        self.rows = 0
        self.activities = 0
        self.largest_id = record.id_offset
        self.last_process = (last_process // PROCESSES_OF_RANK + 1) * PROCESSES_OF_RANK - 1
        self._hosts = hosts
        self._shift_us = record.time_shift_ns // 1000
        self._process: dict[bytes, msgspec.Raw] = {}
        self._recorded_name: dict[bytes, msgspec.Raw] = {}
        self._named_threads: dict[Thread, list[Row]] = defaultdict(list)
        self._activity_categories: dict[bytes, bool] = {}

    def rewrite(self, rows: list[Row]) -> bytes:
        """Returns the rows as JSON, separated by commas."""
        kept = [new for number, row in enumerate(rows, self.rows) if (new := self._rewrite(row, number)) is not None]
        self.rows += len(rows)
        return msgspec.json.encode(kept)[1:-1]

    def names(self) -> bytes:
        """Returns rows that name the rank's processes and lanes, and put the ranks in order."""
        hosts = sum(identity(json_value(recorded)) in self._hosts for recorded in self._process)
        rows: list[Mapping[str, object]] = []
        for recorded, process in self._process.items():
            args: dict[str, object] = {"name": f"rank {self.record.rank} · {self._kind(json_value(recorded), hosts)}"}
            if recorded in self._recorded_name:
                args["recorded"] = self._recorded_name[recorded]
            order = {"sort_index": int(bytes(process))}
            rows.append({"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": args})
            rows.append({"ph": "M", "name": "process_sort_index", "pid": process, "tid": 0, "args": order})
        # lanes are called and shown as the thread that they are beside, with a number
        for (thread, depth), number in self.lanes.numbers.items():
            for row in self._named_threads[thread]:
                recorded_args = json_value(row["args"])
                if isinstance(recorded_args, dict) and "name" in recorded_args:
                    recorded_args["name"] = f"{recorded_args['name']} · {depth + 1}"
                rows.append(row | {"tid": _raw(number), "args": msgspec.Raw(msgspec.json.encode(recorded_args))})
        return msgspec.json.encode(rows)[1:-1]

    def _kind(self, recorded: int | str | float | None, hosts: int) -> str:
        process = identity(recorded)
        if process in self._hosts:
            return "host" if hosts == 1 else f"host {process}"
        if process >= 0:
            return f"device {process}"
        return str(recorded).strip() if isinstance(recorded, str) and recorded.strip() else "profiler"

    def _rewrite(self, row: Row, number: int) -> Row | None:
        phase, recorded, thread = bytes(row.pop("ph", EMPTY)), bytes(row.get("pid", NULL)), row.get("tid", NULL)
        if recorded not in self._process:
            self.last_process += 1
            self._process[recorded] = _raw(self.last_process)
            self.record.processes[self.last_process] = identity(json_value(recorded))
        row["pid"] = self._process[recorded]
        if phase == b'"M"':
            return self._metadata(row, recorded)
        lane = self.lanes.of_row.get(number)
        if phase in FLOWS:
            # dependencies begin where an activity ends
            at_end = phase == FLOWS[0] and linked.integer(json_value(row.get("id", NULL)), 0) >= FIRST_DEPENDENCY
            lane = self.lanes.of_flow(Thread(recorded, bytes(thread)), bytes(row.get("ts", NULL)), at_end)
        if lane is not None:
            row["tid"] = _raw(lane)
        if "ts" in row and self._shift_us:
            row["ts"] = self._later(bytes(row["ts"]))
        for key in FLOW_IDS:
            if key in row:
                row[key] = self._unique_id(row[key])
        is_activity = phase == b'"X"' and self._is_activity(row)
        self.activities += is_activity
        args = bytes(row.get("args", NULL))
        if (is_activity and args == b"null") or (args.startswith(b"{") and (is_activity or b"corr" in args)):
            arguments = ROW.decode(args) if args != b"null" else {}
            if is_activity:
                # only the row's process and thread said the device, and the stream of a row that leaves its thread
                if not _tells_number(arguments.get("device", NULL)) and identity(json_value(recorded)) >= 0:
                    arguments["device"] = msgspec.Raw(recorded)
                if lane is not None and not _tells_number(arguments.get("stream", NULL)):
                    arguments["stream"] = thread
            for key in CORRELATIONS:
                if key in arguments:
                    arguments[key] = self._unique_id(arguments[key])
            row["args"] = msgspec.Raw(msgspec.json.encode(arguments))
        # the same key is first in all rows, whoever wrote them: readers that stream tell rows apart by it
        return {"ph": msgspec.Raw(phase), **row}

    def _metadata(self, row: Row, recorded: bytes) -> Row | None:
        row.pop("ts", None)
        name, args = bytes(row.get("name", EMPTY)), bytes(row.get("args", NULL))
        if name in THREAD_NAMES and args.startswith(b"{"):
            self._named_threads[Thread(recorded, bytes(row.get("tid", NULL)))].append({"ph": METADATA, **row})
        if name not in NAMES:
            return {"ph": METADATA, **row}
        if name == NAMES[0] and args.startswith(b"{"):
            self._recorded_name[recorded] = ROW.decode(args).get("name", EMPTY)
        return None

    def _later(self, time: bytes) -> msgspec.Raw:
        """Returns the time moved, with the digits as they were written, up to 28."""
        try:
            moved = Decimal(time.strip(b'"').decode()) + self._shift_us
        except ArithmeticError:
            return msgspec.Raw(time)
        return msgspec.Raw(str(moved).encode() if moved.is_finite() else time)

    def _unique_id(self, recorded: msgspec.Raw) -> msgspec.Raw:
        """Moves ids from 1 to LARGEST_ID; 0 and less mean that there is none."""
        value = json_value(recorded)
        number = linked.integer(value, 0) if isinstance(value, int | float | str) else 0
        if not 0 < number <= linked.LARGEST_ID:
            return recorded
        self.largest_id = max(self.largest_id, number + self.record.id_offset)
        return _raw(number + self.record.id_offset)

    def _is_activity(self, row: Row) -> bool:
        category = bytes(row.get("cat", NULL))
        if category not in self._activity_categories:
            text = json_value(category)
            self._activity_categories[category] = isinstance(text, str) and role_of(text) is Role.ACTIVITY
        return self._activity_categories[category] and bytes(row.get("name", EMPTY)) not in DEVICE_WAITS


def _tells_number(value: msgspec.Raw) -> bool:
    return bytes(value)[:1].isdigit() or linked.integer(json_value(value), -1) >= 0


def _raw(number: int) -> msgspec.Raw:
    return msgspec.Raw(b"%d" % number)


def merge_for_viewing(ranks: Sequence[RankFile], output: str, progress: Progress = unwatched) -> MergeReport:
    """Writes the merged trace (.gz compresses), or nothing. Raises DataError if a trace cannot be read."""
    job = survey(ranks, progress)
    report, records = MergeReport(output, notes=[*job.notes]), []
    with open_output(output) as out:
        head = {"schemaVersion": 1, "displayTimeUnit": "ms", "baseTimeNanoseconds": job.base_time_ns}
        out.write(msgspec.json.encode(head)[:-1] + b',"%b":[' % EVENTS.encode())
        largest_id, last_process, lane, separator = 0, 0, FIRST_LANE, b"\n"
        for trace in progress(ranks, "merging ranks", len(ranks), "rank"):
            clock, path, damage = job.clocks[trace.rank], str(trace.path), Damage(str(trace.path), "rows")
            record = MergedRank(trace.rank, trace.path.name, clock.shift_ns, largest_id)
            lanes = Lanes(_pieces(path, PlacedRow, Damage(path, "rows"), record), lane)
            rows = RankRows(record, job.hosts[trace.rank], last_process, lanes)
            for piece in _pieces(path, Row, damage, record):
                if text := rows.rewrite(piece):
                    out.write(separator + text)
                    separator = b",\n"
            out.write(separator + rows.names())
            separator = b",\n"
            records.append(record)
            largest_id, last_process, lane = rows.largest_id, rows.last_process, lanes.end
            report.ranks.append(RankReport(trace.rank, path, rows.rows, rows.activities, clock.correction_ns))
            report.notes += damage.notes
        out.write(b'],"mergedRanks":' + msgspec.json.encode(records) + b"}\n")
    return report


def _pieces(path: str, kind: Any, damage: Damage, record: MergedRank) -> Iterator[list[Any]]:
    """Yields the rows of a trace as `kind`, and adds to `damage`; then `record` has the other keys of the top level."""
    with open_trace(path, protected=True) as stream:
        reader = ArrayReader[Any](stream, path, EVENTS, kind, lambda _: None, damage=damage)
        for _, rows in reader:
            yield rows
    if reader.document.lstrip()[:1] != b"{":
        return
    try:
        top = ROW.decode(reader.document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        recorded = msgspec.to_builtins(reader.top_level(DeviceFile))
        of_process = "distributedInfo", "baseTimeNanoseconds", "deviceProperties", linked.kineto.WINDOW
        times = linked.STEP_WITHOUT_PROFILER, linked.DATA_WAIT_WITHOUT_PROFILER, *linked.kineto.MEASURED
        kept = (*of_process, *times)
        top = {key: msgspec.Raw(msgspec.json.encode(recorded[key])) for key in kept}
    top.pop(EVENTS, None)
    record.metadata = msgspec.Raw(msgspec.json.encode(top))
