"""The cpus of a rank: one per host thread and stream, and more for delays, which pass beside all work.

A cpu runs one operation at a time, so delays that overlap in the measured run need a cpu each.
"""

import heapq
from dataclasses import dataclass

import numpy as np

from ...schema.columns import ABSENT, Int64
from ...schema.errors import DataError
from ...schema.graph import ExecutionGraph, NodeType
from ..lanes import lanes_of
from ..ranks import MeasuredTimes

LARGEST_COUNT = 256
"""A cpu is eight bits in GOAL."""


@dataclass(frozen=True, slots=True)
class Cpus:
    """The cpu of each node (-1 for metadata), the name of each cpu, and `lanes`, the number of the cpus before those of
    delays; they run in the order of the nodes.
    """

    of_node: Int64
    names: list[str]
    lanes: int


def cpus_of(graph: ExecutionGraph, times: MeasuredTimes, first: list[str]) -> Cpus:
    """Returns the cpus of a graph, after those of the names `first`. O(n log n).

    Raises DataError where the graph needs more cpus than GOAL has.
    """
    runs, is_delay = graph.type != NodeType.METADATA, graph.is_delay
    of_node = np.full(len(graph), -1, np.int64)
    work = np.flatnonzero(runs & ~is_delay)
    lane, head = _lane_numbers(lanes_of(graph)[work])
    of_node[work] = len(first) + lane
    rows = np.flatnonzero(is_delay)
    # a delay without dependencies starts with the run
    released = np.where(graph.data_deps.lengths() > 0, times.start_ns, 0)
    of_node[rows] = len(first) + len(head) + _without_overlap(released[rows], times.end_ns[rows])
    delay_cpus = int(of_node.max(initial=-1)) + 1 - len(first) - len(head)
    names = [*first, *(_name(graph, row) for row in work[head].tolist()), *["delays"] * max(delay_cpus, 0)]
    if len(names) > LARGEST_COUNT:
        raise DataError(
            f"the graph of rank {graph.metadata.get('rank', '?')} has {len(names)} threads, streams and delays at "
            f"once, and GOAL knows {LARGEST_COUNT} cpus; build a part of the trace, or without host (--no-host)"
        )
    return Cpus(of_node, names, len(first) + len(head))


def _lane_numbers(lane: Int64) -> tuple[Int64, Int64]:
    """Returns the number of each lane, from 0 on, and the position at which each number comes first."""
    _, head, number = np.unique(lane, return_index=True, return_inverse=True)
    return number.astype(np.int64), head


def _name(graph: ExecutionGraph, row: int) -> str:
    if graph.is_activity[row]:
        return f"device {_number(graph, 'device', row)} stream {_number(graph, 'stream', row)}"
    return f"thread {_number(graph, 'tid', row)}"


def _number(graph: ExecutionGraph, name: str, row: int) -> str:
    number = int(graph.integers(name)[row])
    return "?" if number == ABSENT else str(number)


def _without_overlap(start: Int64, end: Int64) -> Int64:
    """Returns a number for each interval such that overlapping ones differ; the number that is free for longest is
    reused first.
    """
    number, running = np.zeros(len(start), np.int64), list[tuple[int, int]]()
    for row in np.argsort(start, kind="stable").tolist():
        if running and running[0][0] <= start[row]:
            number[row] = heapq.heappop(running)[1]
        else:
            number[row] = len(running)
        heapq.heappush(running, (int(end[row]), int(number[row])))
    return number
