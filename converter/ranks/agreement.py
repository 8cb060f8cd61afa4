"""What the ranks of a job agree on so that a simulator can run them together: one order of communication, one size of
each collective, what lacks a partner, and which sends wait. All of it is columns over the `matched_calls` of all ranks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ...schema import columns
from ...schema.columns import ABSENT, Bool, Int64, NodeIds, NodeNumbers, group_ids, groupby, is_group_start
from ...schema.errors import DataError
from ...schema.graph import CollectiveType, DependencyKind, ExecutionGraph, NodeType
from ..edges import Edges, deduplicated, known_after
from ..rewiring import COMMUNICATION, control_edges, data_edges, edited_graph, lanes_of, spliced
from .calls import Calls, graph_calls, match, measured_times, slack_ns
from .clocks import begin_of_ranks
from .groups import OUTSIDE, recorded_groups

NAMED = 4
SHARDED = (CollectiveType.ALL_GATHER, CollectiveType.GATHER)
NODES_BETWEEN = 10_000
"""How far the ids of two collectives of a job that follow each other are apart, or a larger power of ten."""
READY_TAGS = 1 << 30
"""The tags of ready messages begin here, above those of recorded ones."""


@dataclass(frozen=True, slots=True)
class SimulatedCalls(Calls):
    """The calls of a rank, or of a job on one clock, with what a simulator has to know of each. A call has the number
    of `members`, 0 if not known, and in `transfer_ns` its share of its kernel's time. `kernel` numbers the kernels of
    messages, -1 for a collective. Row `after[i]` depends on row `before[i]`.
    """

    node: Int64
    members: Int64
    transfer_ns: Int64
    kernel: Int64
    slack_ns: Int64
    before: Int64
    after: Int64
    offset_ns: Int64
    SHARED: ClassVar[tuple[str, ...]] = (*Calls.SHARED, "before", "after", "offset_ns")

    def by_node(self, values: Int64, chosen: Bool) -> list[dict[int, int]]:
        """Returns for each rank the values of the chosen calls by the ids of their nodes."""
        of_ranks = [dict[int, int]() for _ in self.offset_ns]
        facts = (self.rank, self.node, values)
        for rank, node, value in zip(*(column[chosen].tolist() for column in facts), strict=True):
            of_ranks[rank][node] = value
        return of_ranks

    def without(self, removed: Bool) -> "SimulatedCalls":
        """Returns the other calls; successors of a removed one follow its predecessors."""
        row = np.cumsum(~removed) - 1
        edges = spliced(Edges.of(NodeNumbers(self.before), NodeNumbers(self.after), 0), removed)
        return replace(self.take(~removed), before=row[edges.source], after=row[edges.target])


def communication_summary(graph: ExecutionGraph) -> SimulatedCalls:
    """Returns the communication of a graph in topological order, without messages of peers that are not simulated."""
    groups, is_message = recorded_groups(graph), graph.type != NodeType.COMM_COLL
    # the last is for nodes whose group is not known, -1
    members = np.array([*map(len, groups.lists), max(graph.number("world_size", -1), 0)])[groups.of_node]
    lacks_end = (np.stack([graph.integers(name) for name in ("comm_src", "comm_dst")]) == OUTSIDE).any(axis=0)
    is_there = np.isin(graph.type, COMMUNICATION) & ~(is_message & lacks_end)
    rows = NodeNumbers(np.flatnonzero(is_there))
    calls, (transfer, kernel) = graph_calls(graph, rows, graph.number("rank", -1)), _transfers(graph)
    rows = NodeNumbers(calls.row)
    before, after = _follows(graph, rows)
    return SimulatedCalls(
        calls.groups, **calls.columns | {"size": np.maximum(calls.size, 0)}, node=graph.id[rows],
        members=np.where(is_message, 2, members)[rows], transfer_ns=transfer[rows], kernel=kernel[rows],
        slack_ns=slack_ns(graph, measured_times(graph))[rows], before=before, after=after,
        offset_ns=np.zeros(1, np.int64), steps=calls.steps,
    )  # fmt: skip


def _transfers(graph: ExecutionGraph) -> tuple[Int64, Int64]:
    """Returns what each communication took of its kernel's time, and the number of the kernel of each message."""
    transfer, kernels = graph.duration_ns.copy(), np.full(len(graph), -1, np.int64)
    rows = np.flatnonzero(np.isin(graph.type, (NodeType.COMM_SEND, NodeType.COMM_RECV)))
    of_kernel = groupby(lanes_of(graph)[rows], graph.start_ns[rows])
    one_way = groupby(of_kernel.number, graph.type[rows] == NodeType.COMM_SEND)
    size = np.maximum(graph.integers("comm_size", 0)[rows], 0)
    longest_ns, way_bytes = of_kernel.largest(transfer[rows])[of_kernel.number], one_way.sum(size)[one_way.number]
    # the product of bytes and ns is beyond 64 bits
    transfer[rows] = np.round(longest_ns * (size / np.maximum(way_bytes, 1)))
    kernels[rows] = of_kernel.number
    return transfer, kernels


def _follows(graph: ExecutionGraph, rows: Int64) -> tuple[Int64, Int64]:
    """Returns pairs of positions among the rows: for each row the last ones on every lane on which it depends."""
    lane, lane_of_row = np.full(len(graph), -1, np.int64), group_ids(lanes_of(graph)[rows])
    lane[rows] = lane_of_row
    clocks = known_after(data_edges(graph), lane, int(lane_of_row.max(initial=-1)) + 1)
    position = {row: index for index, row in enumerate(rows.tolist())}
    previous = columns.previous_in_group(np.argsort(lane_of_row, kind="stable"), lane_of_row).tolist()
    pairs = [
        (before, index)
        for row, index in position.items()
        for before in sorted({previous[index], *(position.get(known, -1) for known in clocks[row])} - {-1, index})
    ]
    before, after = np.array(pairs, np.int64).reshape(-1, 2).T
    return before, after


def matched_calls(summaries: Sequence[SimulatedCalls]) -> SimulatedCalls:
    """Returns the calls of all ranks, matched and on one clock. O(n log n) in all calls."""
    first_row = np.cumsum([0, *map(len, summaries)][:-1], dtype=np.int64).tolist()
    numbered = zip(summaries, first_row, strict=True)
    calls = match([replace(rank, before=rank.before + row, after=rank.after + row) for rank, row in numbered])
    offset = begin_of_ranks(len(summaries), calls)
    start, end = calls.start_ns + offset[calls.rank], calls.end_ns + offset[calls.rank]
    return replace(calls, start_ns=start, end_ns=end, offset_ns=offset)


def lacks_members(calls: SimulatedCalls) -> Bool:
    """Returns which calls lack a counterpart, so that they would wait for ever."""
    sides = np.unique(np.stack((calls.matched, calls.rank, calls.type)), axis=1)[0]
    there = np.bincount(sides, minlength=1)[calls.matched]
    return np.asarray(there < np.where(calls.members > 0, calls.members, len(calls.offset_ns)))


def common_sizes(calls: SimulatedCalls) -> Int64:
    """Returns the bytes of each call, equal on all members: gathered shards keep their sum, else the largest count."""
    matches = groupby(calls.matched)
    mean, largest = -(-matches.sum(calls.size) // matches.count()), matches.largest(calls.size)
    return np.where(np.isin(calls.kind, SHARDED), mean[matches.number], largest[matches.number])


def with_deferred_ends(calls: SimulatedCalls) -> SimulatedCalls:
    """Lets short collectives end just after the longer ones that they would hold up, if no rank ends later by that."""
    matches = groupby(calls.matched)
    start, latest = matches.largest(calls.start_ns), matches.smallest(calls.end_ns + calls.slack_ns)
    rows = np.flatnonzero((calls.kind >= 0) & ~calls.on_host)
    rows = rows[np.lexsort((-calls.end_ns[rows], start[matches.number[rows]], calls.rank[rows]))]
    matched = matches.number[rows]
    facts = (calls.rank[rows], matched, start[matched], calls.end_ns[rows], latest[matched])
    within, until = np.zeros(len(matches), np.int64), np.zeros(len(matches), np.int64)
    running, last_rank = list[int](), -1
    for rank, match_number, begin, end, last_end in zip(*(column.tolist() for column in facts), strict=True):
        running = [longer for longer in running if longer > begin] if rank == last_rank else []
        if early_enough := [longer for longer in running if end < longer < last_end]:
            within[match_number] += 1
            until[match_number] = max(until[match_number], max(early_enough) + 1)
        running.append(end)
        last_rank = rank
    until[within < matches.count()] = 0
    return replace(calls, end_ns=np.maximum(calls.end_ns, until[matches.number]))


def common_order(calls: SimulatedCalls) -> list[list[int]]:
    """Returns, for each rank, the ids of its communication nodes in the order of `common_positions`."""
    positions = common_positions(calls)
    rows = [np.flatnonzero(calls.rank == rank) for rank in range(len(calls.offset_ns))]
    return [calls.node[of_rank[np.argsort(positions[of_rank], kind="stable")]].tolist() for of_rank in rows]


def common_positions(calls: SimulatedCalls) -> Int64:
    """Returns the position of each call in one order for all ranks, which would deadlock in different ones. A
    collective has one position on all its members, a send one before that of its receive.
    """
    # a message has two events, as its send does not wait for the receive; a collective has one
    is_receive = calls.type == NodeType.COMM_RECV
    events = groupby(calls.matched, is_receive)
    # of those that end together the one that comes first in the calls goes first
    events = events.in_order(np.argsort(events.first))
    event, first = events.number, events.first
    sent = np.full(int(calls.matched.max(initial=-1)) + 1, -1)
    sent[calls.matched[~is_receive]] = event[~is_receive]
    received = np.flatnonzero(is_receive[first])
    source = np.concatenate((event[calls.before], sent[calls.matched[first[received]]]))
    target = np.concatenate((event[calls.after], received))
    edges = Edges.of(NodeNumbers(source), NodeNumbers(target), 0)
    order = columns.earliest_order(edges.source, edges.target, events.largest(calls.end_ns))
    position = columns.positions(order, len(first))
    if len(order) < len(first):
        raise DataError(_contradiction(calls, first, edges.where(position[edges.source] < 0)))
    return position[event]


def _contradiction(calls: SimulatedCalls, first: Int64, stuck: Edges) -> str:
    """Returns a message about a circle of events, found by walking back; `first` is a call of each."""
    by_source = np.argsort(stuck.source, kind="stable")
    before = dict(zip(stuck.target[by_source].tolist(), stuck.source[by_source].tolist(), strict=True))
    event, walked = next(iter(before.values())), list[int]()
    while event not in walked:
        walked.append(event)
        event = before[event]
    circle = []
    for row in first[walked[walked.index(event) :]][::-1].tolist():
        kind = CollectiveType(calls.kind[row]) if calls.kind[row] >= 0 else NodeType(calls.type[row])
        circle.append(f"{kind.name.lower()} (node {calls.node[row]} of the rank at {calls.rank[row]})")
    more = f" -> {len(circle) - NAMED} more" if len(circle) > NAMED else ""
    return (
        f"the ranks' communication depends on itself in a circle of {len(circle)}: {' -> '.join(circle[:NAMED])}{more}; "
        "check that all traces are of one run"
    )


def shared_ids(calls: SimulatedCalls, positions: Int64) -> Int64:
    """Returns a node id for each collective, equal on all its members and in the order of positions, 0 for messages."""
    is_one = calls.type == NodeType.COMM_COLL
    number = group_ids(np.where(is_one, positions, -1)) + int(is_one.all())
    order = np.lexsort((calls.node, calls.rank))
    between = np.where(is_group_start(calls.rank[order]), calls.node[order], np.diff(calls.node[order], prepend=0))
    # for each node between two calls one for its delay may be added
    apart = max(NODES_BETWEEN, 10 ** len(str(2 * between.max(initial=0))))
    return np.where(is_one, number * apart, 0)


def simulated_order(calls: SimulatedCalls, positions: Int64) -> tuple[Int64, Int64]:
    """Returns for each call its position, of a receive that of its send, and the tags of ready messages, else ABSENT.
    NCCL's send ends when its receiver has taken the data: one that ended after the receiver's kernel began had waited.
    """
    kernels, latest_before = groupby(calls.rank, calls.kernel), np.full(len(calls), -1)
    kernel, kernel_end = kernels.number, kernels.largest(calls.end_ns)
    np.maximum.at(latest_before, calls.after, positions[calls.before])
    send_of = np.full(int(calls.matched.max(initial=-1)) + 1, -1)
    sends, receives = (np.flatnonzero(calls.type == kind) for kind in (NodeType.COMM_SEND, NodeType.COMM_RECV))
    send_of[calls.matched[sends]] = sends
    receives = receives[send_of[calls.matched[receives]] >= 0]
    send, begun = send_of[calls.matched[receives]], kernels.first[kernel[receives]]
    waited = (kernel_end[kernel[send]] > calls.start_ns[begun]) & (latest_before[begun] < positions[send])
    is_ready = np.isin(calls.matched, calls.matched[receives[waited]])
    of_send = send_of[calls.matched]
    position = np.where(of_send >= 0, positions[of_send], positions)
    return position, np.where(is_ready, READY_TAGS + calls.matched, ABSENT)


def order_collectives(graph: ExecutionGraph, order: Sequence[int]) -> ExecutionGraph:
    """Returns the graph with the nodes of `order` one after the other; DataError if dependencies contradict that."""
    rows = graph.rows_of(NodeIds(np.array(order, np.int64)))
    chain = Edges.of(NodeNumbers(rows[:-1]), NodeNumbers(rows[1:]), DependencyKind.COLLECTIVE)
    data = deduplicated(Edges.joined([data_edges(graph), chain]), len(graph))
    return edited_graph(graph, data, control_edges(graph))


def with_values(graph: ExecutionGraph, attribute: str, values: Mapping[int, int]) -> ExecutionGraph:
    """Returns the graph with these values of an attribute, by node id."""
    if not values:
        return graph
    column = graph.integers(attribute)
    column[graph.rows_of(NodeIds(np.fromiter(values, np.int64, len(values))))] = list(values.values())
    return replace(graph, attributes={**graph.attributes, attribute: column})


def compute_instead(graph: ExecutionGraph, nodes: Sequence[int]) -> ExecutionGraph:
    """Returns the graph with these nodes as computation of their measured duration."""
    types = graph.type.copy()
    types[graph.rows_of(NodeIds(np.array(nodes, np.int64)))] = NodeType.COMP
    return replace(graph, type=types)
