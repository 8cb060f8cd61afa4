"""When each rank of a job began to record, on one clock, from the communication that ranks share.

Clocks of different machines differ, but a collective ends at the same time on all its ranks. The offset of two clocks
is the median of the differences between ends that two ranks share, within the possible range: no member ends a
collective that another one has not begun. Ranks that share nothing, not even through others, begin together.

When the nodes of a rank's graph ran, on the host's clock.

How much later each node of a graph could have ended without its rank ending later.
"""

from collections import defaultdict
from typing import NamedTuple

import numpy as np

from ...schema.columns import Bool, Int64
from ...schema.graph import ExecutionGraph, NodeType
from ...schema.linked import FOREVER
from ..rewiring import data_edges


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


EVER = np.iinfo(np.int64).max


class MatchedTimes(NamedTuple):
    """A row for each member of each match, sorted by `matched`: the position of its rank, and its times since that
    rank's first node.

    Members of `mutual` matches cannot end before all have begun; a send may.
    """

    rank: Int64
    matched: Int64
    start_ns: Int64
    end_ns: Int64
    is_message: Bool
    mutual: Bool


class _Difference(NamedTuple):
    """How many ns later than `rank` its `peer` began to record, by all their matches."""

    of_messages: bool
    rank: int
    peer: int
    later_ns: int


def begin_of_ranks(ranks: int, times: MatchedTimes) -> Int64:
    """Returns when each of so many ranks began, in ns; the earliest of those that share matches is 0. O(m log m) in the
    rows.
    """
    begin, component = np.zeros(ranks, np.int64), np.arange(ranks)
    for _, rank, peer, later in _differences(times):
        if component[rank] != component[peer]:
            # joining two components moves one of them
            moved = component == component[peer]
            begin[moved] += begin[rank] + later - begin[peer]
            component[moved] = component[rank]
    earliest = np.zeros(ranks, np.int64)
    np.minimum.at(earliest, component, begin)
    return begin - earliest[component]


def _differences(times: MatchedTimes) -> list[_Difference]:
    """Returns the difference of each first member of a match to each other member of it.

    Differences by collectives come first, as a send may end before its receive.
    """
    rank, matched, start, end, is_message, mutual = times
    first = np.searchsorted(matched, matched)
    low, high = np.where(mutual, start[first] - end, -EVER), np.where(mutual, end[first] - start, EVER)
    bounds: dict[tuple[bool, int, int], list[list[int]]] = defaultdict(list)
    columns = (is_message, rank[first], rank, end[first] - end, low, high)
    for of_messages, of_first, peer, *bound in zip(*(column.tolist() for column in columns), strict=True):
        if of_first != peer:
            bounds[of_messages, of_first, peer].append(bound)
    return [_Difference(*pair, _later(np.array(rows))) for pair, rows in sorted(bounds.items())]


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
