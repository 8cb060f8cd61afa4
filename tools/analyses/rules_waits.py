"""Rules on waiting for the device: calls in which the host waits, so that it cannot launch ahead, and copies from
pageable memory to the device, which the driver has to move twice.

A copy back to the host is a wait for a result, whatever memory it goes to.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from ...schema.columns import Bool, Floats, Ns, Rows, group_sums, rows_by_number, time_text
from ...schema.device_peaks import pinned_rate
from ...schema.errors import Remedy, Words
from ...schema.graph import DEVICE_NAME, DependencyKind
from ...schema.linked import STEP_MARK
from ..replay import NodeClass
from .job import Finding, Job, counted, is_of_kind

NAMED = 3
ADVICE = (
    "Read results less often: .item(), .cpu(), nonzero() and printing a loss wait for all work before; keep values on the "
    "device, copy with non_blocking=True"
)
OF_TRANSFERS = ("gloo:", "c10d::")
OF_GLOO = (
    "gloo sends tensors of a GPU through the memory of the host, and waits for the copies: use NCCL where each rank has a GPU, or "
    "start transfers earlier"
)
CALLED = {
    "aten::item": ".item()",
    "aten::_local_scalar_dense": ".item()",
    "aten::is_nonzero": "bool(tensor)",
    "aten::nonzero": "nonzero()",
}
"""What programs call the ops that read a result."""
HOW_TO_NAME = Words(Remedy.REPORT_MODULES, " names the Python functions")


class _Site(NamedTuple):
    """Where a program waits: the blocking call, the op that makes it as programs call it, and the Python function, ""
    if not known.
    """

    call: str
    op: str
    function: str

    @property
    def text(self) -> str:
        """The call in its op and function."""
        return f"{self.call}{self.op and f' in {self.op}'}{self.function and f' ({self.function})'}"


def host_waits(job: Job) -> Iterator[Finding]:
    """Finds whether the run would be shorter without the waits of the host for its device.

    A thread that launches nothing may wait as it likes. Waits at the end of the run cost nothing in a replay, either,
    and those for copies from pageable memory are told by `pageable_copies`. If a profiler slowed the host, results that
    are read are named even without a gain: a host that is ahead of its device waits longer for them.
    """
    work = job.work
    launches = np.isin(work.lane, work.lane[work.source[job.launches]])
    is_wait = is_of_kind(work, DependencyKind.HOST_SYNC) & ~work.is_activity[work.target] & launches[work.target]
    is_wait &= ~are_pageable_copies(job)[work.source]
    if not is_wait.any():
        return
    sites, waited_ns = defaultdict[_Site, list[int]](list), _waited_ns(job)
    for node in np.unique(work.target[is_wait]).tolist():
        op = "" if job.ops[node].startswith(STEP_MARK) else job.ops[node]
        sites[_Site(job.names[node], CALLED.get(op, op), job.functions[node])].append(node)
    gain = job.gain(np.ones(len(work)), is_wait)
    if not gain.is_worth_it:
        yield from _reads(job, {site: len(nodes) for site, nodes in sites.items()})
        return
    worst = {site: _worst_rank(job, np.array(nodes), waited_ns) for site, nodes in sites.items()}
    longest = sorted((site for site in sites if worst[site][0]), key=lambda site: -worst[site][0])
    parts = [f"{worst[site][1]} of {site.text}" for site in longest[:NAMED]]
    more = f" and elsewhere ({len(longest) - NAMED} more)" if len(longest) > NAMED else ""
    advice = OF_GLOO if longest and longest[0].op.startswith(OF_TRANSFERS) else ADVICE
    yield Finding(
        "The host stops to wait for the device",
        gain,
        [f"{', '.join(parts)}{more}"],
        advice if (job.functions.codes >= 0).any() else f"{advice}. {HOW_TO_NAME}",
        "idle_time_breakdown",
        "Fewer synchronising calls",
    )


def _reads(job: Job, calls_at: Mapping[_Site, int]) -> Iterator[Finding]:
    """Finds without a gain results that are read at least once a step, if a profiler slowed the host."""
    reads = {site: count for site, count in calls_at.items() if site.op in CALLED.values()}
    steps = max(len(rank.step_starts) for rank in job.ranks)
    if job.recording is None or not job.recording.is_known or sum(reads.values()) < max(steps, 1):
        return
    most = sorted(reads.items(), key=lambda item: -item[1])[:NAMED]
    yield Finding(
        f"Each step reads results of the device: {', '.join(sorted({site.op for site in reads}))}",
        None,
        [
            ", ".join(f"{counted(count, 'call')} of {site.text}" for site, count in most),
            "the recording slowed the host, so that little was left to wait for. A host that is ahead "
            "of its device waits for all that it launched",
        ],
        ADVICE,
        "idle_time_breakdown",
    )


def _waited_ns(job: Job) -> Ns:
    """Returns for each node the time from the end of the node before on its thread to its start."""
    work, replay = job.work, job.replay
    before = np.zeros(len(work), np.int64)
    order = is_of_kind(work, DependencyKind.PROGRAM_ORDER)
    np.maximum.at(before, work.target[order], replay.end_ns[work.source[order]])
    return np.maximum(np.where(before > 0, replay.start_ns - before, 0), 0)


def _worst_rank(job: Job, nodes: Rows, waited: Ns) -> tuple[int, str]:
    """Returns how long (ns) the rank that waited longest in these nodes did so, and that in words."""
    ranks = job.rank_of_node[nodes]
    waited_ns = group_sums(ranks, waited[nodes], len(job.ranks))
    worst = int(waited_ns.argmax())
    calls = counted(int((ranks == worst).sum()), "call")
    return int(waited_ns[worst]), f"{time_text(waited_ns[worst] / 1000)}{job.on_rank(worst)} in {calls}"


def pageable_copies(job: Job) -> Iterator[Finding]:
    """Finds whether the run would be shorter with copies that the host need not stay with.

    The calls then take as long as other launches, the host waits for none of these copies, and they are as fast as the
    device's connection to the host, where that is known.
    """
    work, copies = job.work, are_pageable_copies(job)
    if not copies.any():
        return
    calls = np.unique(work.source[job.launches & copies[work.target]])
    others = np.setdiff1d(work.source[job.launches], calls)
    other_call_ns = float(np.median(work.duration_ns[others])) if len(others) else 0.0
    factor = _pinned(job, copies)
    factor[calls] = np.minimum(other_call_ns / np.maximum(work.duration_ns[calls], 1), 1.0)
    time = (work.duration_ns[copies].sum() + work.duration_ns[calls].sum()) / 1000
    count = int(copies.sum())
    yield Finding(
        "Copies to the device use pageable memory",
        job.gain(factor, is_of_kind(work, DependencyKind.HOST_SYNC) & copies[work.source]),
        [
            f"{'1 copy takes' if count == 1 else f'{count:,} copies take'} {time_text(time)} on the device and in the calls "
            "that start them"
        ],
        "Pin the host's memory: DataLoader(pin_memory=True) or tensor.pin_memory(), then copy with non_blocking=True. "
        "Measure it: beside workers of a DataLoader pinning takes time from them",
        "counters_summary",
        "Pinned memory",
    )


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
    return np.asarray((job.work.node_class == NodeClass.MEMORY) & job.names.where(lambda name: "Pageable ->" in name))
