"""Summary of the communication of one rank's graph, for the other ranks of the job."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...schema.columns import Bool, Int64, NodeNumbers, group_ids, previous_in_group
from ...schema.graph import ExecutionGraph, NodeType
from ..device_only import COMMUNICATION, known_after
from ..rewiring import data_edges, lanes_of
from .calls import Calls, awaits_all, graph_calls, match
from .clocks import MatchedTimes, begin_of_ranks, measured_times, slack_ns
from .groups import OUTSIDE, recorded_groups

UNKNOWN = -1


class CommunicationEntry(NamedTuple):
    """One communication of a rank: `node` is its id, `collective` its CollectiveType, -1 for a message.

    `matched` is the number of its match on all ranks, -1 before `match_entries`; `members` the number of members, 0 if
    not known. `end_ns` counts from the rank's first node. `transfer_ns` is its part of what its kernel took: of several
    messages of a kernel each has a share by its bytes. `kernel` numbers the kernels of a rank's messages, -1 for a
    collective. One that is `on_host` was run by a host thread. `follows` are positions of earlier entries of the rank
    on which it depends. With `slack_ns` it could have ended so much later without its rank ending later.
    """

    node: int
    type: NodeType
    collective: int
    matched: int
    members: int
    size: int
    end_ns: int
    length_ns: int
    transfer_ns: int
    kernel: int
    on_host: bool
    follows: tuple[int, ...]
    slack_ns: int = 0

    @property
    def start_ns(self) -> int:
        """When the communication began, on the clock of its end."""
        return self.end_ns - self.length_ns


class CommunicationSummary(NamedTuple):
    """The communication of a rank, with the call of each entry, by which it is matched."""

    calls: Calls
    entries: list[CommunicationEntry]


def communication_summary(graph: ExecutionGraph) -> CommunicationSummary:
    """Returns the communication of a graph, by id. O((n + e) · streams that communicate).

    The graph must be in topological order, with coalesced messages as separate nodes. Communication with a member or
    peer that is not simulated (rank -1) is omitted, as no other rank has to know of it.
    """
    rows = NodeNumbers(np.flatnonzero(np.isin(graph.type, COMMUNICATION) & ~_leads_outside(graph)))
    groups, world_size = recorded_groups(graph), graph.number("world_size", -1)
    # the last size is for nodes whose group is not known, -1
    sizes = np.array([*map(len, groups.lists), max(world_size, 0)])[groups.of_node]
    times = measured_times(graph)
    columns = (
        graph.id,
        graph.collective_types(),
        np.where(graph.type == NodeType.COMM_COLL, sizes, 2),
        np.maximum(graph.integers("comm_size", 0), 0),
        times.start_ns + graph.duration_ns,
        graph.duration_ns,
        *_transfers(graph),
        ~graph.is_activity,
    )
    types = (NodeType(kind) for kind in graph.type[rows].tolist())
    measured = (column[rows].tolist() for column in columns)
    facts = zip(types, *measured, _follows(graph, rows), slack_ns(graph, times)[rows].tolist(), strict=True)
    entries = [
        CommunicationEntry(node, kind, collective, UNKNOWN, *measured) for kind, node, collective, *measured in facts
    ]
    return CommunicationSummary(graph_calls(graph, rows, graph.number("rank", -1)), entries)


def _transfers(graph: ExecutionGraph) -> tuple[Int64, Int64]:
    """Returns what each communication took of its kernel's time, and the number of the kernel of each message.

    Messages of one kernel start together on its stream, and only the last one has its time. A rank's sends go one after
    the other in the simulator, so they share that time by their bytes, and so do its receives.
    """
    transfer, kernels = graph.duration_ns.copy(), np.full(len(graph), -1, np.int64)
    rows = np.flatnonzero(np.isin(graph.type, (NodeType.COMM_SEND, NodeType.COMM_RECV)))
    kernel = group_ids(lanes_of(graph)[rows], graph.start_ns[rows])
    same_way = group_ids(kernel, graph.type[rows].astype(np.int64))
    size = np.maximum(graph.integers("comm_size", 0)[rows], 0)
    longest_ns, kernel_bytes = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
    np.maximum.at(longest_ns, kernel, transfer[rows])
    np.add.at(kernel_bytes, same_way, size)
    # the product of bytes and ns is beyond 64 bits
    transfer[rows] = np.round(longest_ns[kernel] * (size / np.maximum(kernel_bytes[same_way], 1)))
    kernels[rows] = kernel
    return transfer, kernels


def match_entries(summaries: Sequence[CommunicationSummary]) -> list[list[CommunicationEntry]]:
    """Returns the entries of all ranks with the numbers of their matches. O(n log n) in all entries."""
    matched = match([summary.calls for summary in summaries]).matched
    return [
        [entry._replace(matched=number) for entry, number in zip(summary.entries, numbers.tolist(), strict=True)]
        for summary, numbers in zip(summaries, matched, strict=True)
    ]


def start_offsets(issued: Sequence[Sequence[CommunicationEntry]]) -> Int64:
    """Returns how much later than the first rank each one began, in ns, from the matched entries of all ranks.
    O(n log n).
    """
    rows = [
        (
            rank,
            entry.matched,
            entry.start_ns,
            entry.end_ns,
            entry.type != NodeType.COMM_COLL,
            entry.collective,
        )
        for rank, entries in enumerate(issued)
        for entry in entries
    ]
    columns = np.array(rows, np.int64).reshape(-1, 6)
    rank, matched, start, end, is_message, kind = columns[np.argsort(columns[:, 1], kind="stable")].T
    return begin_of_ranks(len(issued), MatchedTimes(rank, matched, start, end, is_message > 0, awaits_all(kind)))


def on_job_clock(
    issued: Sequence[Sequence[CommunicationEntry]], offsets: Sequence[int]
) -> list[list[CommunicationEntry]]:
    """Returns the entries of all ranks with ends on one clock, by how much later than the first rank each one began, in
    ns.
    """
    return [
        [entry._replace(end_ns=entry.end_ns + offset) for entry in entries]
        for entries, offset in zip(issued, offsets, strict=True)
    ]


def _leads_outside(graph: ExecutionGraph) -> Bool:
    groups = recorded_groups(graph)
    incomplete = np.array([*(OUTSIDE in ranks for ranks in groups.lists), False])
    peers = np.stack([graph.integers(name) for name in ("comm_src", "comm_dst")])
    of_message = graph.type != NodeType.COMM_COLL
    return np.asarray(np.where(of_message, (peers == OUTSIDE).any(axis=0), incomplete[groups.of_node]))


def _follows(graph: ExecutionGraph, rows: Int64) -> list[tuple[int, ...]]:
    """Returns for each of the rows the positions, among them, of the last ones on every lane on which it depends."""
    lane, lane_of_row = np.full(len(graph), -1, np.int64), group_ids(lanes_of(graph)[rows])
    lane[rows] = lane_of_row
    clocks = known_after(data_edges(graph), lane, int(lane_of_row.max(initial=-1)) + 1)
    position = {row: index for index, row in enumerate(rows.tolist())}
    before = previous_in_group(np.argsort(lane_of_row, kind="stable"), lane_of_row).tolist()
    follows = []
    for row, index in position.items():
        sources = {before[index], *(position.get(source, -1) for source in clocks[row])}
        follows.append(tuple(sorted(sources - {-1, index})))
    return follows
