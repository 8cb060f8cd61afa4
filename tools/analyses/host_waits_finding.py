"""Calls in which the host waits for the device, so that it cannot launch ahead."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ...schema.columns import Ns, Rows, group_sums, time_text
from ...schema.errors import Remedy, Words
from ...schema.graph import DependencyKind
from .finding import Change, Finding
from .findings_job import Job, is_of_kind
from .pageable_copies import are_pageable_copies

NAMED, STEP = 3, "ProfilerStep#"
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


class _Waited(NamedTuple):
    """How long a rank waited in calls of one kind, and that in words."""

    ns: int
    text: str


def host_waits(job: Job) -> list[Finding]:
    """Returns a finding if the run would be shorter without the waits of the host for its device.

    A thread that launches nothing may wait as it likes. Waits at the end of the run cost nothing in a replay, either,
    and those for copies from pageable memory are told by `pageable_copies`. If a profiler slowed the host, results that
    are read are named even without a gain: a host that is ahead of its device waits longer for them.
    """
    work = job.work
    launched = is_of_kind(work, DependencyKind.LAUNCH) & ~work.is_activity[work.source]
    launches = np.isin(work.lane, work.lane[work.source[launched]])
    is_wait = is_of_kind(work, DependencyKind.HOST_SYNC) & ~work.is_activity[work.target] & launches[work.target]
    is_wait &= ~are_pageable_copies(job)[work.source]
    if not is_wait.any():
        return []
    waited, names = _waited_ns(job), job.texts(lambda rank: rank.op)
    functions, calls = job.texts(lambda rank: rank.function), job.texts(lambda rank: rank.graph.name)
    sites: dict[str, list[int]] = defaultdict(list)
    for node in np.unique(work.target[is_wait]).tolist():
        op, function = (column[node] if column.codes[node] >= 0 else "" for column in (names, functions))
        op = "" if op.startswith(STEP) else CALLED.get(op, op)
        name = " in ".join(filter(None, (calls[node], op)))
        sites[f"{name} ({function})" if function else name].append(node)
    worst = {site: _worst_rank(job, np.array(nodes), waited) for site, nodes in sites.items()}
    longest = sorted((site for site in sites if worst[site].ns), key=lambda site: -worst[site].ns)
    parts = [f"{worst[site].text} of {site}" for site in longest[:NAMED]]
    gain, advice = job.gain(Change(np.ones(len(work)), is_wait)), ADVICE
    if not gain.is_worth_it:
        return _reads(job, sites)
    if longest and longest[0].partition(" in ")[2].startswith(OF_TRANSFERS):
        advice = OF_GLOO
    more = f" and elsewhere ({len(longest) - NAMED} more)" if len(longest) > NAMED else ""
    return [
        Finding(
            "The host stops to wait for the device",
            gain,
            f"{', '.join(parts)}{more}",
            advice if (functions.codes >= 0).any() else f"{advice}. {HOW_TO_NAME}",
            "idle_time_breakdown",
            "Fewer synchronising calls",
        )
    ]


def _reads(job: Job, sites: Mapping[str, Sequence[int]]) -> list[Finding]:
    """Returns a finding without a gain on results that are read at least once a step, if a profiler slowed the host."""
    reads = {
        site: len(nodes) for site, nodes in sites.items() if site.partition(" in ")[2].startswith((*CALLED.values(),))
    }
    steps = max(len(rank.step_starts) for rank in job.ranks)
    if job.recording is None or not job.recording.is_known or sum(reads.values()) < max(steps, 1):
        return []
    names = sorted({called for site in reads for called in CALLED.values() if called in site})
    parts = [f"{_calls(count)} of {site}" for site, count in sorted(reads.items(), key=lambda item: -item[1])]
    return [
        Finding(
            f"Each step reads results of the device: {', '.join(names)}",
            None,
            f"{', '.join(parts[:NAMED])}; the recording slowed the host, so that little was left to wait for. A host that is ahead "
            "of its device waits for all that it launched",
            ADVICE,
            "idle_time_breakdown",
        )
    ]


def _waited_ns(job: Job) -> Ns:
    """Returns for each node the time from the end of the node before on its thread to its start."""
    work, replay = job.work, job.replay
    before = np.zeros(len(work), np.int64)
    order = is_of_kind(work, DependencyKind.PROGRAM_ORDER)
    np.maximum.at(before, work.target[order], replay.end_ns[work.source[order]])
    return np.maximum(np.where(before > 0, replay.start_ns - before, 0), 0)


def _worst_rank(job: Job, nodes: Rows, waited: Ns) -> _Waited:
    """Returns the rank that waited longest in these nodes."""
    ranks = job.work.ranks_of(nodes)
    waited_ns = group_sums(ranks, waited[nodes], len(job.ranks))
    worst = int(waited_ns.argmax())
    of_rank = f" on rank {job.ranks[worst].rank}" if len(job.ranks) > 1 else ""
    calls = _calls(int((ranks == worst).sum()))
    return _Waited(int(waited_ns[worst]), f"{time_text(waited_ns[worst] / 1000)}{of_rank} in {calls}")


def _calls(count: int) -> str:
    return "1 call" if count == 1 else f"{count:,} calls"
