"""Room on a device: how many activities it runs at once, where the trace shows that it could not run more.

A device was full if never more than so many activities ran on it at once, and those that were late and ready when so
many ran started when one of them ended, more often than by chance. Communication does not take room: it waits for
others.
"""

from dataclasses import dataclass

import numpy as np

from ...schema.columns import Bool, Int64, rows_by_number
from ...schema.machine import BY_CHANCE, CROWDED
from ..context import ConversionContext
from .device_time import DeviceTime


@dataclass(slots=True)
class ConcurrencyLimit:
    """How many `places` each device that was full has, and which activities were ready and waited for one."""

    places: dict[int, int]
    placed: Bool


def device_room(context: ConversionContext, time: DeviceTime) -> ConcurrencyLimit:
    """Returns the room of every device. O(n log n)."""
    activities = context.linked.activities
    room = ConcurrencyLimit({}, np.zeros(len(activities), np.bool_))
    late = np.isin(activities.device, activities.device[time.delay > 0]) & (activities.communication_row < 0)
    for device, own in rows_by_number(np.flatnonzero(late), activities.device).items():
        _measure(context, time, device, own, room)
    return room


def _measure(context: ConversionContext, time: DeviceTime, device: int, own: Int64, room: ConcurrencyLimit) -> None:
    """Adds a device with these activities to those that were full, if it was."""
    start, stream = context.linked.activities.start[own], context.linked.activities.stream[own]
    end = np.maximum(context.activity_end[own] - context.slack, start)
    running = np.searchsorted(np.sort(start), start, side="right") - np.searchsorted(np.sort(end), start, side="right")
    places = int(running.max(initial=0))
    if places >= len(np.unique(stream)):
        return
    found_no_place = _found_no_place(context, start, end, time.delay[own], places)
    took_a_place = _took_a_place(context, start, end)
    waited, kept_waiting = int((found_no_place & took_a_place).sum()), int(found_no_place.sum())
    if (
        waited > 1
        and waited >= CROWDED * kept_waiting
        and _right_after_an_end(context, start, end) ** waited <= BY_CHANCE
    ):
        room.places[device] = places
        room.placed[own[took_a_place]] = True


def _found_no_place(context: ConversionContext, start: Int64, end: Int64, delay: Int64, places: int) -> Bool:
    """Returns which of the activities were late and, when ready `delay` ns before they started, found the device full."""
    ready = start - delay + context.slack
    running = np.searchsorted(np.sort(start), ready, side="right") - np.searchsorted(np.sort(end), ready, side="right")
    return np.asarray((delay > 0) & (running >= places))


def _took_a_place(context: ConversionContext, start: Int64, end: Int64) -> Bool:
    """Returns which activities started right when another one ended."""
    ends = np.sort(end)
    last = np.searchsorted(ends, start + context.slack, side="right") - 1
    return np.asarray((last >= 0) & (start - ends[last] <= 2 * context.slack))


def _right_after_an_end(context: ConversionContext, start: Int64, end: Int64) -> float:
    """Returns how likely it is that an activity takes a place by chance: the share of the device's time that is right
    after an end.
    """
    return min(3 * context.slack * len(end) / max(int(end.max() - start.min()), 1), 1.0)
