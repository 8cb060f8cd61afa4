"""When each rank of a job began to record, on one clock, by the communication that they share.

Clocks of different machines do not agree, but a collective ends at the same time on all its ranks: the median over
those that two ranks share tells their clocks apart, within what is possible: nobody ends a collective that another one
has not begun. Ranks that never meet, not even through others, begin together.
"""

from collections import defaultdict
from typing import NamedTuple

import numpy as np

from ...schema.columns import Bool, Int64

EVER = np.iinfo(np.int64).max


class Attendance(NamedTuple):
    """A row for each member of each match, sorted by `matched`: the place of its rank, and its times since that rank's
    first node.

    Members of `mutual` ones cannot end before all have come; a send may.
    """

    rank: Int64
    matched: Int64
    start_ns: Int64
    end_ns: Int64
    is_message: Bool
    mutual: Bool


class _Difference(NamedTuple):
    """How much later than `rank` the `other` one began to record, by all they met in."""

    of_messages: bool
    rank: int
    other: int
    later_ns: int


def begin_of_ranks(ranks: int, attendance: Attendance) -> Int64:
    """Returns when each of so many ranks began, in ns, the earliest of those that meet at 0. O(m log m) in the rows."""
    begin, together = np.zeros(ranks, np.int64), np.arange(ranks)
    for _, rank, other, later in _differences(attendance):
        if together[rank] != together[other]:
            # what joins two sets of ranks that have met moves one of them
            moved = together == together[other]
            begin[moved] += begin[rank] + later - begin[other]
            together[moved] = together[rank]
    earliest = np.zeros(ranks, np.int64)
    np.minimum.at(earliest, together, begin)
    return begin - earliest[together]


def _differences(attendance: Attendance) -> list[_Difference]:
    """Returns one per two ranks that meet, of which one is the first member. Those by collectives come first: a send
    may end before its receive.
    """
    rank, matched, start, end, is_message, mutual = attendance
    first = np.searchsorted(matched, matched)
    least, most = np.where(mutual, start[first] - end, -EVER), np.where(mutual, end[first] - start, EVER)
    found: dict[tuple[bool, int, int], list[tuple[int, int, int]]] = defaultdict(list)
    for *pair, later, low, high in zip(
        *(column.tolist() for column in (is_message, rank[first], rank, end[first] - end, least, most)), strict=True
    ):
        if pair[1] != pair[2]:
            found[pair[0], pair[1], pair[2]].append((later, low, high))
    return [_Difference(*pair, _later(np.array(seen))) for pair, seen in sorted(found.items())]


def _later(seen: Int64) -> int:
    """Returns the median of what each match says, moved to where it is possible for all of them, if that is anywhere."""
    median, low, high = int(np.median(seen[:, 0])), int(seen[:, 1].max()), int(seen[:, 2].min())
    return min(max(median, low), high) if low <= high else median
