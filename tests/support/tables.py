"""Tables of linked and device traces, host nodes and processes by hand, one named tuple per row, for tests of one part.

Times are in ns. How much work a function does, counted: the same on every machine, so that a test can say how it grows.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
from execgraph.linker import readers
from execgraph.linker.communication import CollectiveOps
from execgraph.linker.readers import HostTrace, RecordedOps, RecordedSyncs, Role
from execgraph.linker.waits import Process
from execgraph.schema.columns import ABSENT, BytesColumn, Categorical, Int64, Lookup, RecordsByRow
from execgraph.schema.linked import NO_TENSORS, Activities, Calls, Communication, Ops, kineto
from execgraph.schema.machine import MachineCalibration

FIRST = 100
"""The correlation of the first call."""


class Called(NamedTuple):
    start: int
    end: int
    name: str = "cudaLaunchKernel"


class Op(NamedTuple):
    """An op, without times unless they are given; `forward` is the thread that its forward op ran on."""

    name: str = "aten::mm"
    start: int = ABSENT
    end: int = ABSENT
    thread: int = 0
    sequence: int = -1
    forward: int = 0
    schema: str = ""
    inputs: bytes = b""
    outputs: bytes = b""


class Ran(NamedTuple):
    """An activity; `call` is the row of its launch call."""

    start: int
    end: int
    call: int = -1
    stream: int = 7
    name: str = "kernel"
    device: int = 0
    category: str = "kernel"


class Synced(NamedTuple):
    """A synchronisation record of a call, and the call that recorded the event that it awaited, by row."""

    kind: str
    call: int
    stream: int = -1
    awaited: int = -1
    recorded: int = -1 - FIRST


def column(*values: int) -> Int64:
    return np.array(values, np.int64)


def table(kind: Any, row: Any, rows: Sequence[Any], **others: Any) -> Any:
    """The rows as a table of this kind; `others` are columns that rows do not have, or a number for all rows."""
    makers = {str: Categorical.of, bytes: BytesColumn.of, bool: lambda values: np.array(values, np.bool_)}
    columns = {
        name: makers.get(of, lambda values: np.array(values, np.int64))([getattr(one, name) for one in rows])
        for name, of in row.__annotations__.items()
        if name in kind.__dataclass_fields__ and name not in others
    }
    same = {name: np.full(len(rows), value) for name, value in others.items() if isinstance(value, int)}
    return kind(**columns | others | same)


def ops(*rows: Op) -> Ops:
    found: Ops = table(
        Ops, Op, rows, id=np.arange(len(rows)), parent_id=-1, exclusive=0, recorded_by_host=np.ones(len(rows), np.bool_),
        op_schema=Categorical.of(row.schema for row in rows), rf_id=-1, fw_parent=-1, scope=0, tid=-1, extra=RecordsByRow.of(dict),
        seq_id=column(*(row.sequence for row in rows)), fw_tid=column(*(row.forward for row in rows)),
        communication_row=-1,
    )  # fmt: skip
    return found


def calls(*rows: Called) -> Calls:
    found: Calls = table(Calls, Called, rows, thread=0, correlation=FIRST + np.arange(len(rows)), op_row=-1)
    return found


def activities(*rows: Ran) -> Activities:
    found: Activities = table(
        Activities, Ran, rows, id=np.arange(len(rows)), correlation=FIRST + np.arange(len(rows)), graph_node=0, size=-1,
        bandwidth=-1, call_row=column(*(row.call for row in rows)), op_row=-1, communication_row=-1,
    )  # fmt: skip
    return found


def syncs(*rows: Synced) -> RecordedSyncs:
    call, awaited, recorded = (column(*(row[place] for row in rows)) for place in (1, 3, 4))
    found: RecordedSyncs = table(
        RecordedSyncs, Synced, rows, process=0, start=0, end=0, device=0, correlation=FIRST + call, wait_stream=awaited,
        record_correlation=FIRST + recorded, event=-1,
    )  # fmt: skip
    return found


class OpRow(NamedTuple):
    start: int = 0
    end: int = 10
    name: str = "aten::mm"
    process: int = 500
    thread: int = 1
    annotation: bool = False
    rf_id: int = 0
    external_id: int = 0
    event_index: int = -1
    sequence: int = -1
    forward_thread: int = 0
    arguments: str = ""
    shapes: str = ""


class CallRow(NamedTuple):
    start: int = 0
    end: int = 10
    correlation: int = 0
    name: str = "cudaLaunchKernel"
    process: int = 500
    thread: int = 1
    external_id: int = 0


class ActivityRow(NamedTuple):
    start: int = 0
    end: int = 10
    correlation: int = 0
    name: str = "kernel"
    category: str = "kernel"
    process: int = 0
    device: int = 0
    stream: int = 7
    external_id: int = 0
    graph_node: int = -1
    size: int = -1
    bandwidth: int = -1


class SyncRow(NamedTuple):
    start: int = 0
    end: int = 10
    kind: str = "Stream Sync"
    process: int = 0
    device: int = 0
    correlation: int = 0
    stream: int = -1
    wait_stream: int = -1
    record_correlation: int = -1
    event: int = -1


class NodeRow(NamedTuple):
    """A node of the host trace."""

    id: int
    name: str = "aten::mm"
    parent: int = -1
    schema_text: str = ""
    rf_id: int = 0
    fw_parent: int = 0
    seq_id: int = -1
    scope: int = 0
    tid: int = 0
    fw_tid: int = 0


class EventRecordRow(NamedTuple):
    process: int = 0
    correlation: int = 0
    stream: int = -1
    event: int = -1


def op_rows(*rows: OpRow) -> RecordedOps:
    found: RecordedOps = table(RecordedOps, OpRow, rows)
    return found


def call_rows(*rows: CallRow) -> Calls:
    found: Calls = table(Calls, CallRow, rows)
    return found


def activity_rows(*rows: ActivityRow) -> Activities:
    found: Activities = table(Activities, ActivityRow, rows)
    return found


def device_trace(
    ops: Sequence[OpRow] = (),
    calls: Sequence[CallRow] = (),
    activities: Sequence[ActivityRow] = (),
    syncs: Sequence[SyncRow] = (),
    event_records: Sequence[EventRecordRow] = (),
    **other: Any,
) -> readers.DeviceTrace:
    """A trace of these rows."""
    top = {
        "path": "device.json", "rank": None, "world_size": None, "base_time_ns": 0, "groups": [],
        "communication": {role: RecordsByRow.of(kineto.Args) for role in (Role.OP, Role.ACTIVITY)},
    }  # fmt: skip
    return readers.DeviceTrace(
        ops=op_rows(*ops),
        calls=call_rows(*calls),
        activities=activity_rows(*activities),
        syncs=table(RecordedSyncs, SyncRow, syncs),
        event_records=table(readers.RecordedEvents, EventRecordRow, event_records),
        **top | other,
    )


def host_trace(*nodes: NodeRow, pid: int | None = None) -> HostTrace:
    """A host trace of these nodes, whose arguments are none."""
    columns = {
        name: Categorical.of(values) if isinstance(values[0], str) else np.array(values, np.int64)
        for name, values in zip(NodeRow._fields, zip(*nodes, strict=True), strict=True)
    }
    nothing = BytesColumn.of(NO_TENSORS for _ in nodes)
    arguments = {"inputs": nothing, "outputs": nothing}
    return HostTrace("host.json", "1.1.1", pid, "today", 1, 2, **columns, **arguments)  # type: ignore[arg-type]


def process(
    ran: Sequence[Ran],
    called: Sequence[Called],
    *synced: Synced,
    inside: Mapping[int, str] | None = None,
    awaited: Mapping[int, int] | None = None,
    calibration: MachineCalibration | None = None,
) -> Process:
    """A process that launched and synchronised so.

    Each call of `inside` is in the op of a collective of its own with this name; `awaited` is the activity that the op
    around a call names.
    """
    inside, awaited = inside or {}, awaited or {}
    op_of_call = {call: op for op, call in enumerate(inside)}
    enclosing_ops = ops(*(Op("record_param_comms") for _ in inside))
    none = column(*(-1 for _ in inside))
    recorded = [*map(Communication, inside.values())]
    rows = replace(calls(*called), op_row=column(*(op_of_call.get(call, -1) for call in range(len(called)))))
    launched = activities(*ran)
    return Process(
        replace(device_trace(), syncs=syncs(*synced)),
        rows,
        replace(launched, op_row=column(*(op_of_call.get(one.call, -1) for one in ran))),
        collectives=CollectiveOps(column(*range(len(inside))), recorded, none, enclosing_ops, {}, none),
        awaited=Lookup(column(*(op_of_call[call] for call in awaited)), column(*awaited.values())),
        calibration=calibration or MachineCalibration(),
    )


Table = TypeVar("Table")


class Counted(np.ndarray):  # type: ignore[type-arg]
    """A column that counts the values that are taken from it, compared or sorted."""

    looked_at = 0

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        Counted.looked_at += np.size(found)
        return found

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return getattr(ufunc, method)(*map(_plain, inputs), **options)

    def __array_function__(self, function: Any, _: Any, inputs: Any, options: Any) -> Any:
        if function is np.searchsorted:
            # it looks at few of those that it searches
            inputs = (np.asarray(inputs[0]).view(np.ndarray), *inputs[1:])
        return function(*_plain(inputs), **options)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return type(value)(map(_plain, value))
    if not isinstance(value, Counted):
        return value
    Counted.looked_at += value.size
    return value.view(np.ndarray)


def counting_columns(table: Table) -> Table:
    """The same table, whose columns of numbers count."""
    columns = {field.name: getattr(table, field.name) for field in fields(table)}  # type: ignore[arg-type]
    numbers = {name: column.view(Counted) for name, column in columns.items() if isinstance(column, np.ndarray)}
    return replace(table, **numbers)  # type: ignore[type-var]


def effort(work: Callable[[], object]) -> int:
    """How many functions were called, and how many values of counted columns were looked at."""
    calls, before = 0, Counted.looked_at

    def count(_: object, event: str, __: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls + Counted.looked_at - before


def growth(work: Callable[[int], Callable[[], object]], size: int) -> float:
    """How many times more the effort grows in the second doubling than in the first: 2 if linear, 4 if quadratic.

    What does not grow with the size is in none of both. `work` prepares what is then done.
    """
    # what is loaded when it is first needed is no part of it
    work(size)()
    small, middle, large = (effort(work(size << doublings)) for doublings in range(3))
    return (large - middle) / (middle - small)
