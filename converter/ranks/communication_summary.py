"""Communication summary of one rank's graph: what the other ranks of the job have to know of it."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...schema.columns import Bool, Int64, group_ids, previous_in_group
from ...schema.graph import ExecutionGraph, NodeType
from ...schema.traces import FOREVER
from ..edit import COMMUNICATION, data_edges, known_after, lanes_of
from .calls import Calls, graph_calls
from .matching import match
from .recorded_groups import recorded_groups
from .subset import OUTSIDE

UNKNOWN = -1


class CommunicationEntry(NamedTuple):
    """One communication of a rank: `node` is its id, `collective` its CollectiveType, -1 for a message.

    `matched` is the number that its counterparts on other ranks have too, -1 before it is settled, `members` how many
    take part (0: not known). `end_ns` counts from the rank's first node, and it took `length_ns`. `follows` are places
    of the rank's earlier entries that it depends on.
    """

    node: int
    type: NodeType
    collective: int
    matched: int
    members: int
    size: int
    end_ns: int
    length_ns: int
    follows: tuple[int, ...]


class CommunicationSummary(NamedTuple):
    """What a rank communicates, and the calls by which that is matched, one for each entry."""

    calls: Calls
    entries: list[CommunicationEntry]


def communication_summary(graph: ExecutionGraph) -> CommunicationSummary:
    """Returns the communication of a graph, which must be in topological order, by id. O((n + e) · streams that
    communicate).

    Messages that went together must be separate nodes. Without what has a member or peer that is not simulated (rank
    -1): nobody else has to know of it.
    """
    rows = np.flatnonzero(np.isin(graph.type, COMMUNICATION) & ~_leads_outside(graph))
    groups, world_size = recorded_groups(graph), graph.number("world_size", -1)
    # the last is for nodes whose group is not known, -1
    sizes = np.array([*map(len, groups.lists), max(world_size, 0)])[groups.of_node]
    columns = (
        graph.id,
        graph.collective_types(),
        np.where(graph.type == NodeType.COMM_COLL, sizes, 2),
        np.maximum(graph.integers("comm_size", 0), 0),
        graph.start_ns + graph.duration_ns - graph.start_ns.min(initial=FOREVER),
        graph.duration_ns,
    )
    types = (NodeType(kind) for kind in graph.type[rows].tolist())
    facts = zip(types, *(column[rows].tolist() for column in columns), _follows(graph, rows), strict=True)
    found = [
        CommunicationEntry(node, kind, collective, UNKNOWN, members, size, end, length, follows)
        for kind, node, collective, members, size, end, length, follows in facts
    ]
    return CommunicationSummary(graph_calls(graph, rows, graph.number("rank", -1)), found)


def settled(summaries: Sequence[CommunicationSummary]) -> list[list[CommunicationEntry]]:
    """Returns the entries of all ranks with the numbers of their matches, which a rank alone cannot know. O(n log n) in
    all entries.
    """
    matched = match([own.calls for own in summaries]).matched
    return [
        [entry._replace(matched=number) for entry, number in zip(own.entries, numbers.tolist(), strict=True)]
        for own, numbers in zip(summaries, matched, strict=True)
    ]


def _leads_outside(graph: ExecutionGraph) -> Bool:
    groups = recorded_groups(graph)
    incomplete = np.array([*(OUTSIDE in ranks for ranks in groups.lists), False])
    peers = np.stack([graph.integers(name) for name in ("comm_src", "comm_dst")])
    of_message = graph.type != NodeType.COMM_COLL
    return np.asarray(np.where(of_message, (peers == OUTSIDE).any(axis=0), incomplete[groups.of_node]))


def _follows(graph: ExecutionGraph, rows: Int64) -> list[tuple[int, ...]]:
    """Returns for each of the rows the places, among them, of the last ones on every lane that it depends on."""
    lane, own = np.full(len(graph), -1, np.int64), group_ids(lanes_of(graph)[rows])
    lane[rows] = own
    clocks = known_after(data_edges(graph), lane, int(own.max(initial=-1)) + 1)
    place = {row: at for at, row in enumerate(rows.tolist())}
    before = previous_in_group(np.argsort(own, kind="stable"), own).tolist()
    return [
        tuple(
            sorted({at for at in (before[here], *(place.get(known, -1) for known in clocks[row])) if -1 < at != here})
        )
        for row, here in place.items()
    ]
