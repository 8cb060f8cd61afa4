"""Sorts rows of equal starts by their other columns, so that a graph does not depend on their order in the file.

Whatever sorts rows later does so by start first, and keeps rows of equal starts in order. Rows of other starts keep
their positions, so that a file in the order of time, as profilers write it, costs little.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from ...schema.columns import Categorical, Int64, JsonRecords, is_group_start
from ...schema.linked import kineto
from .categories import Role
from .device_rows import DeviceTrace, RecordedActivities, RecordedCalls, RecordedOps, RecordedQueueEvents, RecordedSyncs
from .selection import select_rows

KEYS = {
    "ops": ("rf_id", "event_index", "external_id", "process", "thread", "name"),
    "calls": ("correlation", "external_id", "process", "thread", "name"),
    "activities": (
        "process", "device", "stream", "correlation", "graph_node", "external_id", "name", "category", "size",
    ),
    "syncs": ("process", "correlation", "device", "stream", "wait_stream", "record_correlation", "event", "kind"),
    "queue_events": ("device", "stream", "awaited", "sequence"),
}  # fmt: skip
"""The columns by which rows of equal starts are sorted, after their length: longer ops enclose shorter ones."""
ROLES = {"ops": Role.OP, "activities": Role.ACTIVITY}
Table = RecordedOps | RecordedCalls | RecordedActivities | RecordedSyncs | RecordedQueueEvents


def with_ties_in_order(device: DeviceTrace) -> DeviceTrace:
    """Returns the trace with rows of equal starts in the order of `KEYS`. O(n log n), linear if starts are nearly
    sorted.
    """
    tables, communication = dict[str, Any](), dict(device.communication)
    for name, keys in KEYS.items():
        table = getattr(device, name)
        order = _order(table, keys)
        if order is not None:
            tables[name] = select_rows(table, order)
            if (role := ROLES.get(name)) in communication:
                communication[role] = _moved(communication[role], order)
    return replace(device, **tables, communication=communication)


def _order(table: Table, keys: tuple[str, ...]) -> Int64 | None:
    """Returns the rows in their new order, None if it is the same."""
    start = table.start
    order = np.argsort(start, kind="stable")
    first = is_group_start(start[order])
    rows = order[~(first & np.append(first[1:], True))]
    length = table.end[rows] - start[rows]
    columns = [_numbers(getattr(table, key), rows) for key in keys]
    moved = rows[np.lexsort((*columns[::-1], -length, start[rows]))]
    if (moved == rows).all():
        return None
    new_order = np.arange(len(start))
    new_order[rows] = moved
    return new_order


def _numbers(column: Int64 | Categorical, rows: Int64) -> Int64:
    """Returns numbers that sort the rows as their values do."""
    if not isinstance(column, Categorical):
        return column[rows]
    used, code = np.unique(column.codes[rows], return_inverse=True)
    by_text = sorted(range(len(used)), key=lambda position: column.table[used[position]])
    return np.argsort(np.array(by_text, np.int64))[code.reshape(-1)]


def _moved(records: "JsonRecords[kineto.Args]", order: Int64) -> "JsonRecords[kineto.Args]":
    """Returns the records by the new numbers of their rows."""
    new_row = np.empty(len(order), np.int64)
    new_row[order] = np.arange(len(order))
    rows = new_row[records.rows]
    by_row = np.argsort(rows)
    return JsonRecords(rows[by_row], records.encoded.take(by_row), records.kind)
