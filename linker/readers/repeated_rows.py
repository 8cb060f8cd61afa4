"""Sorts rows of equal starts, so that a graph does not depend on their order in the file, and drops duplicates."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...schema.columns import Bool, Categorical, Int64, is_group_start, isin
from ...schema.reasons import Reason
from .device_rows import DeviceTrace, select

IDENTITY = {
    "ops": ("rf_id", "event_index", "external_id", "process", "thread", "name"),
    "calls": ("correlation", "process", "thread", "name"),
    "activities": ("process", "device", "stream", "correlation", "graph_node", "name"),
    "syncs": ("process", "correlation", "device", "stream", "wait_stream", "record_correlation", "event", "kind"),
    "queue_events": ("device", "stream", "awaited", "sequence"),
}
"""The columns in which rows of equal starts and lengths differ, or are the same row."""
FURTHER = {"calls": ("external_id",), "activities": ("external_id", "category", "size")}
"""Columns by which such rows are sorted after those of their identity."""
NEARLY = {
    "ops": ("rf_id", "process", "thread", "name"),
    "calls": ("correlation", "process", "thread", "name"),
    "activities": ("correlation", "process", "device", "stream", "size", "name"),
}
"""The columns in which rows are the same that were recorded again at almost the same time; the first is their id."""
ONE_ACTIVITY = re.compile(r"^(cuda|cu|hip)\w*LaunchKernel|^cu(da)?Mem(cpy|set)(?!Batch)")
"""Calls that start one activity, unlike launches of graphs."""


def in_order(device: DeviceTrace) -> DeviceTrace:
    """Returns the trace with rows of equal starts sorted, the longest first, and without duplicate rows, which are
    counted. Rows without any id are never duplicates, nor are equal activities of one launch in whole-µs traces.
    """
    orders, copied = dict[str, Int64](), dict[str, Bool]()
    for name, identity in IDENTITY.items():
        orders[name], copied[name] = _sorted_ties(getattr(device, name), identity, FURTHER.get(name, ()))
    ops, activities = device.ops, device.activities
    copied["ops"] &= (ops.rf_id > 0) | (ops.external_id > 0) | (ops.event_index >= 0)
    copied["calls"] &= device.calls.correlation != 0
    copied["activities"] &= activities.correlation != 0
    copied["queue_events"][:] = False
    if not (activities.start % 1000).any():
        launched, times = np.unique(activities.correlation[~copied["activities"]], return_counts=True)
        copied["activities"] &= ~isin(activities.correlation, launched[times > 1])
    one = device.calls.correlation[device.calls.name.where(lambda name: ONE_ACTIVITY.search(name) is not None)]
    of_one = (activities.graph_node <= 0) & isin(activities.correlation, one)
    for name, again in (("ops", ops.rf_id > 0), ("calls", device.calls.correlation > 0), ("activities", of_one)):
        table = getattr(device, name)
        columns = [getattr(column, "codes", column) for column in (getattr(table, column) for column in NEARLY[name])]
        copied[name] |= _nearly_repeated(table, columns, again & ~copied[name])
    if (ops.start % 1000).any():
        lengths = [ops.end - ops.start, ops.process, ops.thread, ops.name.codes]
        copied["ops"] |= _nearly_repeated(ops, lengths, ~copied["ops"], later=1)
    if count := sum(int(rows.sum()) for rows in copied.values()):
        device.skipped[Reason.RECORDED_TWICE] += count
    chosen = {name: order[~copied[name][order]] for name, order in orders.items()}
    changed = {name: rows for name, rows in chosen.items() if not np.array_equal(rows, np.arange(len(orders[name])))}
    return select(device, **changed)


def _sorted_ties(table: Any, identity: Sequence[str], further: Sequence[str]) -> tuple[Int64, Bool]:
    """Returns the rows with those of equal starts sorted, and which rows repeat an earlier one of the file."""
    start, count = table.start, len(table.start)
    order = np.argsort(start, kind="stable")
    first = is_group_start(start[order])
    rows = order[~(first & np.append(first[1:], True))]
    columns = [_numbers(getattr(table, name), rows) for name in (*identity, *further)]
    columns = [start[rows], start[rows] - table.end[rows], *columns]
    same = columns[: 2 + len(identity)]
    within, alike = np.lexsort(columns[::-1]), np.lexsort(same[::-1])
    new_order, is_repeated = np.arange(count), np.zeros(count, np.bool_)
    new_order[rows] = rows[within]
    is_repeated[rows[alike]] = ~is_group_start(*(column[alike] for column in same))
    return new_order, is_repeated


def _nearly_repeated(table: Any, columns: list[Int64], counts: Bool, later: int = 0) -> Bool:
    """Returns which rows that count equal one before them in these columns, and are mostly at the same time."""
    values, times = np.unique(columns[0][counts], return_counts=True)
    rows = np.flatnonzero(counts & isin(columns[0], values[times > 1])) if (times > 1).any() else values[:0]
    rows = rows[np.lexsort((table.start[rows], *(column[rows] for column in columns)))]
    same, start, end = ~is_group_start(*(column[rows] for column in columns))[1:], table.start[rows], table.end[rows]
    at_once, length = np.minimum(end[1:], end[:-1]) - start[1:], end - start
    is_alike = same & (2 * at_once >= np.maximum(length[1:], length[:-1])) & (np.diff(start) >= later)
    is_repeated = np.zeros(len(counts), np.bool_)
    is_repeated[rows[1:][is_alike]] = True
    return is_repeated


def _numbers(column: Int64 | Categorical, rows: Int64) -> Int64:
    """Returns numbers that sort the rows as their values do."""
    if not isinstance(column, Categorical):
        return column[rows]
    used, code = np.unique(column.codes[rows], return_inverse=True)
    by_text = sorted(range(len(used)), key=lambda position: column.table[used[position]])
    return np.argsort(np.array(by_text, np.int64))[code.reshape(-1)]
