"""The graphs of several ranks in, the communication nodes that meet out.

Members of one collective agree in process group and sequence number, a send and its receive in source, destination and
tag; repetitions pair off in order of id. What has no counterpart among the given ranks meets nobody.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..converter.targets.meetings import Call, meetings
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
    met: defaultdict[Hashable, list[int]] = defaultdict(list)
    ranks: defaultdict[Hashable, set[int]] = defaultdict(set)
    rows = [_rows_by_id(graph, NodeType.COMM_COLL) for graph in graphs]
    keys = meetings([_calls(graph, own) for graph, own in zip(graphs, rows, strict=True)])
    first_row = 0
    for rank, graph in enumerate(graphs):
        found = [*zip(rows[rank], keys[rank], strict=True), *_messages(graph, rank)]
        for row, key in found:
            met[key].append(first_row + row)
            ranks[key].add(rank)
        first_row += len(graph)
    pairs = Ragged.of([members for key, members in met.items() if len(ranks[key]) > 1])
    return Meetings(pairs.values, pairs.rows(), len(pairs))


def _rows_by_id(graph: ExecutionGraph, *types: NodeType) -> list[int]:
    rows = np.flatnonzero(np.isin(graph.type, types))
    by_id: list[int] = rows[np.argsort(graph.id[rows], kind="stable")].tolist()
    return by_id


def _calls(graph: ExecutionGraph, rows: Sequence[int]) -> list[Call]:
    """The collectives in these rows, by the ranks of their group, where these are not recorded by its name."""
    ranks, name, recorded = graph.attributes.get("pg_ranks"), graph.texts("pg_name"), graph.texts("pg_recorded")
    kind, sequence = graph.integers("comm_type", -1), graph.integers("comm_seq", -1)

    def call(row: int) -> Call:
        members = ranks[row].tobytes() if isinstance(ranks, Ragged) else b""
        # PyTorch 2.1 records where a group lies in a process's memory, which tells those of the same ranks apart on no other rank
        label = "" if ADDRESS.fullmatch(recorded[row]) else recorded[row]
        return Call(members, label if members else name[row], int(kind[row]), int(sequence[row]))

    return [call(row) for row in rows]


def _messages(graph: ExecutionGraph, rank: int) -> Iterator[tuple[int, Hashable]]:
    """The row of each message, and what its other end has in common with it; a node that carries several comes once for each."""
    seen: Counter[Hashable] = Counter()
    keys = _message_keys(graph, rank)
    # a send without a time of its own is part of a kernel that carried several messages, and its last one has the kernel's time
    instant = (graph.type == NodeType.COMM_SEND) & (graph.duration_ns == 0)
    for row in _rows_by_id(graph, NodeType.COMM_SEND, NodeType.COMM_RECV):
        for key, sends in () if instant[row] else keys(row):
            yield row, (key, seen[key, sends])
            seen[key, sends] += 1


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
