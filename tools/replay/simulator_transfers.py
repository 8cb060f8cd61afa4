"""Plays the communication of a job in ASTRA-sim's simulated mode: members meet, and messages wait for their receives.

A send does not wait for its receive; a receive that comes after its message ends at once.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ...converter.targets import Roofline
from ...schema.graph import CollectiveType, ExecutionGraph, NodeType
from .simulator_configuration import Configuration
from .simulator_network import SimulatedNetwork
from .simulator_rules import NodeEnd, duration_ns


class _Call(NamedTuple):
    """A node that communicates: the CollectiveType, group and bytes of a collective, the ends of a message."""

    type: int
    kind: int
    size: int
    group: str
    source: int
    target: int
    tag: int


class Transfers:
    """The communication of a job at work; called with the start of a node, it returns the ends that are known by it."""

    def __init__(self, graphs: Sequence[ExecutionGraph], configuration: Configuration) -> None:
        self._network = SimulatedNetwork(configuration)
        self._lengths = [_lengths(graph, configuration.peaks) for graph in graphs]
        self._calls = [_calls(graph) for graph in graphs]
        every_rank = tuple(range(len(graphs)))
        self._members = defaultdict(lambda: every_rank, configuration.groups)
        self._issued = defaultdict[tuple[int, str], int](int)
        self._arrived = defaultdict[tuple[str, int], dict[int, NodeEnd]](dict)
        self._sent = defaultdict[tuple[int, ...], deque[int]](deque)
        self._awaited = defaultdict[tuple[int, ...], deque[NodeEnd]](deque)

    def __call__(self, start: NodeEnd) -> Iterable[NodeEnd]:
        """Returns the ends that are known as a node starts."""
        call = self._calls[start.rank].get(start.row)
        if call is None:
            return (start._replace(ns=start.ns + self._lengths[start.rank][start.row]),)
        if call.type == NodeType.COMM_COLL:
            return self._arrive(start, call)
        return self._send(start, call) if call.type == NodeType.COMM_SEND else self._receive(start, call)

    def _arrive(self, start: NodeEnd, call: _Call) -> Iterator[NodeEnd]:
        """Yields the ends of all members when the last one comes; the n-th collective of each in a group is one."""
        number, members = self._issued[start.rank, call.group], self._members[call.group]
        self._issued[start.rank, call.group] += 1
        arrived = self._arrived[call.group, number]
        arrived[start.rank] = start
        if len(arrived) == len(members):
            arrival = np.array([arrived[rank].ns for rank in members], np.int64)
            ends = self._network.collective_ends(call.kind, np.array(members), call.size, arrival)
            del self._arrived[call.group, number]
            for rank, end in zip(members, ends.tolist(), strict=True):
                yield arrived[rank]._replace(ns=end)

    def _send(self, start: NodeEnd, call: _Call) -> Iterator[NodeEnd]:
        """Yields the end of a send, and that of the receive that waits for it."""
        source, target = np.array(call.source), np.array(call.target)
        end = start.ns + int(self._network.message_ns(source, target, call.size))
        yield start._replace(ns=end)
        message = _message(call)
        if self._awaited[message]:
            yield self._awaited[message].popleft()._replace(ns=end)
        else:
            self._sent[message].append(end)

    def _receive(self, start: NodeEnd, call: _Call) -> Iterator[NodeEnd]:
        message = _message(call)
        if self._sent[message]:
            yield start._replace(ns=max(start.ns, self._sent[message].popleft()))
        else:
            self._awaited[message].append(start)


def _message(call: _Call) -> tuple[int, ...]:
    """Returns by what a send and its receive are matched."""
    return call.tag, call.source, call.target, call.size


def _calls(graph: ExecutionGraph) -> dict[int, _Call]:
    """Returns the nodes that communicate, by row; a broadcast takes its measured time."""
    kind = graph.collective_types()
    communicates = np.isin(graph.type, (NodeType.COMM_SEND, NodeType.COMM_RECV))
    communicates |= (graph.type == NodeType.COMM_COLL) & (kind != CollectiveType.BROADCAST)
    rows, group = np.flatnonzero(communicates).tolist(), graph.texts("pg_name")
    columns = (graph.type, kind, graph.integers("comm_size", 0))
    ends = (graph.integers(name, -1) for name in ("comm_src", "comm_dst", "comm_tag"))
    before, after = ([column[rows].tolist() for column in some] for some in (columns, ends))
    facts = zip(*before, (group[row] for row in rows), *after, strict=True)
    return {row: _Call(*fact) for row, fact in zip(rows, facts, strict=True)}


def _lengths(graph: ExecutionGraph, peaks: Roofline | None) -> list[int]:
    """Returns how long (ns) each node takes that does not communicate: computation of the device by its work, if peaks
    are given.
    """
    lengths = duration_ns(graph)
    if peaks is None:
        return lengths
    computes = (graph.type == NodeType.COMP) & (graph.integers("is_cpu_op", 0) == 0)
    operations, moved = graph.integers("num_ops", 0), graph.integers("tensor_size", 0)
    by_work = np.maximum(operations / (peaks.tflops * 1e3), moved / peaks.memory_gb_s).astype(np.int64)
    durations_ns: list[int] = np.where(computes, by_work, lengths).tolist()
    return durations_ns
