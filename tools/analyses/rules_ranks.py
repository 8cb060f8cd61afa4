"""Rules on the ranks of a job: communication that it waits for, a rank that the others wait for, ranks that are absent,
begin late, or may share a device; and on what their traces record and lack: time that nothing explains, what calls
waited for, records that could not be used, and the most memory that was in use.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator

import numpy as np

from ...converter.ranks import recorded_groups
from ...schema.columns import ABSENT, Bool, Categorical, Ns, Rows, bytes_text, group_sums, rows_of_each, time_text
from ...schema.errors import Remedy
from ...schema.graph import CollectiveType, Delay
from ...schema.reasons import Counts, in_words
from ..replay import NodeClass, shortest_members
from ..sync_records_advice import SETTING
from ..terminal import absent_in_words, ranges
from .job import LEAST_PCT, Finding, Job, counted
from .over_time import BEFORE

FULL_SPEED = 0.5
"""A transfer below this share of the best bandwidth of its kind is too small for the network to reach its speed."""
SIZES_NAMED = 3
"""Of transfers of more sizes than this one median is told."""
NO_GROUP = "unnamed group"
OF_PARAMETERS = (CollectiveType.ALL_REDUCE, CollectiveType.ALL_GATHER, CollectiveType.REDUCE_SCATTER)
"""The collectives of gradients and parameters, whose sizes data parallelism chooses."""
OWN_WORK = (NodeClass.HOST, NodeClass.COMPUTATION, NodeClass.MEMORY)
SEVERAL = 2
"""A rank that comes last less often than this may have been late by chance."""
NOTABLE = 1.05
"""A class of work that takes so many times the median over ranks is named as the reason."""
CAUSES = {
    Delay.LOST_RECORDS: "where records are missing",
    Delay.CONTENTION: "in which the device was full",
    Delay.START_OF_RECORDING: "in which work from before the recording was still running",
    Delay.UNEXPLAINED: "for no known reason",
}
NAMED = 3
LEAST_SHARE = 0.02
NOT_KNOWN = (
    "its recording may have begun later, or the rank was late. The traces do not show which, so no gain is given"
)
INFERRED = (
    "It is inferred from the order and time of calls. Gains can then be off by several times as much as with records"
)
IF_SHARED = (
    "If they share it, one rank's busy time holds waits for the other's kernels, and the device is idle less than each "
    "row says. The traces name no device beyond its number, so they do not show which it is"
)


def exposed_communication(job: Job) -> Iterator[Finding]:
    """Finds each process group without whose transfers the run would be shorter.

    Waiting for ranks that come late is not part of a transfer, as all members are replayed together; of ranks that are
    absent it is.
    """
    communicates = job.work.node_class == NodeClass.COMMUNICATION
    if not communicates.any():
        return
    labels, members = _labels(job), job.work.members
    # how long each transfer takes, without waiting for members that come late
    transfer_ns = job.work.duration_ns.copy()
    np.minimum.at(transfer_ns, members.row, shortest_members(members, job.work.duration_ns))
    absent = [f"this includes waiting for {counted(job.absent, 'absent rank')}"] if job.absent else []
    for code in np.unique(labels.codes[communicates]).tolist():
        chosen = communicates & (labels.codes == code)
        gain = job.gain(np.where(chosen, 0.0, 1.0))
        if gain.is_worth_it:
            faster_pct = job.gain(np.where(chosen, 0.5, 1.0)).pct
            faster = f"at twice the bandwidth the run would be {faster_pct:.0f} % shorter"
            yield Finding(
                f"Communication of {labels.table[code] or NO_GROUP} is not hidden behind computation",
                gain,
                [_transfers(job, chosen, transfer_ns), faster, *absent],
                _advice_on_transfers(job, chosen, transfer_ns),
                "collectives_over_ranks_by_group",
                "Hiding that communication",
            )


def _labels(job: Job) -> Categorical:
    """Returns the group of each communication by its purpose, if recorded, and its ranks; names differ by rank."""
    of_ranks = []
    for rank in job.ranks:
        groups, purpose = recorded_groups(rank.graph), rank.graph.texts("pg_desc")
        members = [f"ranks {ranges(sorted(ranks))}" if ranks else "" for ranks in groups.lists] + [""]
        purposes = [*purpose.table, ""]
        keys, label = np.unique(np.stack((purpose.codes, groups.of_node)), axis=1, return_inverse=True)
        pairs = [(purposes[code], members[group]) for code, group in keys.T.tolist()]
        table = [f"{name} ({ranks})" if name and ranks else name or ranks for name, ranks in pairs]
        of_ranks.append(Categorical(label.reshape(-1).astype(np.int32), table))
    return Categorical.joined(of_ranks)


def _transfers(job: Job, chosen: Bool, transfer_ns: Ns) -> str:
    """Returns how many transfers a rank takes part in, and how long those of each size take."""
    size, time, ranks = job.integers("comm_size", ABSENT)[chosen], transfer_ns[chosen], job.rank_of_node[chosen]
    of_each_rank = " on each rank" if len(np.unique(ranks)) > 1 else ""
    count, sizes = f"{counted(np.bincount(ranks).max(), 'transfer')}{of_each_rank}", np.unique(size).tolist()
    if len(sizes) > SIZES_NAMED or ABSENT in sizes:
        return f"{count} of {time_text(float(np.median(time)) / 1000)} (median)"
    parts = [f"{bytes_text(each)} in {time_text(float(np.median(time[size == each])) / 1000)}" for each in sizes[::-1]]
    return f"{count}, of {' and '.join(filter(None, (', '.join(parts[:-1]), parts[-1])))} (medians)"


def _advice_on_transfers(job: Job, chosen: Bool, transfer_ns: Ns) -> str:
    """Returns what helps: larger transfers where these are too small for the network, else overlap or bandwidth."""
    work, size = job.work, job.integers("comm_size", ABSENT)
    has_size = chosen & (size > 0) & (transfer_ns > 0)
    bandwidth = size[has_size] / transfer_ns[has_size]
    is_small = bandwidth < FULL_SPEED * bandwidth.max(initial=0.0)
    full, small = group_sums(is_small.astype(np.int64), transfer_ns[has_size], 2).tolist()
    if small > full:
        of_parameters = np.isin(job.integers("comm_type", ABSENT)[has_size], OF_PARAMETERS).all()
        merge = "merge them (DDP: bucket_cap_mb, gradient accumulation)" if of_parameters else "send fewer, larger ones"
        return f"Most of this time goes to transfers too small for the network's speed: {merge}; more bandwidth would help little"
    if work.duration_ns[work.node_class == NodeClass.COMPUTATION].sum() >= transfer_ns[chosen].sum():
        return (
            "Overlap it: start it earlier and wait later (DDP buckets, FSDP prefetch, async_op=True); there is enough "
            "computation to hide it. Else send less (bf16, gradient accumulation)"
        )
    return (
        "There is too little computation to hide it: send less (bf16, gradient accumulation), or use a faster network"
    )


def straggler(job: Job) -> Iterator[Finding]:
    """Finds whether the run would be shorter with the slowest rank as fast as the median one.

    The first meeting of each rank does not count: who comes late there may only have begun to record late.
    """
    if len(job.ranks) < 2:
        return
    meetings, (awaited_ns, last) = _meetings(job), np.zeros((2, len(job.ranks)), np.int64)
    # by rank how long the others waited for it, and how often it came last
    for nodes in meetings:
        arrival, latest = job.replay.start_ns[nodes], int(job.replay.start_ns[nodes].argmax())
        awaited_ns[job.rank_of_node[nodes[latest]]] += int(arrival[latest] - np.median(np.delete(arrival, latest)))
        last[job.rank_of_node[nodes[latest]]] += 1
    slowest = int(awaited_ns.argmax())
    # ranks that are alike take turns in being late
    awaited = int(awaited_ns[slowest] - np.median(np.delete(awaited_ns, slowest)))
    of_slowest = job.rank_of_node == slowest
    is_own_work = np.isin(job.work.node_class, OWN_WORK) & of_slowest
    if awaited <= 0 or last[slowest] < SEVERAL or not is_own_work.any():
        return
    span = int(job.replay.end_ns[of_slowest].max()) - int(job.replay.start_ns[is_own_work].min(initial=0))
    ratios = _ratios(job, slowest)
    advice = (
        "Compare its host work with another rank's: data loading, logging, CPU pinning, other processes on that machine"
    )
    if NodeClass.COMPUTATION in ratios:
        advice = "Balance the work (batch, sequence lengths, experts), or check that device: clocks, temperature, other users"
    facts = [
        f"its {node_class.label} work takes {ratio:.2f} times as long as that of the others"
        for node_class, ratio in ratios.items()
    ]
    count = f"{len(meetings)} collectives without the first"
    later = f"{time_text(awaited / 1000)} later than the others in all, at {count}"
    yield Finding(
        f"The other ranks wait for rank {job.ranks[slowest].rank}, whose own work takes longer",
        job.gain(np.where(is_own_work, max(1 - awaited / max(span, 1), 0.0), 1.0)),
        [later, *facts],
        advice,
        "collectives_over_ranks_waits_by_rank",
        "Balanced ranks",
    )


def _meetings(job: Job) -> list[Rows]:
    """Returns the members of each collective that ranks wait for, in order of time, without any rank's first."""
    members, seen, later = job.work.members, set[int](), []
    is_collective = job.integers("comm_type", -1)[members.row] >= 0
    rows, matched = members.row[is_collective], members.matched[is_collective]
    meetings = (rows[chosen] for chosen in rows_of_each(matched).values())
    for nodes in sorted(meetings, key=lambda nodes: int(job.replay.end_ns[nodes].max())):
        ranks = set(job.rank_of_node[nodes].tolist())
        if len(ranks) > 1 and ranks <= seen:
            later.append(nodes)
        seen |= ranks
    return later


def _ratios(job: Job, rank: int) -> dict[NodeClass, float]:
    """Returns how many times the median of the other ranks each class of the rank's work takes, where it is notable."""
    ratios = {}
    for node_class in OWN_WORK:
        chosen = job.work.node_class == node_class
        times = group_sums(job.rank_of_node[chosen], job.work.duration_ns[chosen], len(job.ranks))
        median_ns = float(np.median(np.delete(times, rank)))
        ratio = float(times[rank]) / median_ns if median_ns else 0.0
        if times[rank] > 0.01 * job.replay.makespan_ns and ratio >= NOTABLE:
            ratios[node_class] = ratio
    return ratios


def absent_ranks(job: Job) -> Iterator[Finding]:
    """Finds whether the job had more ranks than there are traces."""
    if job.absent > 0:
        named = absent_in_words((rank.rank for rank in job.ranks), job.world_size)
        verb = "is" if job.absent == 1 else "are"
        yield Finding(
            f"{job.absent:,} of the job's {job.world_size:,} ranks {verb} absent",
            None,
            [f"The replay waits for none of them ({named}), and which rank held up which is known for the others only"],
            "Give the traces of all ranks",
            "collectives_over_ranks",
        )


def late_start(job: Job) -> Iterator[Finding]:
    """Finds whether a rank's first record is much later than the first rank's, which may only be its recording."""
    rank, begin_us = latest_begin(job)
    if begin_us and 100 * begin_us >= LEAST_PCT * job.recorded_us:
        yield Finding(
            f"Rank {rank} begins {time_text(begin_us)} after the first rank",
            None,
            [f"{100 * begin_us / job.recorded_us:.0f} % of the recorded run", NOT_KNOWN],
            "Begin to record on all ranks behind a barrier, and record several steps: then only what is really late is left",
            "critical_path_by_rank",
        )


def latest_begin(job: Job) -> tuple[int, float]:
    """Returns the rank that begins last, and how long (µs) after the first one; 0 of a single rank."""
    begins = [(row["begins"], -position, row["rank"]) for position, row in enumerate(job.rows("critical_path_by_rank"))]
    begin_us, _, rank = max(begins, default=(0.0, 0, -1))
    return rank, begin_us if len(begins) > 1 else 0.0


def shared_device(job: Job) -> Iterator[Finding]:
    """Finds each device number of several ranks, where none of them communicates on a device.

    NCCL and RCCL refuse two ranks on one device, so ranks that communicate by them have a device each.
    """
    if len(job.ranks) < 2 or any(row["communication"] for row in job.rows("communication_computation_overlap")):
        return
    ranks_of = defaultdict[int, list[int]](list)
    for row in job.rows("temporal_breakdown"):
        ranks_of[row["device"]].append(row["rank"])
    for device, ranks in sorted(ranks_of.items()):
        if len(ranks) > 1:
            yield Finding(
                f"Ranks {ranges(sorted(ranks))} may share one device: each names device {device}",
                None,
                [IF_SHARED],
                "Give each rank a device of its own; if each has one, there is nothing to do",
                "temporal_breakdown",
            )


def unexplained_time(job: Job) -> Iterator[Finding]:
    """Finds whether delays, or starts that depend on nothing, are much of the critical path of one rank."""
    delays = job.path_us.get(NodeClass.DELAY.label, 0.0)
    # what several ranks begin late is told by late_start
    starts = job.unexplained_us - delays if len(job.ranks) == 1 else 0.0
    if 100 * (delays + starts) < LEAST_PCT * job.length_us:
        return
    cause, causes = job.integers("delay"), Counter[int]()
    for node in np.flatnonzero(job.work.node_class == NodeClass.DELAY).tolist():
        causes[int(cause[node])] += int(job.work.duration_ns[node])
    facts = [
        f"{time_text(ns / 1000)} {CAUSES.get(Delay(code), '')}" for code, ns in causes.most_common() if code and ns
    ]
    if starts:
        facts.append(
            f"{time_text(starts)} before the first work of a thread or stream, which waits for nothing recorded"
        )
    yield Finding(
        f"For {100 * (delays + starts) / job.length_us:.0f} % of the run the traces do not show what it waited for",
        None,
        facts,
        "Record the host trace, synchronisation records and all threads (execgraph.capture does), for several steps",
        "critical_path",
    )


def missing_records(job: Job) -> Iterator[Finding]:
    """Finds ranks that have waits for events or streams, and no record that names these."""
    if ranks := sorted(rank.rank for rank in job.ranks if rank.lacks_sync_records):
        yield Finding(
            f"The traces of rank{'s' * (len(ranks) > 1)} {ranges(ranks)} do not record what calls waited for",
            None,
            [INFERRED],
            f"Record with execgraph.capture, or give the profiler {SETTING}",
            "idle_time_breakdown",
        )


def lost_records(job: Job) -> Iterator[Finding]:
    """Finds whether many records could not be used."""
    dropped = Counter(Counts().add(*(rank.dropped for rank in job.ranks)))
    count = sum(dropped.values())
    if 100 * count >= LEAST_PCT * len(job.work):
        more = [f"and {len(dropped) - NAMED} more reasons"] if len(dropped) > NAMED else []
        yield Finding(
            f"{counted(count, 'record')} of the traces could not be used",
            None,
            [*(f"{in_words(reason)}: {number:,}" for reason, number in dropped.most_common(NAMED)), *more],
            f"{Remedy.DIAGNOSE} says what is wrong with the files; a shorter recording loses less",
            "notes",
        )


def memory_peaks(job: Job) -> Iterator[Finding]:
    """Finds the device with the highest peak of allocated memory, if that was recorded, and who allocated it.

    Memory that never grew has no peak: what a CUDA graph allocates, for one, it keeps from its capture on.
    """
    devices = [row for row in job.rows("memory_timeline_peak") if row["device"] >= 0 and row["peak"] != row["before"]]
    if not devices:
        return
    highest = max(devices, key=lambda row: float(row["peak"]))
    device, rank, peak = highest["device"], highest["rank"], float(highest["peak"])
    live = [row for row in job.rows("memory_timeline_live") if (row["rank"], row["device"]) == (rank, device)]
    shares = [
        f"{'' if row['op'] == BEFORE else 'by '}{row['op']} {100 * row['size'] / peak:.0f} %"
        for row in live[:NAMED]
        if row["size"] > LEAST_SHARE * peak
    ]
    yield Finding(
        f"Memory peaks at {bytes_text(peak)} on device {device} of rank {rank}",
        None,
        [f"Allocated {', '.join(shares)}" if shares else f"In {highest['step'] or 'no step'}"],
        "If memory limits the batch: checkpoint activations, zero gradients to None, shard the optimizer's state",
        "memory_timeline_live",
    )


RULES = (
    exposed_communication,
    straggler,
    late_start,
    unexplained_time,
    lost_records,
    missing_records,
    absent_ranks,
    shared_device,
    memory_peaks,
)
