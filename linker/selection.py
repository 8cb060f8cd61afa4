"""Some rows of a device or host trace as a trace of its own: everything that refers to rows by number follows them."""

from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np

from ..schema.columns import Bool, Int64, Strings
from .categories import Role
from .device_rows import ActivityRows, CallRows, DeviceTrace, EventRecordRows, OpRows, SyncRows
from .host_trace import HostTrace

Table = TypeVar("Table", OpRows, CallRows, ActivityRows, SyncRows, EventRecordRows)


def rows_of(table: Table, rows: Bool | Int64) -> Table:
    """The rows of a table of columns."""
    return type(table)(**_columns(table, rows))


def _columns(table: Any, rows: Bool | Int64) -> dict[str, Any]:
    """Those fields of a record that are columns, at the rows."""
    found = {field.name: getattr(table, field.name) for field in fields(table)}
    strings = {name: column.take(rows) for name, column in found.items() if isinstance(column, Strings)}
    return strings | {name: column[rows] for name, column in found.items() if isinstance(column, np.ndarray)}


def select(
    device: DeviceTrace,
    ops: Bool | None = None,
    calls: Bool | None = None,
    activities: Bool | None = None,
    syncs: Bool | None = None,
    event_records: Bool | None = None,
) -> DeviceTrace:
    """The rows that the masks keep, of tables without a mask all; nothing is counted."""
    masks = {"ops": ops, "calls": calls, "activities": activities, "syncs": syncs, "event_records": event_records}
    tables = {name: rows_of(getattr(device, name), mask) for name, mask in masks.items() if mask is not None}
    place = {
        role: np.cumsum(mask) - 1 for role, mask in ((Role.OP, ops), (Role.ACTIVITY, activities)) if mask is not None
    }
    kept = {Role.OP: ops, Role.ACTIVITY: activities}
    communication = {
        (role, int(place[role][row]) if role in place else row): args
        for (role, row), args in device.communication.items()
        if (mask := kept[role]) is None or mask[row]
    }
    return replace(device, **tables, communication=communication)


def select_nodes(host: HostTrace, rows: Bool) -> HostTrace:
    """The nodes that the mask keeps; nothing is counted."""
    numbers = np.flatnonzero(rows).tolist()
    return replace(
        host,
        **_columns(host, rows),
        inputs=[host.inputs[row] for row in numbers],
        outputs=[host.outputs[row] for row in numbers],
        extra={new: host.extra[row] for new, row in enumerate(numbers) if row in host.extra},
    )
