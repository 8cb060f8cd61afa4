"""Rules on what the traces record and lack: time that nothing explains, what calls waited for, records that could not
be used, and the most memory that was in use.
"""

from collections import Counter
from collections.abc import Iterator

import numpy as np

from ...schema.columns import bytes_text, time_text
from ...schema.counts import Counts
from ...schema.errors import Remedy
from ...schema.graph import Delay
from ...schema.reasons import in_words
from ..replay import NodeClass
from ..sync_records_advice import SETTING
from ..terminal import ranges
from .job import LEAST_PCT, Finding, Job, counted
from .over_time import BEFORE

CAUSES = {
    Delay.LOST_RECORDS: "where records are missing",
    Delay.CONTENTION: "in which the device was full",
    Delay.START_OF_RECORDING: "in which work from before the recording was still running",
    Delay.UNEXPLAINED: "for no known reason",
}
NAMED = 3
LEAST_SHARE = 0.02


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
            [
                "It is inferred from the order and time of calls. Gains can then be off by several times as much as with records"
            ],
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
