"""A workload of several ranks and where they meet in, the same with all measured times on one clock out.

Clocks of different machines do not agree, but what meets ends at the same time on all its ranks: the median over the meetings of two
ranks tells their clocks apart. Ranks that never meet, not even through others, begin together.
"""

from collections import defaultdict
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ..schema.columns import ABSENT, Int64
from ..schema.graph import NodeType
from .rendezvous import Meetings
from .workload import Workload


class Difference(NamedTuple):
    """How much later than `rank` the `other` one began to record, by all they met in."""

    of_messages: bool
    rank: int
    other: int
    later_ns: int


def on_one_clock(work: Workload, meetings: Meetings) -> Workload:
    """The workload with the measured times of each rank, and the waits that count from its start, moved to where it began.

    O(m log m) in the nodes that meet, besides the columns.
    """
    rows = np.arange(len(work))
    begin = _begin(len(work.graphs), differences(work, meetings))[work.ranks_of(rows)]
    timed, rooted = work.is_timed, np.bincount(work.target, minlength=len(work)) == 0
    return replace(
        work,
        measured_start_ns=np.where(timed, work.measured_start_ns + begin, ABSENT),
        measured_end_ns=np.where(timed, work.measured_end_ns + begin, ABSENT),
        wait_ns=work.wait_ns + np.where(rooted, begin, 0),
    )


def differences(work: Workload, meetings: Meetings) -> list[Difference]:
    """One per two ranks that meet, of which one is the first member. Those by collectives come first: a send may end before its receive."""
    timed = work.is_timed[meetings.row]
    row, meeting = meetings.row[timed], meetings.meeting[timed]
    first = np.searchsorted(meeting, meeting)
    rank, end = work.ranks_of(row), work.measured_end_ns[row]
    is_message = np.concatenate([graph.type for graph in work.graphs])[row] != NodeType.COMM_COLL
    found: dict[tuple[bool, int, int], list[int]] = defaultdict(list)
    for columns in zip(
        is_message.tolist(), rank[first].tolist(), rank.tolist(), (end[first] - end).tolist(), strict=True
    ):
        *pair, later = columns
        if pair[1] != pair[2]:
            found[pair[0], pair[1], pair[2]].append(later)
    return [Difference(*pair, int(np.median(later))) for pair, later in sorted(found.items())]


def _begin(ranks: int, found: list[Difference]) -> Int64:
    """When each rank began, the earliest of those that meet at 0; what joins two sets of ranks that have met moves one of them."""
    begin, together = np.zeros(ranks, np.int64), np.arange(ranks)
    for _, rank, other, later in found:
        if together[rank] != together[other]:
            moved = together == together[other]
            begin[moved] += begin[rank] + later - begin[other]
            together[moved] = together[rank]
    earliest = np.zeros(ranks, np.int64)
    np.minimum.at(earliest, together, begin)
    return begin - earliest[together]
