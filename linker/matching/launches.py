"""Joins activities to the calls that launched them, and calls to the ops around them."""

import numpy as np

from ...schema.columns import ROUNDING, TOLERANCE, Bool, Int64, innermost, within
from ..readers import RecordedActivities, RecordedCalls, RecordedOps


def launching_calls(activities: RecordedActivities, calls: RecordedCalls) -> Int64:
    """Returns for each activity the row of the call with its correlation, -1 for none.

    Any runtime or driver call may launch, whatever its name, and may own several activities (graphs). Where a runtime
    call and the driver call inside it share the correlation, the earlier one is the launch.
    """
    order = np.lexsort((calls.start, calls.correlation))
    order = order[calls.correlation[order] != 0]
    if not len(order):
        return np.full(len(activities.start), -1, np.int64)
    place = np.minimum(np.searchsorted(calls.correlation[order], activities.correlation), len(order) - 1)
    return np.where(calls.correlation[order[place]] == activities.correlation, order[place], -1)


def launching_ops(
    activities: RecordedActivities, call_row: Int64, call_op: Int64, ops: RecordedOps, external_ids: bool
) -> Int64:
    """Returns for each activity the row of the op that launched it, -1 for none.

    It is the op around the call; for an activity without a call the op with its external id, where those are ids of
    ops.
    """
    row = np.where(call_row >= 0, call_op[call_row], -1) if len(call_op) else np.full(len(call_row), -1, np.int64)
    orphans = np.flatnonzero((call_row < 0) & (activities.external_id != 0))
    if external_ids and len(orphans) and len(ops.start):
        order = np.argsort(ops.external_id, kind="stable")
        place = np.minimum(np.searchsorted(ops.external_id[order], activities.external_id[orphans]), len(order) - 1)
        same = ops.external_id[order[place]] == activities.external_id[orphans]
        row[orphans[same]] = order[place[same]]
    return row


def external_ids_name_ops(activities: RecordedActivities) -> bool:
    """False in traces (until early 2024) where an activity's external id merely repeats the correlation and collides
    with ops'.
    """
    recorded: Bool = (activities.external_id != 0) & (activities.correlation != 0)
    return bool((activities.external_id[recorded] != activities.correlation[recorded]).any())


def enclosing_ops(calls: RecordedCalls, ops: RecordedOps, op_end: Int64, op_parent: Int64, is_step: Bool) -> Int64:
    """Returns for each call the row of the innermost op around it on its thread; step marks enclose everything and
    launch nothing.
    """
    real = np.flatnonzero(~is_step)
    row = innermost(
        calls.thread,
        calls.start,
        calls.end,
        ops.thread[real],
        ops.start[real],
        op_end[real],
        within(real, op_parent),
        ROUNDING,
        TOLERANCE,
    )
    return np.where(row >= 0, real[row], -1) if len(real) else row
