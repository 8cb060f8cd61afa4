"""A rank's graph as operations: who waits for whom, what computes for how long, what is sent where.

A node follows what its dependencies end with. Computation is a calc on the cpu of its lane, which lasts its host delay,
its gap and its duration; delays are calcs beside. Communication begins with a calc of its gap, goes on with the
messages that its algorithm gives the rank, and ends with a calc on its lane when all of them are over. What has nobody
to meet is a calc of its measured time.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ....schema.columns import Bool, Int64, Ragged
from ....schema.graph import ExecutionGraph
from ...edit import SILENT, data_edges, spliced
from .cpus import Cpus
from .goal_options import GoalOptions
from .operations import NETWORK, NODE, Operation, in_order
from .rank_communication import MeasuredTimes
from .rank_messages import MeetingMessages


class RankStart(NamedTuple):
    """Where a rank is in the job, and when it began, in ns."""

    number: int
    begin_ns: int


def rank_program(
    graph: ExecutionGraph,
    times: MeasuredTimes,
    cpus: Cpus,
    place: RankStart,
    met: Mapping[int, list[MeetingMessages]],
    options: GoalOptions,
) -> list[Operation]:
    """Returns the operations of a rank, each after those that it waits for. O(n + e + messages)."""
    operations: list[Operation] = []
    before = _dependencies(graph)
    rows = np.argsort(graph.id, kind="stable")
    rows = rows[cpus.of_node[rows] >= 0]
    wait = _wait(graph, times, before, _first_of_cpu(cpus.of_node, rows), place.begin_ns)
    starts, sources, ends, last = before.starts.tolist(), before.values.tolist(), [-1] * len(graph), dict[int, int]()
    columns = (rows, cpus.of_node[rows], wait[rows], graph.duration_ns[rows])
    for row, cpu, waits, lasts in zip(*(column.tolist() for column in columns), strict=True):
        after = in_order(ends[source] for source in sources[starts[row] : starts[row + 1]])
        if not after and cpu in last:
            # what depends on nothing known keeps its place in the lane
            after = (last[cpu],)
        if row in met:
            operations.append(Operation("calc", waits, cpu, after))
            _communicate(operations, cpu, met[row], place.number, options)
        else:
            operations.append(Operation("calc", waits + lasts, cpu, after))
        ends[row] = last[cpu] = len(operations) - 1
    return operations


def _communicate(
    operations: list[Operation], cpu: int, meetings: list[MeetingMessages], rank: int, options: GoalOptions
) -> None:
    """Adds the messages of all meetings, after the last operation there is, and the end of them."""
    begin = len(operations) - 1
    measured, is_proxied = options.measured_communication, options.simulator == "loggopsim"
    over: list[int] = []
    for meeting in meetings:
        first = len(operations)
        for message in meeting.messages:
            after = tuple(first + number for number in message.after) or (begin,)
            nic = NODE if _share_node(rank, message.peer, options.gpus_per_node) else NETWORK
            operations.append(message._replace(cpu=0 if is_proxied else cpu, after=after, nic=nic))
        over += [first + number for number in meeting.last]
    lasts = max(meeting.lasts_ns for meeting in meetings) if measured else 0
    operations.append(Operation("calc", lasts, cpu, tuple(over) or (begin,)))


def _share_node(rank: int, peer: int, gpus: int) -> bool:
    return gpus > 0 and rank // gpus == peer // gpus


def _dependencies(graph: ExecutionGraph) -> Ragged:
    """Returns the rows that each row depends on, past those that run nowhere."""
    edges = spliced(data_edges(graph), np.isin(graph.type, SILENT))
    return Ragged.grouped(edges.target, edges.source, len(graph))


def _wait(graph: ExecutionGraph, times: MeasuredTimes, before: Ragged, first: Bool, begin_ns: int) -> Int64:
    """Returns what passes on the cpu between the end of the dependencies and the node.

    A lane's first node and delays that follow nothing begin when they did, in a rank that began `begin_ns` after the
    first one.
    """
    rooted = before.lengths() == 0
    usual = graph.integers("gap_ns", 0) + graph.integers("host_delay_ns", 0)
    at_start = begin_ns + np.maximum(times.start_ns, 0)
    return np.where(rooted, np.where(first | graph.is_delay, at_start, 0), usual)


def _first_of_cpu(cpu: Int64, rows: Int64) -> Bool:
    first = np.zeros(len(cpu), np.bool_)
    first[rows[np.unique(cpu[rows], return_index=True)[1]]] = True
    return first
