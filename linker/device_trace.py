"""Reads a device trace (Kineto) into columns: host ops, runtime calls, device activities, synchronisation records.

Times are int64 ns on the trace's own clock. Rows are in file order.
"""

import re
import zlib
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from ..schema import kineto
from ..schema.columns import ABSENT, Bool, Int64, Strings
from ..schema.command import progress_bytes
from ..schema.errors import DataError
from ..schema.files import open_input
from ..schema.json_stream import ArrayReader, decode
from ..schema.times import InexactTime, nanoseconds
from .categories import ANNOTATIONS, Role, role_of


@dataclass(slots=True)
class OpRows:
    """Host ops and annotations as the device trace saw them. `rf_id` 0 and `sequence` -1 mean not recorded."""

    name: Strings
    process: Int64
    thread: Int64
    start: Int64
    end: Int64
    annotation: Bool
    rf_id: Int64
    external_id: Int64
    event_index: Int64
    sequence: Int64
    forward_thread: Int64


@dataclass(slots=True)
class CallRows:
    """Runtime and driver calls. `correlation` 0 means none."""

    name: Strings
    process: Int64
    thread: Int64
    start: Int64
    end: Int64
    correlation: Int64
    external_id: Int64


@dataclass(slots=True)
class ActivityRows:
    """Kernels, copies, sets and what other vendors call them."""

    name: Strings
    category: Strings
    process: Int64
    device: Int64
    stream: Int64
    start: Int64
    end: Int64
    correlation: Int64
    external_id: Int64
    graph_node: Int64


@dataclass(slots=True)
class SyncRows:
    """cuda_sync records; -1 where a field is unknown. `stream` is the one that waits, `wait_stream` the awaited one."""

    kind: Strings
    process: Int64
    start: Int64
    end: Int64
    device: Int64
    correlation: Int64
    stream: Int64
    wait_stream: Int64
    record_correlation: Int64
    event: Int64


@dataclass(slots=True)
class EventRecordRows:
    """cuda_event records: event `event` was recorded on `stream` by the call with this correlation."""

    correlation: Int64
    stream: Int64
    event: Int64


@dataclass(slots=True)
class DeviceTrace:
    path: str
    rank: int | None
    world_size: int | None
    base_time_ns: int
    groups: list[dict[str, Any]]
    ops: OpRows
    calls: CallRows
    activities: ActivityRows
    syncs: SyncRows
    event_records: EventRecordRows
    communication: dict[tuple[Role, int], kineto.Args]
    labels: list[tuple[int, str]] = field(default_factory=list)
    merge_marks: list[str] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)

    @property
    def processes(self) -> list[int]:
        """The processes whose host rows the file holds."""
        return [int(pid) for pid in np.unique(np.concatenate((self.ops.process, self.calls.process)))]


class _Rows:
    """Events of one role on their way to columns."""

    def __init__(self) -> None:
        self.columns: dict[str, list[Any]] = defaultdict(list)
        self.times: list[tuple[Int64, Int64]] = []
        self.communication: dict[int, kineto.Args] = {}
        self.count = 0

    def add(self, events: list[kineto.Event]) -> None:
        start = nanoseconds([event.ts for event in events])
        duration = nanoseconds([event.dur for event in events])
        self.times.append((start, start + np.maximum(np.where(duration == ABSENT, 0, duration), 0)))
        arguments = [event.args or NO_ARGS for event in events]
        for name in ("name", "cat", "pid", "tid"):
            self.columns[name] += [getattr(event, name) for event in events]
        for name in ARGUMENTS:
            self.columns[name] += [getattr(args, name) for args in arguments]
        for row, args in enumerate(arguments, self.count):
            if args.collective is not None or args.group_name is not None:
                self.communication[row] = args
        self.count += len(events)

    def start_end(self) -> tuple[Int64, Int64]:
        starts = [start for start, _ in self.times]
        return (np.concatenate(starts), np.concatenate([end for _, end in self.times])) if starts else (NONE, NONE)

    def processes(self) -> Int64:
        return np.fromiter((identity(pid) for pid in self.columns["pid"]), np.int64, self.count)

    def integers(self, name: str, missing: int) -> Int64:
        values = self.columns[name]
        if all(type(value) is int and -LARGEST < value < LARGEST for value in values):
            return np.array(values, np.int64)
        return np.fromiter((integer(value, missing) for value in values), np.int64, len(values))


NO_ARGS = kineto.Args()
NONE: Int64 = np.empty(0, np.int64)
ARGUMENTS = (
    "correlation", "device", "stream", "external_id", "record_function_id", "ev_idx", "sequence", "forward_thread",
    "graph_node", "sync_kind", "wait_stream", "wait_record", "wait_event", "event",
)  # fmt: skip
LARGEST = 1 << 63
ALL_STREAMS = (1 << 32) - 1
DISTRIBUTED = re.compile(rb'"distributedInfo"\s*:')
RENAMED = re.compile(rb'"(?:pid|correlation|External id|id)_raw"\s*:')


def identity(value: kineto.Number) -> int:
    """A process id; one that is text, as merging tools write it, becomes a negative number of its own."""
    if isinstance(value, str) and not re.fullmatch(r"\s*-?\d+\s*", value):
        return -2 - zlib.crc32(value.encode())
    return integer(value, -1)


def integer(value: kineto.Number, missing: int) -> int:
    """A number that may be text or absent, as an int; `stream 7` and `0x1f` are numbers too.

    >>> integer("stream 7", -1), integer("0x1f", -1), integer(None, -1), integer(7.0, -1)
    (7, 31, -1, 7)
    """
    if isinstance(value, str):
        found = re.search(r"0x[0-9a-f]+|-?\d+", value, re.IGNORECASE)
        value = int(found.group(), 0 if found.group().lower().startswith("0x") else 10) if found else None
    if value is None or value != value or abs(value) >= LARGEST:
        return missing
    return int(value)


def read_device_trace(path: str) -> DeviceTrace:
    """Reads `path` (JSON, gzip accepted). Raises DataError when it is no Kineto trace or holds no usable event."""
    rows: dict[Role, _Rows] = {role: _Rows() for role in Role}
    skipped: Counter[str] = Counter()
    labels: list[kineto.Event] = []
    renamed = False
    with open_input(path) as stream, progress_bytes("read device trace", None) as bar:
        reader: ArrayReader[kineto.Event] = ArrayReader(stream, path, "traceEvents", kineto.Event, bar.update)
        for piece, events in reader:
            renamed = renamed or RENAMED.search(piece) is not None
            _add(rows, events, partial(decode, piece, list[kineto.ExactEvent], path), skipped, labels)
    document = reader.document
    if document.lstrip()[:1] == b"[":
        document = b'{"traceEvents":' + document + b"}"
    top = decode(document, kineto.DeviceFile, path)
    if bytes(top.nodes):
        raise DataError(f"{path}: a host trace (it has nodes); expected a Kineto device trace, see --device-trace")
    _add(rows, top.events, lambda: decode(document, kineto.ExactDeviceFile, path).events, skipped, labels)
    if not rows[Role.OP].count and not rows[Role.ACTIVITY].count:
        raise DataError(f"{path}: holds no host op and no device activity; expected a Kineto trace with traceEvents")
    trace = _trace(path, top, rows, skipped)
    trace.labels = [
        (identity(label.pid), str(label.args.name or label.args.labels or "")) for label in labels if label.args
    ]
    if len(DISTRIBUTED.findall(document)) > 1:
        trace.merge_marks.append("several distributedInfo")
    if renamed or RENAMED.search(document) is not None:
        trace.merge_marks.append("arguments renamed by a merging tool")
    return trace


def _add(
    rows: dict[Role, _Rows],
    events: list[kineto.Event],
    again: Any,
    skipped: Counter[str],
    labels: list[kineto.Event],
) -> None:
    by_role: dict[Role, list[kineto.Event]] = {role: [] for role in Role}
    for event in events:
        if event.ph == "X" and event.ts is not None:
            by_role[role_of(event.cat, event.name)].append(event)
        elif event.ph == "M" and event.name in ("process_labels", "process_name"):
            labels.append(event)
    try:
        for role in (Role.OP, Role.CALL, Role.ACTIVITY, Role.SYNC, Role.EVENT_RECORD):
            nanoseconds([event.ts for event in by_role[role]])
    except InexactTime:
        if isinstance(events[0], kineto.ExactEvent):
            raise
        _add(rows, again(), again, skipped, labels)
        return
    for event in by_role[Role.UNKNOWN]:
        skipped[f"unknown category {event.cat}"] += 1
    skipped["device rows that record waiting"] += len(by_role[Role.DEVICE_WAIT])
    for role in (Role.OP, Role.CALL, Role.ACTIVITY, Role.SYNC, Role.EVENT_RECORD):
        rows[role].add(by_role[role])


def _trace(path: str, top: kineto.DeviceFile, rows: dict[Role, _Rows], skipped: Counter[str]) -> DeviceTrace:
    distributed = top.distributed or kineto.DistributedInfo()
    rank, world = integer(distributed.rank, -1), integer(distributed.world_size, -1)
    groups = distributed.pg_config if isinstance(distributed.pg_config, list) else []
    return DeviceTrace(
        path=path,
        rank=rank if rank >= 0 else None,
        world_size=world if world > 0 else None,
        base_time_ns=integer(top.base_time, 0),
        groups=[group for group in groups if isinstance(group, dict)],
        ops=_ops(rows[Role.OP]),
        calls=_calls(rows[Role.CALL]),
        activities=_activities(rows[Role.ACTIVITY]),
        syncs=_syncs(rows[Role.SYNC]),
        event_records=_event_records(rows[Role.EVENT_RECORD]),
        communication={
            (role, row): args for role in (Role.OP, Role.ACTIVITY) for row, args in rows[role].communication.items()
        },
        skipped=skipped,
    )


def _ops(rows: _Rows) -> OpRows:
    start, end = rows.start_end()
    return OpRows(
        name=Strings.of(rows.columns["name"]),
        process=rows.processes(),
        thread=rows.integers("tid", -1),
        start=start,
        end=end,
        annotation=np.array([cat.lower() in ANNOTATIONS for cat in rows.columns["cat"]], np.bool_),
        rf_id=rows.integers("record_function_id", 0),
        external_id=rows.integers("external_id", 0),
        event_index=rows.integers("ev_idx", -1),
        sequence=rows.integers("sequence", -1),
        forward_thread=rows.integers("forward_thread", 0),
    )


def _calls(rows: _Rows) -> CallRows:
    start, end = rows.start_end()
    return CallRows(
        name=Strings.of(rows.columns["name"]),
        process=rows.processes(),
        thread=rows.integers("tid", -1),
        start=start,
        end=end,
        correlation=rows.integers("correlation", 0),
        external_id=rows.integers("external_id", 0),
    )


def _activities(rows: _Rows) -> ActivityRows:
    start, end = rows.start_end()
    process = rows.processes()
    device, stream = rows.integers("device", -1), rows.integers("stream", -1)
    return ActivityRows(
        name=Strings.of(rows.columns["name"]),
        category=Strings.of(cat.lower() for cat in rows.columns["cat"]),
        process=process,
        device=np.where(device < 0, process, device),
        stream=np.where(stream < 0, rows.integers("tid", -1), stream),
        start=start,
        end=end,
        correlation=rows.integers("correlation", 0),
        external_id=rows.integers("external_id", 0),
        graph_node=rows.integers("graph_node", -1),
    )


def _syncs(rows: _Rows) -> SyncRows:
    start, end = rows.start_end()

    def stream(name: str) -> Int64:
        column = rows.integers(name, -1)
        return np.where(column == ALL_STREAMS, -1, column)

    return SyncRows(
        kind=Strings.of(
            kind or name for kind, name in zip(rows.columns["sync_kind"], rows.columns["name"], strict=True)
        ),
        process=rows.processes(),
        start=start,
        end=end,
        device=rows.integers("device", -1),
        correlation=rows.integers("correlation", 0),
        stream=stream("stream"),
        wait_stream=stream("wait_stream"),
        record_correlation=rows.integers("wait_record", -1),
        event=stream("wait_event"),
    )


def _event_records(rows: _Rows) -> EventRecordRows:
    return EventRecordRows(
        correlation=rows.integers("correlation", 0),
        stream=rows.integers("stream", -1),
        event=rows.integers("event", -1),
    )
