"""Joins activities to the calls and ops that launched them, and calls to the ops that enclose them."""

import numpy as np

from ..schema.columns import (
    ROUNDING,
    TOLERANCE,
    Bool,
    CallRows,
    DeviceOpRows,
    Lookup,
    NestedIntervals,
    Nesting,
    RowMap,
    ThreadIntervals,
    within,
)
from .readers import RecordedActivities, RecordedCalls, RecordedOps


def launching_calls(activities: RecordedActivities, calls: RecordedCalls) -> CallRows:
    """Returns for each activity the row of the call with its correlation, -1 for none.

    Any runtime or driver call may launch, whatever its name, and may launch several activities (graphs). Where a
    runtime call and the driver call inside it share the correlation, the earlier one is the launch.
    """
    latest_first = np.argsort(calls.start, kind="stable")[::-1]
    latest_first = latest_first[calls.correlation[latest_first] != 0]
    return CallRows(Lookup(calls.correlation[latest_first], latest_first).of(activities.correlation))


def launching_ops(
    activities: RecordedActivities, call_row: CallRows, call_op: DeviceOpRows, ops: RecordedOps, external_ids: bool
) -> DeviceOpRows:
    """Returns for each activity the row of the op that launched it, -1 for none.

    It is the op that encloses the launch call. For an activity without a call it is the op with its external id, where
    `external_ids` of activities are ids of ops.
    """
    row = RowMap(call_op)[call_row]
    orphans = np.flatnonzero((call_row < 0) & (activities.external_id != 0))
    if external_ids and len(orphans):
        first_op = Lookup(ops.external_id[::-1], np.arange(len(ops.start))[::-1])
        row[orphans] = first_op.of(activities.external_id[orphans])
    return row


def external_ids_name_ops(activities: RecordedActivities) -> bool:
    """Returns whether external ids of activities are ids of ops.

    Until early 2024 they merely repeat the correlation, and are ids of other ops by chance.
    """
    recorded: Bool = (activities.external_id != 0) & (activities.correlation != 0)
    return bool((activities.external_id[recorded] != activities.correlation[recorded]).any())


def enclosing_ops(calls: RecordedCalls, ops: RecordedOps, nesting: Nesting, is_step: Bool) -> DeviceOpRows:
    """Returns for each call the row of the innermost op that encloses it on its thread, -1 for none.

    Step marks do not count: they enclose everything and launch nothing. `nesting` is that of the ops.
    """
    real = np.flatnonzero(~is_step)
    intervals = ThreadIntervals(ops.thread[real], ops.start[real], nesting.end[real])
    nested = NestedIntervals(intervals, within(real, nesting.parent))
    spans = ThreadIntervals(calls.thread, calls.start, calls.end)
    row = nested.innermost(spans, rounding=ROUNDING, tolerance=TOLERANCE)
    return DeviceOpRows(RowMap(real)[row])
