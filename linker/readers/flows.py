"""Links calls and activities by flows, the arrows that viewers draw, where they have no correlation. A flow from within
a call to an activity is a launch; one from within an op names the op.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...schema import columns, linked
from ...schema.columns import Int64, Lookup, NestedIntervals, RowBuilder, ThreadIntervals
from ...schema.linked import ExactTimes

LAUNCHES = ("ac2g", "async", "async_npu", "HostToDevice", "api_op", "async_task_queue")
CORRELATED, QUEUED = 0, 5
"""The category of Kineto's flows, whose ids are correlations, and that of flows from who queues work to who does it."""
STARTS, ENDS = "s", "f"
REPEATED = 0.1
"""Share of flows above which the file holds several processes: one process may use an id again."""
CATEGORY, IS_END, ID, PROCESS, THREAD, TIME = range(6)


def is_launch(event: Any) -> bool:
    """Returns whether a row is the start or end of a flow that may be a launch."""
    return (event.ph == STARTS or event.ph == ENDS) and event.cat in LAUNCHES


class Flows:
    """The starts and ends of flows that may be launches, in the order of the file."""

    def __init__(self) -> None:
        self._ends = RowBuilder(7)

    def add(self, events: Sequence[Any], times: ExactTimes) -> None:
        """Adds rows for which `is_launch` holds, with their times."""
        categories, are_ends = zip(*((LAUNCHES.index(event.cat), event.ph == ENDS) for event in events), strict=True)
        places = (linked.identities([getattr(event, name) for event in events]) for name in ("id", "pid", "tid"))
        self._ends.extend(np.array(categories), np.array(are_ends), *places, *times)

    def repeated(self) -> int:
        """Returns how many flows start again on another thread, 0 where they are so few that it may be chance."""
        rows = self.rows()
        starts = rows[:, (rows[CATEGORY] == CORRELATED) & (rows[IS_END] == 0)]
        ids = np.unique(starts[ID:], axis=1)[0]
        count = len(ids) - len(np.unique(ids))
        return count if count > REPEATED * len(ids) else 0

    def processes(self, is_end: bool) -> set[int]:
        """Returns the processes in which flows start, or end."""
        rows = self.rows()
        return {*rows[PROCESS, rows[IS_END] == is_end].tolist()}

    def handoffs(self, pad: bool) -> Int64:
        """Returns where threads took up work that others had queued: thread and time of both, as columns."""
        start, end = (rows[THREAD:, rows[CATEGORY] == QUEUED] for rows in self.pairs(pad))
        return np.vstack((start, end))

    def rows(self, pad: bool = False) -> Int64:
        """Returns starts and ends as columns (category, is end, id, process, thread, time); `pad` is as of `table`."""
        *columns, ns, digits = self._ends.columns()
        return np.stack((*columns, linked.with_padding(ExactTimes(ns, digits)) if pad else ns))

    def pairs(self, pad: bool) -> tuple[Int64, Int64]:
        """Returns the starts and ends of flows whose id starts once, as else nothing says which start is meant."""
        rows = self.rows(pad)
        number = columns.group_ids(rows[CATEGORY], rows[ID])
        starts, ends = (np.flatnonzero(rows[IS_END] == is_end) for is_end in (0, 1))
        starts = starts[np.bincount(number[starts], minlength=1)[number[starts]] == 1]
        start = Lookup(number[starts], starts).of(number[ends])
        return rows[:, start[start >= 0]], rows[:, ends[start >= 0]]


def link_by_flows(flows: Flows, tables: Mapping[str, Any], threads: Int64, pad: bool) -> None:
    """Gives calls and activities that lack one the correlation of the other end of their flow, in place."""
    ops, calls, activities = (tables[name] for name in ("ops", "calls", "activities"))
    if not (activities.correlation == 0).any():
        return
    start, end = flows.pairs(pad)
    activity = _at_ends(activities, threads, end)
    start, end, activity = start[:, activity >= 0], end[:, activity >= 0], activity[activity >= 0]
    at_start = start[PROCESS], start[THREAD], start[TIME], start[ID]
    call = rows_at((calls.process, calls.thread, calls.start, calls.external_id), at_start)
    call = np.where(call >= 0, call, _innermost(calls, start))
    op = np.where(call >= 0, -1, _innermost(ops, start))
    if (op >= 0).any() and not ops.external_id.any():
        ops.external_id[:] = 1 + np.arange(len(ops.start))
    of_flow = activities.external_id[activity] == start[ID]
    # it names the flow, no op
    activities.external_id[activity[of_flow]] = 0
    calls.external_id[call[of_flow & (call >= 0)]] = 0
    activities.external_id[activity[op >= 0]] = ops.external_id[op[op >= 0]]
    first = np.unique(activity[call >= 0], return_index=True)[1]
    activity, call = activity[call >= 0][first], call[call >= 0][first]
    recorded = np.maximum(calls.correlation[call], activities.correlation[activity])
    largest = max(int(table.correlation.max(initial=0)) for table in (calls, activities))
    new = min(largest, linked.FOREVER) + 1 + call
    lacks_one = (calls.correlation[call] == 0) | (activities.correlation[activity] == 0)
    activity, call, number = (rows[lacks_one] for rows in (activity, call, np.where(recorded > 0, recorded, new)))
    calls.correlation[call], activities.correlation[activity] = number, number
    # profilers may show layers as processes: calls move to the process of the ops on their threads
    for process in np.unique(calls.process[call]).tolist():
        rows = calls.process == process
        hosts = np.unique(ops.process[columns.isin(ops.thread, calls.thread[rows])])
        if len(hosts) == 1 and process not in ops.process:
            calls.process[rows] = hosts[0]


def _at_ends(activities: Any, threads: Int64, ends: Int64) -> Int64:
    """Returns the activity that starts where each flow ends, -1 for none: the one of its id, or as late in the file."""
    count = len(threads)
    places = zip((activities.process, threads, activities.start), ends[PROCESS:], strict=True)
    place = columns.group_ids(*map(np.concatenate, places))
    own, asked = place[:count], place[count:]
    by_order = rows_at((own, columns.cumcount(own)), (asked, columns.cumcount(asked, ends[CATEGORY])))
    by_id = rows_at((own, activities.external_id), (asked, ends[ID]))
    return np.where(by_id >= 0, by_id, by_order)


def rows_at(own: Sequence[Int64], asked: Sequence[Int64]) -> Int64:
    """Returns the row whose own columns are what is asked for, -1 for none and for several."""
    number = columns.group_ids(*map(np.concatenate, zip(own, asked, strict=True)))
    count = len(own[0])
    is_one = np.bincount(number[:count], minlength=len(number))[number[count:]] == 1
    return np.where(is_one, Lookup(number[:count], np.arange(count)).of(number[count:]), -1)


def _innermost(table: Any, points: Int64) -> Int64:
    """Returns the innermost row of a table within which each flow starts, -1 for none."""
    count = len(table.start)
    places = zip((table.process, table.thread), points[PROCESS:TIME], strict=True)
    thread = columns.group_ids(*map(np.concatenate, places))
    intervals = ThreadIntervals(thread[:count], table.start, table.end)
    nested = NestedIntervals(intervals, columns.nest(intervals).parent)
    return nested.innermost(ThreadIntervals.at(thread[count:], points[TIME]))
