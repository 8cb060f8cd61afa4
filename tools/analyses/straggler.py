"""A rank that the others wait for, because its own work takes longer."""

from typing import NamedTuple

import numpy as np

from ...schema.columns import Bool, Ns, Rows, group_sums, rows_of_each, time_text
from ..replay import NodeClass
from .finding import Finding
from .findings_job import Job

OWN_WORK = (NodeClass.HOST, NodeClass.COMPUTATION, NodeClass.MEMORY)
SEVERAL = 2
"""A rank that comes last less often than this may have been late by chance."""
NOTABLE = 1.05
"""A class of work that takes so many times the median over ranks is named as the reason."""


class _Lateness(NamedTuple):
    """By rank, how long the others waited for it (ns), how often it came last, and of how many meetings that is."""

    awaited: Ns
    last: Ns
    meetings: int


def straggler(job: Job) -> list[Finding]:
    """Returns a finding if the run would be shorter with the slowest rank as fast as the median one.

    The first meeting of each rank does not count: who comes late there may only have begun to record late.
    """
    if len(job.ranks) < 2:
        return []
    lateness = _lateness(job)
    slowest = int(lateness.awaited.argmax())
    # ranks that are alike take turns in being late
    awaited = int(lateness.awaited[slowest] - np.median(np.delete(lateness.awaited, slowest)))
    is_own_work = np.isin(job.work.node_class, OWN_WORK) & (job.rank_of_node == slowest)
    span = int(job.replay.end_ns[job.rank_of_node == slowest].max()) - int(
        job.replay.start_ns[is_own_work].min(initial=0)
    )
    if awaited <= 0 or lateness.last[slowest] < SEVERAL or not is_own_work.any():
        return []
    gain = job.gain_of_scaling(np.where(is_own_work, max(1 - awaited / max(span, 1), 0.0), 1.0))
    rank = job.ranks[slowest].rank
    return [
        Finding(
            f"The other ranks wait for rank {rank}, whose own work takes longer",
            gain,
            f"{time_text(awaited / 1000)} later than the others in all, at {lateness.meetings} collectives without the first"
            f"{_reason(job, slowest)}",
            _advice(job, slowest),
            "collectives_over_ranks_waits_by_rank",
            "Balanced ranks",
        )
    ]


def _meetings(job: Job) -> list[Rows]:
    """Returns the members of each collective that ranks wait for, in order of time, without any rank's first."""
    members, work = job.gathered.members, job.work
    is_message = job.integers("comm_type", -1)[members.row] < 0
    rows, matched = members.row[~is_message], members.matched[~is_message]
    meetings = sorted(
        (rows[chosen] for chosen in rows_of_each(matched).values()),
        key=lambda nodes: int(job.replay.end_ns[nodes].max()),
    )
    seen: set[int] = set()
    later = []
    for nodes in meetings:
        ranks = set(work.ranks_of(nodes).tolist())
        if len(ranks) > 1 and ranks <= seen:
            later.append(nodes)
        seen |= ranks
    return later


def _lateness(job: Job) -> _Lateness:
    awaited, last = np.zeros((2, len(job.ranks)), np.int64)
    meetings = _meetings(job)
    for nodes in meetings:
        arrival, ranks = job.replay.start_ns[nodes], job.work.ranks_of(nodes)
        latest = int(arrival.argmax())
        awaited[ranks[latest]] += int(arrival[latest] - np.median(np.delete(arrival, latest)))
        last[ranks[latest]] += 1
    return _Lateness(awaited, last, len(meetings))


def _times(job: Job, chosen: Bool) -> Ns:
    return group_sums(job.rank_of_node[chosen], job.work.duration_ns[chosen], len(job.ranks))


def _ratios(job: Job, rank: int) -> dict[str, float]:
    """Returns how many times the median of the ranks each class of the rank's work takes."""
    ratios = {}
    for node_class in OWN_WORK:
        times = _times(job, job.work.node_class == node_class)
        median_ns = float(np.median(np.delete(times, rank)))
        if median_ns and times[rank] > 0.01 * job.replay.makespan_ns:
            ratios[node_class.label] = float(times[rank]) / median_ns
    return ratios


def _reason(job: Job, rank: int) -> str:
    slower = {label: ratio for label, ratio in _ratios(job, rank).items() if ratio >= NOTABLE}
    return "".join(
        f"; its {label} work takes {ratio:.2f} times as long as that of the others" for label, ratio in slower.items()
    )


def _advice(job: Job, rank: int) -> str:
    ratios = _ratios(job, rank)
    if ratios.get(NodeClass.COMPUTATION.label, 0) >= NOTABLE:
        return "Balance the work (batch, sequence lengths, experts), or check that device: clocks, temperature, other users"
    return (
        "Compare its host work with another rank's: data loading, logging, CPU pinning, other processes on that machine"
    )
