"""When the rows of a replay end: as soon as dependencies allow, or on devices that run a limited number of activities.

On such a device the activity that is ready first takes the slot that is free first, and waits for it if none is free.

Plays graphs by the rules of ASTRA-sim, which tells when each node ends there.

A rank runs one host node, one computation and one communication at a time, each when all its data and control
dependencies have ended. Of several ready nodes it takes the one with the lowest id. Streams and threads do not count,
and a receive waits beside anything. In replay mode every node takes its `duration_micros`, and ranks do not wait for
each other. Times agree with the versions of 2025-08 and 2026-03, except for 1 ns per node of 0 µs.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ...converter.device_only import COMMUNICATION
from ...converter.rewiring import control_edges, data_edges
from ...schema.columns import Int64, Ragged, Rows, numbers
from ...schema.errors import DataError
from ...schema.graph import ExecutionGraph, NodeType
from .workload import Workload


class Problem(NamedTuple):
    """Rows with costs and dependencies: a row ends `cost_ns` after the latest of its sources' ends plus `lag_ns`.

    Dependencies are sorted by target.
    """

    source: Int64
    target: Int64
    lag_ns: Int64
    cost_ns: Int64


def ends(order: Rows, problem: Problem, work: Workload) -> tuple[Int64, Rows]:
    """Returns when each row ends, and the row whose slot it waited for, -1 for none."""
    if work.slot_pool.max(initial=-1) >= 0:
        return ends_with_limited_slots(problem, work)
    return earliest_ends(order, problem), np.full(len(problem.cost_ns), -1)


def earliest_ends(order: Rows, problem: Problem) -> Int64:
    """Returns when each row ends: its cost after the latest of its sources' ends plus lag, or after 0 without sources.

    `order` has every source before its targets.
    """
    source, target, lag, cost = problem
    position = np.empty(len(cost), np.int64)
    position[order] = np.arange(len(cost))
    in_order = np.argsort(position[target], kind="stable")
    end, delay = numbers(cost), lag + cost[target]
    for before, row, after in zip(*(numbers(column[in_order]) for column in (source, target, delay)), strict=True):
        end_after = end[before] + after
        if end_after > end[row]:
            end[row] = end_after
    return np.array(end, np.int64)


def ends_with_limited_slots(problem: Problem, work: Workload) -> tuple[Int64, Int64]:
    """Returns the end of each row, and the row whose slot it had to wait for, -1 for none. O((n + e) log n)."""
    source, target, lag, cost = problem
    count = len(cost)
    by_source = np.argsort(source, kind="stable")
    dependents = Ragged.grouped(source[by_source], target[by_source], count)
    starts, values, lags = dependents.starts.tolist(), dependents.values.tolist(), lag[by_source].tolist()
    unmet, costs = np.bincount(target, minlength=count).tolist(), cost.tolist()
    pool = [*work.slot_pool.tolist(), *[-1] * (count - len(work))]
    free_slots = [[(0, -1)] * of_device.slot_count for of_device in work.slot_pools]
    ready, end, slot_after = [0] * count, [0] * count, [-1] * count
    heap, begun = list[tuple[int, int]](), bytearray(count)
    # None for devices whose clock tells the order, and last for rows that take no slot
    ties = [*(_Ties(4 * of_device.cut_off_ns) if of_device.cut_off_ns else None for of_device in work.slot_pools), None]

    def release(row: int) -> None:
        heapq.heappush(heap, (ready[row], row))
        if pool_ties := ties[pool[row]]:
            pool_ties.add(ready[row], row)

    for row in range(count):
        if not unmet[row]:
            release(row)
    while heap:
        begin, row = heapq.heappop(heap)
        if begun[row]:
            continue
        device = pool[row]
        if (pool_ties := ties[device]) and (first := pool_ties.first(begin)) != row:
            # of rows that are ready at the same time the lowest goes first; this one is popped again after it
            heapq.heappush(heap, (begin, row))
            begin, row = ready[first], first
        begun[row] = True
        if device >= 0:
            free_from, last_row = free_slots[device][0]
            if free_from > begin:
                begin, slot_after[row] = free_from, last_row
        ended = end[row] = begin + costs[row]
        if device >= 0:
            heapq.heapreplace(free_slots[device], (ended + work.slot_pools[device].cut_off_ns, row))
        for edge in range(starts[row], starts[row + 1]):
            follower = values[edge]
            ready[follower] = max(ready[follower], ended + lags[edge])
            unmet[follower] -= 1
            if not unmet[follower]:
                release(follower)
    return np.array(end, np.int64), np.array(slot_after, np.int64)


class _Ties:
    """The ready rows of a device, of which those ready within `resolution_ns` count as ready at the same time."""

    def __init__(self, resolution_ns: int) -> None:
        self._resolution_ns = resolution_ns
        self._later: list[tuple[int, int]] = []
        self._tied: list[int] = []

    def add(self, ready: int, row: int) -> None:
        """Adds a row with the time at which it is ready."""
        heapq.heappush(self._later, (ready, row))

    def first(self, begin: int) -> int:
        """Takes out the lowest row of those ready at `begin`, when the first is: it started first when measured."""
        while self._later and self._later[0][0] <= begin + self._resolution_ns:
            heapq.heappush(self._tied, heapq.heappop(self._later)[1])
        return heapq.heappop(self._tied)


HOST, COMPUTATION, TRANSFER, RECEIVE = range(4)


class NodeEnd(NamedTuple):
    """When (ns) the node in a row of a rank's graph ends."""

    ns: int
    rank: int
    row: int


EndsKnown = Callable[[NodeEnd], Iterable[NodeEnd]]
"""Takes a node and when it starts, and returns the ends of nodes that are known by that."""


def recorded_lengths(graphs: Sequence[ExecutionGraph]) -> EndsKnown:
    """Returns the ends of replay mode, in which every node takes its `duration_micros`."""
    lengths = [duration_ns(graph) for graph in graphs]
    return lambda start: (start._replace(ns=start.ns + lengths[start.rank][start.row]),)


def duration_ns(graph: ExecutionGraph) -> list[int]:
    """Returns what the simulator makes of each node's `duration_micros`."""
    lengths: list[int] = (graph.duration_micros.astype(np.int64) * 1000).tolist()
    return lengths


def simulated_ends(graphs: Sequence[ExecutionGraph], ends_known: EndsKnown | None = None) -> list[Int64]:
    """Returns when each node of each rank ends in the simulator (ns), in replay mode unless `ends_known` is given.

    O((n + e) log n). Raises DataError if nodes never end.
    """
    ends_of = ends_known or recorded_lengths(graphs)
    ranks = [_Rank(graph) for graph in graphs]
    ends = [[-1] * len(graph) for graph in graphs]
    running = [end for rank in range(len(ranks)) for end in _issued(ranks[rank], rank, 0, ends_of)]
    heapq.heapify(running)
    while running:
        now, rank, row = heapq.heappop(running)
        ends[rank][row] = now
        ranks[rank].finish(row)
        for end in _issued(ranks[rank], rank, now, ends_of):
            heapq.heappush(running, end)
    never = sum(of_rank.count(-1) for of_rank in ends)
    if never:
        waiting = any(rank.runs for rank in ranks)
        why = "communication waits for a member for ever" if waiting else "the dependencies form a cycle"
        raise DataError(f"{never} of {sum(map(len, ends))} nodes never become ready; {why}")
    return [np.array(of_rank, np.int64) for of_rank in ends]


def _issued(rank: "_Rank", number: int, now: int, ends_of: EndsKnown) -> Iterator[NodeEnd]:
    """Yields the ends that are known as ready nodes of a rank start."""
    for row in rank.take():
        yield from ends_of(NodeEnd(now, number, row))


class _Rank:
    """The nodes of a rank that are ready, by the resource that each needs, and whether resources are free."""

    def __init__(self, graph: ExecutionGraph) -> None:
        data, control = data_edges(graph), control_edges(graph)
        sources, targets = np.append(data.source, control.source), np.append(data.target, control.target)
        edges = np.unique(np.stack((sources, targets)), axis=1)
        dependents = Ragged.grouped(edges[0], edges[1], len(graph))
        self._starts, self._values = dependents.starts.tolist(), dependents.values.tolist()
        self._unmet = np.bincount(edges[1], minlength=len(graph)).tolist()
        self._resource = _resources(graph)
        self._free = [True] * 4
        self._ready: list[list[int]] = [[], [], [], []]
        self._receiving = 0
        # rows are in the order of ids
        for row, unmet in enumerate(self._unmet):
            if not unmet:
                self._ready[self._resource[row]].append(row)

    @property
    def runs(self) -> bool:
        """Whether something started and did not end."""
        return self._receiving > 0 or not all(self._free)

    def take(self) -> Iterator[int]:
        """Yields the nodes that start now."""
        for resource in (HOST, COMPUTATION, TRANSFER):
            if self._free[resource] and self._ready[resource]:
                self._free[resource] = False
                yield heapq.heappop(self._ready[resource])
        while self._ready[RECEIVE]:
            self._receiving += 1
            yield heapq.heappop(self._ready[RECEIVE])

    def finish(self, row: int) -> None:
        """Frees what the node took, and makes ready what waited for it."""
        if self._resource[row] == RECEIVE:
            self._receiving -= 1
        else:
            self._free[self._resource[row]] = True
        for dependent in self._values[self._starts[row] : self._starts[row + 1]]:
            self._unmet[dependent] -= 1
            if not self._unmet[dependent]:
                heapq.heappush(self._ready[self._resource[dependent]], dependent)


def _resources(graph: ExecutionGraph) -> list[int]:
    on_host = graph.integers("is_cpu_op", 0) != 0
    of_type = np.where(np.isin(graph.type, COMMUNICATION), TRANSFER, COMPUTATION)
    on_device = np.where(graph.type == NodeType.COMM_RECV, RECEIVE, of_type)
    resources: list[int] = np.where(on_host, HOST, on_device).tolist()
    return resources
