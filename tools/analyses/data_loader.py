"""The loop gets its next batch while nothing else goes on."""

import re

import numpy as np

from ...schema.columns import Bool
from ...schema.graph import DependencyKind
from ..replay import NodeClass, Workload
from .finding import Change, Finding
from .findings_job import Job, is_of_kind

PINS = re.compile(r"aten::_?pin_memory$")
"""What PyTorch's loader does in a thread of its own with pin_memory=True."""


def data_loader(job: Job) -> list[Finding]:
    """Returns a finding if the run would be shorter with each batch there when the loop asks for it.

    The loop then neither makes it nor waits for the threads that do, and these, which launch nothing, take no time.
    """
    work, in_loader = job.work, job.flags(lambda rank: rank.in_loader)
    if not in_loader.any():
        return []
    waits, launching = _handed_over(work, in_loader), work.lane[work.source[is_of_kind(work, DependencyKind.LAUNCH)]]
    # without a profiler the wait for them may be part of a time that was measured
    recorded = job.recorded.work
    handing = recorded.lane[recorded.source[_handed_over(recorded, in_loader)]]
    pinning = work.lane[job.texts(lambda rank: rank.graph.name).where(lambda name: PINS.match(name) is not None)]
    threads = np.setdiff1d(np.append(handing, pinning), np.append(launching, work.lane[in_loader]))
    loads = (in_loader | np.isin(work.lane, threads)) & (work.node_class == NodeClass.HOST)
    times_us = np.bincount(work.ranks_of(np.flatnonzero(in_loader)), work.duration_ns[in_loader]) / 1000
    longest = int(times_us.argmax())
    recorded_us = np.bincount(work.ranks_of(np.flatnonzero(in_loader)), recorded.duration_ns[in_loader])[longest] / 1000
    gain = job.gain(Change(np.where(loads, 0.0, 1.0), waits))
    as_recorded = "" if recorded_us == times_us[longest] else f"; {gain.in_its_unit(recorded_us)} as recorded"
    of_rank = f" on rank {job.ranks[longest].rank}" if len(job.ranks) > 1 else ""
    return [
        Finding(
            "The loop waits for its data",
            gain,
            f"{gain.in_its_unit(times_us[longest])}{of_rank} are spent in the data loader, "
            f"{100 * times_us[longest] / job.length_us:.0f} % of the run{as_recorded}",
            "Load batches ahead in other processes: DataLoader(num_workers=4, prefetch_factor=2, "
            "persistent_workers=True, pin_memory=True), with more workers if there are some, or make each sample cheaper",
            "host_phases",
            "Loading batches ahead",
        )
    ]


def _handed_over(work: Workload, in_loader: Bool) -> Bool:
    """Returns which dependencies are of the loader on another thread."""
    return is_of_kind(work, DependencyKind.HANDOFF) & in_loader[work.target]
