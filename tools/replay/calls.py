"""The calls in a graph, what happens within them, and the phase of the step that each node is of.

Each op with all of its slices is one call, each other host node and activity one by itself. Within a call is what it
called and launched, at any depth; what it handed over to another thread; what a thread for which it waited did since
it began, as autograd's does for an annotation around `backward()`; and the backward pass of its ops.
"""

import re
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import numpy as np

from ...converter.rewiring import recorded_edges
from ...converter.timeline import IDLE
from ...schema import columns
from ...schema.columns import ABSENT, Bool, Categorical, Int64, Intervals, NodeIds, Rows, SummaryRepr, Tree, nearest
from ...schema.graph import DependencyKind, ExecutionGraph
from ...schema.linked import AUTOGRAD, NEVER, USER_SCOPE
from .workload import NodeClass, node_classes

LOADER = re.compile(
    r"DataLoader|data[ _]?load|load(ing)?[ _]?(the |a )?(batch|data|sample)|(next|get|fetch)[ _]?(batch|sample)", re.I
)
"""How PyTorch and users name what gets the next batch."""
OPTIMIZER = re.compile(r"^Optimizer\.|(^|[^a-z])optim", re.I)
FORWARD = re.compile(r"(^|[^a-z])(forward|fwd)([^a-z]|$)", re.I)
BACKWARD = re.compile(r"(^|[^a-z])(backward|bwd)([^a-z]|$)", re.I)
UNRECORDED = (NodeClass.UNRECORDED, NodeClass.METADATA, NodeClass.DELAY)


@dataclass(slots=True, repr=False)
class Calls(SummaryRepr):
    """Calls in the order of their first nodes, with their callers; `of_row` is the call of each node, -1 for none."""

    first_row: Rows
    last_row: Rows
    parent: Int64
    of_row: Int64

    def __len__(self) -> int:
        return len(self.first_row)

    def roots(self) -> Int64:
        """Returns the outermost call around each call. O(n log n)."""
        return nearest(self.parent < 0, self.parent)


def calls_of(graph: ExecutionGraph) -> Calls:
    """Returns the calls of a graph, in O(n log n)."""
    rows = np.flatnonzero(~np.isin(node_classes(graph), UNRECORDED) & ~graph.name.equal(IDLE))
    # slices are of one call if they have the op's id in common, else if they are of a thread's ops of one name and
    # count on
    part, op = graph.integers("slice")[rows], graph.integers("op_id")[rows]
    thread, name = graph.integers("tid")[rows], graph.name.codes[rows].astype(np.int64)
    order = np.lexsort((rows, name, thread))
    is_start = columns.is_group_start(thread[order], name[order])
    is_start[1:] |= part[order][1:] <= part[order][:-1]
    without_id = np.empty(len(rows), np.int64)
    without_id[order] = np.cumsum(is_start)
    known_by = np.where(part == ABSENT, 0, np.where(op == ABSENT, 1, 2))
    number = columns.group_ids(known_by, np.choose(known_by, (rows, without_id, op)))
    first = np.unique(number, return_index=True)[1]
    number = np.searchsorted(np.sort(first), first)[number]
    first_row, last_row, of_row = rows[np.sort(first)], np.zeros(len(first), np.int64), np.full(len(graph), -1)
    last_row[number], of_row[rows] = rows, number
    # each call's first node names the slice of its caller, or of what launched it
    controls, caller = graph.ctrl_deps, np.full(len(graph), -1)
    has_caller = np.flatnonzero(controls.lengths() > 0)
    caller[has_caller] = graph.rows_of(NodeIds(controls.values[controls.starts[has_caller]]))
    above = caller[first_row]
    # a caller begins before what it calls: what a damaged file says otherwise is left out, so that there is no circle
    parent = np.where((above >= 0) & (above < first_row), np.append(of_row, -1)[above], -1)
    return Calls(first_row, last_row, parent, of_row)


def within(graph: ExecutionGraph, pattern: "re.Pattern[str]") -> Int64:
    """Returns for each node the outermost call of such a name that it is within, -1 for none. O(n log n)."""
    calls = calls_of(graph)
    chosen = graph.name.take(calls.first_row).where(lambda name: pattern.search(name) is not None)
    inner = np.append(nearest(chosen, calls.parent), -1)
    outermost = chosen & (inner[calls.parent] < 0)
    around = np.append(nearest(outermost, calls.parent), -1)[calls.of_row]
    thread, start, roots = graph.integers("tid"), graph.host_clock_start_ns, calls.roots()
    order = np.lexsort((start, thread))
    place, threads, starts = np.argsort(order), thread[order], start[order]
    edges = recorded_edges(graph)
    source, target, _ = edges.where((edges.kind & DependencyKind.HANDOFF != 0) & (edges.source >= 0))
    given, waited = around[source], around[target]
    of_call = np.where(outermost, np.arange(len(calls)), -1)
    begun = calls.of_row[target]
    handed_over = (given >= 0) & (waited < 0) & (begun >= 0)
    of_call[roots[begun[handed_over]]] = given[handed_over]
    for row, call in zip(source[(given < 0) & (waited >= 0)], waited[(given < 0) & (waited >= 0)], strict=True):
        first, end = np.searchsorted(threads, thread[row]), place[row] + 1
        rows = order[first + np.searchsorted(starts[first:end], start[calls.first_row[call]]) : end]
        around[rows[around[rows] < 0]] = call
        done = calls.of_row[rows]
        done = done[done >= 0]
        of_call[done[of_call[done] < 0]] = call
    forward = _forward_calls(graph, calls)
    of_call = np.where(of_call < 0, np.append(around[calls.first_row], -1)[forward], of_call)
    called = np.append(nearest(of_call >= 0, calls.parent), -1)[calls.of_row]
    return np.where((around < 0) & (called >= 0), np.append(of_call, -1)[called], around)


def _forward_calls(graph: ExecutionGraph, calls: Calls) -> Int64:
    """Returns for each call of a backward pass the last one before it that has its sequence number, -1 for others."""
    first, forward = calls.first_row, np.full(len(calls), -1)
    number, thread, start = (
        graph.integers("seq_id")[first],
        graph.integers("tid")[first],
        graph.host_clock_start_ns[first],
    )
    is_backward, is_known = (
        graph.integers("fw_tid")[first] > 0,
        (graph.integers("slice")[first] != ABSENT) & (number >= 0),
    )
    rows, later = np.flatnonzero(is_known & ~is_backward), np.flatnonzero(is_known & is_backward)
    if len(rows):  # each thread has numbers of its own: the one with most of them runs the program
        threads, counts = np.unique(thread[rows], return_counts=True)
        rows = rows[thread[rows] == threads[counts.argmax()]]
        rows = rows[np.lexsort((start[rows], number[rows]))]
        last = np.searchsorted(number[rows], number[later], side="right") - 1
        found = (number[rows[last]] == number[later]) & (start[rows[last]] < start[later])
        forward[later[found]] = rows[last[found]]
    return forward


class Phase(Enum):
    """A phase of the host, in the order in which time that belongs to several counts."""

    DATA_LOADING = "data_loading"
    OPTIMIZER = "optimizer"
    FORWARD = "forward_and_other"  # ops of no other phase: nothing tells a statistic from the forward pass
    BACKWARD = "backward"


class HostOps(NamedTuple):
    """Ops of all threads in ns; the rows `timed` have times, those `inside` lie in an op that is no annotation."""

    name: Categorical
    start: Int64
    end: Int64
    timed: Rows
    on_main: Bool
    annotates: Bool
    inside: Bool

    def during(self, chosen: Bool) -> Int64:
        """Returns the starts and ends of some."""
        return np.stack((self.start[chosen], self.end[chosen]))

    def named(self, pattern: "re.Pattern[str]") -> Bool:
        """Returns which have such a name."""
        return self.name.where(lambda name: pattern.search(name) is not None)


def phase_intervals(ops: HostOps) -> dict[Phase, Int64]:
    """Returns by phase the starts and the ends (ns) of what belongs to it, in the order of Phase."""
    is_autograd = ops.name.where(lambda name: name.startswith(AUTOGRAD))
    outermost = ops.on_main & ~ops.inside & ~ops.annotates & ~is_autograd
    # backward passes are from the first to the last autograd op without an op of the main thread between
    rows = ops.timed[is_autograd[ops.timed]]
    rows = rows[np.argsort(ops.start[rows], kind="stable")]
    until, others = np.maximum.accumulate(ops.end[rows]), np.sort(ops.start[outermost])
    apart = np.searchsorted(others, ops.start[rows[1:]]) > np.searchsorted(others, until[:-1])
    first = np.flatnonzero(np.append(True, apart)[: len(rows)])
    passes = np.stack((ops.start[rows[first]], until[np.append(first[1:], len(rows))[: len(first)] - 1]))
    marked = ops.on_main & ops.annotates
    return {
        Phase.DATA_LOADING: ops.during(ops.on_main & ops.named(LOADER)),
        Phase.OPTIMIZER: ops.during(ops.on_main & ops.named(OPTIMIZER)),
        Phase.FORWARD: ops.during(outermost | (marked & ops.named(FORWARD))),
        Phase.BACKWARD: np.concatenate((passes, ops.during(marked & ops.named(BACKWARD))), axis=1),
    }


def phases_of(graph: ExecutionGraph) -> Int64:
    """Returns the position in Phase of each node, -1 for none: by time on the main thread, by launch on devices."""
    calls, thread = calls_of(graph), graph.integers("tid")
    first, start = calls.first_row, graph.host_clock_start_ns
    name, end = graph.name.take(first), (start + graph.duration_ns)[calls.last_row]
    # a call lasts at least as long as those within it: its own last slice may have been too short to be one
    host_end = np.where(graph.is_activity[first], NEVER, end)
    end = np.maximum(end, Tree.of(calls.parent, first).subtrees(np.maximum, host_end))
    is_op, is_autograd = graph.integers("slice")[first] != ABSENT, name.where(lambda text: text.startswith(AUTOGRAD))
    annotates = graph.integers("scope")[first] == USER_SCOPE
    inside = np.append(nearest(is_op & ~annotates, calls.parent), -1)[calls.parent] >= 0
    outer = np.flatnonzero(is_op & ~inside & ~is_autograd)
    phase = np.full(len(graph), -1, np.int64)
    if not len(outer):
        return phase
    updates, length = name.where(lambda text: OPTIMIZER.search(text) is not None), end - start[first]
    threads = [(thread[first[outer]] == number, number) for number in np.unique(thread[first[outer]])]
    main = max((updates[outer[on]].any(), length[outer[on]].sum(), number) for on, number in threads)[-1]
    ops = HostOps(name, start[first], end, np.flatnonzero(is_op), is_op & (thread[first] == main), annotates, inside)
    is_host = ~graph.is_activity & ~np.isin(node_classes(graph), UNRECORDED)
    on_main, of_autograd = is_host & (thread == main), is_host & np.isin(thread, thread[first[is_op & is_autograd]])
    for number, spans in reversed([*enumerate(phase_intervals(ops).values())]):
        during = columns.covered_within(Intervals(start, start + 1), Intervals(*spans)) > 0
        phase[during & (on_main | of_autograd if number == [*Phase].index(Phase.BACKWARD) else on_main)] = number
    parent = np.append(calls.parent, -1)[calls.of_row]
    launched = np.flatnonzero(graph.is_activity & (parent >= 0))
    phase[launched] = phase[first[parent[launched]]]
    return phase
