"""The streams of a process, from the columns of what ran on them."""

from typing import NamedTuple, Protocol

import numpy as np

from ..columns import Bool, Int64, group_ids, previous_in_group, rows_of_each


class OnStreams(Protocol):
    """What ran on which stream and when."""

    device: Int64
    stream: Int64
    start: Int64
    end: Int64


def stream_sorted(activities: OnStreams) -> Int64:
    """Returns the rows by device, stream, start and end."""
    return np.lexsort((activities.end, activities.start, activities.stream, activities.device)).astype(np.int64)


def previous_on_stream(activities: OnStreams) -> Int64:
    """Returns for each activity the one before it on its stream, -1 for the first."""
    return previous_in_group(stream_sorted(activities), activities.device, activities.stream)


class Streams(NamedTuple):
    """The streams of a process: `number` is the place of each activity's stream in `device` and `stream`."""

    device: Int64
    stream: Int64
    number: Int64


def streams_of(activities: OnStreams) -> Streams:
    """Returns the (device, stream) pairs in order, and which of them each activity ran on."""
    number = group_ids(activities.device, activities.stream)
    first = np.unique(number, return_index=True)[1]
    return Streams(activities.device[first], activities.stream[first], number)


def took_over(activities: OnStreams, slack: int) -> Bool:
    """Returns activities that started right when one on another stream of their device ended, as those do that waited
    for room on a full device.
    """
    taken = np.zeros(len(activities.start), np.bool_)
    for own in rows_of_each(activities.device).values():
        by_end = own[np.argsort(activities.end[own], kind="stable")]
        place = np.searchsorted(activities.end[by_end], activities.start[own] + slack, side="right") - 1
        last = by_end[np.maximum(place, 0)]
        soon = (place >= 0) & (activities.start[own] - activities.end[last] <= slack) & (last != own)
        taken[own] = soon & (activities.stream[last] != activities.stream[own])
    return taken
