"""The op that a run without a device spends most of its time in."""

from collections import defaultdict

import numpy as np

from ...schema.columns import Bool, time_text
from ..replay import NodeClass
from .finding import Finding
from .findings_job import Job
from .pauses import are_pauses

TWICE_AS_FAST = 0.5
COMPUTES = "Check the number of threads (OMP_NUM_THREADS, torch.set_num_threads), use bf16 or torch.compile, or a GPU"
DESCRIBES = (
    "It computes nothing, so that its time is the cost of calling it, {:,} times here: torch.compile leaves most such calls "
    "out, and larger batches need fewer"
)
VIEW, ALLOCATES = "-> Tensor(a)", "aten::empty"
"""How schemas of views end, and how names of ops that only get memory begin."""


def heaviest_op(job: Job) -> list[Finding]:
    """Returns a finding if a run on the CPU alone would be shorter with its heaviest op twice as fast.

    What pauses take is not the op's.
    """
    times: dict[str, float] = defaultdict(float)
    for row in job.rows("host_time_per_op"):
        times[str(row["name"])] += float(str(row["self"]))
    names, is_pause = job.texts(lambda rank: rank.graph.name), are_pauses(job)
    for node in np.flatnonzero(is_pause).tolist():
        times[names[node]] -= float(job.work.duration_ns[node]) / 1000
    ops = [name for name in times if name.startswith("aten::") and times[name] > 0]
    if job.is_on_device or not ops:
        return []
    heaviest = max(ops, key=lambda name: times[name])
    chosen = names.equal(heaviest) & (job.work.node_class == NodeClass.HOST) & ~is_pause
    time_us = float(job.work.duration_ns[chosen].sum()) / 1000
    return [
        Finding(
            f"{heaviest} is the heaviest op",
            job.gain_of_scaling(np.where(chosen, TWICE_AS_FAST, 1.0)),
            f"{100 * times[heaviest] / sum(times.values()):.0f} % of the time in ops, {time_text(time_us)}",
            COMPUTES if not _only_describes(job, heaviest, chosen) else DESCRIBES.format(int(chosen.sum())),
            "host_time_per_op",
            "That op at twice its speed",
        )
    ]


def _only_describes(job: Job, op: str, chosen: Bool) -> bool:
    """Returns whether an op returns a view of its input, by its schema, or memory without values."""
    schemas = job.texts(lambda rank: rank.graph.texts("op_schema"))
    with_schema = np.flatnonzero(chosen & (schemas.codes >= 0))
    return op.startswith(ALLOCATES) or (len(with_schema) > 0 and schemas[int(with_schema[0])].endswith(VIEW))
