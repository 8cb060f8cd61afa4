"""A rank's graph as GOAL operations: what computes for how long, what is sent where, and who waits for whom.

A node follows the last operations of its dependencies. Computation is a calc on the cpu of its lane, which takes the
node's host delay, gap and duration. Delays are calcs on cpus of their own. Communication starts with a calc of its gap,
goes on with the messages of its algorithm, and ends with a calc on its lane when all of them are over. Communication
that no other rank recorded is a calc of its measured time.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ...schema.columns import Bool, Int64, Ragged
from ...schema.graph import ExecutionGraph
from ..chain_gaps import chain_gaps
from ..context import Edges
from ..device_only import SILENT
from ..ranks import MeasuredTimes
from ..rewiring import data_edges, spliced
from .cpus import Cpus
from .goal_options import GoalOptions
from .operations import NETWORK, NODE, READY, Operation, in_order
from .rank_messages import CollectiveMessages


class RankStart(NamedTuple):
    """The position of a rank in the job, and when it began, in ns."""

    number: int
    begin_ns: int


def rank_program(
    graph: ExecutionGraph,
    times: MeasuredTimes,
    cpus: Cpus,
    *,
    rank: RankStart,
    messages: Mapping[int, list[CollectiveMessages]],
    options: GoalOptions,
) -> list[Operation]:
    """Returns the operations of a rank, each after those for which it waits. O(n + e + messages)."""
    operations: list[Operation] = []
    edges = spliced(data_edges(graph), np.isin(graph.type, SILENT))
    before = Ragged.grouped(edges.target, edges.source, len(graph))
    rows = np.argsort(graph.id, kind="stable")
    rows = rows[cpus.of_node[rows] >= 0]
    wait = _wait(graph, times, edges, _first_of_cpu(cpus.of_node, rows), rank.begin_ns)
    starts, sources, ends, last = before.starts.tolist(), before.values.tolist(), [-1] * len(graph), dict[int, int]()
    columns = (rows, cpus.of_node[rows], wait[rows], graph.duration_ns[rows])
    for row, cpu, waited, duration in zip(*(column.tolist() for column in columns), strict=True):
        after = in_order(ends[source] for source in sources[starts[row] : starts[row + 1]])
        if not after and cpu in last:
            # without dependencies a node keeps its position in the lane
            after = (last[cpu],)
        if row in messages:
            operations.append(Operation("calc", waited, cpu, after))
            _communicate(operations, cpu, messages[row], rank.number, options)
        else:
            operations.append(Operation("calc", waited + duration, cpu, after))
        ends[row] = last[cpu] = len(operations) - 1
    return operations


def _communicate(
    operations: list[Operation], cpu: int, collectives: list[CollectiveMessages], rank: int, options: GoalOptions
) -> None:
    """Appends the messages of all collectives of a node, after the last operation so far, and the calc
    that ends them.

    The messages of a collective leave a nic in their order. Otherwise a piece that is passed on may take turns with the
    rest of its block, and the next member waits for either.
    """
    begin = len(operations) - 1
    measured, is_proxied = options.measured_communication, options.simulator == "loggopsim"
    last: list[int] = []
    for collective in collectives:
        first, sent = len(operations), dict[int, int]()
        for message in collective.messages:
            after = tuple(first + number for number in message.after) or (begin,)
            within_node = message.nic != READY and _share_node(rank, message.peer, options.gpus_per_node)
            nic = message.nic + (NODE if within_node else NETWORK)
            before = (sent[nic],) if message.verb == "send" and nic in sent else ()
            if message.verb == "send":
                sent[nic] = len(operations)
            operations.append(message._replace(cpu=0 if is_proxied else cpu, after=after, nic=nic, after_begin=before))
        last += [first + number for number in collective.last]
    rest_ns = max(collective.duration_ns if measured else collective.excess_ns for collective in collectives)
    operations.append(Operation("calc", rest_ns, cpu, tuple(last) or (begin,)))


def _share_node(rank: int, peer: int, gpus: int) -> bool:
    return gpus > 0 and rank // gpus == peer // gpus


def _wait(graph: ExecutionGraph, times: MeasuredTimes, edges: Edges, first: Bool, begin_ns: int) -> Int64:
    """Returns the time (ns) on the cpu between the end of each node's dependencies and the node.

    The first node of a lane, and a delay without dependencies, start at their measured time; the rank began `begin_ns`
    after the first rank.
    """
    rooted = np.bincount(edges.target, minlength=len(graph)) == 0
    gap = chain_gaps(graph, edges).gap + graph.integers("host_delay_ns", 0)
    at_start = begin_ns + np.maximum(times.start_ns, 0)
    return np.where(rooted, np.where(first | graph.is_delay, at_start, 0), gap)


def _first_of_cpu(cpu: Int64, rows: Int64) -> Bool:
    first = np.zeros(len(cpu), np.bool_)
    first[rows[np.unique(cpu[rows], return_index=True)[1]]] = True
    return first
