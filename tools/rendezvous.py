"""The graphs of several ranks in, the communication nodes that meet out.

Members of one collective agree in process group and sequence number, a send and its receive in source, destination and
tag; repetitions pair off in order of id. What has no counterpart among the given ranks meets nobody.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..converter.targets.issues import ADDRESS
from ..schema.columns import ABSENT, Int64, Ragged
from ..schema.graph import ExecutionGraph, NodeType


@dataclass(slots=True)
class Meetings:
    """Pairs (row, number of its meeting), sorted by meeting; rows count over all graphs, one after the other."""

    row: Int64
    meeting: Int64
    count: int


def rendezvous(graphs: Sequence[ExecutionGraph]) -> Meetings:
    """Who meets whom over ranks; linear in the communication nodes, which are sorted by id."""
    if len(graphs) < 2:
        return Meetings(np.empty(0, np.int64), np.empty(0, np.int64), 0)
    members: defaultdict[Hashable, list[int]] = defaultdict(list)
    ranks: defaultdict[Hashable, set[int]] = defaultdict(set)
    first_row = 0
    for rank, graph in enumerate(graphs):
        seen: Counter[Hashable] = Counter()
        for row, key in _keys(graph, rank):
            side = (key, int(graph.type[row]))
            meeting = (key, seen[side])
            seen[side] += 1
            members[meeting].append(first_row + row)
            ranks[meeting].add(rank)
        first_row += len(graph)
    met = [rows for key, rows in members.items() if len(ranks[key]) > 1]
    pairs = Ragged.of(met)
    return Meetings(pairs.values, pairs.rows(), len(met))


def _keys(graph: ExecutionGraph, rank: int) -> Iterator[tuple[int, Hashable]]:
    """Each communication node's row and what its counterparts on other ranks have in common with it, by id."""
    collective = _collective_key(graph)
    point_to_point = _point_to_point_key(graph, rank)
    key_of = {
        NodeType.COMM_COLL: collective,
        NodeType.COMM_SEND: point_to_point,
        NodeType.COMM_RECV: point_to_point,
    }
    rows = np.flatnonzero(np.isin(graph.type, list(key_of)))
    for row in rows[np.argsort(graph.id[rows], kind="stable")].tolist():
        yield row, key_of[NodeType(int(graph.type[row]))](row)


def _collective_key(graph: ExecutionGraph) -> Callable[[int], Hashable]:
    ranks = graph.attributes.get("pg_ranks")
    name, recorded = graph.texts("pg_name"), graph.texts("pg_recorded")
    sequence = graph.integers("comm_seq")

    def key(row: int) -> Hashable:
        members = ranks[row].tobytes() if isinstance(ranks, Ragged) else b""
        # two groups of the same ranks count their sequence numbers each for itself: the recorded name tells them apart, but for
        # PyTorch 2.1, which records where a group lies in a process's memory
        label = "" if ADDRESS.fullmatch(recorded[row]) else recorded[row]
        return (members, label) if members else (name[row],), int(sequence[row])

    return key


def _point_to_point_key(graph: ExecutionGraph, rank: int) -> Callable[[int], Hashable]:
    own = graph.metadata.get("rank", rank)
    source, destination = graph.integers("comm_src"), graph.integers("comm_dst")
    tag = graph.integers("comm_tag", 0)

    def side(peer: int) -> str | int:
        # a side that is not recorded is the node's own rank
        return own if peer == ABSENT else peer

    def key(row: int) -> Hashable:
        return side(int(source[row])), side(int(destination[row])), int(tag[row])

    return key
