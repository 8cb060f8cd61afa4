"""Puts the measured times of several ranks on one clock, by the communication that they share.

Clocks of different machines do not agree, but a collective ends at the same time on all its ranks: the median over those that two
ranks share tells their clocks apart, within what is possible: nobody ends a collective that another one has not begun. Ranks that never
meet, not even through others, begin together.
"""

from collections import defaultdict
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ...converter.ranks import awaits_all
from ...schema.columns import ABSENT, Bool, Int64
from ...schema.graph import NodeType
from .rendezvous import MatchedNodes
from .workload import Workload

EVER = np.iinfo(np.int64).max


class Difference(NamedTuple):
    """How much later than `rank` the `other` one began to record, by all they met in."""

    of_messages: bool
    rank: int
    other: int
    later_ns: int


def on_one_clock(work: Workload, nodes: MatchedNodes) -> Workload:
    """The workload with the measured times of each rank, and the waits that count from its start, moved to where it began.

    O(m log m) in the nodes that meet, besides the columns.
    """
    rows = np.arange(len(work))
    begin = _begin(len(work.graphs), differences(work, nodes))[work.ranks_of(rows)]
    timed, rooted = work.is_timed, np.bincount(work.target, minlength=len(work)) == 0
    return replace(
        work,
        measured_start_ns=np.where(timed, work.measured_start_ns + begin, ABSENT),
        measured_end_ns=np.where(timed, work.measured_end_ns + begin, ABSENT),
        wait_ns=work.wait_ns + np.where(rooted, begin, 0),
    )


def differences(work: Workload, nodes: MatchedNodes) -> list[Difference]:
    """One per two ranks that meet, of which one is the first member. Those by collectives come first: a send may end before its receive."""
    timed = work.is_timed[nodes.row]
    row, matched = nodes.row[timed], nodes.matched[timed]
    first = np.searchsorted(matched, matched)
    rank, start, end = work.ranks_of(row), work.measured_start_ns[row], work.measured_end_ns[row]
    is_message = np.concatenate([graph.type for graph in work.graphs])[row] != NodeType.COMM_COLL
    mutual = await_each_other(work, row)
    least, most = np.where(mutual, start[first] - end, -EVER), np.where(mutual, end[first] - start, EVER)
    found: dict[tuple[bool, int, int], list[tuple[int, int, int]]] = defaultdict(list)
    for *pair, later, low, high in zip(
        *(column.tolist() for column in (is_message, rank[first], rank, end[first] - end, least, most)), strict=True
    ):
        if pair[1] != pair[2]:
            found[pair[0], pair[1], pair[2]].append((later, low, high))
    return [Difference(*pair, _later(np.array(seen))) for pair, seen in sorted(found.items())]


def _later(seen: Int64) -> int:
    """The median of what each match says, moved to where it is possible for all of them, if that is anywhere."""
    median, low, high = int(np.median(seen[:, 0])), int(seen[:, 1].max()), int(seen[:, 2].min())
    return min(max(median, low), high) if low <= high else median


def await_each_other(work: Workload, row: Int64) -> Bool:
    """Which of the nodes are of collectives that no member can end before all have come: those without a root."""
    kind = np.concatenate([graph.integers("comm_type", -1) for graph in work.graphs])[row]
    types = np.concatenate([graph.type for graph in work.graphs])[row]
    return np.asarray((types == NodeType.COMM_COLL) & awaits_all(kind))


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
