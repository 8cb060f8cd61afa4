"""Lanes of a graph (host threads and device streams), and durations in whole µs that keep each lane's total."""

import numpy as np

from ..schema.columns import Int64, group_ids
from ..schema.graph import ExecutionGraph


def lanes_of(graph: ExecutionGraph) -> Int64:
    """Returns the lane of each node, numbered from 0: one per host thread and one per (device, stream)."""
    on_device = graph.is_activity
    device_or_thread = np.where(on_device, graph.integers("device"), graph.integers("tid"))
    stream = np.where(on_device, graph.integers("stream"), 0)
    return group_ids(on_device.astype(np.int64), device_or_thread, stream)


def whole_microseconds(duration_ns: Int64, lane: Int64) -> Int64:
    """Returns durations in whole µs whose running total on each lane stays within 1 µs of the exact one.

    The total runs in the order of rows.

    >>> whole_microseconds(np.array([1400, 1400, 1400]), np.array([0, 0, 0])).tolist()
    [1, 2, 1]
    """
    order = np.argsort(lane, kind="stable")
    rounded = (np.cumsum(duration_ns[order]) + 500) // 1000
    whole = np.empty(len(duration_ns), np.int64)
    whole[order] = np.diff(rounded, prepend=0)
    return whole
