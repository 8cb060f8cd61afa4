"""Lanes of a graph: host threads and device streams, numbered; and durations in whole µs that keep each lane's total."""

import numpy as np

from ...schema.columns import Bool, Int64, numbered
from ...schema.graph import ExecutionGraph


def lanes_of(graph: ExecutionGraph) -> Int64:
    """A number from 0 on per host thread and per (device, stream), for each node."""
    on_device = graph.is_activity
    place = np.where(on_device, graph.integers("device"), graph.integers("tid"))
    stream = np.where(on_device, graph.integers("stream"), 0)
    return numbered(on_device.astype(np.int64), place, stream)


def whole_microseconds(duration_ns: Int64, lane: Int64) -> Int64:
    """Durations in whole µs whose running total on each lane, in the order of rows, stays within 1 µs of the exact one."""
    order = np.argsort(lane, kind="stable")
    rounded = (np.cumsum(duration_ns[order]) + 500) // 1000
    whole = np.empty(len(duration_ns), np.int64)
    whole[order] = np.diff(rounded, prepend=0)
    return whole


def alone(start: Int64, end: Int64, other_start: Int64, other_end: Int64) -> Int64:
    """For each span how long it was there without any of the others, and without spans of its own kind that ended sooner. O(n log n)."""
    # on a clock that stands still while others are there, what is left are the spans among themselves
    begin = start - covered_until(start, other_start, other_end)
    stop = end - covered_until(end, other_start, other_end)
    order = np.lexsort((-start, end))
    free, taken = np.empty(len(start), np.int64), list[tuple[int, int]]()
    for row, since, until in zip(order.tolist(), begin[order].tolist(), stop[order].tolist(), strict=True):
        left, opens = until - since, since
        while taken and taken[-1][1] > since:
            first, last = taken.pop()
            left -= last - max(first, since)
            opens = min(opens, first)
        taken.append((opens, until))
        free[row] = left
    return free


def covered_until(time: Int64, start: Int64, end: Int64) -> Int64:
    """How long at least one of the spans was there before each time."""
    if not len(start):
        return np.zeros(len(time), np.int64)
    order = np.argsort(start, kind="stable")
    reach = np.maximum.accumulate(end[order])
    opens: Bool = np.append(True, start[order][1:] > reach[:-1])
    first = start[order][opens]
    last = reach[np.append(opens[1:], True)]
    before = np.cumsum(last - first) - (last - first)
    place = np.searchsorted(first, time, side="right") - 1
    inside = np.minimum(time, last[place]) - first[place]
    return np.where(place >= 0, before[place] + inside, 0)
