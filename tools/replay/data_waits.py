"""The host's time in PyTorch's data loader, which a graph knows without a profiler where `capture` measured it.

Recording slows the loop, but not the processes that load its batches: while it is recorded, it waits for less than it
does without. So this time is not scaled as other host work is, but replaced.
"""

import re

import numpy as np

from ...schema.columns import ABSENT, Bool
from ...schema.graph import DATA_WAIT_WITHOUT_PROFILER_NS, STEPS, DependencyKind, ExecutionGraph
from .scaling import Factors, scale_nodes
from .workload import Workload

LOADER = re.compile(r"enumerate\(DataLoader\)")
"""What PyTorch calls getting the next batch from its data loader."""


def waits_for_data(graph: ExecutionGraph) -> Bool:
    """Returns which host nodes are of PyTorch's data loader: its own calls, and what their thread does within them."""
    is_host = ~graph.is_activity & ~graph.is_delay & (graph.integers("start_time_ns") != ABSENT)
    host = np.flatnonzero(is_host)
    host = host[np.argsort(graph.start_ns[host], kind="stable")]
    thread, op = graph.integers("tid")[host], graph.integers("op_id")[host]
    calls = np.flatnonzero(graph.name.where(lambda name: LOADER.search(name) is not None)[host])
    is_data_wait = np.zeros(len(graph), np.bool_)
    # the slices of a call are beside each other in the order of ops, the first and the last one of them in time
    calls = calls[np.argsort(op[calls], kind="stable")]
    first = np.flatnonzero(np.diff(op[calls], prepend=-1))
    for begin, end in zip(calls[first], calls[np.append(first[1:], len(calls)) - 1], strict=True):
        within = slice(begin, end + 1)
        is_data_wait[host[within][thread[within] == thread[begin]]] = True
    return is_data_wait


def with_measured_waits(work: Workload) -> tuple[Workload, Bool]:
    """Returns the workload with the loops' waits for data as they are without a profiler, and which nodes these are."""
    measured = list(map(_measured, work.graphs))
    is_data = np.concatenate([flags for _, flags in measured])
    if not is_data.any():
        return work, is_data
    # what was measured includes the wait for a thread that pins memory
    handed_over = (work.kind & DependencyKind.HANDOFF != 0) & is_data[work.target]
    factor = np.concatenate([factors for factors, _ in measured])
    return scale_nodes(work.without_dependencies(handed_over), factor), is_data


def _measured(graph: ExecutionGraph) -> tuple[Factors, Bool]:
    """Returns the factors that give a graph's waits for data their measured length, and which nodes these are."""
    wait_ns = graph.number(DATA_WAIT_WITHOUT_PROFILER_NS, 0) * graph.number(STEPS, 1)
    is_data = waits_for_data(graph) if wait_ns > 0 else np.zeros(len(graph), np.bool_)
    recorded_ns = int(graph.duration_ns[is_data].sum())
    if not recorded_ns:
        return np.ones(len(graph)), np.zeros(len(graph), np.bool_)
    return np.where(is_data, wait_ns / recorded_ns, 1.0), is_data
