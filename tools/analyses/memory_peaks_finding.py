"""The most memory that was in use on a device, and who allocated it."""

from ...schema.columns import bytes_text
from .finding import Finding
from .findings_job import Job

BEFORE = "before the recording"
LEAST_SHARE = 0.02
NAMED = 3


def memory_peaks(job: Job) -> list[Finding]:
    """Returns a finding on the device with the highest peak of allocated memory, if that was recorded.

    Memory that never grew has no peak: what a CUDA graph allocates, for one, it keeps from its capture on.
    """
    devices = [row for row in job.rows("memory_timeline_peak") if int(str(row["device"])) >= 0]
    peaks = [row for row in devices if row["peak"] != row["before"]]
    if not peaks:
        return []
    highest = max(peaks, key=lambda row: float(str(row["peak"])))
    peak, device = float(str(highest["peak"])), (highest["rank"], highest["device"])
    live = [row for row in job.rows("memory_timeline_live") if (row["rank"], row["device"]) == device]
    shares = [
        f"{'' if row['op'] == BEFORE else 'by '}{row['op']} {100 * float(str(row['size'])) / peak:.0f} %"
        for row in live[:NAMED]
        if float(str(row["size"])) > LEAST_SHARE * peak
    ]
    return [
        Finding(
            f"Memory peaks at {bytes_text(peak)} on device {highest['device']} of rank {highest['rank']}",
            None,
            f"Allocated {', '.join(shares)}" if shares else f"In {highest['step'] or 'no step'}",
            "If memory limits the batch: checkpoint activations, zero gradients to None, shard the optimizer's state",
            "memory_timeline_live",
        )
    ]
