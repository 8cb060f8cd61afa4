"""Ranks that name the same device, which may be one device that they share."""

from collections import defaultdict

from ..terminal import ranges
from .finding import Finding
from .findings_job import Job


def shared_device(job: Job) -> list[Finding]:
    """Returns a finding for each device number of several ranks, where none of them communicates on a device.

    NCCL and RCCL refuse two ranks on one device, so ranks that communicate by them have a device each.
    """
    if len(job.ranks) < 2 or any(row["communication"] for row in job.rows("communication_computation_overlap")):
        return []
    ranks: dict[int, list[int]] = defaultdict(list)
    for row in job.rows("temporal_breakdown"):
        ranks[int(str(row["device"]))].append(int(str(row["rank"])))
    return [
        Finding(
            f"Ranks {ranges(sorted(of_device))} may share one device: each names device {device}",
            None,
            "If they share it, one rank's busy time holds waits for the other's kernels, and the device is idle less "
            "than each row says. The traces name no device beyond its number, so they do not show which it is",
            "Give each rank a device of its own; if each has one, there is nothing to do",
            "temporal_breakdown",
        )
        for device, of_device in sorted(ranks.items())
        if len(of_device) > 1
    ]
