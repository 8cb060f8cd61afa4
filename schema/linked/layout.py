"""The linked trace as a file: JSON in the node layout of host schema 1.1.1, which Chakra's converter reads too; and the
tables of a linked trace that its records stand for.

Op nodes have `ts`, `inclusive_dur` and `exclusive_dur` in µs; activity nodes have `cat`. Calls, waits and hand-offs are
tables of columns after the nodes, times in ns. A file without these tables, as chakra_trace_link writes it, can be read
too: its activities are taken to be launched at the end of their op or at their start, whichever is earlier.
"""

from decimal import Decimal
from typing import Annotated, NamedTuple

import msgspec
import numpy as np

from ..columns import ABSENT, ActivityRows, CallRows, Categorical, Int64, OpRows, rows_of
from .host import NO_TENSORS, Attr
from .linked_trace import (
    Activities,
    Calls,
    Communication,
    DeviceWaits,
    HostWaits,
    LinkReport,
    Ops,
    ProcessGroup,
    Provenance,
    ThreadHandoffs,
    TraceInfo,
    Whole,
)

SCHEMA = "1.1.1-chakra.0.0.4"
Raw = msgspec.Raw
Position = Annotated[int, msgspec.Meta(ge=-1, lt=1 << 31)]
"""A position in a list of texts, -1 for none."""


class IntegerAttribute(NamedTuple):
    """An attribute's name and type in the file, and the value of a missing one."""

    name: str
    type: str
    missing: int


INTEGER_ATTRIBUTES = (
    IntegerAttribute("rf_id", "uint64", 0),
    IntegerAttribute("fw_parent", "uint64", 0),
    IntegerAttribute("seq_id", "int64", -1),
    IntegerAttribute("scope", "uint64", 0),
    IntegerAttribute("tid", "uint64", 0),
    IntegerAttribute("fw_tid", "uint64", 0),
)
"""The attributes of an op that have a column, in the order of the file."""


class Node(msgspec.Struct, gc=False):
    """An op, or an activity if it has a `cat`. `call` and `communication` are rows of the tables below."""

    id: Whole
    name: str
    ctrl_deps: Whole | list[Whole] | None = None
    inputs: Raw = Raw(NO_TENSORS)
    outputs: Raw = Raw(NO_TENSORS)
    attrs: list[Attr] = []
    cat: str | None = None
    ts: int | float | None = None
    inclusive_dur: int | float | None = None
    exclusive_dur: int | float | None = None
    thread: Whole | None = None
    device: Whole = -1
    stream: Whole = -1
    correlation: Whole = 0
    graph_node: Whole = -1
    size: Whole = -1
    bandwidth: Whole = -1
    call: Whole = -1
    communication: Whole = -1
    sync_dep: list[Whole] | None = None
    recorded_by: str | None = None
    module: str | None = None
    python_function: str | None = None


class ExactNode(Node, gc=False):
    """A node with decimal time stamps, for fractions that a double cannot hold."""

    ts: Decimal | None = None  # type: ignore[assignment]
    inclusive_dur: Decimal | None = None  # type: ignore[assignment]
    exclusive_dur: Decimal | None = None  # type: ignore[assignment]


class CallTable(msgspec.Struct, omit_defaults=True):
    """Calls as columns, times in ns. -1 means none.

    `name` is a position in `names`, `op` the id of an op; `module` and `python_function` are positions in
    `python_names`.
    """

    names: list[str]
    name: list[Position]
    thread: list[Whole]
    start_ns: list[Whole]
    end_ns: list[Whole]
    correlation: list[Whole]
    op: list[Whole]
    python_names: list[str] = []
    module: list[Position] | None = None
    python_function: list[Position] | None = None


class WaitTable(msgspec.Struct):
    """Waits as columns. `of` is the id of an activity in device waits, a row of the call table in host waits; `source`
    is the id of an activity, -1 for none.
    """

    of: list[Whole]
    source: list[Whole]
    known_by: list[Provenance]
    since_ns: list[Whole | None] = []


class HandoffTable(msgspec.Struct):
    """Hand-offs between threads as columns, times in ns. `waiting_since_ns` is null if the target waited from its
    start.
    """

    source_thread: list[Whole]
    source_ns: list[Whole]
    target_thread: list[Whole]
    target_ns: list[Whole]
    waiting_since_ns: list[Whole | None]
    known_by: list[Provenance]


class LinkedFile(msgspec.Struct):
    """The top level."""

    schema: str = ""
    pid: int | None = None
    time: str = ""
    start_ts: int | float = 0
    finish_ts: int | float | None = 0
    nodes: list[Node] = []
    trace: TraceInfo | None = None
    calls: CallTable | None = None
    device_waits: WaitTable | None = None
    host_waits: WaitTable | None = None
    handoffs: HandoffTable | None = None
    communications: list[Communication] = []
    groups: list[ProcessGroup] = []
    link_report: LinkReport | None = None
    events: Raw = msgspec.field(name="traceEvents", default_factory=Raw)


class ExactFile(LinkedFile):
    """The file with the decimal time stamps of its nodes."""

    nodes: list[ExactNode] = []  # type: ignore[assignment]


def calls(table: CallTable, op_ids: Int64) -> Calls:
    """Returns the calls of the table; `op_ids` are the ids of the ops, by row."""

    def categorical(codes: list[int] | None) -> Categorical | None:
        return None if codes is None else Categorical(np.array(codes, np.int32), table.python_names)

    return Calls(
        name=Categorical(np.array(table.name, np.int32), table.names),
        thread=np.array(table.thread, np.int64),
        start=np.array(table.start_ns, np.int64),
        end=np.array(table.end_ns, np.int64),
        correlation=np.array(table.correlation, np.int64),
        op_row=OpRows(_rows_or_none(op_ids, table.op)),
        module=categorical(table.module),
        python_function=categorical(table.python_function),
    )


def assumed_calls(activities: Activities, ops: Ops) -> Calls:
    """Returns one launch without length per activity, at its op's end or at its own start, whichever is earlier."""
    op, start = activities.op_row, activities.start
    has_op = op >= 0
    time = start.copy()
    time[has_op] = np.maximum(np.minimum(ops.end[op[has_op]], start[has_op]), ops.start[op[has_op]])
    thread = np.where(has_op, ops.thread[op], 0) if len(ops) else np.zeros(len(op), np.int64)
    return Calls(Categorical.of("launch" for _ in op), thread, time, time.copy(), np.zeros(len(op), np.int64), op)


def device_waits(table: WaitTable | None, sync_deps: list[tuple[int, int]], ids: Int64) -> DeviceWaits:
    """Returns the waits of the table, else those that chakra_trace_link found.

    Args:
        table: The table of the file, if it has one.
        sync_deps: Pairs of an activity's row and an awaited id, which may be an op's; those do not count.
        ids: The ids of the activities, by row.
    """
    if table:
        source, target = _rows_or_none(ids, table.source), _rows(ids, table.of)
        return DeviceWaits(ActivityRows(source), ActivityRows(target), _provenance(table.known_by))
    target, source_id = np.array(sync_deps, np.int64).reshape(-1, 2).T
    source = rows_of(ids, source_id)
    is_activity = source >= 0
    known_by = _provenance([Provenance.RECORD] * int(is_activity.sum()))
    return DeviceWaits(ActivityRows(source[is_activity]), ActivityRows(target[is_activity]), known_by)


def host_waits(table: WaitTable | None, ids: Int64) -> HostWaits:
    """Returns the waits of the table, none where the file has none; `ids` are those of the activities, by row."""
    table = table or WaitTable([], [], [])
    return HostWaits(
        CallRows(np.array(table.of, np.int64)),
        ActivityRows(_rows_or_none(ids, table.source)),
        _times(table.since_ns),
        _provenance(table.known_by),
    )


def thread_handoffs(table: HandoffTable | None) -> ThreadHandoffs:
    """Returns the hand-offs of the table, none where the file has none."""
    table = table or HandoffTable([], [], [], [], [], [])
    return ThreadHandoffs(
        np.array(table.source_thread, np.int64),
        np.array(table.source_ns, np.int64),
        np.array(table.target_thread, np.int64),
        np.array(table.target_ns, np.int64),
        _times(table.waiting_since_ns),
        _provenance(table.known_by),
    )


def _provenance(known_by: list[Provenance]) -> Categorical:
    return Categorical.of(each.value for each in known_by)


def _times(times: list[int | None]) -> Int64:
    return np.array([ABSENT if time is None else time for time in times], np.int64)


def _rows(ids: Int64, keys: list[int]) -> Int64:
    """Returns the rows of these ids. Raises KeyError for an id that is not there."""
    rows = rows_of(ids, np.array(keys, np.int64))
    if (missing := np.flatnonzero(rows < 0)).size:
        raise KeyError(keys[missing[0]])
    return rows


def _rows_or_none(ids: Int64, keys: list[int]) -> Int64:
    """Returns the rows of these ids, -1 for a negative id."""
    rows = np.full(len(keys), -1, np.int64)
    present = [row for row, identity in enumerate(keys) if identity >= 0]
    rows[present] = _rows(ids, [keys[row] for row in present])
    return rows
