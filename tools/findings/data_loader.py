"""The loop gets its next batch while nothing else goes on."""

import numpy as np

from ...schema.columns import time_text
from ..replay import NodeClass
from .job import Finding, Job


def data_loader(job: Job) -> list[Finding]:
    """Returns a finding if the run would be shorter with each batch there when the loop asks for it."""
    work = job.work
    loads = job.flags(lambda rank: rank.in_loader) & (work.node_class == NodeClass.HOST)
    if not loads.any():
        return []
    ranks = np.bincount(job.rank_of_node[loads], work.duration_ns[loads], len(job.ranks)) / 1000
    slowest = job.ranks[int(ranks.argmax())].rank
    of_rank = f" on rank {slowest}" if len(job.ranks) > 1 else ""
    return [
        Finding(
            "The loop waits for its data",
            job.gain_of_scaling(np.where(loads, 0.0, 1.0)),
            f"{time_text(ranks.max())}{of_rank} go by in the data loader, {100 * ranks.max() / job.length_us:.0f} % of the run",
            "Load batches ahead in other processes: DataLoader(num_workers=4, prefetch_factor=2, persistent_workers=True, "
            "pin_memory=True), or make each sample cheaper",
            "host_phases",
            "Loading batches ahead",
        )
    ]
