"""What the ranks of a job have to know of each other's communication: a small summary of one rank's graph."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ...schema.columns import Bool, Int64
from ...schema.comm_groups import ADDRESS, RankList
from ...schema.graph import ExecutionGraph, NodeType
from ...schema.groups import numbered, previous_in_group
from ...schema.times import FOREVER
from ..device_only import COMMUNICATION
from ..lane_clocks import known_after
from ..lanes import lanes_of
from ..rewire import data_edges
from .groups import recorded_groups
from .meetings import Call, Meeting, meetings
from .subset import OUTSIDE

RANKS_SHOWN = 8
DIGEST_BYTES = 8


class Issue(NamedTuple):
    """One communication of a rank: `node` is its id, `collective` its CollectiveType, -1 for a message.

    `meeting` is what its counterparts on other ranks have in common with it, `members` how many take part (0: not known).
    `start_ns` counts from the rank's first node. `follows` are places of the rank's earlier issues that it depends on.
    """

    node: int
    type: NodeType
    collective: int
    meeting: Meeting
    members: int
    size: int
    start_ns: int
    follows: tuple[int, ...]


def issues(graph: ExecutionGraph) -> list[Issue]:
    """The communication of a graph, which must be in topological order, by id. O((n + e) · streams that communicate).

    Without what has a member or peer that is not simulated (rank -1): nobody else has to know of it.
    Members of one collective agree in ranks, recorded group, type and sequence number, a send and its receive in source, destination
    and tag; repetitions are counted. Where groups are recorded by their address, those of the same ranks are told apart by which came
    first.
    """
    rows = np.flatnonzero(np.isin(graph.type, COMMUNICATION) & ~_leads_outside(graph))
    collective, message = _collective(graph), _message(graph)
    start, size = graph.start_ns - graph.start_ns.min(initial=FOREVER), np.maximum(graph.integers("comm_size", 0), 0)
    types = graph.integers("comm_type", -1)
    seen, found = Counter[tuple[NodeType, Meeting]](), list[Issue]()
    for row, follows in zip(rows.tolist(), _follows(graph, rows), strict=True):
        kind = NodeType(int(graph.type[row]))
        key, members = collective(row) if kind is NodeType.COMM_COLL else message(row)
        numbers = (int(column[row]) for column in (graph.id, types, size, start))
        node, type_, bytes_, begin = numbers
        found.append(Issue(node, kind, type_, (*key, seen[kind, key]), members, bytes_, begin, follows))
        seen[kind, key] += 1
    return found


def settled(summaries: Sequence[Sequence[Issue]]) -> list[list[Issue]]:
    """The issues of all ranks with meetings by what the ranks have in common, where a rank alone cannot know what that is."""
    collectives = [[issue for issue in issued if issue.type is NodeType.COMM_COLL] for issued in summaries]
    met = meetings([[Call._make(issue.meeting[:-1]) for issue in own] for own in collectives])
    by_node = [
        {issue.node: meeting for issue, meeting in zip(*columns, strict=True)}
        for columns in zip(collectives, met, strict=True)
    ]
    return [
        [issue._replace(meeting=known.get(issue.node, issue.meeting)) for issue in issued]
        for issued, known in zip(summaries, by_node, strict=True)
    ]


def _leads_outside(graph: ExecutionGraph) -> Bool:
    groups = recorded_groups(graph)
    incomplete = np.array([*(OUTSIDE in ranks for ranks in groups.lists), False])
    peers = np.stack([graph.integers(name) for name in ("comm_src", "comm_dst")])
    of_message = graph.type != NodeType.COMM_COLL
    return np.asarray(np.where(of_message, (peers == OUTSIDE).any(axis=0), incomplete[groups.of_node]))


def _collective(graph: ExecutionGraph) -> Callable[[int], tuple[Meeting, int]]:
    groups, world_size = recorded_groups(graph), int(graph.metadata.get("world_size", -1))
    recorded = graph.texts("pg_recorded" if "pg_recorded" in graph.attributes else "pg_name")
    kind, sequence = graph.integers("comm_type"), graph.integers("comm_seq", -1)
    addresses: defaultdict[int, dict[str, str]] = defaultdict(dict)
    # the last is for nodes whose group is not known, -1
    labels = [*map(_label, groups.lists), "ranks not recorded"]
    sizes = [*map(len, groups.lists), max(world_size, 0)]

    def key(row: int) -> tuple[Meeting, int]:
        place, name = int(groups.of_node[row]), recorded[row]
        if ADDRESS.fullmatch(name):
            name = addresses[place].setdefault(name, f"at address {len(addresses[place]) + 1}")
        return (labels[place], name, int(kind[row]), int(sequence[row])), sizes[place]

    return key


def _label(ranks: RankList) -> str:
    """Short text that is as good as the ranks: a summary must stay small in a job of thousands of ranks.

    >>> _label((0, 1, 5)), _label(tuple(range(4096)))
    ('0,1,5', '4096 ranks 0,1,2… 95a2a519b74c038d')
    """
    if len(ranks) <= RANKS_SHOWN:
        return ",".join(map(str, ranks))
    digest = hashlib.blake2b(np.array(ranks, "<i8").tobytes(), digest_size=DIGEST_BYTES).hexdigest()
    return f"{len(ranks)} ranks {','.join(map(str, ranks[:3]))}… {digest}"


def _message(graph: ExecutionGraph) -> Callable[[int], tuple[Meeting, int]]:
    own = int(graph.metadata.get("rank", -1))
    source, destination = graph.integers("comm_src", own), graph.integers("comm_dst", own)
    tag = graph.integers("comm_tag", 0)

    def key(row: int) -> tuple[Meeting, int]:
        return (int(source[row]), int(destination[row]), int(tag[row])), 2

    return key


def _follows(graph: ExecutionGraph, rows: Int64) -> list[tuple[int, ...]]:
    """For each of the rows the places, among them, of the last ones on every lane that it depends on."""
    lane, own = np.full(len(graph), -1, np.int64), numbered(lanes_of(graph)[rows])
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
