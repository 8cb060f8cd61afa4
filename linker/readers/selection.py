"""Selects rows of a device or linked trace as a trace of its own; whatever refers to rows by number follows them."""

from dataclasses import fields, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ...schema.columns import Bool, BytesColumn, Categorical, Int64, RowMap
from ...schema.linked import Activities, Calls, DeviceWaits, HostWaits, LinkedTrace, Ops, ThreadHandoffs
from .categories import Role
from .device_rows import (
    DeviceTrace,
    RecordedActivities,
    RecordedCalls,
    RecordedEvents,
    RecordedOps,
    RecordedPython,
    RecordedQueueEvents,
    RecordedSyncs,
)

Table = TypeVar(
    "Table", RecordedOps, RecordedCalls, RecordedActivities, RecordedSyncs, RecordedEvents, RecordedPython, RecordedQueueEvents,
    Calls, Activities,
    DeviceWaits, HostWaits, ThreadHandoffs,
)  # fmt: skip


class Kept(NamedTuple):
    """Which rows of a linked trace's tables are kept."""

    ops: Bool
    calls: Bool
    activities: Bool


def select_rows(table: Table, rows: Bool | Int64) -> Table:
    """Returns the rows of a table of columns."""
    return type(table)(**_columns(table, rows))


def _columns(table: Any, rows: Bool | Int64) -> dict[str, Any]:
    """Returns those fields of a record that are columns, at the rows."""
    taken = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
    found: dict[str, Any] = {}
    for field in fields(table):
        column = getattr(table, field.name)
        if isinstance(column, Categorical | BytesColumn):
            found[field.name] = column.take(taken)
        elif isinstance(column, np.ndarray):
            found[field.name] = column[taken]
    return found


def select(
    device: DeviceTrace,
    ops: Bool | None = None,
    calls: Bool | None = None,
    activities: Bool | None = None,
    syncs: Bool | None = None,
    event_records: Bool | None = None,
    python: Bool | None = None,
) -> DeviceTrace:
    """Returns the rows that the masks keep, of tables without a mask all; nothing is counted."""
    masks = {
        "ops": ops,
        "calls": calls,
        "activities": activities,
        "syncs": syncs,
        "event_records": event_records,
        "python": python,
    }
    tables = {name: select_rows(getattr(device, name), mask) for name, mask in masks.items() if mask is not None}
    kept = {Role.OP: ops, Role.ACTIVITY: activities}
    communication = {
        role: records if (mask := kept[role]) is None else records.take(mask)
        for role, records in device.communication.items()
    }
    return replace(device, **tables, communication=communication)


def select_linked(linked: LinkedTrace, kept: Kept) -> LinkedTrace:
    """Returns the kept rows, and the waits of kept activities and calls; a source that is not kept is -1."""
    op, call, activity = (_places(mask) for mask in kept)
    ops, calls = _select_ops(linked.ops, kept.ops), select_rows(linked.calls, kept.calls)
    activities = select_rows(linked.activities, kept.activities)
    told = np.zeros(len(linked.communications), np.bool_)
    for rows in (ops.communication_row, activities.communication_row):
        told[rows[rows >= 0]] = True
    device, host = linked.device_waits, linked.host_waits
    device = select_rows(device, kept.activities[device.target_row])
    host = select_rows(host, kept.calls[host.call_row])
    return replace(
        linked,
        ops=replace(ops, communication_row=RowMap(_places(told))[ops.communication_row]),
        calls=replace(calls, op_row=RowMap(op)[calls.op_row]),
        activities=replace(
            activities,
            call_row=RowMap(call)[activities.call_row],
            op_row=RowMap(op)[activities.op_row],
            communication_row=RowMap(_places(told))[activities.communication_row],
        ),
        device_waits=replace(
            device, source_row=RowMap(activity)[device.source_row], target_row=activity[device.target_row]
        ),
        host_waits=replace(host, call_row=call[host.call_row], source_row=RowMap(activity)[host.source_row]),
        communications=[linked.communications[row] for row in np.flatnonzero(told).tolist()],
    )


def _places(kept: Bool) -> Int64:
    """Returns for each row its number among the kept ones, -1 for the others."""
    return np.where(kept, np.cumsum(kept) - 1, -1)


def _select_ops(ops: Ops, rows: Bool) -> Ops:
    return replace(ops, **_columns(ops, rows), extra=ops.extra.take(rows))
