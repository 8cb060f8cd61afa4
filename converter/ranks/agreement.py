"""What the ranks of a job agree on, from all their summaries: the order of communication, sizes, missing partners.

The simulator runs one communication at a time per rank, so members that come in different orders deadlock.

Collectives that a simulator with one communication at a time may run after others that ended later.

Others depend on ends, so the order of ends is right by itself. But a short collective within a long one would then hold
up the long one from its beginning on, even if nobody needs the short one so soon.

Messages whose send waited for the receiver, and how a rank's graph keeps that.

NCCL's send ends when its receiver has taken the data, so it waits for a receiver that comes late. A simulator that
sends at once needs another message before: the receiver tells the sender that it is ready.

Applies the agreement of a job to one rank's graph: order of communication, sizes, missing partners.

Nodes are identified by id. The functions do not change the graphs that they take.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ...schema.columns import NodeIds, NodeNumbers, Ragged, earliest_order
from ...schema.errors import DataError
from ...schema.graph import CollectiveType, DependencyKind, ExecutionGraph, NodeType
from ..edges import Edges, deduplicated
from ..rewiring import control_edges, data_edges, edited_graph
from .communication_summary import CommunicationEntry

Summaries = Sequence[Sequence[CommunicationEntry]]
"""The communication entries of every rank."""

NAMED = 4
SHARDED = (CollectiveType.ALL_GATHER, CollectiveType.GATHER)


def common_order(summaries: Summaries) -> list[list[int]]:
    """Returns, for each rank, the ids of its communication nodes in the order of `common_positions`."""
    return [
        [entry.node for _, entry in sorted(zip(positions, issued, strict=True))]
        for issued, positions in zip(summaries, common_positions(summaries), strict=True)
    ]


def common_positions(summaries: Summaries) -> list[list[int]]:
    """Returns the position of each entry in an order of communication that all ranks share and that keeps their
    dependencies. A collective has one position on all its members, a send one before that of its receive.

    Communication is ordered by when it ended, as far as dependencies allow. O(n log n) in all entries. Raises DataError
    if the dependencies of different ranks contradict each other.
    """
    # a message has two events, as its send does not wait for the receive; a collective has one
    events: dict[tuple[int, bool], int] = {}
    of_issue = [
        [events.setdefault((entry.matched, entry.type is NodeType.COMM_RECV), len(events)) for entry in issued]
        for issued in summaries
    ]
    ended_ns, dependents = [0] * len(events), [list[int]() for _ in events]
    for issued, rank_events in zip(summaries, of_issue, strict=True):
        for entry, event in zip(issued, rank_events, strict=True):
            ended_ns[event] = max(ended_ns[event], entry.end_ns)
            for before in entry.follows:
                dependents[rank_events[before]].append(event)
    for (matched, is_receive), event in events.items():
        if is_receive and (matched, False) in events:
            dependents[events[matched, False]].append(event)
    positions = _positions(ended_ns, dependents, _words(summaries, of_issue))
    return [[positions[event] for event in rank_events] for rank_events in of_issue]


def _positions(ended_ns: list[int], dependents: list[list[int]], words: dict[int, str]) -> list[int]:
    """Returns the position of each event in a topological order, the earliest ready event first."""
    edges = Ragged.of(dependents)
    order = earliest_order(edges.rows(), edges.values, np.array(ended_ns, np.int64))
    position = np.full(len(ended_ns), -1)
    position[order] = np.arange(len(order))
    if len(order) < len(position):
        raise DataError(_contradiction(position.tolist(), dependents, words))
    positions: list[int] = position.tolist()
    return positions


def _contradiction(position: list[int], dependents: list[list[int]], words: dict[int, str]) -> str:
    """Returns a message about a circle of events. Each event without a position has a dependency without one, so
    walking back ends in a circle.
    """
    before = {after: event for event, events in enumerate(dependents) if position[event] < 0 for after in events}
    event, walked = next(iter(before.values())), list[int]()
    while event not in walked:
        walked.append(event)
        event = before[event]
    circle = [words[event] for event in reversed(walked[walked.index(event) :])]
    more = f" -> {len(circle) - NAMED} more" if len(circle) > NAMED else ""
    return (
        f"the ranks' communication depends on itself in a circle of {len(circle)}: "
        f"{' -> '.join(circle[:NAMED])}{more}; "
        "check that all traces are of one run"
    )


def _words(summaries: Summaries, of_issue: Sequence[Sequence[int]]) -> dict[int, str]:
    """Returns a description of each event, by the first rank that takes part in it."""
    words: dict[int, str] = {}
    for position, (issued, rank_events) in enumerate(zip(summaries, of_issue, strict=True)):
        for entry, event in zip(issued, rank_events, strict=True):
            kind = entry.type if entry.collective < 0 else CollectiveType(entry.collective)
            words.setdefault(event, f"{kind.name.lower()} (node {entry.node} of the rank at {position})")
    return words


def common_sizes(summaries: Summaries) -> list[dict[int, int]]:
    """Returns, for each rank, the bytes by node id that all members of a collective should have, where recorded ones
    differ.

    Gathered shards keep their sum; otherwise the largest size counts, as the others wait for the busiest member.
    """
    sizes: defaultdict[int, list[int]] = defaultdict(list)
    for entry in (entry for issued in summaries for entry in issued):
        sizes[entry.matched].append(entry.size)
    return [
        {
            entry.node: common
            for entry in issued
            if (common := _common(sizes[entry.matched], entry.collective in SHARDED)) != entry.size
        }
        for issued in summaries
    ]


def _common(sizes: list[int], sharded: bool) -> int:
    return -(-sum(sizes) // len(sizes)) if sharded else max(sizes)


def unmatched(summaries: Summaries) -> list[list[int]]:
    """Returns, for each rank, the ids of communication nodes without all counterparts, which would wait for ever."""
    sides: defaultdict[int, set[tuple[int, NodeType]]] = defaultdict(set)
    for rank, issued in enumerate(summaries):
        for entry in issued:
            sides[entry.matched].add((rank, entry.type))
    return [
        [entry.node for entry in issued if len(sides[entry.matched]) < (entry.members or len(summaries))]
        for issued in summaries
    ]


Communications = Sequence[Sequence[CommunicationEntry]]


def with_deferred_ends(issued: Communications) -> list[list[CommunicationEntry]]:
    """Returns the entries of all ranks, on one clock, with later ends of collectives that can wait.

    One that on all its members began within a longer one ends just after these now, if that makes no rank end later. It
    began when its last member came. O(n log n), apart from the collectives that run at once.
    """
    start_ns, latest_ns, members = defaultdict[int, int](int), dict[int, int](), defaultdict[int, int](int)
    for entry in (entry for entries in issued for entry in entries):
        start_ns[entry.matched] = max(start_ns[entry.matched], entry.start_ns)
        latest = entry.end_ns + entry.slack_ns
        latest_ns[entry.matched] = min(latest_ns.get(entry.matched, latest), latest)
        members[entry.matched] += 1
    after_ns = defaultdict[int, list[int]](list)
    for entries in issued:
        for matched, end_ns in _longer_ends(entries, start_ns, latest_ns).items():
            after_ns[matched].append(end_ns)
    deferred = {number: max(ends) + 1 for number, ends in after_ns.items() if len(ends) == members[number]}
    return [
        [entry._replace(end_ns=max(entry.end_ns, deferred.get(entry.matched, 0))) for entry in entries]
        for entries in issued
    ]


def _longer_ends(
    entries: Sequence[CommunicationEntry], start_ns: dict[int, int], latest_ns: dict[int, int]
) -> dict[int, int]:
    """Returns for a rank's collectives that began within longer ones, by number, the last end of these that is early
    enough.
    """
    ends, running = dict[int, int](), list[CommunicationEntry]()
    collectives = [entry for entry in entries if entry.collective >= 0 and not entry.on_host]
    for entry in sorted(collectives, key=lambda entry: (start_ns[entry.matched], -entry.end_ns)):
        running = [other for other in running if other.end_ns > start_ns[entry.matched]]
        longer = [other.end_ns for other in running if entry.end_ns < other.end_ns < latest_ns[entry.matched]]
        if longer:
            ends[entry.matched] = max(longer)
        running.append(entry)
    return ends


READY_TAGS = 1 << 30
"""The tags of ready messages begin here, above those of recorded ones."""

Issued = Sequence[Sequence[CommunicationEntry]]


class SimulatedOrder(NamedTuple):
    """What a rank's graph keeps of the common order, by node id: the position of each communication, of a receive that
    of its send; and the tag of the ready message of each send that waits and of its receive. `awaited` are the numbers
    of the matches of these.
    """

    positions: dict[int, int]
    ready: dict[int, int]
    awaited: frozenset[int]


class _Send(NamedTuple):
    position: int
    end_ns: int


def simulated_orders(issued: Issued, positions: Sequence[Sequence[int]]) -> list[SimulatedOrder]:
    """Returns what each rank keeps, from the matched entries of all ranks on one clock and their common positions.

    A send waited for its receiver if it ended after the receiver's kernel had begun. It gets a ready message if all
    that the receiver's kernel depends on comes before the send in the common order: then no rank waits in a circle.
    """
    sends, ready = dict[int, _Send](), dict[int, int]()
    for entries, of_rank in zip(issued, positions, strict=True):
        ends = dict[int, int]()
        for entry in entries:
            ends[entry.kernel] = max(ends.get(entry.kernel, 0), entry.end_ns)
        for entry, position in zip(entries, of_rank, strict=True):
            if entry.type is NodeType.COMM_SEND:
                sends[entry.matched] = _Send(position, ends[entry.kernel])
    for entries, of_rank in zip(issued, positions, strict=True):
        firsts = dict[int, CommunicationEntry]()
        for entry in entries:
            first, send = firsts.setdefault(entry.kernel, entry), sends.get(entry.matched)
            is_met = send is not None and entry.type is NodeType.COMM_RECV and send.end_ns > first.start_ns
            if send and is_met and all(of_rank[before] < send.position for before in first.follows):
                ready[entry.matched] = READY_TAGS + entry.matched
    return [
        SimulatedOrder(
            {
                entry.node: sends[entry.matched].position if entry.matched in sends else position
                for entry, position in zip(entries, of_rank, strict=True)
            },
            {entry.node: ready[entry.matched] for entry in entries if entry.matched in ready},
            frozenset(entry.matched for entry in entries if entry.matched in ready),
        )
        for entries, of_rank in zip(issued, positions, strict=True)
    ]


def order_collectives(graph: ExecutionGraph, order: Sequence[int]) -> ExecutionGraph:
    """Returns the graph with a dependency of kind collective between each two consecutive nodes of `order`.

    Its ids change where they contradict the order. Raises DataError if the order contradicts the graph's dependencies.
    """
    rows = graph.rows_of(NodeIds(np.array(order, np.int64)))
    chain = Edges.of(NodeNumbers(rows[:-1]), NodeNumbers(rows[1:]), DependencyKind.COLLECTIVE)
    data = deduplicated(Edges.joined([data_edges(graph), chain]), len(graph))
    return edited_graph(graph, NodeNumbers(np.arange(len(graph))), data, control_edges(graph))


def resize_communication(graph: ExecutionGraph, sizes: Mapping[int, int]) -> ExecutionGraph:
    """Returns the graph with these sizes, in bytes, by node id."""
    return _with_values(graph, "comm_size", sizes)


def add_excess_time(graph: ExecutionGraph, excess_ns: Mapping[int, int]) -> ExecutionGraph:
    """Returns the graph with how much longer than in the fitted network each collective took, by node id."""
    return _with_values(graph, "excess_ns", excess_ns)


def replay_collectives(graph: ExecutionGraph, nodes: Sequence[int]) -> ExecutionGraph:
    """Returns the graph with these collectives, by node id, as broadcasts, which ASTRA-sim runs for their time."""
    return _with_values(graph, "comm_type", dict.fromkeys(nodes, int(CollectiveType.BROADCAST)))


def add_simulated_order(graph: ExecutionGraph, order: SimulatedOrder) -> ExecutionGraph:
    """Returns the graph with the positions of its communication and the tags of ready messages."""
    return _with_values(_with_values(graph, "comm_order", order.positions), "ready_tag", order.ready)


def _with_values(graph: ExecutionGraph, attribute: str, values: Mapping[int, int]) -> ExecutionGraph:
    if not values:
        return graph
    column = graph.integers(attribute)
    column[graph.rows_of(NodeIds(np.fromiter(values, np.int64, len(values))))] = list(values.values())
    return dataclasses.replace(graph, attributes={**graph.attributes, attribute: column})


def compute_instead(graph: ExecutionGraph, nodes: Sequence[int]) -> ExecutionGraph:
    """Returns the graph with these nodes as computation of their measured duration."""
    types = graph.type.copy()
    types[graph.rows_of(NodeIds(np.array(nodes, np.int64)))] = NodeType.COMP
    return dataclasses.replace(graph, type=types)
