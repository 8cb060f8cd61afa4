"""The linked trace in memory: tables of ops, calls and activities, and of the waits between them.

A `..._row` column has rows of another table, -1 for none. Times are int64 ns on the device trace's clock, ABSENT for
host ops that the device trace does not hold. Parents never go round in a circle.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np

from .. import columns
from ..columns import ABSENT, ActivityRows, Bool, CallRows, Categorical, Int64, Ns, OpRows, Summary, format_counts
from ..machine import MachineCalibration
from ..reasons import Counts
from .numbers import FOREVER
from .tensors import Arguments

Whole = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""A number that fits an int64 column."""
AnyTable = TypeVar("AnyTable", bound=columns.SummaryRepr)
NOT_THERE: Any = None
"""Stands in a table for a column that linking adds later, or has dropped."""
STEP_MARK, AUTOGRAD = "ProfilerStep#", "autograd::engine::evaluate_function"
"""How names of step marks begin, and of the ops in which autograd runs a backward function."""
INCOMPLETE_STEP = "incomplete step"
"""What marks the step that the end of a recording cut off."""
USER_SCOPE = 7
"""What an annotation has as its scope."""
LONGEST_NUMBER = 18
"""Digits of a number that fits 64 bits."""


class Provenance(Enum):
    """How an edge between two pieces of work is known."""

    RECORD = "record"
    CALL_ORDER = "call order"
    TIMING = "timing"
    GRAPH = "graph"


@dataclass(slots=True, repr=False)
class Ops(columns.RowTable):
    """Host ops. Ids are unique over ops and activities; `tid` is the host trace's thread number, `thread` the OS's.

    An op that communicates without the device has a `communication_row`. `module` and `python_function`, which enclose
    it, are None unless Python's calls were read.
    """

    id: Int64
    parent_id: Int64
    name: Categorical
    thread: Int64
    start: Ns
    end: Ns
    exclusive: Ns
    recorded_by_host: Bool
    op_schema: Categorical
    rf_id: Int64
    fw_parent: Int64
    seq_id: Int64
    scope: Int64
    tid: Int64
    fw_tid: Int64
    inputs: columns.BytesColumn
    outputs: columns.BytesColumn
    extra: columns.RecordsByRow[dict[str, Any]]
    communication_row: columns.CommunicationRows
    module: Categorical | None = None
    python_function: Categorical | None = None
    _arguments: Arguments | None = field(default=None, init=False)

    def __len__(self) -> int:
        return len(self.id)

    @property
    def arguments(self) -> Arguments:
        """What `inputs` and `outputs` stand for."""
        if self._arguments is None or self._arguments.texts != (self.inputs, self.outputs):
            self._arguments = Arguments(self.inputs, self.outputs)
        return self._arguments


@dataclass(slots=True, repr=False)
class Calls(columns.RowTable):
    """Runtime and driver calls, of a device trace or linked; a `correlation` of 0 means none.

    Linking adds `op_row`, the innermost op that encloses the call, and drops `process` and `external_id`.
    """

    name: Categorical
    thread: Int64
    start: Ns
    end: Ns
    correlation: Int64
    op_row: OpRows = NOT_THERE
    module: Categorical | None = None
    python_function: Categorical | None = None
    process: Int64 = NOT_THERE
    external_id: Int64 = NOT_THERE

    def __len__(self) -> int:
        return len(self.start)


@dataclass(slots=True, repr=False, kw_only=True)
class Activities(columns.RowTable):
    """Kernels, copies, sets and the like of other vendors, of a device trace or linked.

    `size` is in bytes, `bandwidth` in bytes/s, -1 where not recorded. Linking adds `id`, and columns of the launch and
    of the communication that a kernel did; it drops `process` and `external_id`.
    """

    id: Int64 = NOT_THERE
    name: Categorical
    category: Categorical
    device: Int64
    stream: Int64
    start: Ns
    end: Ns
    correlation: Int64
    graph_node: Int64
    size: Int64
    bandwidth: Int64
    call_row: CallRows = NOT_THERE
    op_row: OpRows = NOT_THERE
    communication_row: columns.CommunicationRows = NOT_THERE
    module: Categorical | None = None
    python_function: Categorical | None = None
    process: Int64 = NOT_THERE
    external_id: Int64 = NOT_THERE

    def __len__(self) -> int:
        return len(self.start)


@dataclass(slots=True, repr=False)
class DeviceWaits(columns.SummaryRepr):
    """Activity `target_row` waits for the end of activity `source_row`, -1 where a part of a trace lacks that."""

    source_row: ActivityRows
    target_row: ActivityRows
    known_by: Categorical


@dataclass(slots=True, repr=False)
class HostWaits(columns.SummaryRepr):
    """Call `call_row` returns after the end of activity `source_row`, -1 if no recorded activity is pending.

    The host waits from `since` on; ABSENT means from the call's start, or from its launch if it launches.
    """

    call_row: CallRows
    source_row: ActivityRows
    since: Ns
    known_by: Categorical


@dataclass(slots=True, repr=False)
class ThreadHandoffs(columns.SummaryRepr):
    """Work of `target_thread` from `target_time` on waits for work of `source_thread` up to `source_time`.

    The target thread only waits from `waiting_since` to `target_time`; ABSENT means from its start.
    """

    source_thread: Int64
    source_time: Ns
    target_thread: Int64
    target_time: Ns
    waiting_since: Ns
    known_by: Categorical


class Communication(msgspec.Struct, omit_defaults=True):
    """The recorded arguments of one communication; -1 and empty where they were not recorded.

    `source` and `target` are global ranks, `group_rank` is that of the peer or root in the group. Several
    communications that one kernel did are `coalesced`.
    """

    name: str = ""
    dtype: str = ""
    in_elements: Whole = -1
    out_elements: Whole = -1
    in_split: list[Whole] = []
    out_split: list[Whole] = []
    group: str = ""
    description: str = ""
    group_size: Whole = -1
    ranks: Sequence[Whole] = []
    sequence: Whole = -1
    group_rank: Whole = -1
    source: Whole = -1
    target: Whole = -1
    tag: Whole = -1
    coalesced: "list[Communication]" = []

    @property
    def parts(self) -> list["Communication"]:
        """The coalesced communications, or the communication itself."""
        return self.coalesced or [self]


class ProcessGroup(msgspec.Struct, omit_defaults=True):
    """A process group as recorded at its creation; empty ranks mean all."""

    name: str
    description: str = ""
    ranks: list[Whole] = []
    size: Whole = -1


class LinkReport(msgspec.Struct):
    """What became of every row of both inputs. `dropped`, `guessed`, `oddities` and `waits` count by reason."""

    world_size: int = -1
    matched_by: str = ""
    host_ops: int = 0
    device_ops: int = 0
    matched: int = 0
    agreement_pct: float = 0.0
    calls: int = 0
    activities: int = 0
    linked: int = 0
    dropped: Counts = msgspec.field(default_factory=Counts)
    guessed: Counts = msgspec.field(default_factory=Counts)
    oddities: Counts = msgspec.field(default_factory=Counts)
    waits: Counts = msgspec.field(default_factory=Counts)
    notes: list[str] = []


class TraceInfo(msgspec.Struct):
    """The source of the trace, and the machine that it was recorded on; times that were not measured are -1.

    In a part of a trace, `backlog_until` says by activity id until when (ns, device clock) work outside the part
    blocked that activity. `measured` is what else was measured beside the recording, by name.
    """

    schema: str = ""
    pid: Whole = -1
    rank: Whole = -1
    world_size: Whole = -1
    base_time_ns: Whole = 0
    sync_records: Whole = 0
    unresolved_waits: Whole = 0
    source_host: str = ""
    source_device: str = ""
    time: str = ""
    start_ts: float = 0
    finish_ts: float = 0
    machine: MachineCalibration = msgspec.field(default_factory=MachineCalibration)
    backlog_until: dict[Whole, Whole] | None = None
    devices: dict[Whole, str] = {}
    step_without_profiler_ns: Whole = -1
    data_wait_without_profiler_ns: Whole = -1
    measured: dict[str, Whole] | msgspec.UnsetType = msgspec.UNSET


@dataclass(slots=True, repr=False)
class LinkedTrace(columns.SummaryRepr):
    """The run of one process: host ops, calls and activities, and all that is known about their order."""

    info: TraceInfo
    ops: Ops
    calls: Calls
    activities: Activities
    device_waits: DeviceWaits
    host_waits: HostWaits
    handoffs: ThreadHandoffs
    communications: Sequence[Communication]
    groups: list[ProcessGroup]
    report: LinkReport = field(default_factory=LinkReport)

    def summary(self) -> Summary:
        """Returns where the trace comes from, and how much it holds."""
        info = self.info
        waits = {
            "of the host": len(np.unique(self.host_waits.call_row)),
            "between streams": len(self.device_waits.known_by),
            "between threads": len(self.handoffs.known_by),
        }
        lines = {
            "files": " and ".join(filter(None, (info.source_host, info.source_device))),
            "rows": format_counts({"ops": len(self.ops), "calls": len(self.calls), "activities": len(self.activities)}),
            "waits": format_counts(waits),
            "notes": f"{len(self.report.notes)}, in report.notes" if self.report.notes else "0",
        }
        return Summary(f"LinkedTrace: rank {info.rank if info.rank >= 0 else 'unknown'}", lines)


def on_host_clock(activities: Activities, machine: MachineCalibration) -> Activities:
    """Returns the activities with their times on the host's clock; lengths stay as recorded."""
    shift = machine.clock_shift(activities.start)
    if not shift.any():
        return activities
    return replace(activities, start=activities.start + shift, end=activities.end + shift)


def op_parents(ops: Ops) -> OpRows:
    """Returns for each op the row of the op that called it, -1 for none and for one that names itself. O(n log n)."""
    return OpRows(columns.parent_rows(ops.id, ops.parent_id))


def op_tree(ops: Ops) -> columns.Tree:
    """Returns the tree of ops; those that one op called are in order of time. O(n log n)."""
    return columns.Tree.of(op_parents(ops), ops.start)


def select_rows(table: AnyTable, rows: Bool | Int64) -> AnyTable:
    """Returns the rows of a table of columns."""
    table_of: Callable[..., AnyTable] = type(table)
    return table_of(**columns_at(table, rows))


def columns_at(table: Any, rows: Bool | Int64) -> dict[str, Any]:
    """Returns the columns of a record at the rows, by the names of their fields."""
    chosen = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
    chosen_columns: dict[str, Any] = {}
    for entry in fields(table):
        column = getattr(table, entry.name)
        if isinstance(column, Categorical | columns.BytesColumn):
            chosen_columns[entry.name] = column.take(chosen)
        elif isinstance(column, np.ndarray):
            chosen_columns[entry.name] = column[chosen]
    return chosen_columns


def guessed(known_by: Categorical) -> Bool:
    """Returns which edges are known from timing alone."""
    return known_by.equal(Provenance.TIMING.value)


def without_guesses(linked: LinkedTrace) -> LinkedTrace:
    """Returns the trace without waits and hand-offs by timing alone: their time becomes the thread's own again."""
    tables = ((name, getattr(linked, name)) for name in ("device_waits", "host_waits", "handoffs"))
    return replace(linked, **{name: select_rows(table, ~guessed(table.known_by)) for name, table in tables})


def are_step_marks(names: Categorical) -> Bool:
    """Returns which names mark a step."""
    return names.where(lambda name: name.startswith(STEP_MARK))


def distinct_steps(names: Categorical, thread: Int64, start: Ns, end: Ns) -> tuple[Categorical, int]:
    """Returns ops' names, with steps numbered on from where a number repeats on its thread, and how many these are.

    >>> names = Categorical.of(["ProfilerStep#0", "ProfilerStep#1", "ProfilerStep#0"])
    >>> [*distinct_steps(names, np.zeros(3), np.arange(3), np.arange(3))[0]]
    ['ProfilerStep#0', 'ProfilerStep#1', 'ProfilerStep#2']
    """
    marks = np.flatnonzero(are_step_marks(names) & (start != ABSENT))
    renamed, until, ahead, before = dict[int, str](), dict[int, int](), 0, ABSENT
    for row in marks[np.lexsort((start[marks], thread[marks]))].tolist():
        number = _step_number(names[row])
        if thread[row] != before:
            before, until, ahead = int(thread[row]), {}, 0
        if number < 0:
            continue
        if start[row] >= until.get(number + ahead, FOREVER):
            ahead = max(until) + 1 - number
        if ahead:
            renamed[row] = f"{STEP_MARK}{number + ahead}"
        until[number + ahead] = int(end[row])
    if not renamed:
        return names, 0
    rows = np.arange(len(names))
    rows[[*renamed]] = len(names) + np.arange(len(renamed))
    return Categorical.joined((names, Categorical.of(renamed.values()))).take(rows), len(renamed)


def _step_number(name: str) -> int:
    """Returns the number of a step mark, -1 for none that fits 64 bits."""
    number = name.removeprefix(STEP_MARK)
    return int(number) if number.isdecimal() and number.isascii() and len(number) <= LONGEST_NUMBER else -1


def step_starts(names: Categorical, start: Int64) -> dict[int, int]:
    """Returns the start (ns) of each step by its number, from ops' names and starts; of several marks the first."""
    marks = np.flatnonzero(are_step_marks(names) & (start != ABSENT))
    starts: dict[int, int] = {}
    for row in marks[np.argsort(start[marks], kind="stable")].tolist():
        if (number := _step_number(names[row])) >= 0:
            starts.setdefault(number, int(start[row]))
    return starts


def step_count(names: Categorical, duration_ns: Ns) -> int:
    """Returns how many steps these ops mark. Several threads may mark the same step."""
    return len(np.unique(names.codes[are_step_marks(names) & (duration_ns > 0)]))
