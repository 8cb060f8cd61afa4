"""What one rank brings to each collective that it was part of: who takes part, which one it is, when the rank came and how much it gave."""

from collections import Counter
from collections.abc import Hashable
from typing import NamedTuple

import numpy as np

from ...converter.communication import bytes_per_element, meaning, peers
from ...schema.columns import ABSENT
from ...schema.graph import CollectiveType, NodeType
from ...schema.linked import Communication, LinkedTrace
from .rank_trace import RankTrace

LONGEST_NAME = 8
"""Digits up to which a group's name is one; PyTorch 2.1 recorded an address, which differs by process."""
OF_ALL_MEMBERS = (CollectiveType.ALL_GATHER, CollectiveType.REDUCE_SCATTER, CollectiveType.REDUCE_SCATTER_BLOCK)
"""Sized by the larger buffer, which holds a part of every member."""


class Group(NamedTuple):
    """Who communicates: the members' global ranks, or nothing but a name; `number` tells groups of the same members apart."""

    ranks: tuple[int, ...]
    name: str
    number: int


class Key(NamedTuple):
    """What one rank's communication has in common with its counterparts."""

    group: Group
    sequence: int
    repetition: int


class Arrival(NamedTuple):
    """One rank's part in a collective; times in ns since the epoch where the trace tells it, `size` in bytes."""

    rank: int
    name: str
    kind: CollectiveType | None
    dtype: str
    start: int
    duration: int
    size: int
    members: int
    splits: tuple[int, ...]


Numbers = dict[tuple[tuple[int, ...], str], int]


class RankCollectives(NamedTuple):
    rank: int
    arrivals: dict[Key, Arrival]
    unplaced: int


def collectives_of(rank: RankTrace) -> RankCollectives:
    """The rank's communications, on the device or on the host, by what their counterparts on other ranks share; the rest is counted."""
    linked = rank.linked
    arrivals: dict[Key, Arrival] = {}
    numbers: Numbers = {}
    seen: Counter[Hashable] = Counter()
    unplaced = 0
    for recorded, kernel, start, end in _in_order(linked):
        meant = meaning(recorded, kernel)
        group = _group(recorded, meant.node if meant else None, rank.rank, numbers)
        if group is None:
            unplaced += 1
            continue
        # a send and its receive count their own numbers: they meet by order
        sequence = recorded.sequence if meant is None or meant.node is NodeType.COMM_COLL else -1
        key = Key(group, sequence, seen[group, sequence])
        seen[group, sequence] += 1
        kind = meant.type if meant else None
        members = len(group.ranks) or max(recorded.group_size, 1)
        arrivals[key] = Arrival(
            rank.rank,
            recorded.name or kernel,
            kind,
            recorded.dtype,
            start + linked.info.base_time_ns,
            end - start,
            _size(recorded, kind, members),
            members,
            tuple(recorded.in_split),
        )
    return RankCollectives(rank.rank, arrivals, unplaced)


def _in_order(linked: LinkedTrace) -> list[tuple[Communication, str, int, int]]:
    """(communication, kernel name, start, end) of the rank's communications, on the device or on the host, as they started."""
    found: list[tuple[Communication, str, int, int]] = []
    for table in (linked.activities, linked.ops):
        rows = np.flatnonzero((table.communication_row >= 0) & (table.start != ABSENT))
        columns = table.communication_row[rows], table.name.codes[rows], table.start[rows], table.end[rows]
        found += [
            (part, table.name.table[name], start, end)
            for row, name, start, end in zip(*(column.tolist() for column in columns), strict=True)
            for part in linked.communications[row].parts
        ]
    return sorted(found, key=lambda one: one[2])


def _group(recorded: Communication, node: NodeType | None, own: int, numbers: Numbers) -> Group | None:
    """The group, None where nothing tells it. Of groups with the same members and no usable name, the first used is number 0."""
    if node in (NodeType.COMM_SEND, NodeType.COMM_RECV):
        pair = peers(recorded, node, own)
        return Group(pair, "send/recv", 0) if min(pair) >= 0 else None
    if not recorded.ranks and not recorded.group:
        return None
    ranks = tuple(sorted(recorded.ranks))
    if len(recorded.group) <= LONGEST_NAME or not ranks:
        return Group(ranks, recorded.group, 0)
    unnamed = (ranks, recorded.group)
    return Group(ranks, "", numbers.setdefault(unnamed, sum(known[0] == ranks for known in numbers)))


def _size(recorded: Communication, kind: CollectiveType | None, members: int) -> int:
    """Bytes as nccl-tests count them: of the buffer that holds every member's part, else of what one member gives."""
    given, taken = max(recorded.in_elements, 0), max(recorded.out_elements, 0)
    elements = max(given, taken)
    if kind in OF_ALL_MEMBERS and min(given, taken) == 0:
        elements *= members if (kind is CollectiveType.ALL_GATHER) == (given > 0) else 1
    return elements * bytes_per_element(recorded.dtype)
