"""Calls of ops on the CPU that took many times as long as others of their op and shapes: pauses, not work."""

import numpy as np

from ...schema.columns import Bool, group_ids, time_text
from ..replay import NodeClass
from .finding import Finding
from .findings_job import Job
from .table import Floats

FEWEST = 5
"""Of fewer calls none can be told to be unusual."""
UNUSUAL = 20
"""A pause takes more than so many times the median of its op and shapes."""
NAMED = 3


def pauses(job: Job) -> list[Finding]:
    """Returns a finding if a run on the CPU alone would be shorter without pauses."""
    is_pause = are_pauses(job)
    if not is_pause.any():
        return []
    work, names = job.work, job.texts(lambda rank: rank.graph.name)
    median_ns = usual_ns(job)
    nodes = np.flatnonzero(is_pause)
    longest = nodes[np.argsort(-work.duration_ns[nodes], kind="stable")]
    times = [time_text(int(time) / 1000) for time in work.duration_ns[longest]]
    first = names[int(longest[0])]
    title = f"One call of {first} took {times[0]}, many times as long as usual"
    if len(longest) > 1:
        title = f"{len(longest):,} calls of ops took many times as long as usual, up to {times[0]}"
    parts = [
        f"{time} in {names[node]}, which usually takes {time_text(float(median_ns[node]) / 1000)}"
        for time, node in zip(times[:NAMED], longest.tolist(), strict=False)
    ]
    more = f", and {len(longest) - NAMED:,} more" if len(longest) > NAMED else ""
    factor = np.where(is_pause, median_ns / np.maximum(work.duration_ns, 1), 1.0)
    return [
        Finding(
            title,
            job.gain_of_scaling(factor),
            f"{'; '.join(parts)}{more}",
            "The op is hardly the cause, but what paused it: another process, the allocator, garbage collection or the "
            "profiler. Record more steps to see whether it happens again, and leave these calls out of comparisons",
            "host_time_per_op",
            "The usual time for these calls",
        )
    ]


def are_pauses(job: Job) -> Bool:
    """Returns which nodes are pauses; none of a run that has devices, for which the host waits."""
    work, median_ns = job.work, usual_ns(job)
    is_pause: Bool = np.zeros(len(work), np.bool_)
    if job.is_on_device:
        return is_pause
    has_median = median_ns > 0
    is_pause[has_median] = work.duration_ns[has_median] > UNUSUAL * median_ns[has_median]
    return is_pause


def usual_ns(job: Job) -> Floats:
    """Returns for each node the median time of the nodes that are the same slice of an op of its name and shapes; NaN
    where that is not known.
    """
    work, names, shapes = job.work, job.texts(lambda rank: rank.graph.name), job.texts(lambda rank: rank.shape)
    is_op = names.where(lambda name: name.startswith("aten::")) & (work.node_class == NodeClass.HOST)
    nodes = np.flatnonzero(is_op)
    median_ns = np.full(len(work), np.nan)
    columns = names.codes.astype(np.int64), shapes.codes.astype(np.int64), job.integers("slice")
    group = group_ids(*(column[nodes] for column in columns))
    order = np.lexsort((work.duration_ns[nodes], group))
    count = np.bincount(group)
    middle = np.cumsum(count) - count + count // 2
    median = np.where(count >= FEWEST, work.duration_ns[nodes][order][middle], np.nan) if len(nodes) else np.empty(0)
    median_ns[nodes] = median[group]
    return median_ns
