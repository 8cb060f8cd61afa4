"""Plays graphs by the rules of ASTRA-sim, which tells when each node ends there.

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
from ...schema.columns import Int64, Ragged
from ...schema.errors import DataError
from ...schema.graph import ExecutionGraph, NodeType

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
