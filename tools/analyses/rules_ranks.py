"""Rules on the ranks of a job, communication, stragglers, absent or late ranks; and on what their traces lack."""

from collections import Counter, defaultdict
from collections.abc import Iterator

import numpy as np

from ...converter.ranks import recorded_groups
from ...schema.columns import ABSENT, Bool, Categorical, Ns, Rows, group_sums, rows_of_each
from ...schema.errors import Remedy
from ...schema.graph import CollectiveType, Delay
from ...schema.linked import AUTOGRAD
from ...schema.reasons import LEFT_OUT, Counts
from ..replay import OPTIMIZER, NodeClass, shortest_members
from ..terminal import absent_in_words, ranges
from .finding_words import Found, Said, Sentence
from .job import LEAST_PCT, Finding, Gain, Job
from .over_time import BEFORE

FULL_SPEED = 0.5
"""A transfer below this share of the best bandwidth of its kind is too small for the network to reach its speed."""
SIZES_NAMED = 3
"""Of transfers of more sizes than this one median is told."""
MUCH_MORE, LEAST_EXPOSED_PCT = 2, 5.0
"""Exposed communication is more than its gain if it is so many times as much, and so much of the run."""
UNEVEN = 3
"""Steps are uneven if one takes more than so many times as long as another."""
OF_PARAMETERS = (CollectiveType.ALL_REDUCE, CollectiveType.ALL_GATHER, CollectiveType.REDUCE_SCATTER)
"""The collectives of gradients and parameters, whose sizes data parallelism chooses."""
OWN_WORK = (NodeClass.HOST, NodeClass.COMPUTATION, NodeClass.MEMORY)
SEVERAL = 2
"""A rank that comes last less often than this may have been late by chance."""
NOTABLE = 1.05
"""A class of work that takes so many times the median over ranks is named as the reason."""
NAMED = 3
LEAST_SHARE = 0.02
OF_LATENCY = 1 << 14
"""Fewer bytes than this take less than 2 µs at 10 GB/s, and a collective begins with several µs of latency."""


def exposed_communication(job: Job) -> Iterator[Finding]:
    """Finds each process group without whose transfers the run would be shorter.

    Waiting for late ranks is not part of a transfer, as all members are replayed together; for absent ranks it is.
    """
    communicates = job.work.node_class == NodeClass.COMMUNICATION
    if not communicates.any():
        return
    labels, members = _labels(job), job.work.members
    # how long each transfer takes, without waiting for members that come late
    transfer_ns = job.work.duration_ns.copy()
    np.minimum.at(transfer_ns, members.row, shortest_members(members, job.work.duration_ns))
    absent = [Said.WAITING_FOR_ABSENT.of(count=job.absent)] if job.absent else []
    not_saved = list[Sentence]()
    for code in np.unique(labels.codes[communicates]).tolist():
        chosen = communicates & (labels.codes == code)
        gain = job.gain(np.where(chosen, 0.0, 1.0))
        if gain.is_worth_it:
            faster = Said.TWICE_THE_BANDWIDTH.of(pct=job.gain(np.where(chosen, 0.5, 1.0)).pct)
            advice = _advice_on_transfers(job, chosen, transfer_ns)
            depends_on_bytes = advice not in (Said.MERGE, Said.SEND_FEWER)
            facts = [
                _transfers(job, chosen, transfer_ns),
                *([faster] if depends_on_bytes and not absent else []),
                *absent,
            ]
            if not not_saved:
                # said once, of all groups
                facts += (not_saved := [*_not_saved(job, job.gain(np.where(communicates, 0.0, 1.0)))])
            values = {"group": labels.table[code] or Said.UNNAMED_GROUP, "advice": advice}
            yield Finding(Found.EXPOSED, None if absent else gain, "collectives_over_ranks_by_group", values, facts)


def _not_saved(job: Job, gain: Gain) -> Iterator[Sentence]:
    """Yields why the gain is much less than the exposed communication of the device that has most of it."""
    waited = {row["rank"]: row["waited"] for row in job.rows("collectives_over_ranks_waits_by_rank")}
    devices = job.rows("communication_computation_overlap")
    times = [(row["exposed_communication"], waited.get(row["rank"], 0)) for row in devices]
    exposed_pct, waited_pct = (100 * time_us / job.recorded_us for time_us in max(times, default=(0.0, 0.0)))
    if exposed_pct > max(MUCH_MORE * gain.pct, LEAST_EXPOSED_PCT):
        yield Said.NOT_SAVED.of(exposed=exposed_pct, waited=round(waited_pct) or None)


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


def _transfers(job: Job, chosen: Bool, transfer_ns: Ns) -> Sentence:
    """Returns how many transfers a rank takes part in, and how long those of each size take."""
    size, time, ranks = job.integers("comm_size", ABSENT)[chosen], transfer_ns[chosen], job.rank_of_node[chosen]
    values = {"count": int(np.bincount(ranks).max()), "each": len(np.unique(ranks)) > 1 or None}
    if len(sizes := np.unique(size).tolist()) > SIZES_NAMED or min(sizes) <= 0:
        return Said.TRANSFERS.of(**values, time=float(np.median(time)) / 1000)
    parts = [Said.SIZE.of(size=each, time=float(np.median(time[size == each])) / 1000) for each in sizes[::-1]]
    return Said.TRANSFERS_OF_SIZES.of(**values, sizes=parts[:-1] or parts, last=parts[-1] if parts[1:] else None)


def _advice_on_transfers(job: Job, chosen: Bool, transfer_ns: Ns) -> Said:
    """Returns what helps: larger transfers where these are too small for the network, else overlap or bandwidth."""
    work, size = job.work, job.integers("comm_size", ABSENT)
    has_size = chosen & (size > 0) & (transfer_ns > 0)
    bandwidth = size[has_size] / transfer_ns[has_size]
    is_small = (bandwidth < FULL_SPEED * bandwidth.max(initial=0.0)) | (size[has_size] < OF_LATENCY)
    full, small = group_sums(is_small.astype(np.int64), transfer_ns[has_size], 2).tolist()
    if small > full:
        of_parameters = np.isin(job.integers("comm_type", ABSENT)[has_size], OF_PARAMETERS).all()
        return Said.MERGE if of_parameters else Said.SEND_FEWER
    if work.duration_ns[work.node_class == NodeClass.COMPUTATION].sum() >= transfer_ns[chosen].sum():
        return Said.OVERLAP
    return Said.SEND_LESS


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
    advice = Said.BALANCE if NodeClass.COMPUTATION in ratios else Said.COMPARE_HOSTS
    values = {"rank": job.ranks[slowest].rank, "time": awaited / 1000, "count": len(meetings), "advice": advice}
    gain = job.gain(np.where(is_own_work, max(1 - awaited / max(span, 1), 0.0), 1.0))
    facts = [Said.WORK_TAKES.of(work=node_class.label, ratio=ratio) for node_class, ratio in ratios.items()]
    yield Finding(Found.STRAGGLER, gain, "collectives_over_ranks_waits_by_rank", values, facts)


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
        values = {"absent": job.absent, "ranks": job.world_size, "named": named}
        yield Finding(Found.ABSENT_RANKS, None, "collectives_over_ranks", values)


def late_start(job: Job) -> Iterator[Finding]:
    """Finds whether a rank's first record is much later than the first rank's, which may only be its recording."""
    rank, begin_us = latest_begin(job)
    # where rows are wrong or without a call, nothing shows when a rank began
    if begin_us and 100 * begin_us >= LEAST_PCT * job.recorded_us and not job.lost_work:
        values = {"rank": rank, "time": begin_us, "pct": 100 * begin_us / job.recorded_us}
        yield Finding(Found.LATE_START, None, "critical_path_by_rank", values)


def uneven_steps(job: Job) -> Iterator[Finding]:
    """Finds whether a rank's longest step takes several times as long as its shortest: a mean then is of neither."""
    steps = defaultdict[int, list[float]](list)
    table = "step_breakdown" if job.is_on_device else "host_phases"
    for row in job.rows(table):
        steps[row["rank"]].append(row["time"])
    least, most = max(
        ((min(us), max(us)) for us in steps.values()), key=lambda ends: ends[1] / max(ends[0], 1.0), default=(0.0, 0.0)
    )
    if most > UNEVEN * least:
        yield Finding(Found.UNEVEN_STEPS, None, table, {"least": least, "most": most})


def latest_begin(job: Job) -> tuple[int, float]:
    """Returns the rank that begins last, and how long (µs) after the first one; 0 of a single rank."""
    begins = [(row["begins"], -position, row["rank"]) for position, row in enumerate(job.rows("critical_path_by_rank"))]
    begin_us, _, rank = max(begins, default=(0.0, 0, -1))
    return rank, begin_us if len(begins) > 1 else 0.0


def shared_device(job: Job) -> Iterator[Finding]:
    """Finds device numbers of several ranks, where none uses NCCL or RCCL, which refuse two ranks on one device."""
    if len(job.ranks) < 2 or any(row["communication"] for row in job.rows("communication_computation_overlap")):
        return
    ranks_of = defaultdict[int, list[int]](list)
    for row in job.rows("temporal_breakdown"):
        ranks_of[row["device"]].append(row["rank"])
    for device, ranks in sorted(ranks_of.items()):
        if len(ranks) > 1:
            yield Finding(Found.SHARED_DEVICE, None, "temporal_breakdown", {"ranks": sorted(ranks), "device": device})


def unexplained_time(job: Job) -> Iterator[Finding]:
    """Finds whether delays, or starts that depend on nothing, are much of the critical path of one rank."""
    delays = job.path_us.get(NodeClass.DELAY.label, 0.0)
    # what several ranks begin late is told by late_start
    starts = job.unexplained_us - delays if len(job.ranks) == 1 else 0.0
    if 100 * (delays + starts) < LEAST_PCT * job.length_us or job.lost_work:
        return
    cause, causes = job.integers("delay"), Counter[int]()
    for node in np.flatnonzero(job.work.node_class == NodeClass.DELAY).tolist():
        causes[int(cause[node])] += int(job.work.duration_ns[node])
    facts = [Said.DELAY.of(time=ns / 1000, cause=Delay(code)) for code, ns in causes.most_common() if code and ns]
    if starts:
        facts.append(Said.UNKNOWN_STARTS.of(time=starts))
    pct = 100 * (delays + starts) / job.length_us
    yield Finding(Found.UNEXPLAINED, None, "critical_path", {"pct": pct}, facts)


def missing_records(job: Job) -> Iterator[Finding]:
    """Finds ranks that have waits for events or streams, and no record that names these."""
    if ranks := sorted(rank.rank for rank in job.ranks if rank.lacks_sync_records):
        yield Finding(Found.NO_SYNC_RECORDS, None, "idle_time_breakdown", {"count": len(ranks), "ranks": ranks})


def lost_records(job: Job) -> Iterator[Finding]:
    """Finds whether many records could not be used."""
    dropped = Counter(Counts().add(*(rank.dropped.but(LEFT_OUT) for rank in job.ranks)))
    count = sum(dropped.values())
    if 100 * count >= LEAST_PCT * len(job.work):
        facts = [Said.RECORDS.of(reason=reason, count=number) for reason, number in dropped.most_common(NAMED)]
        more = [Said.MORE_REASONS.of(count=len(dropped) - NAMED)] if len(dropped) > NAMED else []
        yield Finding(Found.LOST_RECORDS, None, "notes", {"count": count, "command": Remedy.DIAGNOSE}, facts + more)


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
        (Said.SHARE_BEFORE if row["op"] == BEFORE else Said.SHARE).of(op=row["op"], pct=100 * row["size"] / peak)
        for row in live[:NAMED]
        if row["size"] > LEAST_SHARE * peak
    ]
    trains = job.names.where(lambda name: name.startswith(AUTOGRAD) or bool(OPTIMIZER.search(name))).any()
    advice = Said.SHARD_STATE if trains else Said.FEWER_BITS
    values = {"size": peak, "device": device, "rank": rank, "advice": advice}
    fact = Said.ALLOCATED.of(shares=shares) if shares else Said.PEAK_IN.of(step=highest["step"] or Said.NO_STEP)
    yield Finding(Found.MEMORY_PEAK, None, "memory_timeline_live", values, [fact])


RULES = (
    exposed_communication, straggler, late_start, uneven_steps, unexplained_time, lost_records, missing_records, absent_ranks,
    shared_device, memory_peaks,
)  # fmt: skip
