"""Time of the run that no recorded dependency explains."""

from collections import Counter

import numpy as np

from ...schema.columns import time_text
from ...schema.graph import Delay
from ..replay import UNEXPLAINED, NodeClass
from .finding import LEAST_PCT, Finding
from .findings_job import Job

CAUSES = {
    Delay.LOST_RECORDS: "where records are missing",
    Delay.CONTENTION: "in which the device was full",
    Delay.START_OF_RECORDING: "in which work from before the recording was still running",
    Delay.UNEXPLAINED: "for no known reason",
}


def unexplained_time(job: Job) -> list[Finding]:
    """Returns a finding if delays, or starts that depend on nothing, are much of the critical path of one rank."""
    path = job.path_us()
    delays = path.get(NodeClass.DELAY.label, 0.0)
    starts = sum(path.get(kind, 0.0) for kind in UNEXPLAINED) - delays
    # what several ranks begin late is told by late_start
    time = delays + (starts if len(job.ranks) == 1 else 0.0)
    if 100 * time < LEAST_PCT * job.length_us:
        return []
    cause, causes = job.integers("delay"), Counter[int]()
    for node in np.flatnonzero(job.work.node_class == NodeClass.DELAY).tolist():
        causes[int(cause[node])] += int(job.work.duration_ns[node])
    parts = [
        f"{time_text(ns / 1000)} {CAUSES.get(Delay(code), '')}" for code, ns in causes.most_common() if code and ns
    ]
    if starts and len(job.ranks) == 1:
        parts.append(
            f"{time_text(starts)} before the first work of a thread or stream, which waits for nothing recorded"
        )
    return [
        Finding(
            f"For {100 * time / job.length_us:.0f} % of the run the traces do not show what it waited for",
            None,
            "; ".join(parts),
            "Record the host trace, synchronisation records and all threads (execgraph.capture does), for several steps",
            "critical_path",
        )
    ]
