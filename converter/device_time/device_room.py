"""Room on a device: how many activities it runs at once, where the trace shows that it could not run more.

A device was full if never more than so many activities ran on it at once, and those that
were late were ready when so many ran and started when one of them ended. Communication does not take room: it waits for others.
"""

from dataclasses import dataclass

import numpy as np

from ...schema.columns import Bool, Int64
from ...schema.machine import CROWDED, ENOUGH
from ..context import ConversionContext
from .device_time import DeviceTime


@dataclass(slots=True)
class Room:
    """How many `places` each device that was full has, and which activities were ready and waited for one."""

    places: dict[int, int]
    placed: Bool


def device_room(context: ConversionContext, time: DeviceTime) -> Room:
    """The room of every device. O(n log n)."""
    activities = context.linked.activities
    room = Room({}, np.zeros(len(activities), np.bool_))
    for device in np.unique(activities.device[time.delay > 0]).tolist():
        own = np.flatnonzero((activities.device == device) & (activities.communication_row < 0))
        _measure(context, time, device, own, room)
    return room


def _measure(context: ConversionContext, time: DeviceTime, device: int, own: Int64, room: Room) -> None:
    """Adds a device with these activities to those that were full, if it was."""
    start, stream = context.linked.activities.start[own], context.linked.activities.stream[own]
    end = np.maximum(context.activity_end[own] - context.slack, start)
    running = np.searchsorted(np.sort(start), start, side="right") - np.searchsorted(np.sort(end), start, side="right")
    places = int(running.max(initial=0))
    late = time.delay[own] > 0
    if places >= len(np.unique(stream)) or late.sum() < ENOUGH:
        return
    waited = _found_no_place(context, start, end, time.delay[own], places)
    if waited[late].mean() >= CROWDED:
        room.places[device] = places
        room.placed[own[_took_a_place(context, start, end)]] = True


def _found_no_place(context: ConversionContext, start: Int64, end: Int64, delay: Int64, places: int) -> Bool:
    """Which of the activities, ready `delay` ns before they started, found the device full then and started when another one ended."""
    ready = start - delay + context.slack
    running = np.searchsorted(np.sort(start), ready, side="right") - np.searchsorted(np.sort(end), ready, side="right")
    return np.asarray((running >= places) & _took_a_place(context, start, end))


def _took_a_place(context: ConversionContext, start: Int64, end: Int64) -> Bool:
    """Which activities started right when another one ended."""
    ends = np.sort(end)
    last = np.searchsorted(ends, start + context.slack, side="right") - 1
    return np.asarray((last >= 0) & (start - ends[last] <= 2 * context.slack))
