"""The communication of one rank as columns, small even for a large graph, and which calls of several ranks are one
collective or message. Nothing else decides this.

A collective matches those that other ranks recorded in the same group, of the same type, with the same sequence number;
or in the same order, where sequence numbers are not recorded or cannot be the same. A send matches the receive of the
same source, target and tag, in order. A call that a rank lacks, or that was not traced, is missing from its match; the
other calls match all the same.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import numpy as np

from ...schema.columns import Bool, Int64, NodeNumbers, Ragged, cumcount, group_ids
from ...schema.graph import CollectiveType, ExecutionGraph, NodeType
from ...schema.linked import Communication
from ..communication import COALESCED, meaning, peers
from .groups import Group, GroupNames, recognised, recorded_groups

SAME_SIZE = (
    CollectiveType.ALL_REDUCE, CollectiveType.REDUCE, CollectiveType.BROADCAST, CollectiveType.REDUCE_SCATTER,
    CollectiveType.BARRIER,
)  # fmt: skip
"""Collectives of which every member records the same bytes; the shards of other types may differ."""
ROOTED = (CollectiveType.BROADCAST, CollectiveType.REDUCE, CollectiveType.GATHER, CollectiveType.SCATTER)
DIGEST_BYTES = 8
FEW = 4
"""So few matches prove nothing."""


class Call(NamedTuple):
    """A collective, or one end of a message, as a rank recorded it.

    `row` identifies it for the caller, `kind` is a CollectiveType, `size` is in bytes. A message has a source, target
    and tag instead of a group. -1 is not known.
    """

    row: int
    type: NodeType
    group: Group | None = None
    kind: int = -1
    size: int = 0
    sequence: int = -1
    source: int = -1
    target: int = -1
    tag: int = 0


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls of a rank as columns, in the order of issue; `group` is a position in `groups`, -1 for messages."""

    groups: list[Group]
    row: Int64
    type: Int64
    group: Int64
    kind: Int64
    size: Int64
    sequence: Int64
    source: Int64
    target: Int64
    tag: Int64

    def __len__(self) -> int:
        return len(self.row)

    @staticmethod
    def of(calls: Iterable[Call]) -> "Calls":
        """Returns the calls as columns; groups are numbered in the order in which they come first."""
        numbers: dict[Group, int] = {}
        rows = [
            (row, type_, numbers.setdefault(group, len(numbers)) if group else -1, *facts)
            for row, type_, group, *facts in calls
        ]
        return Calls(list(numbers), *np.array(rows, np.int64).reshape(-1, len(Call._fields)).T)

    @property
    def is_placed(self) -> Bool:
        """Whether it is known who takes part: by the ranks or name of the group, or by both ends of the message."""
        is_known = np.array([*(bool(group.ranks or group.name) for group in self.groups), False])
        message = self.type != NodeType.COMM_COLL
        return np.asarray(np.where(message, np.minimum(self.source, self.target) >= 0, is_known[self.group]))

    def take(self, rows: Int64) -> "Calls":
        """Returns the calls at these positions."""
        columns = {name: getattr(self, name)[rows] for name in Call._fields}
        return replace(self, **columns)

    def done(self) -> dict[Group, str]:
        """Returns a digest of the collectives of each group, by what all members have in common."""
        import hashlib  # slow to load

        size = np.where(np.isin(self.kind, SAME_SIZE), self.size, 0)
        order = np.argsort(self.group, kind="stable")
        starts = np.searchsorted(self.group[order], np.arange(len(self.groups) + 1))
        facts = np.stack((self.kind, size), axis=1)[order]
        return {
            group: hashlib.blake2b(facts[begin:end].tobytes(), digest_size=DIGEST_BYTES).hexdigest()
            for group, begin, end in zip(self.groups, starts[:-1].tolist(), starts[1:].tolist(), strict=True)
        }


def awaits_all(kind: Int64) -> Bool:
    """Returns for which kinds no member can end before all have begun: those without a root; not for messages and
    unknown kinds, -1.
    """
    return np.asarray((kind >= 0) & ~np.isin(kind, ROOTED))


def recorded_calls(recorded: Sequence[Communication], kernels: Sequence[str], own_rank: int) -> Calls:
    """Returns the calls of a rank from the recorded arguments of each; by the kernel's name where these do not tell.

    Coalesced messages are not separated.
    """
    names = GroupNames()

    def call(row: int, arguments: Communication, kernel: str) -> Call:
        decoded = meaning(arguments, kernel)
        if decoded is not None and decoded.type is None:
            source, target = peers(arguments, decoded.node, own_rank)
            return Call(row, decoded.node, size=decoded.size, source=source, target=target, tag=arguments.tag)
        group = names.group_of(arguments.ranks, arguments.group, arguments.description)
        kind, size = (-1, 0) if decoded is None or decoded.type is None else (int(decoded.type), decoded.size)
        return Call(row, NodeType.COMM_COLL, group, kind, size, arguments.sequence)

    return Calls.of(call(row, *pair) for row, pair in enumerate(zip(recorded, kernels, strict=True)))


def graph_calls(graph: ExecutionGraph, rows: NodeNumbers, own_rank: int) -> Calls:
    """Returns the calls of a rank in these rows of its graph; a node with several messages comes once for each."""
    names, groups = GroupNames(), recorded_groups(graph)
    lists = [*groups.lists, ()]
    recorded, name, purpose = graph.texts("pg_recorded"), graph.texts("pg_name"), graph.texts("pg_desc")
    kind = graph.collective_types().tolist()
    size, sequence, tag = (
        graph.integers(f"comm_{what}", default).tolist() for what, default in (("size", 0), ("seq", -1), ("tag", 0))
    )
    # the side that is not recorded is the node's own rank
    source, target = graph.integers("comm_src", own_rank).tolist(), graph.integers("comm_dst", own_rank).tolist()
    coalesced = [graph.attributes.get(COALESCED[f"comm_{side}"]) for side in ("src", "dst", "tag")]
    sizes = graph.attributes.get(COALESCED["comm_size"])

    @cache
    def group_of(listed: int, name: str, purpose: str) -> Group:
        # to find a list of very many ranks takes as long as it is
        return names.group_of(lists[listed], name, purpose)

    def calls(row: int, node: NodeType) -> Iterable[Call]:
        if node is NodeType.COMM_COLL:
            group = group_of(int(groups.of_node[row]), recorded[row] or name[row], purpose[row])
            return [Call(row, node, group, kind[row], size[row], sequence[row])]
        several = [column[row].tolist() for column in coalesced if isinstance(column, Ragged)]
        if len(several) < len(coalesced) or not several[0]:
            return [Call(row, node, size=size[row], source=source[row], target=target[row], tag=tag[row])]
        message_sizes = sizes[row].tolist() if isinstance(sizes, Ragged) else [0] * len(several[0])
        return [
            Call(
                row,
                (NodeType.COMM_RECV, NodeType.COMM_SEND)[start == own_rank],
                None,
                -1,
                message_size,
                -1,
                start,
                end,
                label,
            )
            for start, end, label, message_size in zip(*several, message_sizes, strict=True)
        ]

    types = graph.type[rows].tolist()
    return Calls.of(call for row, node in zip(rows.tolist(), types, strict=True) for call in calls(row, NodeType(node)))


@dataclass(frozen=True, slots=True)
class Matching:
    """The matches of the calls of all ranks. A match is one collective or message as its members recorded it.

    For each rank, `group` is the position of each call's group in `groups` (-1 for messages) and `matched` the number
    of its match. Columns over matches: the sequence number by which the members were matched (-1 for by order), and the
    occurrence among those alike.
    """

    groups: list[Group]
    group: list[Int64]
    matched: list[Int64]
    sequence: Int64
    occurrence: Int64

    def __len__(self) -> int:
        return len(self.sequence)

    def met(self) -> tuple[Int64, Int64, Int64]:
        """Returns the calls of the matches in which several ranks took part, sorted by match: the position of the rank,
        that of the call among the rank's, and the number of the match, counted from 0 among these matches.
        """
        nothing, ranks = np.empty(0, np.int64), len(self.matched)
        rank = np.repeat(np.arange(ranks), [len(matched) for matched in self.matched])
        call = np.concatenate([nothing, *(np.arange(len(matched)) for matched in self.matched)])
        matched = np.concatenate([nothing, *self.matched])
        members = np.bincount(np.unique(matched * ranks + rank) // max(ranks, 1), minlength=len(self))
        order = np.argsort(matched, kind="stable")
        order = order[members[matched[order]] > 1]
        return rank[order], call[order], np.unique(matched[order], return_inverse=True)[1]


def match(ranks: Sequence[Calls]) -> Matching:
    """Matches the calls of all ranks, by columns; graphs are not needed. O(n log n) in the calls."""
    lengths = [len(calls) for calls in ranks]
    rank = np.repeat(np.arange(len(ranks)), lengths)
    groups, group = _groups(ranks)
    type_, kind, sequence, source, target, tag = (
        np.concatenate([np.empty(0, np.int64), *(getattr(calls, name) for calls in ranks)])
        for name in ("type", "kind", "sequence", "source", "target", "tag")
    )
    message = type_ != NodeType.COMM_COLL
    ends = [np.where(message, column, -1) for column in (source, target, tag)]
    kind = np.where(message, -1, kind)
    unnumbered = np.full(len(rank), -1)
    by_number, by_order = (
        (column, cumcount(rank, type_, group, kind, column, *ends))
        for column in (np.where(message, -1, sequence), unnumbered)
    )
    use_order = _order_matches_more(_GroupCalls(rank, group, kind), by_number, by_order)
    number, nth = (np.where(use_order, second, first) for first, second in zip(by_number, by_order, strict=True))
    matched = group_ids(group, kind, number, *ends, nth)
    _, first = np.unique(matched, return_index=True)
    until = np.cumsum(lengths, dtype=np.int64).tolist()
    of_ranks = [slice(end - length, end) for end, length in zip(until, lengths, strict=True)]
    return Matching(
        groups, [group[rows] for rows in of_ranks], [matched[rows] for rows in of_ranks], number[first], nth[first]
    )


def _groups(ranks: Sequence[Calls]) -> tuple[list[Group], Int64]:
    """Returns the groups of the job, and the number of the group of each call of all ranks."""
    numbers: dict[Group, int] = {}
    columns = [np.empty(0, np.int64)]
    for calls, group_of in zip(ranks, recognised([calls.done() for calls in ranks]), strict=True):
        # the last number is for messages, whose group is -1
        numbers_of_rank = [*(numbers.setdefault(group_of[group], len(numbers)) for group in calls.groups), -1]
        columns.append(np.array(numbers_of_rank, np.int64)[calls.group])
    return list(numbers), np.concatenate(columns)


class _GroupCalls(NamedTuple):
    """A row for each call of all ranks: its rank, its group (-1 for a message) and its type of collective."""

    rank: Int64
    group: Int64
    kind: Int64


def _order_matches_more(calls: _GroupCalls, by_number: tuple[Int64, Int64], by_order: tuple[Int64, Int64]) -> Bool:
    """Returns the collectives of groups in which order finds many more complete matches than sequence numbers do.

    Sequence numbers are more reliable, as ranks may have begun to record at different calls; but they differ between
    ranks where messages count too.
    """
    numbers, order = (_complete(calls, group_ids(calls.group, calls.kind, *key)) for key in (by_number, by_order))
    return np.asarray((calls.group >= 0) & (order > 2 * numbers + FEW)[calls.group])


def _complete(calls: _GroupCalls, key: Int64) -> Int64:
    """Returns how many keys of each group all its ranks have; messages, of group -1, count for the last group."""
    count = int(calls.group.max(initial=-1)) + 2
    group_number = calls.group % count
    users = np.bincount(np.unique(calls.rank * count + group_number) % count, minlength=count)
    _, first, count_of_key = np.unique(key, return_index=True, return_counts=True)
    return np.bincount(group_number[first][count_of_key == users[group_number[first]]], minlength=count)
