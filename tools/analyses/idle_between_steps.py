"""The device has nothing to do from the last launch of a step to the first one of the next."""

import numpy as np

from ...schema.columns import Bool, rows_of_each, time_text
from ...schema.graph import DependencyKind
from ...schema.linked import NEVER
from ..replay import NodeClass
from .finding import Finding
from .findings_job import Job, is_of_kind


def idle_between_steps(job: Job) -> list[Finding]:
    """Returns a finding if the run would be shorter without the host's work between the steps.

    What the data loader takes is not counted here.
    """
    between = np.concatenate([_between_steps(job, position) for position in range(len(job.ranks))])
    between &= ~job.flags(lambda rank: rank.in_loader) & (job.work.node_class == NodeClass.HOST)
    if not between.any():
        return []
    time = np.bincount(job.rank_of_node[between], job.work.duration_ns[between], len(job.ranks)) / 1000
    steps = max(len(rank.step_starts) for rank in job.ranks)
    return [
        Finding(
            "The device has nothing to do between steps",
            job.gain_of_scaling(np.where(between, 0.0, 1.0)),
            f"{time_text(time.max())} of host work between the last launch of a step and the first one of the next, in {steps} steps",
            "Move logging, metrics, checkpoints and learning-rate schedules off the path: do them every n-th step or in a thread. "
            "A loader of your own is found by its annotation: record_function('load batch')",
            "step_breakdown",
            "Less host work between steps",
        )
    ]


def _between_steps(job: Job, position: int) -> Bool:
    """Returns which nodes of a rank run between the last launch before a step's mark and the first one after it."""
    work, rank = job.work, job.ranks[position]
    rows = np.arange(len(rank.graph)) + work.first_row[position]
    between = np.zeros(len(rows), np.bool_)
    launched = is_of_kind(work, DependencyKind.LAUNCH)
    launching = np.unique(work.source[launched & (work.ranks_of(work.source) == position)])
    launching = launching[~work.is_activity[launching]] - work.first_row[position]
    if not len(launching) or len(rank.step_starts) < 2:
        return between
    lane, start = work.lane[rows], rank.graph.start_ns
    for thread, nodes in rows_of_each(lane).items():
        launches = np.sort(start[launching[lane[launching] == thread]])
        following = np.searchsorted(launches, rank.step_starts[1:])
        following = np.unique(following[(following > 0) & (following < len(launches))])
        if len(following):
            # between the launch before a mark and the one that follows it
            next_launch = np.searchsorted(launches, start[nodes])
            is_apart = np.append(launches, NEVER)[np.minimum(next_launch, len(launches))] != start[nodes]
            between[nodes] = np.isin(next_launch, following) & is_apart
    return between
