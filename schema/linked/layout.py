"""The linked trace as a file: JSON in the node layout of host schema 1.1.1, which Chakra's converter reads too; and the
tables of a linked trace that its records stand for.

Op nodes have `ts`, `inclusive_dur` and `exclusive_dur` in µs; activity nodes have `cat`. Calls, waits and hand-offs are
tables of columns after the nodes, times in ns. A file without these tables, as chakra_trace_link writes it, can be read
too: its activities are taken to be launched at the end of their op or at their start, whichever is earlier.
"""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from ..columns import ABSENT, ActivityRows, Categorical, Int64, OpRows, RowMap, rows_of
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
from .numbers import integers

SCHEMA = "1.1.1-chakra.0.0.4"
Raw = msgspec.Raw
Position = Annotated[int, msgspec.Meta(ge=-1, lt=1 << 31)]
"""A position in a list of texts, -1 for none."""
AnyTable = TypeVar("AnyTable", DeviceWaits, HostWaits, ThreadHandoffs)


INTEGER_ATTRIBUTES = {
    "rf_id": ("uint64", 0),
    "fw_parent": ("uint64", 0),
    "seq_id": ("int64", -1),
    "scope": ("uint64", 0),
    "tid": ("uint64", 0),
    "fw_tid": ("uint64", 0),
}
"""The attributes of an op that have a column, in the order of the file: their types, and what stands for a missing one.
"""
OP_SCHEMA = "op_schema"
ATTRIBUTES = (*INTEGER_ATTRIBUTES, OP_SCHEMA)
"""All attributes that have a column."""
ACTIVITY_NUMBERS = {"device": -1, "stream": -1, "correlation": 0, "graph_node": -1, "size": -1, "bandwidth": -1}
"""The numbers of an activity that have a column, and what stands for a missing one, which is left out."""


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


def attribute_columns(listed: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Returns the columns of `ATTRIBUTES`, from the values that nodes list; `op_schema` as texts."""
    columns = {name: integers(listed[name], missing) for name, (_, missing) in INTEGER_ATTRIBUTES.items()}
    return columns | {OP_SCHEMA: [text if type(text) is str else "" for text in listed[OP_SCHEMA]]}


def parent_ids(ctrl_deps: Sequence[Any]) -> Int64:
    """Returns the ids of the ops that called; of a list the first one counts. -1 stands for none."""
    if list in {*map(type, ctrl_deps)}:
        ctrl_deps = [next(iter(parent), None) if isinstance(parent, list) else parent for parent in ctrl_deps]
    return integers(ctrl_deps, -1)


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
        op_row=OpRows(_rows(table.op, op_ids, or_none=True)),
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


class _Kind(NamedTuple):
    """How a column is written as a list, and read; the second argument are the ids of the activities, by row."""

    write: Callable[[Any, Int64], list[Any]]
    read: Callable[[list[Any], Int64], Any]


def _rows(keys: list[int], ids: Int64, or_none: bool = False) -> Int64:
    """Returns the rows of these ids, -1 for a negative id if it stands for none.

    Raises KeyError for an id that is not there.
    """
    wanted = np.array(keys, np.int64)
    is_none = (wanted < 0) & or_none
    rows = np.where(is_none, -1, rows_of(ids, wanted))
    if (missing := np.flatnonzero((rows < 0) & ~is_none)).size:
        raise KeyError(keys[missing[0]])
    return rows


NUMBER = _Kind(lambda column, _: column.tolist(), lambda values, _: np.array(values, np.int64))
ACTIVITY = _Kind(lambda rows, ids: RowMap(ids)[rows].tolist(), _rows)
ACTIVITY_OR_NONE = ACTIVITY._replace(read=partial(_rows, or_none=True))
TIME = _Kind(
    lambda column, _: [None if time == ABSENT else time for time in column.tolist()],
    lambda values, _: np.array([ABSENT if time is None else time for time in values], np.int64),
)
PROVENANCE = _Kind(
    lambda column, _: [Provenance(text) for text in column],
    lambda values, _: Categorical.of(each.value for each in values),
)
TABLES: dict[type[Any], dict[str, tuple[str, _Kind]]] = {
    DeviceWaits: {
        "of": ("target_row", ACTIVITY),
        "source": ("source_row", ACTIVITY_OR_NONE),
        "known_by": ("known_by", PROVENANCE),
    },
    HostWaits: {
        "of": ("call_row", NUMBER),
        "source": ("source_row", ACTIVITY_OR_NONE),
        "known_by": ("known_by", PROVENANCE),
        "since_ns": ("since", TIME),
    },
    ThreadHandoffs: {
        "source_thread": ("source_thread", NUMBER),
        "source_ns": ("source_time", NUMBER),
        "target_thread": ("target_thread", NUMBER),
        "target_ns": ("target_time", NUMBER),
        "waiting_since_ns": ("waiting_since", TIME),
        "known_by": ("known_by", PROVENANCE),
    },
}
"""The members of a table in the file, and the column of the linked trace that each is."""


def as_record(table: DeviceWaits | HostWaits | ThreadHandoffs, ids: Int64) -> WaitTable | HandoffTable:
    """Returns a table as it is in the file; `ids` are those of the activities, by row."""
    members = {name: kind.write(getattr(table, column), ids) for name, (column, kind) in TABLES[type(table)].items()}
    return HandoffTable(**members) if isinstance(table, ThreadHandoffs) else WaitTable(**members)


def as_table(kind_of_table: type[AnyTable], record: WaitTable | HandoffTable | None, ids: Int64) -> AnyTable:
    """Returns the table that a record of the file is, without rows where there is none."""
    members = TABLES[kind_of_table].items()
    return kind_of_table(**{column: kind.read(getattr(record, name, []), ids) for name, (column, kind) in members})


def waits_of_nodes(sync_deps: list[tuple[int, int]], ids: Int64) -> DeviceWaits:
    """Returns the waits that chakra_trace_link found: pairs of an activity's row and an awaited id; those of ops do not
    count. `ids` are those of the activities, by row.
    """
    target, source_id = np.array(sync_deps, np.int64).reshape(-1, 2).T
    source = rows_of(ids, source_id)
    is_activity = source >= 0
    known_by = Categorical.of([Provenance.RECORD.value] * int(is_activity.sum()))
    return DeviceWaits(ActivityRows(source[is_activity]), ActivityRows(target[is_activity]), known_by)
