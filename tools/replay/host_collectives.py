"""What ends the transfers of hosts (gloo) that are one collective or message of several ranks.

gloo's members of a collective end each for itself: by as long as measured after the last one had arrived, or, in what
has a root and in messages, after the last of those that had arrived before it ended.
"""

from typing import NamedTuple

import numpy as np

from ...converter.ranks import EVER
from ...schema.columns import Bool, Int64
from .rank_clocks import await_each_other
from .rendezvous import MatchedNodes
from .workload import Workload


class Ends(NamedTuple):
    """Rows of a schedule beside the nodes: dependencies of them, sorted by target, what each costs, and the one that
    ends each member.
    """

    source: Int64
    target: Int64
    cost_ns: Int64
    finish_row: Int64


def meet_on_hosts(work: Workload, nodes: MatchedNodes) -> Bool:
    """Returns which of the pairs are of a match all of whose members ran on a host thread at a recorded time."""
    elsewhere = ~work.is_timed[nodes.row] | work.is_activity[nodes.row]
    return np.asarray(np.bincount(nodes.matched[elsewhere], minlength=nodes.count)[nodes.matched] == 0)


def ends(work: Workload, row: Int64, matched: Int64, first: int) -> Ends:
    """Returns the ends of the members `row` of each match, in rows from `first` on. O(n log n).

    Per member there is a row for it and those before it having arrived, and a row for its end.
    """
    order = np.lexsort((work.measured_start_ns[row], matched))
    member, group = row[order], matched[order]
    start, end, count = work.measured_start_ns[member], work.measured_end_ns[member], len(member)
    last_arrival = _last_arrived(group, start, np.where(await_each_other(work, member), EVER, end))
    # what is made shorter or longer is so behind the last arrival too
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


def _last_arrived(group: Int64, start: Int64, end: Int64) -> Int64:
    """Returns for each member, sorted by match and start, the last of its match that had arrived before it ended,
    itself at least.
    """
    firsts = np.flatnonzero(np.append(True, np.diff(group) != 0))[: len(group)]
    last = np.arange(len(group))
    for begin, until in zip(firsts.tolist(), [*firsts[1:].tolist(), len(group)], strict=False):
        arrived = begin - 1 + np.searchsorted(start[begin:until], end[begin:until], side="left")
        last[begin:until] = np.maximum(last[begin:until], arrived)
    return last
