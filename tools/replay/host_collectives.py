"""Ends of collectives and messages between host threads (gloo), of which each member ends by itself.

A member ends as long after the last arrival as measured. In messages and collectives with a root it counts from the
last of the arrivals that came before its measured end.
"""

from typing import NamedTuple

import numpy as np

from ...converter.ranks import EVER
from ...schema.columns import Bool, Int64
from .rank_clocks import await_each_other
from .rendezvous import MatchedNodes
from .workload import Workload


class Ends(NamedTuple):
    """Rows that are added to a schedule: their dependencies, sorted by target, their costs, and for each member the row
    whose end is its end.
    """

    source: Int64
    target: Int64
    cost_ns: Int64
    finish_row: Int64


class _Members(NamedTuple):
    """Members of matched collectives, sorted by match and start (ns): the match of each, its start and end."""

    matched: Int64
    start: Int64
    end: Int64


def meet_on_hosts(work: Workload, nodes: MatchedNodes) -> Bool:
    """Returns which pairs belong to a match whose members all ran on host threads, at recorded times."""
    elsewhere = ~work.is_timed[nodes.row] | work.is_activity[nodes.row]
    return np.asarray(np.bincount(nodes.matched[elsewhere], minlength=nodes.count)[nodes.matched] == 0)


def host_collective_ends(work: Workload, row: Int64, matched: Int64, first: int) -> Ends:
    """Returns the rows, numbered from `first` on, for the members `row` of the matches `matched`. O(n log n).

    Each member has two: one for its arrival and all earlier ones, one for its end.
    """
    order = np.lexsort((work.measured_start_ns[row], matched))
    member, group = row[order], matched[order]
    start, end, count = work.measured_start_ns[member], work.measured_end_ns[member], len(member)
    last_arrival = _last_arrivals(_Members(group, start, np.where(await_each_other(work, member), EVER, end)))
    # a changed duration changes the time after the last arrival by the same factor
    factor = work.duration_ns[member] / np.maximum(end - start, 1)
    cost = np.rint(np.maximum(end - start[last_arrival], 0) * factor).astype(np.int64)
    arrived, ended = first + np.arange(count), first + count + np.arange(count)
    follows = np.flatnonzero(np.diff(group) == 0)
    finish_row = np.empty(count, np.int64)
    finish_row[order] = ended
    source = np.concatenate((member, arrived[follows], arrived[last_arrival]))
    target = np.concatenate((arrived, arrived[follows + 1], ended))
    by_target = np.argsort(target, kind="stable")
    return Ends(
        source[by_target],
        target[by_target],
        np.concatenate((np.zeros(count, np.int64), cost)),
        finish_row,
    )


def _last_arrivals(members: _Members) -> Int64:
    """Returns for each member the last of its match that arrived before it ended, at least itself."""
    matched, start, end = members
    firsts = np.flatnonzero(np.append(True, np.diff(matched) != 0))[: len(matched)]
    last = np.arange(len(matched))
    for begin, until in zip(firsts.tolist(), [*firsts[1:].tolist(), len(matched)], strict=False):
        arrived = begin - 1 + np.searchsorted(start[begin:until], end[begin:until], side="left")
        last[begin:until] = np.maximum(last[begin:until], arrived)
    return last
