"""Rules on the host: its own work, launches of small kernels, work between steps, data loading, waits for the device.

A copy back to the host is a wait for a result, whatever memory it goes to.
"""

import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from ...converter.timeline import IDLE
from ...schema import columns
from ...schema.columns import Bool, Categorical, Floats, Int64, Ns, Rows, group_sums, groupby, rows_of_each
from ...schema.device_peaks import pinned_rate
from ...schema.errors import Remedy
from ...schema.graph import DEVICE_NAME, DependencyKind
from ...schema.linked import NEVER, STEP_MARK, USER_SCOPE
from .. import replay as replays
from ..replay import Cause, NodeClass, waits_of
from .finding_words import Found, Said, Sentence
from .job import ATEN, Finding, Gain, Job, is_of_kind

FEWEST_LAUNCHES = 20
"""Fewer launches than this are no loop over small kernels."""
FEW_AT_ONCE = 8
"""What launches more activities at once launches a CUDA graph."""
INTERRUPTION = 10
"""Host work of more than so many times the median before a launch is something else than launching."""
TWICE_AS_FAST = 0.5
WAITS = 0.2
"""A loop that waits for its data for a larger share of a step leaves cores to others: nobody takes them from it."""
VIEW, ALLOCATES = "-> Tensor(a)", "aten::empty"
"""How schemas of views end, and how names of ops that only get memory begin."""
FEWEST_CALLS = 5
"""Of fewer calls none can be told to be unusual."""
UNUSUAL = 20
"""A pause takes more than so many times the median of its op and shapes."""
NAMED, LEAST_OF_WAITS = 3, 0.01
"""So many pauses, or sites of waits, are named, the latter from this share of all on."""
LONG, COMPILED = 0.1, "## Call CompiledFxGraph"
"""Time without ops is named from this share of a step on, unless compiled kernels run in it."""
OF_TRANSFERS = ("gloo:", "c10d::")
PARTS = re.compile(
    r"ProfilerStep#|Optimizer\.|enumerate\(|DistributedDataParallel|Torch-Compiled|##|\w+:|"
    r"(forward|backward|optimizer|loss|train)( (pass|step))?$",
    re.IGNORECASE,
)
"""How annotations begin that PyTorch makes, or that name what each loop does."""
LEAST_PART, MOST_PART, ANNOTATIONS = 0.03, 0.5, 64
"""The share of the run of an annotation that may be there by mistake, and how many annotations are looked at."""
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
    values |= {"graph": Said.CUDA_GRAPH if job.is_on_gpu else Said.DEVICE_GRAPH}
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
    advice: object = Said.LOAD_FASTER if is_ahead else Said.LOAD_AHEAD if job.is_on_device else Said.LOAD_ON_CPU
    if not job.is_on_device:  # a process that loads ahead needs a core
        gain = gain._replace(least_us=None, most_us=None)
        if run and run.has_no_free_core:
            busy = (run.own_cpu_us + run.others_cpu_us) / run.step_without_profiler_us
            advice = Said.NO_FREE_CORE.of(busy=busy, cores=run.cores)
    values = {
        "spec": shlex.quote(question) if question else "",
        "advice": advice,
        "time": gain.in_its_unit(times_us[longest]),
        "rank": job.rank_named(longest),
        "recorded": gain.in_its_unit(recorded_us[longest]) if recorded_us[longest] != times_us[longest] else "",
        "why": Said.LESS_RECORDED if is_slowed and is_ahead and recorded_us[longest] < times_us[longest] else "",
    }
    yield Finding(Found.DATA_LOADER, gain, "host_phases", values)


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


def heaviest_work(job: Job) -> Iterator[Finding]:
    """Finds whether a run on the CPU alone would be shorter with its heaviest op, or optimizer, twice as fast."""
    if job.is_on_device:
        return
    is_pause = usual_ns(job)[1]
    is_work = (job.work.node_class == NodeClass.HOST) & ~is_pause
    is_op = is_work & job.names.where(lambda name: name.startswith(ATEN))
    times_ns = np.bincount(job.names.codes[is_op], job.recorded.work.duration_ns[is_op], len(job.names.table))
    if not times_ns.any():
        return
    heaviest = job.names.table[int(times_ns.argmax())]
    chosen = is_op & job.names.equal(heaviest)
    # it computes nothing if it returns a view of its input, by its schema, or memory without values
    schemas = Categorical.joined(rank.graph.texts("op_schema") for rank in job.ranks)
    with_schema = np.flatnonzero(chosen & (schemas.codes >= 0))
    is_view = len(with_schema) > 0 and schemas[int(with_schema[0])].endswith(VIEW)
    is_cheap = is_view or heaviest.startswith(ALLOCATES)
    advice = Said.CALL_LESS.of(count=int(chosen.sum())) if is_cheap else Said.COMPUTE_FASTER
    phase = np.concatenate([replays.phases_of(rank.graph) for rank in job.ranks])
    of_optimizer = is_work & (phase == [*replays.Phase].index(replays.Phase.OPTIMIZER))
    for what, part in [(Found.HEAVIEST_OP, chosen), *[(Found.OPTIMIZER, of_optimizer)] * bool(of_optimizer.any())]:
        ranks, runs = job.rank_of_node[part], (job.work, job.recorded.work)
        times_us, recorded_us = (np.bincount(ranks, run.duration_ns[part]) / 1000 for run in runs)
        gain, longest = job.gain(np.where(part, TWICE_AS_FAST, 1.0)), int(times_us.argmax())
        values = {
            "op": heaviest, "time": gain.in_its_unit(times_us[longest]), "rank": job.rank_named(longest),
            "pct": 100 * times_us[longest] / job.length_us,
            "recorded": gain.in_its_unit(recorded_us[longest]) if recorded_us[longest] != times_us[longest] else "",
            "advice": advice, "slow": int((is_pause & job.names.equal(heaviest)).sum()) or None,
        }  # fmt: skip
        yield Finding(what, gain, "host_time_per_op", values)


def annotated_work(job: Job) -> Iterator[Finding]:
    """Finds how much shorter a run on the CPU alone would be without the work in an annotation of the program."""
    if job.is_on_device:
        return
    is_named = np.concatenate([rank.graph.integers("scope") == USER_SCOPE for rank in job.ranks]) & ~job.in_loader
    names = [job.names.table[code] for code in np.unique(job.names.codes[is_named]).tolist()]
    found, most = None, LEAST_PART
    for name in [name for name in names if not PARTS.match(name)][:ANNOTATIONS]:
        question = f"{replays.UNDER}^{re.escape(name)}$=0".replace("\\ ", " ")
        change = replays.parse_scale(question)
        inside = np.concatenate([change.matches(rank.graph, replays.node_classes(rank.graph)) for rank in job.ranks])
        of_ranks = np.bincount(job.rank_of_node, inside * job.work.duration_ns)
        if most <= (share := float(of_ranks.max()) / 1000 / job.length_us) <= MOST_PART:
            found, most = (name, question, inside), share
    if found:
        name, question, inside = found
        gain = job.gain_of(question, np.where(inside, 0.0, 1.0), np.zeros(len(job.work.source), np.bool_))
        values = {"name": name, "pct": 100 * most, "spec": shlex.quote(question)}
        yield Finding(Found.ANNOTATED_WORK, gain, "host_time_per_op", values)


def crowded_cores(job: Job) -> Iterator[Finding]:
    """Finds whether other processes keep cores busy that a loop on a CPU could use. Their share bounds the gain."""
    run = job.work.unprofiled
    # other ranks on the same machine are other processes, too
    if job.is_on_device or job.world_size > 1 or len(job.ranks) > 1 or run is None or not run.is_crowded:
        return
    if run.data_wait_us > WAITS * run.step_without_profiler_us:
        return
    own, others = (us / run.step_without_profiler_us for us in (run.own_cpu_us, run.others_cpu_us))
    share = run.lost_share
    gain = Gain(share * job.length_us, 100 * share, steps=run.steps)
    shares = len(waits_of(job.recorded.work)[0]) > 0
    said = {"whose": Said.OF_LOADER, "advice": Said.FREE_CORES} if shares else {"whose": "", "advice": Said.OTHER_JOBS}
    yield Finding(Found.CROWDED_CORES, gain, "host_phases", {**said, "own": own, "others": others, "cores": run.cores})


def pauses(job: Job) -> Iterator[Finding]:
    """Finds whether the run would be shorter without pauses, calls far longer than usual, such as first ones."""
    median_ns, is_pause = usual_ns(job)
    if not is_pause.any():
        return
    work, names, nodes = job.work, job.names, np.flatnonzero(is_pause)
    longest = nodes[np.argsort(-work.duration_ns[nodes], kind="stable")].tolist()
    times_us, usual_us = work.duration_ns / 1000, median_ns / 1000
    first, shown = longest[0], longest[:NAMED]
    title = Said.ONE_PAUSE if len(longest) == 1 else Said.SEVERAL_PAUSES
    values: dict[str, object] = {"title": title.of(op=names[first], count=len(longest), time=times_us[first])}
    values["advice"] = Said.WARM_UP if job.is_on_device else Said.RECORD_MORE
    last, more = shown[-1], len(longest) - len(shown) or None
    facts = [
        Said.PAUSE.of(time=times_us[node], op=names[node], usual=usual_us[node], more=more if node == last else None)
        for node in shown
    ]
    gain = job.gain(np.where(is_pause, median_ns / np.maximum(work.duration_ns, 1), 1.0))
    yield Finding(Found.PAUSES, gain, "host_time_per_op", values, facts)


def usual_ns(job: Job) -> tuple[Floats, Bool]:
    """Returns the median time of calls of each node's op and shapes, NaN if unknown, and whether the node is a pause.

    That is the longest part of a call that takes many times as long. Short parts are left out, so none are compared.
    Where a device computes, launching takes as long for all shapes, and calls need none to be compared.
    """
    work = job.work
    median_ns, is_pause = np.full(len(work), np.nan), np.zeros(len(work), np.bool_)
    is_op = job.names.where(lambda name: name.startswith(ATEN)) & (work.node_class == NodeClass.HOST)
    nodes = np.flatnonzero(is_op)
    calls = groupby(job.rank_of_node[nodes], job.calls[nodes])
    time, first = calls.sum(work.duration_ns[nodes]), nodes[calls.first]
    kinds = groupby(job.names.codes[first], job.shapes.codes[first])
    order, count = np.lexsort((time, kinds.number)), kinds.count()
    is_known = (count >= FEWEST_CALLS) & (job.is_on_device or job.shapes.where(lambda shape: shape != "").any())
    median = np.where(is_known, time[order[np.cumsum(count) - count + count // 2]], np.nan)[kinds.number]
    median_ns[nodes] = median[calls.number]
    for call in np.flatnonzero((median > 0) & (time > UNUSUAL * median)).tolist():
        of_call = nodes[calls.number == call]
        is_pause[of_call[work.duration_ns[of_call].argmax()]] = True
    return median_ns, is_pause


def without_ops(job: Job) -> Iterator[Finding]:
    """Finds whether the run would be shorter without annotations of hardly any op and long stretches without ops."""
    work, least_ns = job.work, LONG * job.replay.makespan_ns / max(1, *(len(rank.step_starts) for rank in job.ranks))
    is_host, is_idle = ~job.in_loader & (work.node_class == NodeClass.HOST), job.names.equal(IDLE)
    # other threads may wait for what is not recorded
    ops_ns = np.bincount(work.lane, work.duration_ns * (is_host & ~is_idle), len(work.lanes))
    is_stretch = is_host & is_idle & (work.duration_ns >= least_ns) & (2 * ops_ns[work.lane] > ops_ns.max())
    is_named = ~job.names.where(lambda name: name.startswith((STEP_MARK, COMPILED)))
    nodes = np.flatnonzero(is_host & is_named & (job.integers("scope") == USER_SCOPE))
    calls = groupby(job.rank_of_node[nodes], job.calls[nodes])
    # recording lengthens what lies between ops: beside a device, which waits for it, only what has none counts
    is_long = (calls.sum(work.duration_ns[nodes]) >= least_ns) & ((calls.count() == 1) | (not job.is_on_device))
    nodes = np.append(nodes[is_long[calls.number]], np.flatnonzero(is_stretch & (not job.is_on_device)))
    label = np.where(is_idle, -1, job.names.codes)[nodes]
    total_us = Counter[str]()
    for row in job.rows("host_time_per_op"):
        total_us[row["name"]] += row["total"]
    for code in np.unique(label).tolist():
        chosen, name = np.isin(np.arange(len(work)), nodes[label == code]), job.names.table[code]
        if code >= 0 and job.recorded.work.duration_ns[chosen].sum() < 1000 * total_us[name] / 2:
            continue
        times_us = np.bincount(job.rank_of_node[chosen], work.duration_ns[chosen]) / 1000
        gain, longest, time_us = job.gain(np.where(chosen, 0.0, 1.0)), int(times_us.argmax()), float(times_us.max())
        where = Said.OF_STEPS if code < 0 else Said.MOST_OF.of(name=name)
        values = {"where": where, "time": gain.in_its_unit(time_us), "rank": job.rank_named(longest)}
        yield Finding(Found.WITHOUT_OPS, gain, "host_phases", values)


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
    small_kernels, host_waits, data_loader, idle_between_steps, pageable_copies, heaviest_work, annotated_work, crowded_cores, without_ops,
    pauses,
)  # fmt: skip
