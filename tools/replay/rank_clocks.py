"""Puts the measured times of several ranks on one clock, by the communication that they share."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ...converter.ranks import MatchedTimes, awaits_all, begin_of_ranks
from ...schema.columns import ABSENT, Bool, Int64
from ...schema.graph import ExecutionGraph, NodeType
from .rendezvous import MatchedNodes, match_nodes
from .workload import Workload, gather

log = logging.getLogger("execgraph")


def on_one_clock(work: Workload, nodes: MatchedNodes) -> Workload:
    """Returns the workload with each rank's measured times, and waits from its start, moved to when the rank began.

    O(m log m) in the m matched nodes, plus O(n).
    """
    rows = np.arange(len(work))
    begin = begin_of_ranks(len(work.graphs), _attendance(work, nodes))[work.ranks_of(rows)]
    timed, rooted = work.is_timed, np.bincount(work.target, minlength=len(work)) == 0
    return replace(
        work,
        measured_start_ns=np.where(timed, work.measured_start_ns + begin, ABSENT),
        measured_end_ns=np.where(timed, work.measured_end_ns + begin, ABSENT),
        wait_ns=work.wait_ns + np.where(rooted, begin, 0),
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
