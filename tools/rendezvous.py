"""The graphs of several ranks in, the communication nodes that meet out.

Members of one collective agree in process group and sequence number, a send and its receive in source, destination and
tag; repetitions pair off in order of id. What has no counterpart among the given ranks meets nobody.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..schema.columns import ABSENT, Int64, Ragged
from ..schema.comm_groups import ADDRESS
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
        for row, key, sends in _keys(graph, rank):
            meeting = (key, seen[key, sends])
            seen[key, sends] += 1
            members[meeting].append(first_row + row)
            ranks[meeting].add(rank)
        first_row += len(graph)
    met = [rows for key, rows in members.items() if len(ranks[key]) > 1]
    pairs = Ragged.of(met)
    return Meetings(pairs.values, pairs.rows(), len(met))


def _keys(graph: ExecutionGraph, rank: int) -> Iterator[tuple[int, Hashable, bool]]:
    """Each communication node's row, what its counterparts on other ranks have in common with it, and whether it sends; by id.

    A node that carries several messages comes once for each.
    """
    collective, messages = _collective_key(graph), _message_keys(graph, rank)
    # a send without a time of its own is part of a kernel that carried several messages, and its last one has the kernel's time
    instant = (graph.type == NodeType.COMM_SEND) & (graph.duration_ns == 0)
    talks = np.isin(graph.type, (NodeType.COMM_COLL, NodeType.COMM_SEND, NodeType.COMM_RECV))
    rows = np.flatnonzero(talks & ~instant)
    for row in rows[np.argsort(graph.id[rows], kind="stable")].tolist():
        if graph.type[row] == NodeType.COMM_COLL:
            yield row, collective(row), False
        else:
            yield from ((row, key, sends) for key, sends in messages(row))


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


def _message_keys(graph: ExecutionGraph, rank: int) -> Callable[[int], list[tuple[Hashable, bool]]]:
    own = int(graph.metadata.get("rank", rank))
    source, destination = graph.integers("comm_src"), graph.integers("comm_dst")
    tag = graph.integers("comm_tag", 0)
    together = [graph.attributes.get(f"coalesced_{side}") for side in ("src", "dst", "tag")]

    def side(peer: int) -> int:
        # a side that is not recorded is the node's own rank
        return own if peer == ABSENT else peer

    def keys(row: int) -> list[tuple[Hashable, bool]]:
        several = [column[row].tolist() for column in together if isinstance(column, Ragged)]
        if len(several) == len(together) and several[0]:
            return [(message, message[0] == own) for message in zip(*several, strict=True)]
        one = side(int(source[row])), side(int(destination[row])), int(tag[row])
        return [(one, bool(graph.type[row] == NodeType.COMM_SEND))]

    return keys
