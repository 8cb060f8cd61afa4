"""Sorts the events of a device trace by role, a piece of the file at a time, and makes the table of each role."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from itertools import count, product
from operator import attrgetter
from typing import Any

import numpy as np

from ...schema import columns, linked
from ...schema.columns import ABSENT, Categorical, CategoricalBuilder, Int64, IntegerBuilder
from ...schema.linked import ExactTimes, InexactTime, kineto
from ...schema.reasons import Counts, Reason
from .cupti_rows import activity_name
from .deferred_rows import BEGIN_AND_END, DeferredRows
from .device_rows import ANNOTATIONS, TABLES, Role, role_of
from .flows import Flows, is_launch, link_by_flows

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


def _arguments(*same: str, **renamed: str) -> dict[str, str]:
    return {name: name for name in same} | renamed


INTEGERS = {
    Role.OP: _arguments("external_id", "sequence", "forward_thread", rf_id="record_function_id", event_index="ev_idx"),
    Role.CALL: _arguments("correlation", "external_id"),
    Role.ACTIVITY: _arguments(
        "correlation", "external_id", "device", "stream", "context", "graph", "graph_node", "original_stream", "bytes", "size",
    ),
    Role.SYNC: _arguments(
        "correlation", "device", "stream", "context", "wait_stream", record_correlation="wait_record", event="wait_event",
    ),
    Role.EVENT_RECORD: _arguments("correlation", "stream", "context", "event"),
    Role.DEVICE_WAIT: _arguments("device", "stream", awaited="wait_stream", sequence="queue_sequence"),
}  # fmt: skip
"""The columns that are arguments, by role, and which argument each is."""
ZERO_IF_MISSING = ("correlation", "external_id", "rf_id", "forward_thread")
"""Columns whose values are 0 where the argument is missing; others are -1 there."""
IN_CONTEXTS, FIRST_OF_CONTEXTS = (Role.ACTIVITY, Role.SYNC, Role.EVENT_RECORD), 1000
"""The roles of rows that name a context and a stream, and the first number for streams that need one of their own."""
PROCESS_NAME = "process_name"
LABELS = ("process_labels", PROCESS_NAME)
RECORDING = "Trace"
"""The category of the profiler's own row, which lasts as long as it recorded."""
LATEST = linked.FOREVER - linked.LONGEST_RECORDING
"""A row that begins earlier ends within 64 bits."""
OF_DOUBLES = (
    "its starts are quarters of a µs, as doubles hold µs since 1970, so up to 0.2 µs off; use the file as the profiler "
    "wrote it"
)
NO_DURATION = (None, b"", b"null")


class EventRows:
    """The events of one role as columns; their arguments only with `keep_arguments`."""

    def __init__(self, role: Role, keep_arguments: bool = False) -> None:
        self.count = 0
        self.arguments, self.shapes = CategoricalBuilder(), CategoricalBuilder()
        self.keeps_arguments = keep_arguments
        self.communication = columns.RecordBuilder[kineto.Args](kineto.Args)
        self.name, self.category, self.sync_kind = CategoricalBuilder(), CategoricalBuilder(), CategoricalBuilder()
        self._role = role
        self._columns: dict[str, IntegerBuilder] = defaultdict(IntegerBuilder)

    def add(self, events: Sequence[Event], start: ExactTimes, duration: ExactTimes, oddities: Counts) -> None:
        """Adds events with their times (ns), and counts decisions about them in `oddities`."""
        is_activity = self._role is Role.ACTIVITY
        self.name.add([activity_name(event) if is_activity else event.name or "" for event in events])
        self._columns["process"].add(linked.identities([event.pid for event in events]))
        self._columns["thread"].add(linked.identities([event.tid for event in events]))
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
        if self._role is Role.OP:
            self.shapes.add([bytes(args.input_dims).decode(errors="replace") for args in arguments])
        if self._role is Role.SYNC:
            pairs = zip(events, arguments, strict=True)
            self.sync_kind.add([str(args.sync_kind or event.name or "") for event, args in pairs])
        if self._role is Role.ACTIVITY:
            self._columns["lane"].add(linked.integers([event.tid for event in events], -1))
            self._columns["bandwidth"].add(_bytes_per_second([args.bandwidth for args in arguments]))
        sources = INTEGERS[self._role]
        for name, column in zip(sources, zip(*map(attrgetter(*sources.values()), arguments), strict=True), strict=True):
            self._columns[name].add(linked.integers(column, 0 if name in ZERO_IF_MISSING else -1))
        names = {name for name in {event.name for event in events} if name and name.startswith(COMMUNICATION)}
        communicating = {
            row: args
            for row, (event, args) in enumerate(zip(events, arguments, strict=True), self.count)
            if args.collective is not None or args.group_name is not None or event.name in names
        }
        for args, name in product(communicating.values(), LISTS):
            numbers = linked.integer_list(getattr(args, name))
            oddities[Reason.UNREADABLE_LISTS] += numbers is None
            setattr(args, name, numbers or None)
        self.communication.add(communicating)
        oddities[Reason.STILL_RUNNING] += sum(args.finished is False for args in arguments)

    def column(self, name: str) -> Int64:
        """Returns a column of integers."""
        return self._columns[name].column()

    def times(self, name: str) -> ExactTimes:
        """Returns a column of times, and with how many digits each of them was written."""
        return ExactTimes(self.column(name), self.column(f"digits of {name}"))

    def table(self, pad: dict[str, bool]) -> Any:
        """Returns the record of the role; `pad` says which of `start` and `duration` lack the zeros before their ns."""
        start, duration = (
            linked.with_padding(self.times(name)) if pad[name] else self.column(name) for name in ("start", "duration")
        )
        end = start + np.where(duration == ABSENT, 0, np.maximum(duration, 0))
        by_name: dict[str, Any] = {"name": self.name.column(), "start": start, "end": end}
        by_name |= {name: self.column(name) for name in ("process", "thread", *INTEGERS.get(self._role, ()))}
        self._derive(by_name)
        record = TABLES[self._role][1]
        return record(**{field.name: by_name[field.name] for field in fields(record) if field.name in by_name})

    def _derive(self, by_name: dict[str, Any]) -> None:
        """Adds, in place, the columns that are not as the file says. A stream of -1 means all or unknown."""

        def known(name: str, otherwise: Int64) -> Int64:
            return np.where(by_name[name] < 0, otherwise, by_name[name])

        if self._role in (Role.ACTIVITY, Role.DEVICE_WAIT):
            by_name["device"] = known("device", by_name["process"])
        if self._role is Role.OP:
            by_name["annotation"] = self.category.column().where(lambda name: name.lower() in ANNOTATIONS)
            none = Categorical(np.zeros(self.count, np.int32), [""])
            by_name["arguments"] = self.arguments.column() if self.keeps_arguments else none
            by_name["shapes"] = self.shapes.column()
        elif self._role is Role.ACTIVITY:
            category = self.category.column()
            lowered = Categorical.of(name.lower() for name in category.table)
            by_name["category"] = Categorical(lowered.codes[category.codes], lowered.table)
            stream = known("stream", self.column("lane"))
            by_name["stream"], by_name["size"] = known("original_stream", stream), known("bytes", by_name["size"])
            by_name["graph_node"] = kineto.graph_node(by_name["graph"], by_name["graph_node"])
            by_name["bandwidth"] = self.column("bandwidth")
        elif self._role is Role.SYNC:
            by_name["kind"] = self.sync_kind.column()
            for name in ("stream", "wait_stream", "event"):
                by_name[name] = np.where(by_name[name] == ALL_STREAMS, -1, by_name[name])
        elif self._role is Role.PYTHON:
            is_python = ~by_name["name"].where(lambda name: name.startswith(BUILT_IN))
            by_name |= {name: column[is_python] for name, column in by_name.items() if name != "name"}
            used, code = np.unique(by_name["name"].codes[is_python], return_inverse=True)
            names = [by_name["name"].table[name] for name in used.tolist()]
            by_name["name"] = Categorical(code.reshape(-1).astype(np.int32), names)


def _bytes_per_second(values: Sequence[Any]) -> Int64:
    """Returns bytes/s for values in GB/s, -1 for a value that is no speed."""
    speeds = np.array([value if type(value) in (int, float) else -1 for value in values], np.float64)
    is_valid = (speeds > 0) & (speeds < FASTEST)
    bytes_per_second = np.full(len(values), -1, np.int64)
    bytes_per_second[is_valid] = np.rint(speeds[is_valid] * GIGA)
    return bytes_per_second


def _argument_lists(args: kineto.Args, oddities: Counts) -> str:
    """Returns an op's recorded arguments as JSON in the host trace's layout, an empty text where none are recorded."""
    # only numbers have values, as text. Counts in `oddities` what is no list
    if not bytes(args.input_dims):
        return ""
    lists = [bytes(text) for text in (args.concrete_inputs, args.input_dims, args.input_types)]
    values, shapes, types = (text.decode() if text.startswith(b"[") else "[]" for text in lists)
    oddities[Reason.ARGUMENTS_NO_LISTS] += sum(not text.startswith(b"[") for text in lists if text)
    return f'{{"values":{values},"shapes":{shapes},"types":{types}}}'


def unpadded(tables: Collection[EventRows]) -> dict[str, bool]:
    """Returns whether a file's starts and durations were written without zeros before their ns."""
    return {
        name: linked.lacks_padding(
            ExactTimes(*(column[first : first + AT_ONCE] for column in times))
            for times in (table.times(name) for table in tables)
            for first in range(0, len(times.ns), AT_ONCE)
        )
        for name in ("start", "duration")
    }


def notes_on_times(tables: Iterable[EventRows], pad: dict[str, bool]) -> list[str]:
    """Returns what is odd about how the times of a file are written; `pad` as for `table`."""
    if any(pad.values()):
        return ["its times lack the zeros before their ns (5 ns is .5, as in March 2024); read so"]
    starts = np.concatenate([table.column("start") for table in tables])
    return [OF_DOUBLES] if linked.are_of_doubles(starts) else []


class DeviceEvents:
    """The events of a file by role. `skipped` and `oddities` as in `DeviceTrace`; `labels`: processes, their texts."""

    def __init__(self, arguments: bool, modules: bool = False) -> None:
        self.rows = {
            role: EventRows(role, arguments and role is Role.OP)
            for role in TABLES
            if modules or role is not Role.PYTHON
        }
        self.labels: list[tuple[int, str]] = []
        self.named_processes = set[str]()
        self.skipped, self.oddities = Counts(), Counts()
        self.read = self.ignored = 0
        self.recordings = set[int]()
        """When the profiler began to record (ns)."""
        self._exact = False
        self.flows = Flows()
        self._deferred = DeferredRows()
        self._process_names = dict[int, str]()

    def add(self, events: Sequence[kineto.Event], exactly: Callable[[], Sequence[Event]]) -> None:
        """Adds a piece of the file; from the first on with a double that lost ns, decoded again by `exactly`."""
        if not events:
            return
        if not self._exact:
            try:
                linked.nanoseconds([event.ts for event in events if event.ph == "X"])
            except InexactTime:
                self._exact = True
        by_role = self._by_role(exactly() if self._exact else events)
        self.skipped.add(_unknown(by_role[Role.UNKNOWN]))
        self.ignored += len(by_role[Role.IGNORED]) + len(by_role[Role.PYTHON])
        recordings = [event.ts for event in by_role[Role.IGNORED] if event.cat == RECORDING]
        self.recordings |= {*_times(recordings, self._exact).ns.tolist()} - {ABSENT}
        for role, table in self.rows.items():
            self._add(table, by_role[role])

    def ignore(self, count: int) -> None:
        """Counts rows that were skipped unread."""
        self.read += count
        self.ignored += count

    def close(self) -> None:
        """Adds, at the end of the file, the rows whose role only the rest of it told."""
        seen = {*np.concatenate([table.column("process") for table in self.rows.values()]).tolist()}
        of_flows = dict.fromkeys(self.flows.processes(is_end=False) - seen, Role.CALL)
        of_flows |= dict.fromkeys(self.flows.processes(is_end=True) - seen, Role.ACTIVITY)
        by_role = defaultdict[tuple[bool, Role], list[Event]](list)
        counts = Counts()
        for event in self._deferred.rows(self._process_names, of_flows, counts):
            by_role[isinstance(event, kineto.ExactEvent), role_of(event.cat, event.name)].append(event)
        added = 0
        for (self._exact, role), events in by_role.items():
            if role is Role.UNKNOWN:
                counts.add(_unknown(events))
            elif role in self.rows:
                self._add(self.rows[role], events)
                added += len(events)
        self.ignored += len(self._deferred) - added - sum(counts.values())
        self.skipped.add(counts)

    def _by_role(self, events: Sequence[Event]) -> dict[Role, list[Event]]:
        by_role: dict[Role, list[Event]] = {role: [] for role in Role}
        append_to: dict[str | None, Callable[[Event], None]] = {}
        for event in events:
            if event.ph == "X":
                if event.cat not in append_to:
                    append_to[event.cat] = by_role[role_of(event.cat)].append if event.cat else self._deferred.add
                append_to[event.cat](event)
            elif event.ph in BEGIN_AND_END:
                self._deferred.add(event)
            elif not event.ph and event.name:
                # as rows that no decoder takes, it was not read
                self.skipped[Reason.UNREADABLE_ROWS.of("device events")] += 1
                self.read -= 1
            else:
                self.ignored += 1
                if event.ph == "M" and event.name in LABELS and event.args:
                    self.labels.append((linked.identity(event.pid), str(event.args.name or event.args.labels or "")))
                    if event.name == PROCESS_NAME:
                        self._process_names[self.labels[-1][0]] = self.labels[-1][1]
        activities = by_role[Role.ACTIVITY]
        for role in (Role.ACTIVITY, Role.DEVICE_WAIT):
            by_role[role] = [event for event in activities if role_of(event.cat, event.name) is role]
        if flows := [event for event in events if is_launch(event)]:
            self.flows.add(flows, _times([event.ts for event in flows], self._exact))
        self.named_processes.update(event.pid for event in events if type(event.pid) is str)
        self.read += len(events)
        return by_role

    def _add(self, table: EventRows, events: list[Event]) -> None:
        if not events:
            return
        starts, durations = ([getattr(event, name) for event in events] for name in ("ts", "dur"))
        start, duration = (_times(stamps, self._exact) for stamps in (starts, durations))
        usable = (start.ns > -LATEST) & (start.ns < LATEST) & (duration.ns < linked.LONGEST_RECORDING)
        for row in np.flatnonzero(duration.ns == ABSENT).tolist():
            usable[row] &= (bytes(durations[row]) if self._exact else durations[row]) in NO_DURATION
        if not usable.all():
            self.skipped[Reason.UNUSABLE_TIME] += int((~usable).sum())
            events = [event for event, is_usable in zip(events, usable.tolist(), strict=True) if is_usable]
            start, duration = (ExactTimes(times.ns[usable], times.digits[usable]) for times in (start, duration))
        table.add(events, start, duration, self.oddities)


def tables_of(events: DeviceEvents, pad: dict[str, bool]) -> dict[str, Any]:
    """Returns the tables by name, in which streams and steps have numbers of their own; `pad` as for `table`."""
    tables = {TABLES[role][0]: rows.table(pad) for role, rows in events.rows.items()}
    link_by_flows(events.flows, tables, events.rows[Role.ACTIVITY].column("thread"), pad["start"])
    events.oddities[Reason.STREAMS_OF_CONTEXTS] += _separate_contexts(events, tables)
    ops = tables["ops"]
    ops.name, repeated = linked.distinct_steps(ops.name, columns.group_ids(ops.process, ops.thread), ops.start, ops.end)
    events.oddities[Reason.REPEATED_STEPS] += repeated
    return tables


def _separate_contexts(events: DeviceEvents, tables: Mapping[str, Any]) -> int:
    """Renumbers streams of the further contexts of a device, in place; returns how many activities are on them."""
    context = {TABLES[role][0]: events.rows[role].column("context") for role in IN_CONTEXTS}
    work, of_work = tables["activities"], context["activities"]
    if not len(of_work) or of_work.min() == of_work.max():
        return 0
    rows = np.flatnonzero(of_work >= 0)
    stream = columns.group_ids(*(column[rows] for column in (work.process, work.device, work.stream)))
    pairs = columns.groupby(stream, of_work[rows])
    further = rows[pairs.first[~columns.is_group_start(stream[pairs.first])]]
    moved = np.unique(np.stack((of_work[further], work.stream[further])), axis=1).T.tolist()
    is_moved, unused = np.zeros(len(of_work), np.bool_), count(FIRST_OF_CONTEXTS)
    used = set(np.unique(work.stream).tolist())
    for in_context, number in moved:
        new = next(candidate for candidate in unused if candidate not in used)
        is_moved |= (of_work == in_context) & (work.stream == number)
        for name, column in product(context, ("stream", "wait_stream")):
            if (streams := getattr(tables[name], column, None)) is not None:
                # a wait names the awaited stream of its own context
                streams[(context[name] == in_context) & (streams == number)] = new
    return int(is_moved.sum())


def _unknown(events: Iterable[Event]) -> Counts:
    """Returns how many rows are of each category."""
    counts = Counts()
    for event in events:
        counts[Reason.UNKNOWN_CATEGORY.of((event.cat or "")[:40])] += 1
    return counts


def _times(stamps: list[Any], exact: bool) -> ExactTimes:
    if exact:
        return linked.exact_times([bytes(stamp) for stamp in stamps])
    try:
        times = linked.nanoseconds(stamps)
    except InexactTime:
        # starts are exact here; only durations of centuries are not
        return linked.exact_times([str(stamp).encode() for stamp in stamps])
    return ExactTimes(times, np.zeros(len(times), np.int64))
