"""The loop's waits for PyTorch's data loader, whose batches other processes prepare at their own pace.

In a changed run a wait ends when the batch is there or the loop comes, whichever is later. A factor for the wait is one
for the loader: batches follow each other sooner or later by it, with 0 the loop never waits. A time is the wait's own.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ...schema.columns import ABSENT, Bool, Int64, Ns, Rows, is_group_start
from ...schema.graph import DATA_WAIT_WITHOUT_PROFILER_NS, STEPS, DependencyKind, ExecutionGraph
from ...schema.linked import NEVER
from .calls import LOADER
from .changes import scale_nodes
from .workload import NodeClass, Workload

PYTORCH_LOADER = re.compile(r"enumerate\(DataLoader\)")
"""What PyTorch calls getting the next batch from its data loader."""
PINS = re.compile(r"aten::_?pin_memory$")
"""What PyTorch's loader does in a thread of its own with pin_memory=True."""
OTHER_PROCESSES = re.compile(r"enumerate\(DataLoader\)#_MultiProcessing")
TAKEN_NS, ALL_MAY_WAIT_NS, FEW = 10_000_000, 1_000_000, 2
"""Taking a batch lasts as long as the loader's shortest call: at most TAKEN_NS, in which 100 MB are copied, and
ALL_MAY_WAIT_NS if no call takes FEW times as long.
"""
WAITED_SHARE = 0.05
"""A call waits that takes more than FEW times as long as taking does, on a thread of which that is a larger share."""


def waits_for_data(graph: ExecutionGraph) -> Bool:
    """Returns which host nodes are of PyTorch's data loader: its own calls, and what their thread does within them."""
    is_host = ~graph.is_activity & ~graph.is_delay & (graph.integers("start_time_ns") != ABSENT)
    host = np.flatnonzero(is_host)
    host = host[np.argsort(graph.start_ns[host], kind="stable")]
    thread, op = graph.integers("tid")[host], graph.integers("op_id")[host]
    calls = np.flatnonzero(graph.name.where(lambda name: PYTORCH_LOADER.search(name) is not None)[host])
    is_data_wait = np.zeros(len(graph), np.bool_)
    # the slices of a call are beside each other in the order of ops, the first and the last one of them in time
    calls = calls[np.argsort(op[calls], kind="stable")]
    first = np.flatnonzero(np.diff(op[calls], prepend=-1))
    for begin, end in zip(calls[first], calls[np.append(first[1:], len(calls))[: len(first)] - 1], strict=True):
        within = slice(begin, end + 1)
        is_data_wait[host[within][thread[within] == thread[begin]]] = True
    return is_data_wait


def waits_of(work: Workload) -> tuple[Rows, Int64, Ns, Bool]:
    """Returns the nodes in which calls of loaders in other processes may wait, by thread in the order of time.

    Also the position of its thread's first call, how long taking a batch that is there lasts, and whether each waits.
    """
    named = [graph.name.where(lambda name: OTHER_PROCESSES.match(name) is not None) for graph in work.graphs]
    row = np.flatnonzero(np.concatenate(named) & work.is_timed)
    op = _ops_of(work)
    # of the slices of a call the longest one
    row = row[np.lexsort((-work.duration_ns[row], op[row], work.lane[row]))]
    row = row[is_group_start(work.lane[row], op[row])]
    row = row[np.lexsort((work.measured_start_ns[row], work.lane[row]))]
    lane, time, begin = work.lane[row], work.duration_ns[row], np.flatnonzero(is_group_start(work.lane[row]))
    thread = np.searchsorted(begin, np.arange(len(row)), side="right") - 1
    recorded = (work.measured_end_ns - work.measured_start_ns)[row]
    least, most = (limit.reduceat(recorded, begin)[thread] for limit in (np.minimum, np.maximum))
    taken = np.minimum(least, np.where(most < FEW * least, ALL_MAY_WAIT_NS, TAKEN_NS))
    taken = np.minimum(taken, time)
    waited = np.where(time > FEW * taken, time - taken, 0)
    total, busy = np.bincount(lane, waited, len(work.lanes)), np.bincount(work.lane, work.duration_ns, len(work.lanes))
    return row, begin[thread], taken, (waited > 0) & (total > WAITED_SHARE * busy)[lane]


def _ops_of(work: Workload) -> Int64:
    """Returns the number of each node's op in its rank; without a host trace each node has its own."""
    op = np.concatenate([graph.integers("op_id") for graph in work.graphs])
    return np.where(op == ABSENT, -1 - np.arange(len(op)), op)


def with_measured_waits(work: Workload) -> tuple[Workload, Bool]:
    """Returns the workload with equal waits for data, whose mean without a profiler is known, and their nodes."""
    factor, is_data, every_call = np.ones(len(work)), np.zeros(len(work), np.bool_), waits_of(work)[0]
    for graph, begin in zip(work.graphs, work.first_row.tolist(), strict=True):
        wait_ns = graph.number(DATA_WAIT_WITHOUT_PROFILER_NS, 0) * graph.number(STEPS, 1)
        rows = begin + np.flatnonzero(waits_for_data(graph)) if wait_ns > 0 else every_call[:0]
        calls, recorded_ns = np.intersect1d(every_call, rows), int(work.duration_ns[rows].sum())
        is_data[rows] = recorded_ns > 0
        factor[rows] = wait_ns / max(recorded_ns, 1)
        waited_ns = wait_ns - recorded_ns + int(work.duration_ns[calls].sum())
        if len(calls) and waited_ns > 0:
            factor[rows], factor[calls] = 1, waited_ns / len(calls) / np.maximum(work.duration_ns[calls], 1)
    if not is_data.any():
        return work, is_data
    # what was measured includes the wait for a thread that pins memory
    handed_over = (work.kind & DependencyKind.HANDOFF != 0) & is_data[work.target]
    return scale_nodes(work.without_dependencies(handed_over), factor), is_data


def of_loader_threads(work: Workload, in_loader: Bool) -> Bool:
    """Returns which host nodes are of threads that pin memory or hand over to `in_loader`, and launch nothing."""
    pins = np.concatenate([graph.name.where(lambda name: PINS.match(name) is not None) for graph in work.graphs])
    pins[work.source[(work.kind & DependencyKind.HANDOFF != 0) & in_loader[work.target]]] = True
    others = np.append(work.lane[in_loader], work.lane[work.source[work.kind & DependencyKind.LAUNCH != 0]])
    return np.asarray(np.isin(work.lane, np.setdiff1d(work.lane[pins], others)) & (work.node_class == NodeClass.HOST))


def _with_loader_threads(job: Workload, changed: Workload) -> Workload:
    """Returns the changed job in which threads of loaders do in less time what they do, as the calls that they serve.

    These wait for no thread where they take no time.
    """
    named = [graph.name.where(lambda name: LOADER.search(name) is not None) for graph in job.graphs]
    in_loader = np.concatenate(named) & (job.node_class == NodeClass.HOST)
    if (job.duration_ns == changed.duration_ns)[in_loader].all():
        return changed
    before, after = job.duration_ns, changed.duration_ns.copy()
    threads, rank = of_loader_threads(job, in_loader) & (before == after), job.ranks_of(np.arange(len(job)))
    spent, needed = (np.bincount(rank[in_loader], of[in_loader], len(job.graphs)) for of in (before, after))
    after[threads] = np.rint(before * np.where(spent > 0, needed / np.maximum(spent, 1), 1.0)[rank])[threads]
    waits = (changed.kind & DependencyKind.HANDOFF != 0) & in_loader[changed.target] & (after[changed.target] == 0)
    return replace(changed, duration_ns=after).without_dependencies(waits & (before[changed.target] > 0))


def _in_one_piece(job: Workload, changed: Workload) -> Iterator[Workload]:
    """Yields both with each loader's call waiting in its longest slice alone, as others wait for its process, too."""
    key = _ops_of(job) * len(job.lanes) + job.lane
    calls = waits_of(job)[0]
    calls = calls[np.argsort(key[calls])]
    slices = np.flatnonzero(np.isin(key, key[calls]) & (job.node_class == NodeClass.HOST))
    longest = calls[np.searchsorted(key[calls], key[slices])]
    others, longest = slices[slices != longest], longest[slices != longest]
    for work in (job, changed):
        duration, moved = work.duration_ns.copy(), np.maximum(work.duration_ns[others] - ALL_MAY_WAIT_NS, 0)
        duration[others] -= moved
        np.add.at(duration, longest, moved)
        yield replace(work, duration_ns=duration)


def with_waits(job: Workload, changed: Workload, ends: Callable[[Workload], Ns], holds: Bool) -> Workload:
    """Returns a changed job in which loops wait until a batch is there; `ends` says when the nodes of a job end. Those
    of `holds` were given a time, the others a factor. Replays up to three times. The steps before the recorded ones
    count as changed, too, so the first call waits shorter where the loop takes longer.
    """
    job, changed = _in_one_piece(job, changed)
    row, first, taken, is_waiting = waits_of(job)
    changed = _with_loader_threads(job, changed)
    before, after, thread = job.duration_ns, changed.duration_ns, job.lane[row]
    factor, of_thread = after[row] / np.maximum(before[row], 1), np.ones(len(job.lanes))
    of_thread[thread] = factor
    others = np.bincount(job.lane, ~np.isclose(after, of_thread[job.lane] * before, 1e-6, 1), len(job.lanes))[thread]
    # a change of all that a thread does is one of what its loader does, too
    is_waiting &= (factor == 1) | ((factor > 0) & (others > 0))
    if not is_waiting.any():
        return changed
    end, duration, taken = ends(job), after.copy(), np.minimum(taken, after[row])
    is_first = first == np.arange(len(row))
    begins, order = np.flatnonzero(is_first), np.lexsort((job.measured_start_ns, job.lane))
    last = order[np.searchsorted(job.lane[order], thread[begins], side="right") - 1]
    # how long after the batch before each one came, the first one after that of a step of mean length
    since, count = np.diff(end[row], prepend=0), np.diff(np.append(begins, len(row)))
    since[begins] = (end[last] - end[row[begins]] + before[row[begins]]) // count
    shorter = (before - after)[row]
    sooner = np.where(holds[row], shorter, np.rint((1 - factor) * since).astype(np.int64))
    later = is_waiting & ~is_first & ~job.is_rooted[row]
    duration[row[later]] = taken[later]
    lag = end[row] - end[row[first]] - np.cumsum(sooner) + np.cumsum(sooner)[first] - taken

    def ended(ahead: Ns) -> Ns:
        added = {"source": row[first], "target": row, "kind": np.zeros_like(row), "lag_ns": lag - ahead[first]}
        columns: dict[str, Any] = {name: np.append(getattr(changed, name), added[name][later]) for name in added}
        return ends(replace(changed, duration_ns=duration, **columns))

    ahead = np.zeros(len(row), np.int64)
    until = ended(ahead)
    if len(begin := np.flatnonzero(is_first & is_waiting)):
        moved, calls = until - end, row[begin]
        last_call = row[np.searchsorted(first, begin, side="right") - 1]
        longer = moved[last[np.searchsorted(begins, begin)]] - moved[last_call] + moved[calls] + shorter[begin]
        wait = before[calls] - sooner[begin] - longer
        duration[calls] = np.maximum(wait, taken[begin])
        ahead[begin] = duration[calls] - wait
        until = ended(ahead)
    arrived = np.full(len(job), NEVER)
    np.maximum.at(arrived, changed.target, until[changed.source] + changed.lag_ns)
    duration[row[later]] = (until - arrived - changed.wait_ns)[row[later]]
    return replace(changed, duration_ns=duration)
