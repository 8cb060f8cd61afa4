"""The linked trace as a file: JSON in the node layout of host schema 1.1.1, which Chakra's converter reads too.

Nodes have times in µs. Calls, waits and hand-offs are tables of columns after the nodes, in ns; without them, as
chakra_trace_link writes it, activities are taken to be launched at the end of their op or at their start, if earlier.
"""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from operator import attrgetter
from typing import Annotated, Any, NamedTuple, TypeVar, get_origin, get_type_hints

import msgspec
import numpy as np
from msgspec import field

from ..columns import ABSENT, ActivityRows, Categorical, Int64, RowMap, rows_of
from . import linked_trace
from .host import NO_TENSORS, Attr
from .linked_trace import Activities, Calls, DeviceWaits, LinkedTrace, Ops, ProcessGroup, Provenance, TraceInfo, Whole
from .numbers import integers

SCHEMA = "1.1.1-chakra.0.0.4"
Raw = msgspec.Raw
Position = Annotated[int, msgspec.Meta(ge=-1, lt=1 << 31)]
"""A position in a list of texts, -1 for none."""
Record = TypeVar("Record", bound=msgspec.Struct)


INTEGER_ATTRIBUTES = {
    "rf_id": ("uint64", 0), "fw_parent": ("uint64", 0), "seq_id": ("int64", -1), "scope": ("uint64", 0),
    "tid": ("uint64", 0), "fw_tid": ("uint64", 0),
}  # fmt: skip
"""The attributes of an op that have a column, in the file's order: their types, and what stands for a missing one."""
ADDED = "nobody"
"""What recorded the roots of threads that have none, which are in the file alone."""
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
    called_by: Whole | None = None
    module: str | None = None
    python_function: str | None = None


class ExactNode(Node, gc=False):
    """A node with decimal time stamps, for fractions that a double cannot hold."""

    ts: Decimal | None = None  # type: ignore[assignment]
    inclusive_dur: Decimal | None = None  # type: ignore[assignment]
    exclusive_dur: Decimal | None = None  # type: ignore[assignment]


class Codec(NamedTuple):
    """How a column is written as a list, and read; the second argument are the ids that it refers to, by row."""

    write: Callable[[Any, Int64], list[Any]]
    read: Callable[[list[Any], Int64], Any]


def _rows(keys: list[int], ids: Int64, or_none: bool = False) -> Int64:
    """Returns the rows of these ids, -1 for a negative one that stands for none. Raises KeyError for a missing id."""
    wanted = np.array(keys, np.int64)
    is_none = (wanted < 0) & or_none
    rows = np.where(is_none, -1, rows_of(ids, wanted))
    if (missing := np.flatnonzero((rows < 0) & ~is_none)).size:
        raise KeyError(keys[missing[0]])
    return rows


NUMBERS = Codec(lambda column, _: column.tolist(), lambda values, _: np.array(values, np.int64))
IDS = Codec(lambda rows, ids: RowMap(ids)[rows].tolist(), _rows)
TIMES = Codec(
    lambda column, _: [None if time == ABSENT else time for time in column.tolist()],
    lambda values, _: np.array([ABSENT if time is None else time for time in values], np.int64),
)
EVIDENCE = Codec(
    lambda column, _: [*map(Provenance, column.tolist())],
    lambda values, _: Categorical.of(each.value for each in values),
)
# types of members that are columns: the member is named as the column, and by `field` as in the file
Numbers = Annotated[list[Whole], NUMBERS]
Ids = Annotated[list[Whole], IDS]
IdsOrNone = Annotated[list[Whole], IDS._replace(read=partial(_rows, or_none=True))]
Times = Annotated[list[Whole | None], TIMES]
Evidence = Annotated[list[Provenance], EVIDENCE]


class CallTable(msgspec.Struct, omit_defaults=True):
    """Calls as columns, -1 for none; names are positions in `names` and `python_names`, `op` the id of an op."""

    names: list[str]
    name: list[Position]
    thread: Numbers
    start: Numbers = field(name="start_ns")
    end: Numbers = field(name="end_ns")
    correlation: Numbers
    op_row: IdsOrNone = field(name="op")
    python_names: list[str] = []
    module: list[Position] | None = None
    python_function: list[Position] | None = None


class DeviceWaitTable(msgspec.Struct):
    """Waits of activities as columns; `since_ns` is empty."""

    target_row: Ids = field(name="of")
    source_row: IdsOrNone = field(name="source")
    known_by: Evidence
    since_ns: list[Whole | None] = []


class HostWaitTable(msgspec.Struct):
    """Waits of calls as columns. `of` is a row of the call table."""

    call_row: Numbers = field(name="of")
    source_row: IdsOrNone = field(name="source")
    known_by: Evidence
    since: Times = field(name="since_ns", default_factory=list)


class HandoffTable(msgspec.Struct):
    """Hand-offs of threads in columns, times in ns; `waiting_since_ns` is null if the target waited from its start."""

    source_thread: Numbers
    source_time: Numbers = field(name="source_ns")
    target_thread: Numbers
    target_time: Numbers = field(name="target_ns")
    waiting_since: Times = field(name="waiting_since_ns")
    known_by: Evidence


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
    device_waits: DeviceWaitTable | None = None
    host_waits: HostWaitTable | None = None
    handoffs: HandoffTable | None = None
    communications: list[linked_trace.Communication] = []
    groups: list[ProcessGroup] = []
    link_report: linked_trace.LinkReport | None = None
    events: Raw = field(name="traceEvents", default_factory=Raw)


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


def calls_in(table: CallTable, op_ids: Int64) -> Calls:
    """Returns the calls of the table; `op_ids` are the ids of the ops, by row."""
    module, python_function = (
        None if codes is None else Categorical(np.array(codes, np.int32), table.python_names)
        for codes in (table.module, table.python_function)
    )
    name = Categorical(np.array(table.name, np.int32), table.names)
    return Calls(name=name, module=module, python_function=python_function, **columns_in(table, op_ids))


def assumed_calls(activities: Activities, ops: Ops) -> Calls:
    """Returns one launch without length per activity, at its own start, or at its op's end if that is earlier."""
    op, start = activities.op_row, activities.start
    has_op = (op >= 0) & (RowMap(ops.start)[op] != ABSENT)
    time = start.copy()
    time[has_op] = np.maximum(np.minimum(ops.end[op[has_op]], start[has_op]), ops.start[op[has_op]])
    thread = np.where(op >= 0, ops.thread[op], 0) if len(ops) else np.zeros(len(op), np.int64)
    return Calls(Categorical.of("launch" for _ in op), thread, time, time.copy(), np.zeros(len(op), np.int64), op)


def waits_of_nodes(sync_deps: list[tuple[int, int]], ids: Int64) -> DeviceWaits:
    """Returns the waits of chakra_trace_link, pairs of an activity's row and an awaited activity's id, by all `ids`."""
    target, source_id = np.array(sync_deps, np.int64).reshape(-1, 2).T
    source = rows_of(ids, source_id)
    is_activity = source >= 0
    known_by = Categorical.of([Provenance.RECORD.value] * int(is_activity.sum()))
    return DeviceWaits(ActivityRows(source[is_activity]), ActivityRows(target[is_activity]), known_by)


def call_table(calls: Calls, op_ids: Int64) -> CallTable:
    """Returns the calls as they are in the file; `op_ids` are the ids of the ops, by row."""
    texts: dict[str, Any] = {"names": calls.name.table, "name": calls.name.codes.tolist()}
    if calls.module is not None and calls.python_function is not None:
        both = Categorical.joined((calls.module, calls.python_function))
        module, function = (codes.tolist() for codes in np.split(both.codes, 2))
        texts |= {"python_names": both.table, "module": module, "python_function": function}
    return as_record(CallTable, calls, op_ids, **texts)


def as_record(kind: type[Record], table: Any, ids: Int64, **further: Any) -> Record:
    """Returns a table, with references as `ids` of nodes, as a record of the file with `further` members."""
    return kind(**{name: codec.write(getattr(table, name), ids) for name, codec in _codecs(kind).items()}, **further)


def columns_in(record: msgspec.Struct, ids: Int64) -> dict[str, Any]:
    """Returns the columns that a record of the file holds. Raises KeyError for an id that is not among `ids`."""
    return {name: codec.read(getattr(record, name), ids) for name, codec in _codecs(type(record)).items()}


def _codecs(kind: type[msgspec.Struct]) -> dict[str, Codec]:
    hints = get_type_hints(kind, include_extras=True).items()
    return {name: hint.__metadata__[0] for name, hint in hints if get_origin(hint) is Annotated}


TABLES: dict[str, Callable[[LinkedTrace], Any]] = {
    "calls": lambda linked: call_table(linked.calls, linked.ops.id),
    "device_waits": lambda linked: as_record(DeviceWaitTable, linked.device_waits, linked.activities.id),
    "host_waits": lambda linked: as_record(HostWaitTable, linked.host_waits, linked.activities.id),
    "handoffs": lambda linked: as_record(HandoffTable, linked.handoffs, linked.activities.id),
    "communications": attrgetter("communications"), "groups": attrgetter("groups"),
    "trace": attrgetter("info"), "link_report": attrgetter("report"),
}  # fmt: skip
"""The members of the file after the nodes, in their order, from a linked trace."""
