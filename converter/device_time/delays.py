"""Delays: device time that no edge explains and that is not usual on this machine, and its likely cause.

Causes that a trace shows are launch calls whose activities the profiler lost, a device that was busy throughout, and a
queue that was not empty when recording began.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from ...schema.columns import Bool, Int64, rows_of_each
from ...schema.graph import Delay
from ...schema.machine import LAUNCHES, LONGEST
from ..context import ConversionContext
from ..edit import covered_until
from .device_room import ConcurrencyLimit
from .device_time import DeviceTime


@dataclass(slots=True)
class Delays:
    """One row each: `activity` is delayed from `start` for `length` ns after the node `after` (-1: after the trace's
    start).

    `by_launch` is whether a launch or the device released it, `cause` a Delay.
    """

    activity: Int64
    after: Int64
    start: Int64
    length: Int64
    by_launch: Bool
    cause: Int64

    def __len__(self) -> int:
        return len(self.activity)

    def none(self) -> "Delays":
        """Returns a table without rows."""
        return Delays(*(getattr(self, column)[:0] for column in Delays.__slots__))


def delays(context: ConversionContext, time: DeviceTime, room: ConcurrencyLimit) -> Delays:
    """Returns the delays of a run, in the order in which their activities began; those of the start of recording last
    from the trace's start on.

    O(n log n).
    """
    late = _in_time(context, time.delay > 0)
    cause = _causes(context, time, room, late)
    carried = _carried(context, time, late, cause)
    # in a part an activity may have been held by earlier work, and after its launch by something else as well
    own = (carried[late] < 0) | (time.by_launch[late] & (context.carried is not None))
    row, cause = late[own], cause[own]
    held = _in_time(context, carried >= 0)
    none = np.full(len(held), -1, np.int64)
    recording = np.full(len(held), int(Delay.START_OF_RECORDING), np.int64)
    return Delays(
        activity=np.concatenate((row, held)),
        after=np.concatenate((time.after[row], none)),
        start=np.concatenate((_ready(context, time)[row], np.full(len(held), context.start_of_trace, np.int64))),
        length=np.concatenate((time.delay[row], carried[held] - context.start_of_trace)),
        by_launch=np.concatenate((time.by_launch[row], np.zeros(len(held), np.bool_))),
        cause=np.concatenate((cause, recording)),
    )


def _in_time(context: ConversionContext, chosen: Bool) -> Int64:
    """Sorts the chosen activities by their start, so that the order of the file does not number delays."""
    rows = np.flatnonzero(chosen)
    return rows[np.argsort(context.linked.activities.start[rows], kind="stable")].astype(np.int64)


def _ready(context: ConversionContext, time: DeviceTime) -> Int64:
    """Returns when each activity was released."""
    return context.linked.activities.start - np.where(time.by_launch, time.latency, time.gap) - time.delay


def _causes(context: ConversionContext, time: DeviceTime, room: ConcurrencyLimit, late: Int64) -> Int64:
    """Returns the cause of each delay but for the start of recording, by what the trace shows."""
    activities, delay = context.linked.activities, time.delay[late]
    usual = np.where(time.by_launch, time.latency, time.gap)[late]
    busy, lost = _busy(context, _ready(context, time)[late], delay, activities.device[late]), _lost_launches(context)
    cause = np.full(len(late), int(Delay.UNEXPLAINED), np.int64)
    cause[(busy >= delay - usual) | room.placed[late]] = Delay.CONTENTION
    cause[_launched_between(context, late, lost)] = Delay.LOST_RECORDS
    if len(lost) or (activities.call_row < 0).any():
        # nothing recorded ran though this was ready, in a trace that is known to lack records
        cause[(busy <= usual) & (delay > LONGEST)] = Delay.LOST_RECORDS
    return cause


def _carried(context: ConversionContext, time: DeviceTime, late: Int64, cause: Int64) -> Int64:
    """Until when work from before the trace kept each activity's stream busy, -1 for activities that it did not hold.

    A part of a trace knows. Of a whole one it is taken for streams whose first activity, launched early, was long in
    starting though nothing that is recorded was in its way: the queue was not empty when recording began.
    """
    activities = context.linked.activities
    if context.carried is not None:
        extra = np.where(~time.by_launch, time.delay, 0)
        return np.where(context.carried >= 0, context.carried + extra, -1)
    first = late[(context.stream_previous[late] < 0) & (cause != Delay.CONTENTION)]
    first = first[_ready(context, time)[first] - context.start_of_trace <= time.delay[first]]
    carried = np.full(len(activities), -1, np.int64)
    carried[first] = activities.start[first]
    return carried


def _busy(context: ConversionContext, start: Int64, length: Int64, device: Int64) -> Int64:
    """Returns for how long of each stretch anything ran on the device."""
    activities, busy = context.linked.activities, np.zeros(len(start), np.int64)
    ran_on, until = rows_of_each(activities.device), start + length
    for number, own in rows_of_each(device).items():
        ran = (activities.start[ran_on[number]], activities.end[ran_on[number]])
        busy[own] = covered_until(until[own], *ran) - covered_until(start[own], *ran)
    return busy


def _lost_launches(context: ConversionContext) -> Int64:
    """Returns when calls began that launched what is in no record, sorted."""
    activities, calls = context.linked.activities, context.linked.calls
    owns = np.zeros(len(calls), np.bool_)
    owns[activities.call_row[activities.call_row >= 0]] = True
    count = np.bincount(calls.name.codes, minlength=len(calls.name.table))
    share = np.bincount(calls.name.codes, owns, len(calls.name.table)) / np.maximum(count, 1)
    return np.sort(calls.start[(share >= LAUNCHES)[calls.name.codes] & ~owns])


def _launched_between(context: ConversionContext, rows: Int64, lost: Int64) -> Bool:
    """Returns activities between whose launch and that of the one before on their stream one of the `lost` launches
    lies.
    """
    before, launched = context.stream_previous[rows], context.launched
    since = np.where(before >= 0, launched[np.maximum(before, 0)], context.start_of_trace)
    return np.searchsorted(lost, launched[rows]) > np.searchsorted(lost, since)


def by_cause(found: Delays) -> tuple[dict[str, int], dict[str, float]]:
    """Returns how many delays there are of each cause, and their µs."""
    count, time = Counter[str](), Counter[str]()
    for cause in np.unique(found.cause).tolist():
        mine = found.cause == cause
        count[Delay(cause).label], time[Delay(cause).label] = int(mine.sum()), int(found.length[mine].sum())
    return dict(count), {cause: ns / 1000 for cause, ns in time.items()}
