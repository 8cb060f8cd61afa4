"""Ranks that begin later than the first one, which may only be their recording."""

import numpy as np

from ...schema.columns import time_text
from .finding import LEAST_PCT, Finding
from .findings_job import Job


def late_start(job: Job) -> list[Finding]:
    """Returns a finding if a rank's first record is much later than that of the first rank."""
    rows = job.rows("critical_path_by_rank")
    begin_us = np.array([row["begins"] for row in rows], np.float64)
    if len(begin_us) < 2 or 100 * begin_us.max() < LEAST_PCT * job.recorded_us:
        return []
    rank = rows[int(begin_us.argmax())]["rank"]
    return [
        Finding(
            f"Rank {rank} begins {time_text(begin_us.max())} after the first rank",
            None,
            f"{100 * begin_us.max() / job.recorded_us:.0f} % of the recorded run; its recording may have begun later, or "
            "the rank was late. The traces do not show which, so no gain is given",
            "Begin to record on all ranks behind a barrier, and record several steps: then only what is really late is left",
            "critical_path_by_rank",
        )
    ]
