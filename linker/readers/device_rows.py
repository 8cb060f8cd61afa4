"""A device trace in columns: one table for each role that a row may have; rows of unknown categories are counted."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from ...schema import columns
from ...schema.columns import ActivityRows, Bool, CallRows, Categorical, Int64, OpRows, RecordsByRow, RowMap, Summary
from ...schema.linked import (
    Activities,
    Calls,
    LinkedTrace,
    MergedRank,
    are_step_marks,
    columns_at,
    kineto,
    select_rows,
    step_starts,
)  # fmt: skip
from ...schema.reasons import Counts

INSTANT = "cpu_instant_event"
PYTHON = "python_function"
ANNOTATIONS = ("user_annotation", "user")
DEVICE_SIDE_WAITS = ("event_wait", "event_record")
"""Names of rows in MTIA's device queues that record waiting, not work."""


class Role(Enum):
    """What a row of a device trace is about."""

    OP = "op"
    CALL = "call"
    ACTIVITY = "activity"
    SYNC = "sync"
    EVENT_RECORD = "event record"
    DEVICE_WAIT = "device wait"
    PYTHON = "python"
    IGNORED = "ignored"
    UNKNOWN = "unknown"

    __hash__ = object.__hash__
    """By identity, as they compare: roles are looked up for every row."""


_ROLES = {
    Role.OP: ("cpu_op", "user_annotation", "operator", "user", "hpu_op"),
    Role.CALL: (
        "cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver", "runtime", "mtia_runtime", "xpu_runtime",
        "xpu_driver", "privateuse1_runtime", "privateuse1_driver", "glow_runtime",
        "enqueue", "dequeue",
    ),
    Role.ACTIVITY: (
        "kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset", "mtia_ccp_events", "collective_comm",
        "concurrent_kernel", "graph_event_node", "graph_host_node",
    ),
    Role.SYNC: ("cuda_sync", "xpu_sync"),
    Role.EVENT_RECORD: ("cuda_event",),
    Role.PYTHON: ("python_function",),
    Role.IGNORED: (
        "gpu_user_annotation", "ac2g", "fwdbwd", "async", "async_cpu_to_gpu", "async_gpu",
        "cpu_instant_event", "overhead", "trace", "external_correlation", "mtia_insight", "mtia_counters",
        "cuda_profiler_range", "xpu_scope_profiler", "hardware_counters", "api_op", "hosttodevice", "async_npu",
        "async_task_queue",
    ),
}  # fmt: skip

_PHASES = {PYTHON: b"X", INSTANT: b"i"}


def skip_categories(*read: str) -> "re.Pattern[bytes] | None":
    """Returns a pattern of rows to skip, Python's calls and allocations, except those `read`; None where all are."""
    skipped = [(phase, category.encode()) for category, phase in _PHASES.items() if category not in read]
    rows = b"|".join(rb'"%b"\s*,\s*"cat"\s*:\s*"%b"' % row for row in skipped)
    pattern = rb'\{\s*"ph"\s*:\s*(?:' + rows + rb')[^{]*(?:(?<="args":)|(?<="args": ))\{[^}]*\}\s*\}\s*,'
    return re.compile(pattern) if rows else None


ROLE_OF_CATEGORY = {category: role for role, categories in _ROLES.items() for category in categories}

CALL_ENDINGS = ("_runtime", "_driver")
"""Future vendors will name the categories of their calls as all others do."""


def role_of(category: str | None, name: str | None = "") -> Role:
    """Returns the role of a row by its category in any case; rows without a category are bookkeeping of the viewer."""
    role = _role_of_category(category)
    return Role.DEVICE_WAIT if role is Role.ACTIVITY and name in DEVICE_SIDE_WAITS else role


@lru_cache(maxsize=1024)
def _role_of_category(category: str | None) -> Role:
    if not category:
        return Role.IGNORED
    category = category.lower()
    return ROLE_OF_CATEGORY.get(category, Role.CALL if category.endswith(CALL_ENDINGS) else Role.UNKNOWN)


@dataclass(slots=True, repr=False)
class RecordedRows(columns.SummaryRepr):
    """Rows of host threads: what they were, and from when to when."""

    name: Categorical
    process: Int64
    thread: Int64
    start: Int64
    end: Int64


@dataclass(slots=True, repr=False)
class RecordedOps(RecordedRows):
    """Host ops and annotations as recorded, `arguments` as JSON texts; `rf_id` 0, `sequence` -1 mean not recorded."""

    annotation: Bool
    rf_id: Int64
    external_id: Int64
    event_index: Int64
    sequence: Int64
    forward_thread: Int64
    arguments: Categorical
    shapes: Categorical


@dataclass(slots=True, repr=False)
class RecordedSyncs(columns.SummaryRepr):
    """cuda_sync records; -1 where a field is unknown. `stream` is the one that waits, `wait_stream` the awaited one."""

    kind: Categorical
    process: Int64
    start: Int64
    end: Int64
    device: Int64
    correlation: Int64
    stream: Int64
    wait_stream: Int64
    record_correlation: Int64
    event: Int64


@dataclass(slots=True, repr=False)
class RecordedEvents(columns.SummaryRepr):
    """cuda_event records: event `event` was recorded on `stream` by the call with this correlation."""

    process: Int64
    correlation: Int64
    stream: Int64
    event: Int64


@dataclass(slots=True, repr=False)
class RecordedQueueEvents(columns.SummaryRepr):
    """Events on device queues: `stream` recorded number `sequence` (`awaited` -1), or waited for that of `awaited`."""

    device: Int64
    stream: Int64
    awaited: Int64
    sequence: Int64
    start: Int64
    end: Int64


@dataclass(slots=True, repr=False)
class RecordedDependencies(columns.SummaryRepr):
    """Dependencies within a launch of a graph: its node `target` begins after its node `source` has ended."""

    process: Int64
    correlation: Int64
    source: Int64
    target: Int64


@dataclass(slots=True, repr=False)
class RecordedPython(RecordedRows):
    """Calls of Python: of modules, as `nn.Module: Linear_0`, and of functions, as `file.py(12): forward`."""


TABLES: dict[Role, tuple[str, Any]] = {
    Role.OP: ("ops", RecordedOps), Role.CALL: ("calls", Calls), Role.ACTIVITY: ("activities", Activities),
    Role.SYNC: ("syncs", RecordedSyncs), Role.EVENT_RECORD: ("event_records", RecordedEvents),
    Role.DEVICE_WAIT: ("queue_events", RecordedQueueEvents), Role.PYTHON: ("python", RecordedPython),
}  # fmt: skip
"""The table of a device trace that holds the rows of a role: its name there, and its record."""


@dataclass(slots=True, repr=False)
class DeviceTrace(columns.SummaryRepr):
    """The rows of a device trace. Of the `read` rows of its list, `ignored` carry no work (flows, counters, thread
    names).

    `skipped` counts by reason the rows about work that are in no table, `oddities` decisions that the reader took;
    `notes` are whole sentences about the file. `python` is None unless asked for. `handed_over` holds in columns
    which thread queued work, when, which thread took it up, and when. `merged` says how to get each
    rank's own trace out of a merged one, `merge_marks` what else shows that ranks were merged. `recording_start` is the
    time that viewers show as 0. Times without a profiler are -1 where they were not measured. `window` is "device"
    where no host trace was written meanwhile, "detail" in one for modules and allocations, "" where the file does not
    say. `detail` is the detail trace of the process, where it was read, too.

    >>> import execgraph as eg
    >>> device = eg.read_device_trace("tests/data/training/device_rank0.json.gz")
    >>> device.rank, device.world_size, len(device.activities.start)
    (0, 2, 63)
    """

    path: str
    rank: int | None
    world_size: int | None
    base_time_ns: int
    groups: list[dict[str, Any]]
    ops: RecordedOps
    calls: Calls
    activities: Activities
    syncs: RecordedSyncs
    event_records: RecordedEvents
    communication: dict[Role, RecordsByRow[kineto.Args]]
    queue_events: RecordedQueueEvents = field(default_factory=lambda: RecordedQueueEvents(*np.empty((6, 0), np.int64)))
    dependencies: RecordedDependencies = field(
        default_factory=lambda: RecordedDependencies(*np.empty((4, 0), np.int64))
    )
    python: RecordedPython | None = None
    handed_over: Int64 = field(default_factory=lambda: np.empty((4, 0), np.int64))
    labels: list[tuple[int, str]] = field(default_factory=list)
    merged: list[MergedRank] = field(default_factory=list)
    merge_marks: list[str] = field(default_factory=list)
    skipped: Counts = field(default_factory=Counts)
    oddities: Counts = field(default_factory=Counts)
    notes: list[str] = field(default_factory=list)
    ends_early: bool = False
    recording_start: int | None = None
    device_names: dict[int, str] = field(default_factory=dict)
    step_without_profiler_ns: int = -1
    data_wait_without_profiler_ns: int = -1
    measured: dict[str, int] = field(default_factory=dict)
    window: str = ""
    detail: "DeviceTrace | None" = None
    read: int = 0
    ignored: int = 0

    def summary(self) -> Summary:
        """Returns the path of the file and the numbers of its rows."""
        rows = {name: len(getattr(self, name).start) for name in ("ops", "calls", "activities")}
        lines = {"rows": columns.format_counts(rows), "notes": str(len(self.notes))}
        return Summary(f"DeviceTrace: {self.path}", lines)

    @property
    def processes(self) -> list[int]:
        """The processes whose host rows the file holds."""
        return [int(pid) for pid in np.union1d(self.ops.process, self.calls.process)]


class KeptRows(NamedTuple):
    """Which rows of a linked trace's tables are kept."""

    ops: Bool
    calls: Bool
    activities: Bool


def select(device: DeviceTrace, **chosen: Bool | Int64) -> DeviceTrace:
    """Returns the chosen rows of each table, by masks or in a new order, and all rows of others; nothing is counted."""
    tables, communication = dict[str, Any](), dict(device.communication)
    for name, rows in chosen.items():
        table = getattr(device, name)
        tables[name] = select_rows(table, rows)
        for role, records in device.communication.items():
            if TABLES[role][0] == name:
                communication[role] = records.moved(columns.positions(rows, len(table.process)))
    return replace(device, **tables, communication=communication)


def select_linked(linked: LinkedTrace, kept_rows: KeptRows) -> LinkedTrace:
    """Returns the kept rows, and the waits of kept activities and calls; a source that is not kept is -1."""
    op, call, activity = (columns.positions(kept, len(kept)) for kept in kept_rows)
    ops = replace(linked.ops, **columns_at(linked.ops, kept_rows.ops), extra=linked.ops.extra.moved(op))
    calls = select_rows(linked.calls, kept_rows.calls)
    activities = select_rows(linked.activities, kept_rows.activities)
    used = np.zeros(len(linked.communications), np.bool_)
    for rows in (ops.communication_row, activities.communication_row):
        used[rows[rows >= 0]] = True
    of_op, of_call, of_activity = RowMap(OpRows(op)), RowMap(CallRows(call)), RowMap(ActivityRows(activity))
    of_communication = RowMap(columns.CommunicationRows(columns.positions(used, len(used))))
    device = select_rows(linked.device_waits, kept_rows.activities[linked.device_waits.target_row])
    host = select_rows(linked.host_waits, kept_rows.calls[linked.host_waits.call_row])
    source, communication_row = of_activity[device.source_row], of_communication[activities.communication_row]
    activities = replace(activities, call_row=of_call[activities.call_row], communication_row=communication_row)
    return replace(
        linked,
        ops=replace(ops, communication_row=of_communication[ops.communication_row]),
        calls=replace(calls, op_row=of_op[calls.op_row]),
        activities=replace(activities, op_row=of_op[activities.op_row]),
        device_waits=replace(device, source_row=source, target_row=of_activity[device.target_row]),
        host_waits=replace(host, call_row=of_call[host.call_row], source_row=of_activity[host.source_row]),
        communications=[linked.communications[row] for row in np.flatnonzero(used).tolist()],
    )


def unmarked_steps(trace: DeviceTrace) -> Iterator[str]:
    """Yields where ops ran between two steps whose numbers do not follow each other, outside both."""
    ops, marks = trace.ops, are_step_marks(trace.ops.name)
    for (before, begin), (after, until) in pairwise(step_starts(ops.name, ops.start).items()):
        end = int(ops.end[marks & (ops.start == begin)].max()) if after > before + 1 else until
        if (~marks & (ops.start > end) & (ops.end < until)).any():
            steps = f"step {before + 1} is" if after == before + 2 else f"steps {before + 1} to {after - 1} are"
            yield f"{trace.path}: {steps} not marked, though ops ran there, and count to step {before}"
