"""Drops duplicate rows of a device trace: rows that are equal in all columns that identify one."""

import numpy as np

from ...schema.columns import Bool, Int64, is_group_start
from ...schema.reasons import Reason
from .device_rows import DeviceTrace
from .selection import select


def without_duplicates(device: DeviceTrace) -> DeviceTrace:
    """Returns the trace without duplicate rows, which are counted. O(n log n), linear where starts are nearly in order.

    Rows without any id are never duplicates. In whole-µs traces activities of one launch may be equal without being
    duplicates.
    """
    ops, calls, activities, syncs = device.ops, device.calls, device.activities, device.syncs
    has_id = (ops.rf_id > 0) | (ops.external_id > 0) | (ops.event_index >= 0)
    copied_ops = has_id & _repeated(
        ops.start, ops.end, ops.name.codes, ops.process, ops.thread, ops.rf_id, ops.external_id, ops.event_index
    )
    copied_calls = (calls.correlation != 0) & _repeated(
        calls.start, calls.end, calls.name.codes, calls.process, calls.thread, calls.correlation
    )
    copied_activities = (activities.correlation != 0) & _repeated(
        activities.start, activities.end, activities.name.codes, activities.process, activities.device,
        activities.stream, activities.correlation, activities.graph_node,
    )  # fmt: skip
    if not (activities.start % 1000).any():
        copied_activities &= ~_launched_with_others(activities.correlation, copied_activities)
    copied_syncs = _repeated(
        syncs.start, syncs.end, syncs.kind.codes, syncs.process, syncs.device, syncs.stream, syncs.correlation,
        syncs.wait_stream, syncs.record_correlation, syncs.event,
    )  # fmt: skip
    copied = {"ops": copied_ops, "calls": copied_calls, "activities": copied_activities, "syncs": copied_syncs}
    count = sum(int(rows.sum()) for rows in copied.values())
    if not count:
        return device
    device.skipped[Reason.RECORDED_TWICE] += count
    return select(device, **{name: ~rows for name, rows in copied.items()})


def _repeated(start: Int64, *further: "Int64 | np.ndarray[tuple[int], np.dtype[np.int32]]") -> Bool:
    """Returns which rows equal an earlier one in every column."""
    order = np.argsort(start, kind="stable")
    tied = np.flatnonzero(~is_group_start(start[order])) - 1
    rows = np.unique(np.concatenate((order[tied], order[tied + 1])))
    columns = [column[rows] for column in (start, *further)]
    within = np.lexsort(columns[::-1])
    equal = np.ones(max(len(rows) - 1, 0), np.bool_)
    for column in columns:
        equal &= column[within[1:]] == column[within[:-1]]
    repeated = np.zeros(len(start), np.bool_)
    repeated[rows[within[1:][equal]]] = True
    return repeated


def _launched_with_others(correlation: Int64, copied: Bool) -> Bool:
    """Returns which rows share their correlation with several rows that are no duplicates."""
    launched, count = np.unique(correlation[~copied], return_counts=True)
    return np.isin(correlation, launched[count > 1])
