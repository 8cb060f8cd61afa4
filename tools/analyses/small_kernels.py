"""Kernels that take less time than the host needs to launch the next one, so that the device waits for the host."""

from typing import NamedTuple

import numpy as np

from ...schema.columns import Bool, Int64, Rows, group_sums, time_text
from ...schema.graph import DependencyKind
from ..replay import NodeClass
from .finding import Finding
from .findings_job import Job, is_of_kind

FEWEST = 20
"""Fewer launches than this are no loop over small kernels."""
PAUSE = 10
"""Host work of more than so many times the median before a launch is something else than launching."""


class _Launches(NamedTuple):
    """The launching nodes, with the host time since the launch before, and the device time of what they launch (ns).

    `group` is the position of the launch that each host node leads to, -1 for none.
    """

    node: Rows
    host: Int64
    device: Int64
    group: Int64
    is_interrupted: Bool


def small_kernels(job: Job) -> list[Finding]:
    """Returns a finding if the run would be shorter without the host work between the launches of small kernels.

    That is what a CUDA graph leaves out, and `torch.compile` for a part: kernels then follow each other as launched at
    once.
    """
    launches = _launches(job)
    if len(launches.node) < FEWEST:
        return []
    median_ns = float(np.median(launches.host))
    is_small = (launches.device < launches.host) & (launches.host <= PAUSE * median_ns) & ~launches.is_interrupted
    if is_small.sum() < FEWEST:
        return []
    gain = job.gain_of_scaling(np.where(np.append(is_small, False)[launches.group], 0.0, 1.0))
    apart, lasting = (float(np.median(column[is_small])) / 1000 for column in (launches.host, launches.device))
    return [
        Finding(
            "The host launches small kernels more slowly than the device runs them",
            gain,
            f"{is_small.sum():,} launches, each of which takes the host {time_text(apart)} and starts {time_text(lasting)} of work on the "
            "device (medians)",
            "Launch many at once: a CUDA graph (torch.cuda.graphs), torch.compile(mode='reduce-overhead'), or larger batches. "
            "Launching a graph takes time, too, and its shapes must not change",
            "launch_statistics_short_kernels",
            "CUDA graphs or torch.compile",
        )
    ]


def _launches(job: Job) -> _Launches:
    work = job.work
    launched = is_of_kind(work, DependencyKind.LAUNCH) & work.is_activity[work.target] & ~work.is_activity[work.source]
    length = len(work)
    device = group_sums(work.source[launched], work.duration_ns[work.target[launched]], length)
    launches = np.zeros(length, np.bool_)
    launches[work.source[launched]] = True
    host = np.flatnonzero(~work.is_activity & work.is_timed & (work.node_class == NodeClass.HOST))
    order = host[np.lexsort((work.measured_start_ns[host], work.lane[host]))]
    # a node leads to the next launch on its thread
    number: Int64 = np.cumsum(launches[order]) - launches[order]
    node = order[launches[order]]
    group = np.full(length, -1)
    lane = np.append(work.lane[node], -1)
    leads: Bool = lane[number] == work.lane[order]
    group[order[leads]] = number[leads]
    waits = np.zeros(length, np.bool_)
    waits[work.target[is_of_kind(work, DependencyKind.HOST_SYNC)]] = True
    blocking = order[leads & (waits | job.flags(lambda rank: rank.in_loader))[order]]
    interrupted = np.zeros(len(node), np.bool_)
    interrupted[group[blocking]] = True
    time = group_sums(number[leads], work.duration_ns[order[leads]], len(node))
    return _Launches(node, time, device[node], group, interrupted)
