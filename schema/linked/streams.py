"""Finds the streams of a process from the columns of its activities."""

from typing import NamedTuple, Protocol

import numpy as np

from ..columns import Bool, Int64, group_ids, previous_in_group, rows_of_each


class OnStreams(Protocol):
    """Activities, or other rows that ran on streams. Times are in ns."""

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
    """The streams of a process: `number` is the position of each activity's stream in `device` and `stream`."""

    device: Int64
    stream: Int64
    number: Int64


def streams_of(activities: OnStreams) -> Streams:
    """Returns the sorted pairs of device and stream, and the position of each activity's pair."""
    number = group_ids(activities.device, activities.stream)
    first = np.unique(number, return_index=True)[1]
    return Streams(activities.device[first], activities.stream[first], number)


def took_over(activities: OnStreams, slack: int) -> Bool:
    """Returns which activities started right when one on another stream of their device ended, within `slack` (ns).

    Activities do so that waited for a slot on a full device.
    """
    follows = np.zeros(len(activities.start), np.bool_)
    for rows in rows_of_each(activities.device).values():
        by_end = rows[np.argsort(activities.end[rows], kind="stable")]
        position = np.searchsorted(activities.end[by_end], activities.start[rows] + slack, side="right") - 1
        last = by_end[np.maximum(position, 0)]
        is_soon = (position >= 0) & (activities.start[rows] - activities.end[last] <= slack) & (last != rows)
        follows[rows] = is_soon & (activities.stream[last] != activities.stream[rows])
    return follows
