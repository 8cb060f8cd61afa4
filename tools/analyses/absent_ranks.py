"""Ranks of the job whose traces are not there."""

from ..terminal import absent_in_words
from .finding import Finding
from .findings_job import Job


def absent_ranks(job: Job) -> list[Finding]:
    """Returns a finding if the job had more ranks than there are traces."""
    absent = job.world_size - len(job.ranks)
    if absent <= 0:
        return []
    named = absent_in_words((rank.rank for rank in job.ranks), job.world_size)
    verb = "is" if absent == 1 else "are"
    return [
        Finding(
            f"{absent:,} of the job's {job.world_size:,} ranks {verb} absent",
            None,
            f"The replay waits for none of them ({named}), and which rank held up which is known for the others only",
            "Give the traces of all ranks",
            "collectives_over_ranks",
        )
    ]
