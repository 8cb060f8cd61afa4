"""Selects rows of a device or linked trace as a trace of its own; columns that refer to rows follow them."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ...schema.columns import (
    ActivityRows,
    Bool,
    BytesColumn,
    CallRows,
    Categorical,
    CommunicationRows,
    Int64,
    OpRows,
    RowMap,
    Table,
)
from ...schema.linked import LinkedTrace
from .categories import Role
from .device_rows import DeviceTrace

AnyTable = TypeVar("AnyTable", bound=Table)


class KeptRows(NamedTuple):
    """Which rows of a linked trace's tables are kept."""

    ops: Bool
    calls: Bool
    activities: Bool


def select_rows(table: AnyTable, rows: Bool | Int64) -> AnyTable:
    """Returns the rows of a table of columns."""
    table_of: Callable[..., AnyTable] = type(table)
    return table_of(**_columns(table, rows))


def _columns(table: Any, rows: Bool | Int64) -> dict[str, Any]:
    """Returns the columns of a record at the rows, by the names of their fields."""
    chosen = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
    columns: dict[str, Any] = {}
    for field in fields(table):
        column = getattr(table, field.name)
        if isinstance(column, Categorical | BytesColumn):
            columns[field.name] = column.take(chosen)
        elif isinstance(column, np.ndarray):
            columns[field.name] = column[chosen]
    return columns


def select(device: DeviceTrace, **masks: Bool) -> DeviceTrace:
    """Returns the rows that the masks keep; nothing is counted.

    The masks are named as the tables of a device trace are: `ops`, `calls`, `activities`, `syncs`, `event_records`,
    `python`. Of tables without a mask all rows are kept.
    """
    tables = {name: select_rows(getattr(device, name), mask) for name, mask in masks.items()}
    mask_of = {Role.OP: masks.get("ops"), Role.ACTIVITY: masks.get("activities")}
    communication = {
        role: records if (mask := mask_of[role]) is None else records.take(mask)
        for role, records in device.communication.items()
    }
    return replace(device, **tables, communication=communication)


def select_linked(linked: LinkedTrace, kept_rows: KeptRows) -> LinkedTrace:
    """Returns the kept rows, and the waits of kept activities and calls; a source that is not kept is -1."""
    op, call = OpRows(_new_rows(kept_rows.ops)), CallRows(_new_rows(kept_rows.calls))
    activity = ActivityRows(_new_rows(kept_rows.activities))
    ops = replace(linked.ops, **_columns(linked.ops, kept_rows.ops), extra=linked.ops.extra.take(kept_rows.ops))
    calls = select_rows(linked.calls, kept_rows.calls)
    activities = select_rows(linked.activities, kept_rows.activities)
    used = np.zeros(len(linked.communications), np.bool_)
    for rows in (ops.communication_row, activities.communication_row):
        used[rows[rows >= 0]] = True
    communication = CommunicationRows(_new_rows(used))
    device, host = linked.device_waits, linked.host_waits
    device = select_rows(device, kept_rows.activities[device.target_row])
    host = select_rows(host, kept_rows.calls[host.call_row])
    return replace(
        linked,
        ops=replace(ops, communication_row=RowMap(communication)[ops.communication_row]),
        calls=replace(calls, op_row=RowMap(op)[calls.op_row]),
        activities=replace(
            activities,
            call_row=RowMap(call)[activities.call_row],
            op_row=RowMap(op)[activities.op_row],
            communication_row=RowMap(communication)[activities.communication_row],
        ),
        device_waits=replace(
            device, source_row=RowMap(activity)[device.source_row], target_row=RowMap(activity)[device.target_row]
        ),
        host_waits=replace(host, call_row=RowMap(call)[host.call_row], source_row=RowMap(activity)[host.source_row]),
        communications=[linked.communications[row] for row in np.flatnonzero(used).tolist()],
    )


def _new_rows(is_kept: Bool) -> Int64:
    """Returns for each row its number among the kept ones, -1 for the others."""
    return np.where(is_kept, np.cumsum(is_kept) - 1, -1)
