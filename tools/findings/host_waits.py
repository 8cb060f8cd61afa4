"""Calls in which the host waits for the device, so that it cannot launch ahead."""

from collections import defaultdict

import numpy as np

from ...schema.columns import Ns, time_text
from ...schema.graph import DependencyKind
from .job import Change, Finding, Job, is_of_kind

NAMED, STEP = 3, "ProfilerStep#"
ADVICE = (
    "Read results less often: .item(), .cpu(), nonzero() and printing a loss wait for all work before; keep values on the "
    "device, copy with non_blocking=True"
)
HOW_TO_NAME = "trace-report --modules names the Python functions"


def host_waits(job: Job) -> list[Finding]:
    """Returns a finding if the run would be shorter without the waits of the host for its device.

    A thread that launches nothing may wait as it likes. Waits at the end of the run cost nothing in a replay, either.
    """
    work = job.work
    launched = is_of_kind(work, DependencyKind.LAUNCH) & ~work.is_activity[work.source]
    launches = np.isin(work.lane, work.lane[work.source[launched]])
    is_wait = is_of_kind(work, DependencyKind.HOST_SYNC) & ~work.is_activity[work.target] & launches[work.target]
    if not is_wait.any():
        return []
    waited, names = _waited_ns(job), job.texts(lambda rank: rank.op)
    functions, calls = job.texts(lambda rank: rank.function), job.texts(lambda rank: rank.graph.name)
    sites: dict[str, list[int]] = defaultdict(list)
    for node in np.unique(work.target[is_wait]).tolist():
        op, function = (column[node] if column.codes[node] >= 0 else "" for column in (names, functions))
        op = "" if op.startswith(STEP) else op
        name = " in ".join(filter(None, (calls[node], op)))
        sites[f"{name} ({function})" if function else name].append(node)
    time = {site: int(waited[nodes].sum()) for site, nodes in sites.items()}
    longest = sorted(filter(time.get, sites), key=lambda site: -time[site])
    parts = [f"{time_text(time[site] / 1000)} in {_calls(len(sites[site]))} of {site}" for site in longest[:NAMED]]
    more = f" and elsewhere ({len(longest) - NAMED} more)" if len(longest) > NAMED else ""
    return [
        Finding(
            "The host stops to wait for the device",
            job.gain(Change(np.ones(len(work)), is_wait)),
            f"{', '.join(parts)}{more}",
            ADVICE if (functions.codes >= 0).any() else f"{ADVICE}. {HOW_TO_NAME}",
            "idle_time_breakdown",
            "Fewer synchronising calls",
        )
    ]


def _waited_ns(job: Job) -> Ns:
    """Returns for each node the time from the end of the node before on its thread to its start."""
    work, replay = job.work, job.replay
    before = np.zeros(len(work), np.int64)
    order = is_of_kind(work, DependencyKind.PROGRAM_ORDER)
    np.maximum.at(before, work.target[order], replay.end_ns[work.source[order]])
    return np.maximum(np.where(before > 0, replay.start_ns - before, 0), 0)


def _calls(count: int) -> str:
    return "1 call" if count == 1 else f"{count:,} calls"
