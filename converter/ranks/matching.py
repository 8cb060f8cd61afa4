"""Collective matching: which calls of several ranks are one collective or message. The only place that decides this.

A collective is matched with what other ranks recorded in the same group, of the same type and with the same sequence
number; where numbers are not recorded, or cannot be the same ones, in the same order. A send is matched with the
receive of the same source, target and tag, in order. What a rank lacks, or what a rank that was not traced would have
recorded, is missing: the others are matched all the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...schema.columns import Bool, Int64, cumcount, group_ids
from ...schema.graph import NodeType
from .calls import Calls
from .groups import Group, recognised

FEW = 4
"""So many matches prove nothing."""


@dataclass(frozen=True, slots=True)
class Matching:
    """For each rank: the place of each call's group in `groups`, -1 for messages, and the number of its match in
    `matched`.

    A match is one collective or message as its members recorded it. Columns over matches: the sequence number by which
    the members were matched, -1 where by order, and which one it is of those alike.
    """

    groups: list[Group]
    group: list[Int64]
    matched: list[Int64]
    sequence: Int64
    repetition: Int64

    def __len__(self) -> int:
        return len(self.sequence)


def match(ranks: Sequence[Calls]) -> Matching:
    """Matches the calls of all ranks. O(n log n) in the calls, by columns; graphs are not needed."""
    lengths = [len(own) for own in ranks]
    rank = np.repeat(np.arange(len(ranks)), lengths)
    groups, group = _groups(ranks)
    type_, kind, sequence, source, target, tag = (
        np.concatenate([np.empty(0, np.int64), *(getattr(own, name) for own in ranks)])
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
    taken = _more_meet(rank, group, kind, by_number, by_order)
    number, nth = (np.where(taken, second, first) for first, second in zip(by_number, by_order, strict=True))
    matched = group_ids(group, kind, number, *ends, nth)
    _, first = np.unique(matched, return_index=True)
    until = np.cumsum(lengths, dtype=np.int64).tolist()
    of_ranks = [slice(end - length, end) for end, length in zip(until, lengths, strict=True)]
    return Matching(
        groups, [group[own] for own in of_ranks], [matched[own] for own in of_ranks], number[first], nth[first]
    )


def _groups(ranks: Sequence[Calls]) -> tuple[list[Group], Int64]:
    """Returns the groups of the job, and for each call of all ranks the place of its own."""
    place: dict[Group, int] = {}
    found = [np.empty(0, np.int64)]
    for own, known in zip(ranks, recognised([own.done() for own in ranks]), strict=True):
        # the last is for messages, -1
        places = [*(place.setdefault(known[group], len(place)) for group in own.groups), -1]
        found.append(np.array(places, np.int64)[own.group])
    return list(place), np.concatenate(found)


def _more_meet(
    rank: Int64, group: Int64, kind: Int64, by_number: tuple[Int64, Int64], by_order: tuple[Int64, Int64]
) -> Bool:
    """Returns which collectives are of groups where order finds many more matches of all ranks that use them than
    numbers do.

    Numbers tell more, as ranks may have begun to record at different ones, but where messages count too they differ.
    """
    numbers, order = (_complete(rank, group, group_ids(group, kind, *key)) for key in (by_number, by_order))
    return np.asarray((group >= 0) & (order > 2 * numbers + FEW)[group])


def _complete(rank: Int64, group: Int64, key: Int64) -> Int64:
    """Returns for each group how many keys all ranks have that use it; messages, of group -1, count for the last."""
    count = int(group.max(initial=-1)) + 2
    own = group % count
    users = np.bincount(np.unique(rank * count + own) % count, minlength=count)
    _, first, known = np.unique(key, return_index=True, return_counts=True)
    return np.bincount(own[first][known == users[own[first]]], minlength=count)
