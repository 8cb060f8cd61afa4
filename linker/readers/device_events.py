"""Sorts the events of a device trace by role while the file is read, and makes the table of each role.

A piece of the file at a time becomes columns, one `EventRows` for each role, whose `table` is the record of that role.
Times are in ns, on the trace's own clock.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np

from ...schema.columns import ABSENT, Categorical, CategoricalBuilder, Int64, IntegerBuilder, JsonRecordsBuilder
from ...schema.counts import Counts
from ...schema.linked import (
    FOREVER,
    LONGEST_RECORDING,
    ExactTimes,
    InexactTime,
    exact_times,
    identities,
    identity,
    integer_list,
    integers,
    kineto,
    lacks_padding,
    nanoseconds,
    with_padding,
)
from ...schema.reasons import Reason
from .device_rows import (
    ANNOTATIONS,
    RecordedActivities,
    RecordedCalls,
    RecordedEvents,
    RecordedOps,
    RecordedPython,
    RecordedQueueEvents,
    RecordedSyncs,
    Role,
    role_of,
)

Event = kineto.Event | kineto.ExactEvent

NO_ARGS = kineto.Args()
COMMUNICATION = ("record_param_comms", "nccl:", "rccl:", "hccl:", "xccl:", "ccl:", "mpi:", "ucc:", "gloo:", "c10d::")
"""Prefixes of ops whose tensors are what is communicated, in versions that do not record arguments of communication."""
LISTS = ("in_split", "out_split", "group_ranks")
AT_ONCE = 1 << 16
GIGA, FASTEST = 10**9, 10**9
"""Bytes per GB, and GB/s that no memory reaches."""
ALL_STREAMS = (1 << 32) - 1
BUILT_IN = "<built-in"
"""The start of names of functions that are not Python; they hold addresses, which differ from run to run."""
RECORDS = {
    Role.OP: RecordedOps,
    Role.CALL: RecordedCalls,
    Role.ACTIVITY: RecordedActivities,
    Role.SYNC: RecordedSyncs,
    Role.EVENT_RECORD: RecordedEvents,
    Role.DEVICE_WAIT: RecordedQueueEvents,
    Role.PYTHON: RecordedPython,
}
INTEGERS = {
    Role.OP: {
        "external_id": ("external_id", 0),
        "rf_id": ("record_function_id", 0),
        "event_index": ("ev_idx", -1),
        "sequence": ("sequence", -1),
        "forward_thread": ("forward_thread", 0),
    },
    Role.CALL: {"correlation": ("correlation", 0), "external_id": ("external_id", 0)},
    Role.ACTIVITY: {"correlation": ("correlation", 0), "external_id": ("external_id", 0)}
    | {name: (name, -1) for name in ("device", "stream", "graph_node", "bytes", "size")},
    Role.SYNC: {
        "correlation": ("correlation", 0),
        "device": ("device", -1),
        "stream": ("stream", -1),
        "wait_stream": ("wait_stream", -1),
        "record_correlation": ("wait_record", -1),
        "event": ("wait_event", -1),
    },
    Role.EVENT_RECORD: {"correlation": ("correlation", 0), "stream": ("stream", -1), "event": ("event", -1)},
    Role.DEVICE_WAIT: {
        "device": ("device", -1),
        "stream": ("stream", -1),
        "awaited": ("wait_stream", -1),
        "sequence": ("queue_sequence", -1),
    },
}
"""The columns that are arguments, by role: the argument, and the value of a missing one."""
LAUNCH = "ac2g"
STARTS = "s"
REPEATED = 0.1
"""Share of flows above which the file holds several processes: one process may use an id again."""
TABLES = (Role.OP, Role.CALL, Role.ACTIVITY, Role.SYNC, Role.EVENT_RECORD, Role.DEVICE_WAIT)
LABELS = ("process_labels", "process_name")
RECORDING = "Trace"
"""The category of the profiler's own row, which lasts as long as it recorded."""
BEGIN_AND_END = ("B", "E")
LATEST = FOREVER - LONGEST_RECORDING
"""A row that begins earlier ends within 64 bits."""
NO_DURATION = (None, b"", b"null")


class EventRows:
    """The events of one role as columns; their arguments only with `keep_arguments`."""

    def __init__(self, role: Role, keep_arguments: bool = False) -> None:
        self.count = 0
        self.arguments = CategoricalBuilder()
        self.keeps_arguments = keep_arguments
        self.communication: JsonRecordsBuilder[kineto.Args] = JsonRecordsBuilder(kineto.Args)
        self.name, self.category, self.sync_kind = CategoricalBuilder(), CategoricalBuilder(), CategoricalBuilder()
        self._role = role
        self._columns: dict[str, IntegerBuilder] = defaultdict(IntegerBuilder)

    def add(self, events: Sequence[Event], start: ExactTimes, duration: ExactTimes, oddities: Counts) -> None:
        """Adds events with their times (ns), and counts decisions about them in `oddities`."""
        self.name.add([event.name or "" for event in events])
        self._columns["process"].add(identities([event.pid for event in events]))
        self._columns["thread"].add(identities([event.tid for event in events]))
        for name, column in (("start", start), ("duration", duration)):
            self._columns[name].add(column.ns)
            self._columns[f"digits of {name}"].add(column.digits)
        oddities[Reason.NO_DURATION] += int((duration.ns < 0).sum())
        if events and self._role is not Role.PYTHON:
            self._add_arguments(events, oddities)
        self.count += len(events)

    def _add_arguments(self, events: Sequence[Event], oddities: Counts) -> None:
        arguments = [event.args or NO_ARGS for event in events]
        self.category.add([event.cat or "" for event in events])
        if self.keeps_arguments:
            self.arguments.add([_argument_lists(args, oddities) for args in arguments])
        if self._role is Role.SYNC:
            pairs = zip(events, arguments, strict=True)
            self.sync_kind.add([str(args.sync_kind or event.name or "") for event, args in pairs])
        if self._role is Role.ACTIVITY:
            self._columns["lane"].add(integers([event.tid for event in events], -1))
            self._columns["bandwidth"].add(_bytes_per_second([args.bandwidth for args in arguments]))
        sources = INTEGERS[self._role]
        values = zip(*map(attrgetter(*(argument for argument, _ in sources.values())), arguments), strict=True)
        for (name, (_, missing)), column in zip(sources.items(), values, strict=True):
            self._columns[name].add(integers(column, missing))
        names = {name for name in {event.name for event in events} if name and name.startswith(COMMUNICATION)}
        communicating = {
            row: args
            for row, (event, args) in enumerate(zip(events, arguments, strict=True), self.count)
            if args.collective is not None or args.group_name is not None or event.name in names
        }
        for args in communicating.values():
            _read_lists(args, oddities)
        self.communication.add(communicating)
        oddities[Reason.STILL_RUNNING] += sum(args.finished is False for args in arguments)

    def column(self, name: str) -> Int64:
        """Returns a column of integers."""
        return self._columns[name].column()

    def times(self, name: str) -> ExactTimes:
        """Returns a column of times, and with how many digits each of them was written."""
        return ExactTimes(self.column(name), self.column(f"digits of {name}"))

    def table(self, pad: dict[str, bool]) -> Any:
        """Returns the record of the role, of `RECORDS`.

        `pad` says which of `start` and `duration` were written without the zeros before their ns.
        """
        start, duration = (
            with_padding(self.times(name)) if pad[name] else self.column(name) for name in ("start", "duration")
        )
        end = start + np.where(duration == ABSENT, 0, np.maximum(duration, 0))
        columns: dict[str, Any] = {"name": self.name.column(), "start": start, "end": end}
        columns |= {name: self.column(name) for name in ("process", "thread", *INTEGERS.get(self._role, ()))}
        if derived := DERIVED.get(self._role):
            columns |= derived(self, columns)
        record = RECORDS[self._role]
        return record(**{field.name: columns[field.name] for field in fields(record)})


def _of_ops(rows: EventRows, columns: dict[str, Any]) -> dict[str, Any]:
    annotation = rows.category.column().where(lambda name: name.lower() in ANNOTATIONS)
    none = Categorical(np.zeros(rows.count, np.int32), [""])
    return {"annotation": annotation, "arguments": rows.arguments.column() if rows.keeps_arguments else none}


def _of_activities(rows: EventRows, columns: dict[str, Any]) -> dict[str, Any]:
    category, bandwidth = rows.category.column(), rows.column("bandwidth")
    lowered = Categorical.of(name.lower() for name in category.table)
    return {
        "category": Categorical(lowered.codes[category.codes], lowered.table),
        "bandwidth": bandwidth,
        "device": np.where(columns["device"] < 0, columns["process"], columns["device"]),
        "stream": np.where(columns["stream"] < 0, rows.column("lane"), columns["stream"]),
        "size": np.where(columns["bytes"] < 0, columns["size"], columns["bytes"]),
    }


def _of_syncs(rows: EventRows, columns: dict[str, Any]) -> dict[str, Any]:
    """A stream of -1 means all or unknown."""
    streams = {name: columns[name] for name in ("stream", "wait_stream", "event")}
    known = {name: np.where(column == ALL_STREAMS, -1, column) for name, column in streams.items()}
    return {"kind": rows.sync_kind.column(), **known}


def _of_queues(rows: EventRows, columns: dict[str, Any]) -> dict[str, Any]:
    return {"device": np.where(columns["device"] < 0, columns["process"], columns["device"])}


def _of_python(rows: EventRows, columns: dict[str, Any]) -> dict[str, Any]:
    """Without calls of built-in functions."""
    names = columns["name"]
    is_chosen = ~names.where(lambda name: name.startswith(BUILT_IN))
    used, code = np.unique(names.codes[is_chosen], return_inverse=True)
    chosen = {name: column[is_chosen] for name, column in columns.items() if name != "name"}
    return {
        **chosen,
        "name": Categorical(code.reshape(-1).astype(np.int32), [names.table[used_code] for used_code in used.tolist()]),
    }


DERIVED: dict[Role, Callable[[EventRows, dict[str, Any]], dict[str, Any]]] = {
    Role.OP: _of_ops,
    Role.ACTIVITY: _of_activities,
    Role.SYNC: _of_syncs,
    Role.DEVICE_WAIT: _of_queues,
    Role.PYTHON: _of_python,
}
"""What the columns of a role are beside, or in place of, what the file says."""


def _bytes_per_second(values: Sequence[Any]) -> Int64:
    """Returns bytes/s for values in GB/s, -1 for a value that is no speed."""
    speeds = np.array([value if type(value) in (int, float) else -1 for value in values], np.float64)
    is_valid = (speeds > 0) & (speeds < FASTEST)
    bytes_per_second = np.full(len(values), -1, np.int64)
    bytes_per_second[is_valid] = np.rint(speeds[is_valid] * GIGA)
    return bytes_per_second


def _read_lists(args: kineto.Args, oddities: Counts) -> None:
    """Replaces the texts of recorded lists by lists. Counts those that cannot be read in `oddities`."""
    for name in LISTS:
        numbers = integer_list(getattr(args, name))
        oddities[Reason.UNREADABLE_LISTS] += numbers is None
        setattr(args, name, numbers or None)


def _argument_lists(args: kineto.Args, oddities: Counts) -> str:
    """Returns an op's recorded arguments as JSON in the host trace's layout, an empty text where none are recorded.

    Only numbers have values, as text. Counts in `oddities` what is no list.
    """
    if not bytes(args.input_dims):
        return ""
    lists = [bytes(text) for text in (args.concrete_inputs, args.input_dims, args.input_types)]
    values, shapes, types = (text.decode() if text.startswith(b"[") else "[]" for text in lists)
    oddities[Reason.ARGUMENTS_NO_LISTS] += sum(not text.startswith(b"[") for text in lists if text)
    return f'{{"values":{values},"shapes":{shapes},"types":{types}}}'


def unpadded(tables: Iterable[EventRows]) -> dict[str, bool]:
    """Returns whether a file's starts and durations were written without zeros before their ns."""
    rows = list(tables)
    return {
        name: lacks_padding(
            ExactTimes(*(column[first : first + AT_ONCE] for column in times))
            for times in (table.times(name) for table in rows)
            for first in range(0, len(times.ns), AT_ONCE)
        )
        for name in ("start", "duration")
    }


class LaunchFlows:
    """The starts of flows: id, process and thread."""

    def __init__(self) -> None:
        self._starts: list[Int64] = []

    def add(self, events: Sequence[Event]) -> None:
        """Adds the events that start a flow from a launch."""
        starts = [event for event in events if event.ph == STARTS and event.cat == LAUNCH]
        columns = (
            integers([event.id for event in starts], -1),
            identities([event.pid for event in starts]),
            identities([event.tid for event in starts]),
        )
        self._starts.append(np.stack(columns))

    def repeated(self) -> int:
        """Returns how many flows start again on another thread, 0 where they are so few that it may be chance."""
        starts = np.unique(np.concatenate([np.empty((3, 0), np.int64), *self._starts], axis=1), axis=1)[0]
        count = len(starts) - len(np.unique(starts))
        return count if count > REPEATED * len(starts) else 0


class DeviceEvents:
    """The events of a file by role.

    `skipped` and `oddities` are those of `DeviceTrace`, `labels` are pairs of a process and its text.
    """

    def __init__(self, arguments: bool, modules: bool = False) -> None:
        tables = (*TABLES, Role.PYTHON) if modules else TABLES
        self.rows = {role: EventRows(role, arguments and role is Role.OP) for role in tables}
        self.flows = LaunchFlows()
        self.labels: list[tuple[int, str]] = []
        self.skipped = Counts()
        self.oddities = Counts()
        self.read = self.ignored = 0
        self.recording_start: int | None = None
        self._exact = False

    def add(self, events: Sequence[kineto.Event], exactly: Callable[[], Sequence[Event]]) -> None:
        """Adds a piece of the file.

        Once a double has lost ns, this and all later pieces are decoded again by `exactly`, with times as text.
        """
        if not events:
            return
        if not self._exact:
            try:
                nanoseconds([event.ts for event in events if event.ph == "X"])
            except InexactTime:
                self._exact = True
        by_role = self._by_role(exactly() if self._exact else events)
        for event in by_role[Role.UNKNOWN]:
            self.skipped[Reason.UNKNOWN_CATEGORY.of((event.cat or "")[:40])] += 1
        self.ignored += len(by_role[Role.IGNORED]) + len(by_role[Role.PYTHON])
        recordings = [event.ts for event in by_role[Role.IGNORED] if event.cat == RECORDING]
        for time in _times(recordings, self._exact).ns.tolist():
            if time != ABSENT:
                self.recording_start = time if self.recording_start is None else min(time, self.recording_start)
        for role, table in self.rows.items():
            self._add(table, by_role[role])

    def ignore(self, count: int) -> None:
        """Counts rows that were skipped unread."""
        self.read += count
        self.ignored += count

    def _by_role(self, events: Sequence[Event]) -> dict[Role, list[Event]]:
        by_role: dict[Role, list[Event]] = {role: [] for role in Role}
        append_to: dict[str | None, Callable[[Event], None]] = {}
        for event in events:
            if event.ph == "X":
                if event.cat not in append_to:
                    append_to[event.cat] = _append_for(event.cat, by_role)
                append_to[event.cat](event)
            elif event.ph in BEGIN_AND_END and role_of(event.cat) in TABLES:
                self.skipped[Reason.BEGIN_AND_END_ROWS] += 1
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
        usable = (start.ns > -LATEST) & (start.ns < LATEST) & (duration.ns < LONGEST_RECORDING)
        for row in np.flatnonzero(duration.ns == ABSENT).tolist():
            usable[row] &= (bytes(durations[row]) if self._exact else durations[row]) in NO_DURATION
        if not usable.all():
            self.skipped[Reason.UNUSABLE_TIME] += int((~usable).sum())
            events = [event for event, is_usable in zip(events, usable.tolist(), strict=True) if is_usable]
            start, duration = (ExactTimes(times.ns[usable], times.digits[usable]) for times in (start, duration))
        table.add(events, start, duration, self.oddities)


def _append_for(category: str | None, by_role: dict[Role, list[Event]]) -> Callable[[Event], None]:
    """Returns a function that appends a row of a category to the rows of its role."""
    role = role_of(category)
    # the role of an activity may depend on its name
    return by_role[role].append if role is not Role.ACTIVITY else partial(_append_by_name, by_role)


def _append_by_name(by_role: dict[Role, list[Event]], event: Event) -> None:
    by_role[role_of(event.cat, event.name)].append(event)


def _times(stamps: list[Any], exact: bool) -> ExactTimes:
    if exact:
        return exact_times([bytes(stamp) for stamp in stamps])
    try:
        times = nanoseconds(stamps)
    except InexactTime:
        # starts are exact here; only durations of centuries are not
        return exact_times([str(stamp).encode() for stamp in stamps])
    return ExactTimes(times, np.zeros(len(times), np.int64))
