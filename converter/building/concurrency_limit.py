"""Finds devices that were full: how many activities they run at once, if the trace shows that they could not run more.

A device was full if it never ran more than so many activities at once, and if late activities that were ready while it
ran so many started just as another one ended, more often than by chance. Communication does not take up a slot, as it
waits for other ranks.
"""

from dataclasses import dataclass

import numpy as np

from ...schema.columns import ActivityRows, Bool, Int64, Intervals, rows_by_number
from ...schema.machine import BY_CHANCE, CROWDED
from ..context import ConversionContext
from .start_timing import StartTiming


@dataclass(slots=True)
class ConcurrencyLimit:
    """How many activities each full device runs at once (`slot_counts`), and which activities were ready and waited for
    one of its slots.
    """

    slot_counts: dict[int, int]
    waited_for_slot: Bool


def concurrency_limit(context: ConversionContext, timing: StartTiming) -> ConcurrencyLimit:
    """Returns the limits of all devices that were full. O(n log n)."""
    activities = context.linked.activities
    limit = ConcurrencyLimit({}, np.zeros(len(activities), np.bool_))
    computing = np.isin(activities.device, activities.device[timing.delay > 0]) & (activities.communication_row < 0)
    for device, rows in rows_by_number(np.flatnonzero(computing), activities.device).items():
        _add_device(limit, context, timing, device, ActivityRows(rows))
    return limit


def _add_device(
    limit: ConcurrencyLimit, context: ConversionContext, timing: StartTiming, device: int, rows: ActivityRows
) -> None:
    """Adds the device that ran the activities `rows` to `limit` if it was full."""
    start, delay, slack = context.linked.activities.start[rows], timing.delay[rows], context.slack
    ran = Intervals(start, np.maximum(context.activity_end[rows] - slack, start))
    slot_count = int(_running(ran, start).max(initial=0))
    if slot_count >= len(np.unique(context.linked.activities.stream[rows])):
        return
    device_was_full = (delay > 0) & (_running(ran, start - delay + slack) >= slot_count)
    after_an_end = _starts_after_an_end(ran, slack)
    full_count, waited_count = int(device_was_full.sum()), int((device_was_full & after_an_end).sum())
    if (
        waited_count > 1
        and waited_count >= CROWDED * full_count
        and _share_after_an_end(ran, slack) ** waited_count <= BY_CHANCE
    ):
        limit.slot_counts[device] = slot_count
        limit.waited_for_slot[rows[after_an_end]] = True


def _running(ran: Intervals, time: Int64) -> Int64:
    """Returns how many activities ran at each time."""
    started = np.searchsorted(np.sort(ran.start), time, side="right")
    return started - np.searchsorted(np.sort(ran.end), time, side="right")


def _starts_after_an_end(ran: Intervals, slack: int) -> Bool:
    """Returns which activities started just as another one ended."""
    ends = np.sort(ran.end)
    last = np.searchsorted(ends, ran.start + slack, side="right") - 1
    return np.asarray((last >= 0) & (ran.start - ends[last] <= 2 * slack))


def _share_after_an_end(ran: Intervals, slack: int) -> float:
    """Returns the share of the device's time just after an end: the probability that an activity starts there by
    chance.
    """
    return min(3 * slack * len(ran.end) / max(int(ran.end.max() - ran.start.min()), 1), 1.0)
