"""Puts rows that start at the same time into an order that they tell themselves: a graph depends on what a trace says,
not on where.

All that orders rows does so by their start first, and leaves those of one start as they stand. Rows of other starts
stay where they are, so that a file in the order of time, as profilers write it, costs one look.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from ...schema.columns import Categorical, Int64, JsonRecords, is_group_start
from ...schema.traces import kineto
from .categories import Role
from .device_rows import DeviceTrace, RecordedActivities, RecordedCalls, RecordedOps, RecordedQueueEvents, RecordedSyncs
from .selection import select_rows

KEYS = {
    "ops": ("rf_id", "event_index", "external_id", "process", "thread", "name"),
    "calls": ("correlation", "external_id", "process", "thread", "name"),
    "activities": ("process", "device", "stream", "correlation", "graph_node", "external_id", "name", "category", "size"),
    "syncs": ("process", "correlation", "device", "stream", "wait_stream", "record_correlation", "event", "kind"),
    "queue_events": ("device", "stream", "awaited", "sequence"),
}  # fmt: skip
"""The columns that order rows of one start, by table. Of ops the longer one is outside; those of one length were
numbered as they began.
"""
ROLES = {"ops": Role.OP, "activities": Role.ACTIVITY}
Table = RecordedOps | RecordedCalls | RecordedActivities | RecordedSyncs | RecordedQueueEvents


def with_ties_in_order(device: DeviceTrace) -> DeviceTrace:
    """Returns the trace with the rows of one start in the order of `KEYS`. O(n log n), linear where starts are nearly
    in order.
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
    """Returns the rows in their new order, None where that is how they stand."""
    start = table.start
    order = np.argsort(start, kind="stable")
    first = is_group_start(start[order])
    rows = order[~(first & np.append(first[1:], True))]
    length = table.end[rows] - start[rows]
    columns = [_numbers(getattr(table, key), rows) for key in keys]
    moved = rows[np.lexsort((*columns[::-1], -length, start[rows]))]
    if (moved == rows).all():
        return None
    places = np.arange(len(start))
    places[rows] = moved
    return places


def _numbers(column: Int64 | Categorical, rows: Int64) -> Int64:
    """Returns numbers that order rows as their values do."""
    if not isinstance(column, Categorical):
        return column[rows]
    used, code = np.unique(column.codes[rows], return_inverse=True)
    in_order = sorted(range(len(used)), key=lambda place: column.table[used[place]])
    return np.argsort(np.array(in_order, np.int64))[code.reshape(-1)]


def _moved(records: "JsonRecords[kineto.Args]", order: Int64) -> "JsonRecords[kineto.Args]":
    """Returns the records of the same rows at their new places."""
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    rows = place[records.rows]
    by_row = np.argsort(rows)
    return JsonRecords(rows[by_row], records.texts.take(by_row), records.kind)
