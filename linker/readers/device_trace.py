"""Reads a device trace (Kineto or rocpd) into columns: host ops, runtime calls, device activities, synchronisation records.

Times are int64 ns on the trace's own clock. Rows are in file order.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ...schema.columns import ABSENT, Int64, Strings
from ...schema.errors import DataError
from ...schema.io import open_input
from ...schema.progress import Advanced, unseen
from ...schema.recovery import ArrayReader, Damage, decode, kind_of_text
from ...schema.traces import ExactTimes, InexactTime, exact_times, identity, integer, kineto, nanoseconds
from .categories import ANNOTATIONS, Role, role_of
from .device_rows import ActivityRows, CallRows, DeviceTrace, EventRecordRows, OpRows, QueueEventRows, SyncRows
from .duplicates import without_copies
from .event_rows import LONGEST, Event, EventRows, unpadded
from .launch_flows import LaunchFlows
from .rocpd import read_rocpd
from .rocpd_database import is_database

__all__ = [
    "ActivityRows", "CallRows", "DeviceTrace", "EventRecordRows", "OpRows", "SyncRows", "identity", "integer",
    "read_device_trace",
]  # fmt: skip


TABLES = (Role.OP, Role.CALL, Role.ACTIVITY, Role.SYNC, Role.EVENT_RECORD, Role.DEVICE_WAIT)
LABELS = ("process_labels", "process_name")
RECORDING = "Trace"
"""The category of the profiler's own row, which lasts as long as it recorded."""
BEGIN_AND_END = ("B", "E")
NO_DURATION = (None, b"", b"null")
ALL_STREAMS = (1 << 32) - 1
DISTRIBUTED = re.compile(rb'"distributedInfo"\s*:')
RENAMED = re.compile(rb'"(?:pid|correlation|External id|id)_raw"\s*:')
HOST_NODES = re.compile(rb'"nodes"\s*:\s*\[')


def read_device_trace(
    path: str,
    strict: bool = False,
    also: Callable[[bytes], object] | None = None,
    arguments: bool = False,
    advanced: Advanced = unseen,
) -> DeviceTrace:
    """Reads `path` (JSON, gzip and zstd accepted, or a rocpd database).

    Of damaged JSON what can be read is used, and what was wrong is said. Raises DataError when it is no such trace, holds no usable
    event, or is a damaged database or, with `strict`, damaged at all.

    With `arguments` the ops keep what was recorded of theirs, for want of a host trace.
    `also` is given the text of each list of events that passes by, so that what linking does not need can be read in the same pass.
    `advanced` is told of the bytes.
    """
    if is_database(path):
        return read_rocpd(path)
    damage = Damage(path, "device events", strict)
    events = _Events(arguments)
    renamed = False
    with open_input(path) as stream:
        reader: ArrayReader[kineto.Event] = ArrayReader(stream, path, "traceEvents", kineto.Event, advanced, damage)
        for piece, decoded in reader:
            renamed = renamed or RENAMED.search(piece) is not None
            events.add(decoded, partial(decode, piece, list[kineto.ExactEvent], path))
            if also is not None:
                also(piece)
    if not reader.found:
        raise DataError(f"{path}: {_what_it_is(reader.document)}; expected a Kineto device trace, see --device-trace")
    bare = reader.document.lstrip()[:1] == b"["
    top = kineto.DeviceFile() if bare else reader.top_level(kineto.DeviceFile)
    if not events.rows[Role.OP].count and not events.rows[Role.ACTIVITY].count:
        seen = f"; {damage.remarks[0].removeprefix(path + ': ')}" if damage.remarks else ""
        raise DataError(
            f"{path}: holds no host op and no device activity; expected a Kineto trace with traceEvents{seen}"
        )
    trace = without_copies(_trace(path, top, events))
    trace.skipped += damage.dropped
    trace.noted += damage.noted
    trace.remarks += damage.remarks
    if len(DISTRIBUTED.findall(reader.document)) > 1:
        trace.merge_marks.append("several distributedInfo")
    if renamed or RENAMED.search(reader.document) is not None:
        trace.merge_marks.append("arguments renamed by a merging tool")
    if repeated := events.flows.repeated():
        trace.merge_marks.append(f"{repeated} flows that start more than once")
    return trace


def _what_it_is(document: bytes) -> str:
    return "a host trace (it has nodes)" if HOST_NODES.search(document) else kind_of_text(document, "traceEvents")


class _Events:
    """The events of a file, told apart by role."""

    def __init__(self, arguments: bool) -> None:
        self.rows = {role: EventRows(role, arguments and role is Role.OP) for role in TABLES}
        self.flows = LaunchFlows()
        self.labels: list[tuple[int, str]] = []
        self.skipped: Counter[str] = Counter()
        self.noted: Counter[str] = Counter()
        self.read = self.ignored = 0
        self.recording_start: int | None = None
        self._exact = False

    def add(self, events: Sequence[Event], exactly: Callable[[], Sequence[Event]]) -> None:
        """One piece; `exactly` decodes it again with times as text, as it and all later ones are read once a double lost ns."""
        if not self._exact:
            try:
                nanoseconds([event.ts for event in events if isinstance(event, kineto.Event) and event.ph == "X"])
            except InexactTime:
                self._exact = True
        by_role = self._by_role(exactly() if self._exact else events)
        self.skipped.update(f"unknown category {(event.cat or '')[:40]}" for event in by_role[Role.UNKNOWN])
        self.ignored += len(by_role[Role.IGNORED])
        recordings = [event.ts for event in by_role[Role.IGNORED] if event.cat == RECORDING]
        for time in _times(recordings, self._exact).ns.tolist():
            if time != ABSENT:
                self.recording_start = time if self.recording_start is None else min(time, self.recording_start)
        for role, table in self.rows.items():
            self._add(table, by_role[role])

    def _by_role(self, events: Sequence[Event]) -> dict[Role, list[Event]]:
        by_role: dict[Role, list[Event]] = {role: [] for role in Role}
        for event in events:
            if event.ph == "X":
                by_role[role_of(event.cat, event.name)].append(event)
            elif event.ph in BEGIN_AND_END and role_of(event.cat) in TABLES:
                self.skipped["device events whose begin and end are rows of their own"] += 1
            else:
                self.ignored += 1
                if event.ph == "M" and event.name in LABELS and event.args:
                    self.labels.append((identity(event.pid), str(event.args.name or event.args.labels or "")))
        self.flows.add(events)
        self.read += len(events)
        return by_role

    def _add(self, table: EventRows, events: list[Event]) -> None:
        if not events:
            return
        starts, durations = ([getattr(event, name) for event in events] for name in ("ts", "dur"))
        start, duration = (_times(stamps, self._exact) for stamps in (starts, durations))
        usable = (start.ns != ABSENT) & (duration.ns < LONGEST)
        for row in np.flatnonzero(duration.ns == ABSENT).tolist():
            usable[row] &= (bytes(durations[row]) if self._exact else durations[row]) in NO_DURATION
        if not usable.all():
            self.skipped["device events without a usable time"] += int((~usable).sum())
            events = [event for event, is_usable in zip(events, usable.tolist(), strict=True) if is_usable]
            start, duration = (ExactTimes(times.ns[usable], times.digits[usable]) for times in (start, duration))
        table.add(events, start, duration, self.noted)


def _times(stamps: list[Any], exact: bool) -> ExactTimes:
    if exact:
        return exact_times([bytes(stamp) for stamp in stamps])
    try:
        times = nanoseconds(stamps)
    except InexactTime:
        # starts are exact here; only what is said to have lasted for centuries is not
        return exact_times([str(stamp).encode() for stamp in stamps])
    return ExactTimes(times, np.zeros(len(times), np.int64))


class PlaceInJob(NamedTuple):
    """What a file's top level says of the process among others; rank and world size are None where it does not."""

    rank: int | None
    world_size: int | None
    base_time_ns: int
    groups: list[dict[str, Any]]


def place_in_job(top: kineto.DeviceFile) -> PlaceInJob:
    """What the file's header says of the process's rank, world and groups."""
    distributed = top.distributed or kineto.DistributedInfo()
    rank, world = integer(distributed.rank, -1), integer(distributed.world_size, -1)
    groups = distributed.pg_config if isinstance(distributed.pg_config, list) else []
    return PlaceInJob(
        rank if rank >= 0 else None,
        world if world > 0 else None,
        integer(top.base_time, 0),
        [group for group in groups if isinstance(group, dict)],
    )


def _trace(path: str, top: kineto.DeviceFile, events: _Events) -> DeviceTrace:
    rows = events.rows
    pad = unpadded(rows.values())
    trace = DeviceTrace(
        path=path,
        **place_in_job(top)._asdict(),
        ops=_ops(rows[Role.OP], pad),
        calls=_calls(rows[Role.CALL], pad),
        activities=_activities(rows[Role.ACTIVITY], pad),
        syncs=_syncs(rows[Role.SYNC], pad),
        event_records=_event_records(rows[Role.EVENT_RECORD]),
        communication={
            (role, row): args for role in (Role.OP, Role.ACTIVITY) for row, args in rows[role].communication.items()
        },
        queue_events=_queue_events(rows[Role.DEVICE_WAIT], pad),
        labels=events.labels,
        merged=top.merged,
        skipped=events.skipped,
        noted=events.noted,
        recording_start=events.recording_start,
        read=events.read,
        ignored=events.ignored,
    )
    if any(pad.values()):
        trace.remarks.append(
            f"{path}: its times lack the zeros before their ns (5 ns is .5, as in March 2024); read so"
        )
    return trace


def _ops(rows: EventRows, pad: dict[str, bool]) -> OpRows:
    start, end = rows.start_end(pad)
    category = rows.category.column()
    return OpRows(
        name=rows.name.column(),
        process=rows.column("process"),
        thread=rows.column("thread"),
        start=start,
        end=end,
        annotation=category.where(lambda name: name.lower() in ANNOTATIONS),
        rf_id=rows.column("record_function_id"),
        external_id=rows.column("external_id"),
        event_index=rows.column("ev_idx"),
        sequence=rows.column("sequence"),
        forward_thread=rows.column("forward_thread"),
        arguments=rows.argument_column(),
    )


def _calls(rows: EventRows, pad: dict[str, bool]) -> CallRows:
    start, end = rows.start_end(pad)
    return CallRows(
        name=rows.name.column(),
        process=rows.column("process"),
        thread=rows.column("thread"),
        start=start,
        end=end,
        correlation=rows.column("correlation"),
        external_id=rows.column("external_id"),
    )


def _activities(rows: EventRows, pad: dict[str, bool]) -> ActivityRows:
    start, end = rows.start_end(pad)
    category = rows.category.column()
    lowered = Strings.of(name.lower() for name in category.table)
    process, device, stream = rows.column("process"), rows.column("device"), rows.column("stream")
    copied = rows.column("bytes")
    return ActivityRows(
        name=rows.name.column(),
        category=Strings(lowered.codes[category.codes], lowered.table),
        process=process,
        device=np.where(device < 0, process, device),
        stream=np.where(stream < 0, rows.column("lane"), stream),
        start=start,
        end=end,
        correlation=rows.column("correlation"),
        external_id=rows.column("external_id"),
        graph_node=rows.column("graph_node"),
        size=np.where(copied < 0, rows.column("size"), copied),
    )


def _syncs(rows: EventRows, pad: dict[str, bool]) -> SyncRows:
    start, end = rows.start_end(pad)

    def stream(name: str) -> Int64:
        column = rows.column(name)
        return np.where(column == ALL_STREAMS, -1, column)

    return SyncRows(
        kind=rows.sync_kind.column(),
        process=rows.column("process"),
        start=start,
        end=end,
        device=rows.column("device"),
        correlation=rows.column("correlation"),
        stream=stream("stream"),
        wait_stream=stream("wait_stream"),
        record_correlation=rows.column("wait_record"),
        event=stream("wait_event"),
    )


def _queue_events(rows: EventRows, pad: dict[str, bool]) -> QueueEventRows:
    process, device = rows.column("process"), rows.column("device")
    start, end = rows.start_end(pad)
    return QueueEventRows(
        device=np.where(device < 0, process, device),
        stream=rows.column("stream"),
        awaited=rows.column("wait_stream"),
        sequence=rows.column("queue_sequence"),
        start=start,
        end=end,
    )


def _event_records(rows: EventRows) -> EventRecordRows:
    return EventRecordRows(
        process=rows.column("process"),
        correlation=rows.column("correlation"),
        stream=rows.column("stream"),
        event=rows.column("event"),
    )
