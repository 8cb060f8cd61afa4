"""Tables of a device trace, and host nodes, one named tuple per row, for tests of a single part; times are in ns."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from execgraph.linker.readers import (
    DeviceTrace,
    HostTrace,
    RecordedActivities,
    RecordedCalls,
    RecordedEvents,
    RecordedOps,
    RecordedSyncs,
    Role,
)
from execgraph.schema.columns import BytesColumn, Categorical, JsonRecords
from execgraph.schema.linked import NO_TENSORS, kineto


class OpRow(NamedTuple):
    start: int = 0
    end: int = 10
    name: str = "aten::mm"
    process: int = 500
    thread: int = 1
    annotation: int = 0
    rf_id: int = 0
    external_id: int = 0
    event_index: int = -1
    sequence: int = -1
    forward_thread: int = 0
    arguments: str = ""


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


def table(kind: Any, row: Any, rows: Sequence[Any]) -> Any:
    """The rows as columns."""
    columns: dict[str, Any] = {}
    for name, default in row._field_defaults.items():
        values = [getattr(one, name) for one in rows]
        columns[name] = Categorical.of(values) if isinstance(default, str) else np.array(values, np.int64)
    if "annotation" in columns:
        columns["annotation"] = columns["annotation"] > 0
    return kind(**columns)


def op_rows(*rows: OpRow) -> RecordedOps:
    found: RecordedOps = table(RecordedOps, OpRow, rows)
    return found


def call_rows(*rows: CallRow) -> RecordedCalls:
    found: RecordedCalls = table(RecordedCalls, CallRow, rows)
    return found


def activity_rows(*rows: ActivityRow) -> RecordedActivities:
    found: RecordedActivities = table(RecordedActivities, ActivityRow, rows)
    return found


def device_trace(
    ops: Sequence[OpRow] = (),
    calls: Sequence[CallRow] = (),
    activities: Sequence[ActivityRow] = (),
    syncs: Sequence[SyncRow] = (),
    event_records: Sequence[EventRecordRow] = (),
    **other: Any,
) -> DeviceTrace:
    """A trace of these rows."""
    top = {
        "path": "device.json",
        "rank": None,
        "world_size": None,
        "base_time_ns": 0,
        "groups": [],
        "communication": {role: JsonRecords.of({}, kineto.Args) for role in (Role.OP, Role.ACTIVITY)},
    }
    return DeviceTrace(
        ops=op_rows(*ops),
        calls=call_rows(*calls),
        activities=activity_rows(*activities),
        syncs=table(RecordedSyncs, SyncRow, syncs),
        event_records=table(RecordedEvents, EventRecordRow, event_records),
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
