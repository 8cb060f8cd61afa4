"""Puts the measured times of several ranks on one clock, by the communication that they share.

How much later than the first one a rank began, its start offset, is known then. Why is not: its recording may have
begun later, or the rank was late. No change scales it, so that a changed run says how long it takes without.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ...converter.ranks import MatchedTimes, awaits_all, begin_of_ranks
from ...schema.columns import ABSENT, Bool, Int64, time_text
from ...schema.graph import ExecutionGraph, NodeType
from .rendezvous import MatchedNodes, match_nodes
from .workload import Workload, gather

log = logging.getLogger("execgraph")

NOTEWORTHY_PCT = 1.0
"""A smaller share of the run hardly changes an answer."""
WHY = "recording began later, or the rank was late: not known"


def on_one_clock(work: Workload, nodes: MatchedNodes) -> Workload:
    """Returns the workload with each rank's measured times, and waits from its start, moved to when the rank began.

    O(m log m) in the m matched nodes, plus O(n).
    """
    rows = np.arange(len(work))
    offset = begin_of_ranks(len(work.graphs), _attendance(work, nodes))
    begin = offset[work.ranks_of(rows)]
    timed, rooted = work.is_timed, is_rooted(work)
    return replace(
        work,
        measured_start_ns=np.where(timed, work.measured_start_ns + begin, ABSENT),
        measured_end_ns=np.where(timed, work.measured_end_ns + begin, ABSENT),
        wait_ns=work.wait_ns + np.where(rooted, begin, 0),
        start_offset_ns=offset,
    )


def _attendance(work: Workload, nodes: MatchedNodes) -> MatchedTimes:
    timed = work.is_timed[nodes.row]
    row = nodes.row[timed]
    return MatchedTimes(
        rank=work.ranks_of(row),
        matched=nodes.matched[timed],
        start_ns=work.measured_start_ns[row],
        end_ns=work.measured_end_ns[row],
        is_message=np.concatenate([graph.type for graph in work.graphs])[row] != NodeType.COMM_COLL,
        mutual=await_each_other(work, row),
    )


def await_each_other(work: Workload, row: Int64) -> Bool:
    """Returns which nodes are of collectives that end only after all members have arrived: those without a root."""
    kind = np.concatenate([graph.collective_types() for graph in work.graphs])[row]
    types = np.concatenate([graph.type for graph in work.graphs])[row]
    return np.asarray((types == NodeType.COMM_COLL) & awaits_all(kind))


class StartOffset(NamedTuple):
    """The largest start offset of a run's ranks, in ns, and how long the run takes if no rank has one."""

    rank: str
    offset_ns: int
    makespan_without_ns: int

    @property
    def text(self) -> str:
        """Says what no change scales."""
        return f"the start offset of rank {self.rank}, {time_text(self.offset_ns / 1000)}, is as measured ({WHY})"


def largest_offset(work: Workload) -> tuple[str, int]:
    """Returns the rank that began last, and how many ns later than the first one."""
    last = int(work.start_offset_ns.argmax())
    return work.rank_labels()[last], int(work.start_offset_ns[last])


def is_noteworthy(work: Workload, makespan_ns: int) -> bool:
    """Returns whether start offsets are large enough to change answers."""
    return largest_offset(work)[1] >= NOTEWORTHY_PCT / 100 * max(makespan_ns, 1)


def is_rooted(work: Workload) -> Bool:
    """Returns which nodes depend on nothing."""
    return np.asarray(np.bincount(work.target, minlength=len(work)) == 0)


def without_offsets(work: Workload) -> Workload:
    """Returns the workload of ranks that begin all at once."""
    offset = np.where(is_rooted(work), work.start_offset_ns[work.ranks_of(np.arange(len(work)))], 0)
    return replace(work, wait_ns=work.wait_ns - offset)


class GatheredJob(NamedTuple):
    """The columns of all ranks of a job on one clock, and the nodes that meet."""

    work: Workload
    members: MatchedNodes


def gather_job(graphs: Sequence[ExecutionGraph]) -> GatheredJob:
    """Gathers the graphs of a job's ranks; O(n + e), and O(m log m) in their communication."""
    members = match_nodes(graphs)
    work = on_one_clock(gather(graphs), members)
    if work.missing_dependencies:
        log.warning("warning: ignored dependencies on nodes that the graph lacks: %d", work.missing_dependencies)
    return GatheredJob(work, members)
