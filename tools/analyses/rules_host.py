"""Rules on the host's own work: launches of small kernels, between steps and in the data loader; and without a device
the heaviest op and pauses.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ...schema.columns import Bool, Floats, Int64, Rows, group_sums, groupby, rows_of_each, time_text
from ...schema.graph import DependencyKind
from ...schema.linked import NEVER
from ..replay import NodeClass, Workload
from .job import ATEN, Finding, Job, is_of_kind

FEWEST_LAUNCHES = 20
"""Fewer launches than this are no loop over small kernels."""
INTERRUPTION = 10
"""Host work of more than so many times the median before a launch is something else than launching."""
PINS = re.compile(r"aten::_?pin_memory$")
"""What PyTorch's loader does in a thread of its own with pin_memory=True."""
TWICE_AS_FAST = 0.5
COMPUTES = "Check the number of threads (OMP_NUM_THREADS, torch.set_num_threads), use bf16 or torch.compile, or a GPU"
DESCRIBES = (
    "It computes nothing, so that its time is the cost of calling it, {:,} times here: torch.compile leaves most such calls "
    "out, and larger batches need fewer"
)
VIEW, ALLOCATES = "-> Tensor(a)", "aten::empty"
"""How schemas of views end, and how names of ops that only get memory begin."""
FEWEST_CALLS = 5
"""Of fewer calls none can be told to be unusual."""
UNUSUAL = 20
"""A pause takes more than so many times the median of its op and shapes."""
PAUSES_NAMED = 3


class _Launches(NamedTuple):
    """The launching nodes, with the host time since the launch before, and the device time of what they launch (ns).

    `group` is the position of the launch that each host node leads to, -1 for none.
    """

    node: Rows
    host: Int64
    device: Int64
    group: Int64
    is_interrupted: Bool


def small_kernels(job: Job) -> Iterator[Finding]:
    """Finds whether the run would be shorter without the host work between the launches of small kernels, which take
    less time than the host needs to launch the next one.

    That is what a CUDA graph leaves out, and `torch.compile` for a part: kernels then follow each other as launched at
    once.
    """
    launches = _launches(job)
    median_ns = float(np.median(launches.host)) if len(launches.node) else 0.0
    is_small = (launches.device < launches.host) & (launches.host <= INTERRUPTION * median_ns)
    is_small &= ~launches.is_interrupted
    if is_small.sum() < FEWEST_LAUNCHES:
        return
    apart, lasting = (float(np.median(column[is_small])) / 1000 for column in (launches.host, launches.device))
    yield Finding(
        "The host launches small kernels more slowly than the device runs them",
        job.gain(np.where(np.append(is_small, False)[launches.group], 0.0, 1.0)),
        [
            f"{is_small.sum():,} launches, each of which takes the host {time_text(apart)} and starts {time_text(lasting)} of work on the "
            "device (medians)"
        ],
        "Launch many at once: a CUDA graph (torch.cuda.graphs), torch.compile(mode='reduce-overhead'), or larger batches. "
        "Launching a graph takes time, too, and its shapes must not change",
        "launch_statistics_short_kernels",
        "CUDA graphs or torch.compile",
    )


def _launches(job: Job) -> _Launches:
    work, length = job.work, len(job.work)
    launched = job.launches & work.is_activity[work.target]
    device = group_sums(work.source[launched], work.duration_ns[work.target[launched]], length)
    launches = np.zeros(length, np.bool_)
    launches[work.source[launched]] = True
    host = np.flatnonzero(~work.is_activity & work.is_timed & (work.node_class == NodeClass.HOST))
    order = host[np.lexsort((work.measured_start_ns[host], work.lane[host]))]
    # a node leads to the next launch on its thread
    number: Int64 = np.cumsum(launches[order]) - launches[order]
    node, group = order[launches[order]], np.full(length, -1)
    leads: Bool = np.append(work.lane[node], -1)[number] == work.lane[order]
    group[order[leads]] = number[leads]
    waits = np.zeros(length, np.bool_)
    waits[work.target[is_of_kind(work, DependencyKind.HOST_SYNC)]] = True
    interrupted = np.zeros(len(node), np.bool_)
    interrupted[number[leads & (waits | job.in_loader)[order]]] = True
    time = group_sums(number[leads], work.duration_ns[order[leads]], len(node))
    return _Launches(node, time, device[node], group, interrupted)


def data_loader(job: Job) -> Iterator[Finding]:
    """Finds whether the run would be shorter with each batch there when the loop asks for it.

    The loop then neither makes it nor waits for the threads that do, and these, which launch nothing, take no time.
    """
    work, recorded, in_loader = job.work, job.recorded.work, job.in_loader
    if not in_loader.any():
        return
    launching = work.lane[work.source[is_of_kind(work, DependencyKind.LAUNCH)]]
    # without a profiler the wait for them may be part of a time that was measured
    handing = recorded.lane[recorded.source[_handed_over(recorded, in_loader)]]
    pinning = work.lane[job.names.where(lambda name: PINS.match(name) is not None)]
    threads = np.setdiff1d(np.append(handing, pinning), np.append(launching, work.lane[in_loader]))
    loads = (in_loader | np.isin(work.lane, threads)) & (work.node_class == NodeClass.HOST)
    times_us, recorded_us = (
        np.bincount(job.rank_of_node[in_loader], run.duration_ns[in_loader]) / 1000 for run in (work, recorded)
    )
    longest = int(times_us.argmax())
    gain = job.gain(np.where(loads, 0.0, 1.0), _handed_over(work, in_loader))
    time = f"{gain.in_its_unit(times_us[longest])}{job.on_rank(longest)}"
    facts = [f"{time} are spent in the data loader, {100 * times_us[longest] / job.length_us:.0f} % of the run"]
    if recorded_us[longest] != times_us[longest]:
        facts.append(f"{gain.in_its_unit(recorded_us[longest])} as recorded")
    yield Finding(
        "The loop waits for its data",
        gain,
        facts,
        "Load batches ahead in other processes: DataLoader(num_workers=4, prefetch_factor=2, "
        "persistent_workers=True, pin_memory=True), with more workers if there are some, or make each sample cheaper",
        "host_phases",
        "Loading batches ahead",
    )


def _handed_over(work: Workload, in_loader: Bool) -> Bool:
    """Returns which dependencies are of the loader on another thread."""
    return is_of_kind(work, DependencyKind.HANDOFF) & in_loader[work.target]


def idle_between_steps(job: Job) -> Iterator[Finding]:
    """Finds whether the run would be shorter without the host's work between the steps: the device has nothing to do
    from the last launch of a step to the first one of the next. What the data loader takes is not counted here.
    """
    between = np.concatenate([_between_steps(job, position) for position in range(len(job.ranks))])
    between &= ~job.in_loader & (job.work.node_class == NodeClass.HOST)
    if not between.any():
        return
    time = np.bincount(job.rank_of_node[between], job.work.duration_ns[between], len(job.ranks)) / 1000
    steps = max(len(rank.step_starts) for rank in job.ranks)
    yield Finding(
        "The device has nothing to do between steps",
        job.gain(np.where(between, 0.0, 1.0)),
        [
            f"{time_text(time.max())} of host work between the last launch of a step and the first one of the next, in {steps} steps"
        ],
        "Move logging, metrics, checkpoints and learning-rate schedules off the path: do them every n-th step or in a thread. "
        "A loader of your own is found by its annotation: record_function('load batch')",
        "step_breakdown",
        "Less host work between steps",
    )


def _between_steps(job: Job, position: int) -> Bool:
    """Returns which nodes of a rank run between the last launch before a step's mark and the first one after it."""
    work, rank, first_row = job.work, job.ranks[position], job.work.first_row[position]
    lane, start = work.lane[first_row : first_row + len(rank.graph)], rank.graph.start_ns
    between = np.zeros(len(start), np.bool_)
    launching = np.unique(work.source[job.launches])
    launching = launching[job.rank_of_node[launching] == position] - first_row
    if not len(launching) or len(rank.step_starts) < 2:
        return between
    for thread, nodes in rows_of_each(lane).items():
        launches = np.sort(start[launching[lane[launching] == thread]])
        following = np.searchsorted(launches, rank.step_starts[1:])
        following = np.unique(following[(following > 0) & (following < len(launches))])
        # between the launch before a mark and the one that follows it
        next_launch = np.searchsorted(launches, start[nodes])
        is_apart = np.append(launches, NEVER)[next_launch] != start[nodes]
        between[nodes] = np.isin(next_launch, following) & is_apart
    return between


def heaviest_op(job: Job) -> Iterator[Finding]:
    """Finds whether a run on the CPU alone would be shorter with its heaviest op twice as fast.

    What pauses take is not the op's.
    """
    if job.is_on_device:
        return
    times, is_pause = defaultdict[str, float](float), usual_ns(job)[1]
    for row in job.rows("host_time_per_op"):
        times[row["name"]] += row["self"]
    for node in np.flatnonzero(is_pause).tolist():
        times[job.names[node]] -= float(job.work.duration_ns[node]) / 1000
    ops = [name for name in times if name.startswith(ATEN) and times[name] > 0]
    if not ops:
        return
    heaviest = max(ops, key=lambda name: times[name])
    chosen = job.names.equal(heaviest) & (job.work.node_class == NodeClass.HOST) & ~is_pause
    time_us = float(job.work.duration_ns[chosen].sum()) / 1000
    yield Finding(
        f"{heaviest} is the heaviest op",
        job.gain(np.where(chosen, TWICE_AS_FAST, 1.0)),
        [f"{100 * times[heaviest] / sum(times.values()):.0f} % of the time in ops, {time_text(time_us)}"],
        DESCRIBES.format(int(chosen.sum())) if _only_describes(job, heaviest, chosen) else COMPUTES,
        "host_time_per_op",
        "That op at twice its speed",
    )


def _only_describes(job: Job, op: str, chosen: Bool) -> bool:
    """Returns whether an op returns a view of its input, by its schema, or memory without values."""
    schemas = job.texts(lambda rank: rank.graph.texts("op_schema"))
    with_schema = np.flatnonzero(chosen & (schemas.codes >= 0))
    return op.startswith(ALLOCATES) or (len(with_schema) > 0 and schemas[int(with_schema[0])].endswith(VIEW))


def pauses(job: Job) -> Iterator[Finding]:
    """Finds whether a run on the CPU alone would be shorter without pauses: calls of ops that took many times as long
    as others of their op and shapes.
    """
    median_ns, is_pause = usual_ns(job)
    if job.is_on_device or not is_pause.any():
        return
    work, names, nodes = job.work, job.names, np.flatnonzero(is_pause)
    longest = nodes[np.argsort(-work.duration_ns[nodes], kind="stable")].tolist()
    times = [time_text(int(work.duration_ns[node]) / 1000) for node in longest]
    title = f"One call of {names[longest[0]]} took {times[0]}, many times as long as usual"
    if len(longest) > 1:
        title = f"{len(longest):,} calls of ops took many times as long as usual, up to {times[0]}"
    facts = [
        f"{time} in {names[node]}, which usually takes {time_text(float(median_ns[node]) / 1000)}"
        for time, node in zip(times[:PAUSES_NAMED], longest, strict=False)
    ]
    if len(longest) > PAUSES_NAMED:
        facts[-1] += f", and {len(longest) - PAUSES_NAMED:,} more"
    yield Finding(
        title,
        job.gain(np.where(is_pause, median_ns / np.maximum(work.duration_ns, 1), 1.0)),
        facts,
        "The op is hardly the cause, but what paused it: another process, the allocator, garbage collection or the "
        "profiler. Record more steps to see whether it happens again, and leave these calls out of comparisons",
        "host_time_per_op",
        "The usual time for these calls",
    )


def usual_ns(job: Job) -> tuple[Floats, Bool]:
    """Returns for each node the median time of the nodes that are the same slice of an op of its name and shapes, NaN
    where that is not known, and whether it is a pause.
    """
    work = job.work
    median_ns = np.full(len(work), np.nan)
    is_op = job.names.where(lambda name: name.startswith(ATEN)) & (work.node_class == NodeClass.HOST)
    nodes = np.flatnonzero(is_op)
    groups = groupby(job.names.codes[nodes], job.shapes.codes[nodes], job.integers("slice")[nodes])
    order, count = np.lexsort((work.duration_ns[nodes], groups.number)), groups.count()
    median = work.duration_ns[nodes[order[np.cumsum(count) - count + count // 2]]]
    median_ns[nodes] = np.where(count >= FEWEST_CALLS, median, np.nan)[groups.number]
    is_pause: Bool = (median_ns > 0) & (work.duration_ns > UNUSUAL * median_ns)
    return median_ns, is_pause
