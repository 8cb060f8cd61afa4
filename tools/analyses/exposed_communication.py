"""Communication that the run waits for, by process group."""

import numpy as np

from ...converter.ranks import recorded_groups
from ...schema.columns import ABSENT, Bool, Categorical, Ns, bytes_text, group_sums, time_text
from ...schema.graph import CollectiveType
from ..replay import NodeClass
from ..terminal import ranges
from .finding import Finding
from .findings_job import Job

FULL_SPEED = 0.5
"""A transfer below this share of the best bandwidth of its kind is too small for the network to reach its speed."""
SIZES_NAMED = 3
"""Of transfers of more sizes than this one median is told."""
NO_GROUP = "unnamed group"
OF_PARAMETERS = (CollectiveType.ALL_REDUCE, CollectiveType.ALL_GATHER, CollectiveType.REDUCE_SCATTER)
"""The collectives of gradients and parameters, whose sizes data parallelism chooses."""


def exposed_communication(job: Job) -> list[Finding]:
    """Returns a finding for each process group without whose transfers the run would be shorter.

    Waiting for ranks that come late is not part of a transfer, as all members are replayed together; of ranks that are
    absent it is.
    """
    work = job.work
    communicates = work.node_class == NodeClass.COMMUNICATION
    if not communicates.any():
        return []
    labels = _labels(job)
    findings = []
    for code in np.unique(labels.codes[communicates]).tolist():
        chosen = communicates & (labels.codes == code)
        gain = job.gain_of_scaling(np.where(chosen, 0.0, 1.0))
        if gain.is_worth_it:
            faster = job.gain_of_scaling(np.where(chosen, 0.5, 1.0))
            findings.append(
                Finding(
                    f"Communication of {labels.table[code] or NO_GROUP} is not hidden behind computation",
                    gain,
                    f"{_transfers(job, chosen)}; at twice the bandwidth the run would be {faster.pct:.0f} % shorter{_absent(job)}",
                    _advice(job, chosen),
                    "collectives_over_ranks_by_group",
                    "Hiding that communication",
                )
            )
    return findings


def _count(transfers: int) -> str:
    return f"{transfers:,} transfer{'s' * (transfers != 1)}"


def _transfers(job: Job, chosen: Bool) -> str:
    """Returns how many transfers a rank takes part in, and how long those of each size take."""
    size, time, ranks = job.integers("comm_size", ABSENT)[chosen], _transfer_ns(job)[chosen], job.rank_of_node[chosen]
    count = int(np.bincount(ranks).max())
    of_each_rank = " on each rank" if len(np.unique(ranks)) > 1 else ""
    sizes = np.unique(size).tolist()
    if len(sizes) > SIZES_NAMED or ABSENT in sizes:
        return f"{_count(count)}{of_each_rank} of {time_text(float(np.median(time)) / 1000)} (median)"
    parts = [f"{bytes_text(each)} in {time_text(float(np.median(time[size == each])) / 1000)}" for each in sizes[::-1]]
    sizes_in_words = " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
    return f"{_count(count)}{of_each_rank}, of {sizes_in_words} (medians)"


def _transfer_ns(job: Job) -> Ns:
    """Returns how long each node's transfer takes, without waiting for members that come late."""
    members, transfer_ns = job.gathered.members, job.work.duration_ns.copy()
    np.minimum.at(transfer_ns, members.row, members.shortest(job.work.duration_ns)[members.matched])
    return transfer_ns


def _labels(job: Job) -> Categorical:
    """Returns the group of each communication by its purpose, if recorded, and its ranks; names differ by rank."""
    of_ranks = []
    for rank in job.ranks:
        groups, purpose = recorded_groups(rank.graph), rank.graph.texts("pg_desc")
        members = [f"ranks {ranges(sorted(ranks))}" if ranks else "" for ranks in groups.lists] + [""]
        keys, label = np.unique(np.stack((purpose.codes, groups.of_node)), axis=1, return_inverse=True)
        table = [_label([*purpose.table, ""][code], members[group]) for code, group in keys.T.tolist()]
        of_ranks.append(Categorical(label.reshape(-1).astype(np.int32), table))
    return Categorical.joined(of_ranks)


def _label(purpose: str, members: str) -> str:
    return f"{purpose} ({members})" if purpose and members else purpose or members


def _absent(job: Job) -> str:
    absent = job.world_size - len(job.ranks)
    return f"; this includes waiting for {absent:,} absent rank{'s' * (absent > 1)}" if absent else ""


def _advice(job: Job, chosen: Bool) -> str:
    """Returns what helps: fewer and larger transfers where these are too small for the network, else overlap or
    bandwidth.
    """
    work, size, transfer_ns = job.work, job.integers("comm_size", ABSENT), _transfer_ns(job)
    has_size = chosen & (size > 0) & (transfer_ns > 0)
    bandwidth = size[has_size] / transfer_ns[has_size]
    if len(bandwidth):
        is_small = bandwidth < FULL_SPEED * bandwidth.max()
        time = group_sums(is_small.astype(np.int64), transfer_ns[has_size], 2)
        if time[1] > time[0]:
            of_parameters = np.isin(job.integers("comm_type", ABSENT)[has_size], OF_PARAMETERS).all()
            merging = (
                "merge them (DDP: bucket_cap_mb, gradient accumulation)" if of_parameters else "send fewer, larger ones"
            )
            return f"Most of this time goes to transfers too small for the network's speed: {merging}; more bandwidth would help little"
    computing = work.duration_ns[work.node_class == NodeClass.COMPUTATION].sum()
    if computing >= transfer_ns[chosen].sum():
        return (
            "Overlap it: start it earlier and wait later (DDP buckets, FSDP prefetch, async_op=True); there is enough "
            "computation to hide it. Else send less (bf16, gradient accumulation)"
        )
    return (
        "There is too little computation to hide it: send less (bf16, gradient accumulation), or use a faster network"
    )
