"""The op that a run without a device spends most of its time in."""

import numpy as np

from ...schema.columns import time_text
from ..replay import NodeClass
from .job import Finding, Job

TWICE_AS_FAST = 0.5


def heaviest_op(job: Job) -> list[Finding]:
    """Returns a finding if a run on the CPU alone would be shorter with its heaviest op twice as fast."""
    work, op = job.work, job.texts(lambda rank: rank.graph.name)
    is_op = (work.node_class == NodeClass.HOST) & op.where(lambda name: name.startswith("aten::"))
    if job.is_on_device or not is_op.any():
        return []
    time = np.bincount(op.codes[is_op], work.duration_ns[is_op])
    heaviest = int(time.argmax())
    chosen = is_op & (op.codes == heaviest)
    return [
        Finding(
            f"{op.table[heaviest]} is the heaviest op",
            job.gain_of_scaling(np.where(chosen, TWICE_AS_FAST, 1.0)),
            f"{100 * time[heaviest] / time.sum():.0f} % of the time in ops, {time_text(time[heaviest] / 1000)}",
            "Check the number of threads (OMP_NUM_THREADS, torch.set_num_threads), use bf16 or torch.compile, or a GPU",
            "host_time_per_op",
            "That op at twice its speed",
        )
    ]
