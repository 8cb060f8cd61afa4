"""Collective matching: which calls of several ranks are one collective or message. Nothing else decides this.

A collective matches those that other ranks recorded in the same group, of the same type, with the same sequence number;
or in the same order, where sequence numbers are not recorded or cannot be the same. A send matches the receive of the
same source, target and tag, in order. A call that a rank lacks, or that was not traced, is missing from its match; the
other calls match all the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...schema.columns import Bool, Int64, cumcount, group_ids
from ...schema.graph import NodeType
from .calls import Calls
from .groups import Group, recognised

FEW = 4
"""So few matches prove nothing."""


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
