"""Rules on the host: its own work, launches of small kernels, work between steps, data loading, waits for the device.

A copy back to the host is a wait for a result, whatever memory it goes to.
"""

import math
import re
import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from ...schema import columns
from ...schema.columns import Bool, Int64, Ns, Rows, group_sums, rows_of_each, time_text
from ...schema.device_peaks import pinned_rate
from ...schema.errors import Remedy
from ...schema.graph import DEVICE_NAME, DependencyKind
from ...schema.linked import NEVER, STEP_MARK
from .. import replay as replays
from ..replay import Cause, NodeClass, waits_of
from .finding_words import Found, Said, Sentence
from .job import Finding, Gain, Job, is_of_kind

FEWEST_LAUNCHES = 20
"""Fewer launches than this are no loop over small kernels."""
FEW_AT_ONCE = 8
"""What launches more activities at once launches a CUDA graph."""
INTERRUPTION = 10
"""Host work of more than so many times the median before a launch is something else than launching."""
NAMED, LEAST_OF_WAITS = 3, 0.01
"""So many sites of waits are named, from this share of all on."""
MOST_LOADERS = 16
"""More processes are not advised to load."""
OF_TRANSFERS = ("gloo:", "c10d::")
OF_PROGRAM = ("DeviceSynchronize", "EventSynchronize", "CtxSynchronize")
"""How calls end with which programs wait for no result."""
CALLED = {
    "aten::item": ".item()", "aten::_local_scalar_dense": ".item()", "aten::is_nonzero": "bool(tensor)",
    "aten::nonzero": "nonzero()",
}  # fmt: skip
"""What programs call the ops that read a result."""


class Site(NamedTuple):
    """Where a program waits: the blocking call, its op as programs call it, and its Python function; "" if unknown."""

    call: str
    op: str
    function: str


def small_kernels(job: Job) -> Iterator[Finding]:
    """Finds whether the run would be shorter without the host work between launches of kernels shorter than that.

    That is what a CUDA graph leaves out, and `torch.compile` for a part. The host's work between steps stays.
    """
    work, length = job.work, len(job.work)
    launched = job.launches & work.is_activity[work.target]
    device_ns = group_sums(work.source[launched], work.duration_ns[work.target[launched]], length)
    launches = np.zeros(length, np.bool_)
    launches[work.source[launched]] = True
    host = np.flatnonzero(~work.is_activity & work.is_timed & (work.node_class == NodeClass.HOST))
    order = host[np.lexsort((work.measured_start_ns[host], work.lane[host]))]
    # a node leads to the next launch on its thread: of each the position of that launch, -1 for none
    node = order[launches[order]]
    number: Int64 = np.cumsum(launches[order]) - launches[order]
    leads: Bool = np.append(work.lane[node], -1)[number] == work.lane[order]
    to_next: Int64 = number[leads]
    leads_to = np.full(length, -1)
    leads_to[order[leads]] = to_next
    # the host time since the launch before, and the device time of what was launched
    host_ns, work_ns = group_sums(to_next, work.duration_ns[order[leads]], len(node)), device_ns[node]
    waits = job.in_loader.copy()
    waits[work.target[is_of_kind(work, DependencyKind.HOST_SYNC)]] = True
    interrupted = np.bincount(to_next, waits[order[leads]], len(node)) > 0
    median_ns = float(np.median(host_ns)) if len(node) else 0.0
    is_small = (work_ns < host_ns) & (host_ns <= INTERRUPTION * median_ns) & ~interrupted
    if is_small.sum() < FEWEST_LAUNCHES:
        return
    host_us, device_us = (float(np.median(column[is_small])) / 1000 for column in (host_ns, work_ns))
    gain = job.gain(np.where(np.append(is_small, False)[leads_to] & ~_between_steps(job), 0.0, 1.0))
    at_once = np.bincount(work.source[launched], minlength=length)
    pct = 100 * at_once[at_once > FEW_AT_ONCE].sum() / max(at_once.sum(), 1)
    values = {"count": int(is_small.sum()), "host": host_us, "device": device_us, "pct": pct}
    values |= {"steps": gain.steps, "graph": Said.CUDA_GRAPH if job.is_on_gpu else Said.DEVICE_GRAPH}
    yield Finding(
        Found.BETWEEN_GRAPHS if pct > 50 else Found.SMALL_KERNELS, gain, "launch_statistics_short_kernels", values
    )


def data_loader(job: Job) -> Iterator[Finding]:
    """Finds whether the run would be shorter with each batch there when the loop asks for it."""
    work, recorded, in_loader = job.work, job.recorded.work, job.in_loader
    if not in_loader.any():
        return
    # what other threads of the loader hand over; without a profiler the wait for it may be part of a measured time
    handed_over = is_of_kind(work, DependencyKind.HANDOFF) & in_loader[work.target]
    loads = in_loader & (work.node_class == NodeClass.HOST) | replays.of_loader_threads(recorded, in_loader)
    is_ahead, run = len(waits_of(recorded)[0]) > 0, job.work.unprofiled
    is_slowed = run is not None and run.step_us > run.step_without_profiler_us
    is_named = in_loader & job.names.where(lambda name: replays.LOADER.search(name) is not None)
    question, asked = _question(job, is_named, "" if is_ahead else replays.UNDER), is_named if is_ahead else in_loader
    ranks = job.rank_of_node[asked]
    times_us, recorded_us = (np.bincount(ranks, each.duration_ns[asked]) / 1000 for each in (work, recorded))
    longest = int(times_us.argmax())
    without = np.where(loads, 0.0, 1.0), handed_over
    gain = job.gain_of(question, *without) if question else job.gain(*without)
    advice: object = Said.LOAD_FASTER if is_ahead else Said.LOAD_AHEAD
    if not job.is_on_device:  # a process that loads ahead needs a core
        gain = gain._replace(least_us=None, most_us=None)
        advice = advice if is_ahead else _loading_elsewhere(job, gain, times_us[longest])
    values = {
        "spec": shlex.quote(question) if question else "", "advice": advice, "rank": job.rank_named(longest),
        "time": gain.in_its_unit(times_us[longest]),
        "recorded": gain.in_its_unit(recorded_us[longest]) if recorded_us[longest] != times_us[longest] else "",
        "why": Said.LESS_RECORDED if is_slowed and is_ahead and recorded_us[longest] < times_us[longest] else "",
    }  # fmt: skip
    yield Finding(Found.DATA_LOADER, gain, "host_phases", values)


def _loading_elsewhere(job: Job, gain: Gain, loading_us: float) -> Sentence:
    """Returns whether other processes should load what a loop loads itself in so long, and how many: one where it is
    not known how busy the cores are.
    """
    run, steps = job.recording, max(gain.steps, 1)
    if run and run.has_no_free_core:
        return Said.NO_FREE_CORE.of(busy=run.busy_cores, cores=run.cores)
    rest_us, loading_us = (job.length_us - gain.us) / steps, loading_us / steps
    least_us = replays.with_loaders_us(run, rest_us, loading_us, MOST_LOADERS if run and run.cores else 1)
    count = math.ceil(loading_us / least_us)
    return Said.LOAD_ON_CPU.of(count=count, least=time_text(least_us), what="a step" if gain.steps else "the run")


def _question(job: Job, is_named: Bool, by: str) -> str:
    """Returns the change that leaves out what is named as a loader; "" where no node is."""
    names = {job.names.table[code].partition("#")[0] for code in np.unique(job.names.codes[is_named])}
    pattern = "|".join(re.escape(name).replace("\\ ", " ") for name in sorted(names))
    return f"{by}{f'({pattern})' if len(names) > 1 else pattern}=0" if names else ""


def idle_between_steps(job: Job) -> Iterator[Finding]:
    """Finds whether the run would be shorter without the host's work between steps, while the device has nothing to do.

    What the data loader takes is not counted here.
    """
    between = _between_steps(job) & ~job.in_loader & (job.work.node_class == NodeClass.HOST)
    if not between.any():
        return
    time = np.bincount(job.rank_of_node[between], job.work.duration_ns[between], len(job.ranks)) / 1000
    gain, steps = job.gain(np.where(between, 0.0, 1.0)), max(len(rank.step_starts) for rank in job.ranks)
    yield Finding(Found.BETWEEN_STEPS, gain, "step_breakdown", {"time": gain.in_its_unit(time.max()), "steps": steps})


def _between_steps(job: Job) -> Bool:
    """Returns which nodes lie between the last launch of a step and the first one of the next."""
    work, between = job.work, np.zeros(len(job.work), np.bool_)
    launching = np.unique(work.source[job.launches])
    for position, (rank, first_row) in enumerate(zip(job.ranks, work.first_row.tolist(), strict=True)):
        of_rank, start = launching[job.rank_of_node[launching] == position], rank.graph.start_ns
        lane = work.lane[first_row : first_row + len(start)]
        if not len(of_rank) or len(rank.step_starts) < 2:
            continue
        for thread, nodes in rows_of_each(lane).items():
            launches = np.sort(start[of_rank[work.lane[of_rank] == thread] - first_row])
            following = np.searchsorted(launches, rank.step_starts[1:])
            following = np.unique(following[(following > 0) & (following < len(launches))])
            # between the launch before a mark and the one that follows it
            next_launch = np.searchsorted(launches, start[nodes])
            is_apart = np.append(launches, NEVER)[next_launch] != start[nodes]
            between[first_row + nodes] = np.isin(next_launch, following) & is_apart
    return between


def host_waits(job: Job) -> Iterator[Finding]:
    """Finds whether the run would be shorter without the calls in which the host waits for its device.

    A thread that launches nothing may wait as it likes; `pageable_copies` tells of waits for copies. If a profiler
    slowed the host, results are named even without a gain: a host that is ahead of its device waits longer for them.
    """
    work = job.work
    launches = np.isin(work.lane, work.lane[work.source[job.launches]])
    is_wait = is_of_kind(work, DependencyKind.HOST_SYNC) & ~work.is_activity[work.target] & launches[work.target]
    is_wait &= ~_waits_for_pageable(job)
    if not is_wait.any():
        return
    waited_ns, sites = _waited_ns(job), defaultdict[Site, list[int]](list)
    nodes = np.unique(work.target[is_wait])
    for node in nodes.tolist():
        op = "" if job.ops[node].startswith(STEP_MARK) else job.ops[node]
        sites[Site(job.names[node], CALLED.get(op, op), job.functions[node])].append(node)
    if not job.gain(np.ones(len(work)), is_wait).is_worth_it:
        yield from _reads(job, {site: len(calls) for site, calls in sites.items()})
        return
    gain = job.gain(np.where(np.isin(np.arange(len(work)), nodes), 0.0, 1.0), is_wait)
    time_ns = waited_ns + work.duration_ns
    worst = {site: _worst_rank(job, site, np.array(calls), time_ns) for site, calls in sites.items()}
    least_ns = LEAST_OF_WAITS * time_ns[nodes].sum()
    longest = sorted((site for site in sites if worst[site][0] > least_ns), key=lambda site: -worst[site][0])
    values = {
        "waits": [worst[site][1] for site in longest[:NAMED]],
        "more": max(len(longest) - NAMED, 0) or None,
        "total": _worst_rank(job, None, nodes, time_ns)[1] if len(longest) > NAMED else None,
        "advice": _advice_on(max(sites, key=lambda site: time_ns[sites[site]].sum())),
        "calls": "|".join(sorted({site.call for site in sites})),
        "command": None if (job.functions.codes >= 0).any() else Remedy.REPORT_MODULES,
    }
    yield Finding(Found.HOST_WAITS, gain, "idle_time_breakdown", values)


def _waited_ns(job: Job) -> Ns:
    """Returns how long after the end of the node before on its thread each node starts."""
    work = job.work
    before, order = np.zeros(len(work), np.int64), is_of_kind(work, DependencyKind.PROGRAM_ORDER)
    np.maximum.at(before, work.target[order], job.replay.end_ns[work.source[order]])
    return np.maximum(np.where(before > 0, job.replay.start_ns - before, 0), 0)


def _advice_on(site: Site) -> Said | Sentence:
    """Returns how to do without the waits of a site."""
    if site.op.startswith(OF_TRANSFERS):
        return Said.COPIES_OF_GLOO
    is_of_program = site.call.endswith(OF_PROGRAM) and not site.op
    if "Free" in site.call:
        return Said.KEEP_MEMORY.of(of="HIP" if site.call.startswith("hip") else "CUDA")
    return Said.WAIT_LESS if is_of_program else Said.READ_LESS


def _reads(job: Job, calls_at: Mapping[Site, int]) -> Iterator[Finding]:
    """Finds without a gain results that are read at least once a step, if a profiler slowed the host."""
    reads = {site: count for site, count in calls_at.items() if site.op in CALLED.values()}
    cause, steps = job.recording and job.recording.cause, max(len(rank.step_starts) for rank in job.ranks)
    if cause not in (Cause.HOST_SLOWED, Cause.DEVICES_LIMIT) or sum(reads.values()) < max(steps, 1):
        return
    most = sorted(reads.items(), key=lambda item: -item[1])[:NAMED]
    calls = [Said.CALLS.of(count=count, **site._asdict()) for site, count in most]
    values = {"ops": sorted({site.op for site in reads}), "calls": calls, "advice": Said.READ_LESS}
    yield Finding(Found.READS, None, "idle_time_breakdown", values)


def _worst_rank(job: Job, site: Site | None, nodes: Rows, waited: Ns) -> tuple[int, Sentence]:
    """Returns how long (ns) the rank that waited longest in these nodes did so, and that as a fact; no site: of all."""
    ranks = job.rank_of_node[nodes]
    waited_ns = group_sums(ranks, waited[nodes], len(job.ranks))
    worst = int(waited_ns.argmax())
    values = {"time": waited_ns[worst] / 1000, "rank": job.rank_named(worst), "count": int((ranks == worst).sum())}
    fact = Said.WAITED.of(**values, **site._asdict()) if site else Said.IN_ALL.of(**values)
    return int(waited_ns[worst]), fact


def pageable_copies(job: Job) -> Iterator[Finding]:
    """Finds whether the run would be shorter with copies that take the host as long as other launches, without a wait.

    They are then as fast as the device's connection to the host, where that is known.
    """
    work, copies = job.work, are_pageable_copies(job)
    if not copies.any():
        return
    calls = np.unique(work.source[job.launches & copies[work.target]])
    others = np.setdiff1d(work.source[job.launches], calls)
    other_call_ns = float(np.median(work.duration_ns[others])) if len(others) else 0.0
    factor, moved, device = np.ones(len(work)), job.integers("tensor_size"), job.integers("device", -1)
    has_size = copies & (moved > 0) & (work.duration_ns > 0)
    for position, rank in enumerate(job.ranks):
        of_rank = np.flatnonzero(has_size & (job.rank_of_node == position))
        for number, rows in columns.rows_by_number(of_rank, device).items():
            if rate := pinned_rate(str(rank.graph.metadata.get(f"{DEVICE_NAME}{number}", ""))):
                factor[rows] = np.minimum(moved[rows] / rate / work.duration_ns[rows], 1.0)
    factor[calls] = np.minimum(other_call_ns / np.maximum(work.duration_ns[calls], 1), 1.0)
    gain, waits = job.gain(factor, is_wait := _waits_for_pageable(job)), np.unique(work.target[is_wait])
    waited_us = np.bincount(job.rank_of_node[waits], _waited_ns(job)[waits], len(job.ranks)) / 1000
    longest, time_us = int(waited_us.argmax()), (work.duration_ns[copies].sum() + work.duration_ns[calls].sum()) / 1000
    values: dict[str, object] = {"count": int(copies.sum()), "time": time_us, "waited": None, "rank": None}
    if waited_us[longest] >= time_us:
        values |= {"waited": gain.in_its_unit(waited_us[longest]), "rank": job.rank_named(longest)}
    yield Finding(Found.PAGEABLE_COPIES, gain, "counters_summary", values)


def are_pageable_copies(job: Job) -> Bool:
    """Returns which nodes copy from pageable memory to a device."""
    return np.asarray((job.work.node_class == NodeClass.MEMORY) & job.names.where(lambda name: "Pageable ->" in name))


def _waits_for_pageable(job: Job) -> Bool:
    """Returns which dependencies are waits of the host for such copies that the program itself does not ask for."""
    asked = job.names.where(lambda name: name.endswith(OF_PROGRAM))[job.work.target]
    return is_of_kind(job.work, DependencyKind.HOST_SYNC) & are_pageable_copies(job)[job.work.source] & ~asked


RULES = (
    small_kernels, host_waits, data_loader, idle_between_steps, pageable_copies
)  # fmt: skip
