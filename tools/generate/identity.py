"""The numbers by which a rank's process, device, threads and calls are known in its traces."""

from typing import NamedTuple

from .instructions import Group
from .job import Job

BASE_NS = 1_767_225_600_000_000_000
"""The epoch that the device trace's times are relative to: 2026-01-01."""
FIRST_NS = 2_592_000_000_000_000
"""When the run starts after that epoch."""
CORRELATION_STEP = 3
"""Calls that Kineto does not show, such as cudaGetDevice, take correlation ids too."""
DEVICES_PER_NODE = 8


class Identity(NamedTuple):
    """A rank's process: pid, device index, the OS ids of its threads (the main thread's is the pid), and its groups."""

    rank: int
    ranks: int
    pid: int
    device: int
    tids: tuple[int, ...]
    groups: tuple[Group, ...]


def identify(job: Job, rank: int) -> Identity:
    """Returns ids as an operating system might have given them; no two ranks share a pid."""
    pid = 41_000 + 64 * rank
    tids = (pid, *(pid + 20 + thread for thread in range(1, len(job.threads))))
    groups = tuple(group for group in job.groups if rank in group.ranks)
    return Identity(rank, job.ranks, pid, rank % DEVICES_PER_NODE, tids, groups)


def correlation(call: int) -> int:
    """Returns the correlation id of the call in that row."""
    return 1 + CORRELATION_STEP * (call + 1)


def record_function(op: int) -> int:
    """Returns the RecordFunction id of the op in that row; the first one went to the list of process groups."""
    return op + 2
