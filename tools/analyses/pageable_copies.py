"""Copies from pageable memory of the host to the device, which the driver has to move twice.

A copy back to the host is a wait for a result, whatever memory it goes to; host_waits reports it.
"""

import numpy as np

from ...schema.columns import Bool, rows_by_number, time_text
from ...schema.graph import DEVICE_NAME, DependencyKind
from ...schema.machine import pinned_rate
from ..replay import NodeClass
from .finding import Change, Finding
from .findings_job import Job, is_of_kind
from .table import Floats


def pageable_copies(job: Job) -> list[Finding]:
    """Returns a finding if the run would be shorter with copies that the host need not stay with.

    The calls then take as long as other launches, the host waits for none of these copies, and they are as fast as the
    device's connection to the host, where that is known.
    """
    work, copies = job.work, are_pageable_copies(job)
    if not copies.any():
        return []
    launch = is_of_kind(work, DependencyKind.LAUNCH) & ~work.is_activity[work.source]
    calls = np.unique(work.source[launch & copies[work.target]])
    others = np.setdiff1d(work.source[launch], calls)
    other_call_ns = float(np.median(work.duration_ns[others])) if len(others) else 0.0
    factor = _pinned(job, copies)
    factor[calls] = np.minimum(other_call_ns / np.maximum(work.duration_ns[calls], 1), 1.0)
    waits = is_of_kind(work, DependencyKind.HOST_SYNC) & copies[work.source]
    time = (work.duration_ns[copies].sum() + work.duration_ns[calls].sum()) / 1000
    return [
        Finding(
            "Copies to the device use pageable memory",
            job.gain(Change(factor, waits)),
            f"{_copies(int(copies.sum()))} {time_text(time)} on the device and in the calls that start them",
            "Pin the host's memory: DataLoader(pin_memory=True) or tensor.pin_memory(), then copy with non_blocking=True. "
            "Measure it: beside workers of a DataLoader pinning takes time from them",
            "counters_summary",
            "Pinned memory",
        )
    ]


def _pinned(job: Job, copies: Bool) -> Floats:
    """Returns for each node by what its duration is multiplied if these copies are made from pinned memory."""
    factor, work = np.ones(len(job.work)), job.work
    moved, device = job.integers("tensor_size"), job.integers("device", -1)
    for position, rank in enumerate(job.ranks):
        rank_copies = np.flatnonzero(copies & (job.rank_of_node == position) & (moved > 0) & (work.duration_ns > 0))
        for number, rows in rows_by_number(rank_copies, device).items():
            rate = pinned_rate(str(rank.graph.metadata.get(f"{DEVICE_NAME}{number}", "")))
            if rate:
                factor[rows] = np.minimum(moved[rows] / rate / work.duration_ns[rows], 1.0)
    return factor


def are_pageable_copies(job: Job) -> Bool:
    """Returns which nodes copy from pageable memory to a device."""
    names = job.texts(lambda rank: rank.graph.name)
    return np.asarray((job.work.node_class == NodeClass.MEMORY) & names.where(lambda name: "Pageable ->" in name))


def _copies(count: int) -> str:
    return "1 copy takes" if count == 1 else f"{count:,} copies take"
