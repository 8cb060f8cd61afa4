"""When the nodes of a rank ran, how much later each could have ended, and when each rank of a job began, on one clock.

Clocks of different machines differ, but a collective ends at the same time on all its ranks. The offset of two clocks
is the median of the differences between ends that two ranks share, within the possible range: no member ends a
collective that another one has not begun. Ranks that share nothing, not even through others, begin together.
"""

from collections import defaultdict
from typing import NamedTuple

import numpy as np

from ...schema.columns import Bool, Int64
from ...schema.graph import ExecutionGraph, NodeType
from ...schema.linked import FOREVER
from ..rewiring import data_edges
from .calls import awaits_all

EVER = np.iinfo(np.int64).max


class MeasuredTimes(NamedTuple):
    """When the rank began, in ns on the host's clock, and when each node started and ended, in ns since then."""

    begin_ns: int
    start_ns: Int64
    end_ns: Int64


def measured_times(graph: ExecutionGraph) -> MeasuredTimes:
    """Returns when each node ran as measured, including the overlap that was cut off its duration."""
    start = graph.host_clock_start_ns
    delay = graph.integers("host_delay_ns", 0)
    # a graph without host begins with the host delay of its first activity
    before = np.where((graph.data_deps.lengths() == 0) & (delay > 0), graph.integers("gap_ns", 0) + delay, 0)
    timed = graph.type != NodeType.METADATA
    begin = int((start - before)[timed].min(initial=FOREVER)) if timed.any() else 0
    end = start + graph.duration_ns + graph.integers("overlap_ns", 0)
    return MeasuredTimes(begin, start - begin, end - begin)


class MatchedTimes(NamedTuple):
    """A row for each member of each match: the position of its rank, its times since that rank's first node, and its
    CollectiveType, -1 where none is known.
    """

    rank: Int64
    matched: Int64
    start_ns: Int64
    end_ns: Int64
    is_message: Bool
    kind: Int64


def begin_of_ranks(ranks: int, times: MatchedTimes) -> Int64:
    """Returns when each of so many ranks began, in ns; the earliest of those that share matches is 0. O(m log m) in the
    rows.
    """
    begin, component = np.zeros(ranks, np.int64), np.arange(ranks)
    for rank, peer, later in _differences(times):
        if component[rank] != component[peer]:
            # joining two components moves one of them
            moved = component == component[peer]
            begin[moved] += begin[rank] + later - begin[peer]
            component[moved] = component[rank]
    earliest = np.zeros(ranks, np.int64)
    np.minimum.at(earliest, component, begin)
    return begin - earliest[component]


def _differences(times: MatchedTimes) -> list[tuple[int, int, int]]:
    """Returns by how many ns each first member of a match began to record before each other member of it, by all their
    matches: (rank, peer, ns). Differences by collectives come first, as a send may end before its receive.
    """
    order = np.argsort(times.matched, kind="stable")
    rank, matched, start, end = (column[order] for column in times[:4])
    is_message = times.is_message[order]
    first, mutual = np.searchsorted(matched, matched), awaits_all(times.kind[order]) & ~is_message
    low, high = np.where(mutual, start[first] - end, -EVER), np.where(mutual, end[first] - start, EVER)
    bounds: dict[tuple[bool, int, int], list[list[int]]] = defaultdict(list)
    columns = (is_message, rank[first], rank, end[first] - end, low, high)
    for of_messages, of_first, peer, *bound in zip(*(column.tolist() for column in columns), strict=True):
        if of_first != peer:
            bounds[of_messages, of_first, peer].append(bound)
    return [(rank, peer, _later(np.array(rows))) for (_, rank, peer), rows in sorted(bounds.items())]


def _later(bounds: Int64) -> int:
    """Returns the median of the first column, clipped to the highest lower and the lowest upper bound (the other two
    columns) if these allow anything.
    """
    median, low, high = int(np.median(bounds[:, 0])), int(bounds[:, 1].max()), int(bounds[:, 2].min())
    return min(max(median, low), high) if low <= high else median


def slack_ns(graph: ExecutionGraph, times: MeasuredTimes) -> Int64:
    """Returns the slack of each node of a graph in topological order, if all else takes as long as measured. O(n + e).

    A node may end as late as the first of those that depend on it may start.
    """
    edges, end = data_edges(graph), times.end_ns
    waited = graph.integers("gap_ns", 0) + graph.integers("host_delay_ns", 0)
    durations_ns = (times.end_ns - times.start_ns + waited).tolist()
    latest = np.full(len(graph), end.max(initial=0)).tolist()
    # sorted by target, so that a node is final before its dependencies are reached
    for source, target in zip(edges.source[::-1].tolist(), edges.target[::-1].tolist(), strict=True):
        latest[source] = min(latest[source], latest[target] - durations_ns[target])
    slack: Int64 = np.array(latest, np.int64) - end
    return slack.clip(min=0)
