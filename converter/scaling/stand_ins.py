"""Completes a job of which only some ranks were traced: a traced rank stands in for each missing one.

The traced ranks are taken for a pattern that repeats, as the replicas of a job do: a missing rank does what the rank at
the same position of the pattern does. It is in the groups of that rank that contain it, and in place of the others in
those at the same distance. This must fit what was traced, as every group is known from any of its members, and every
message from either end; otherwise the missing ranks do something else, and nothing is assumed.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np

from ...schema.comm_groups import RankList
from ...schema.errors import DataError
from ...schema.graph import NodeType
from ..ranks import Group, ranks_of, ranks_text
from .rank_facts import RankFacts

ALL_NEEDED = "trace all ranks of the job, or leave the missing ones out with --remove-ranks"

TRIED = 32
"""So many traced ranks are tried in place of the first missing one."""


class Assumed(NamedTuple):
    """What is assumed of the missing ranks: which rank stands in for each, and their groups that no traced rank is in.

    `same_work` is whether all traced ranks run the same kernels.
    """

    source: dict[int, int]
    groups: list[RankList]
    same_work: bool


def completed(facts: Sequence[RankFacts], ranks: int, removed: Collection[int]) -> tuple[Sequence[RankFacts], Assumed]:
    """Returns the facts of all ranks of a job of so many, but those removed, by rank; and what is assumed.

    Raises DataError where what was traced contradicts it.
    """
    traced = {rank.rank: rank for rank in facts}
    missing = sorted(set(range(ranks)) - set(traced) - set(removed))
    same_work = len({rank.work for rank in facts}) == 1
    if not missing:
        return facts, Assumed({}, [], same_work)
    errors = []
    for first in sorted(traced)[:TRIED]:
        source = _sources(sorted(traced), missing, first)
        try:
            stand_ins = [_stand_in(traced[traced_rank], rank) for rank, traced_rank in source.items()]
            whole = sorted([*facts, *stand_ins], key=lambda rank: rank.rank)
            groups = list(_new_groups(whole, source, removed))
            _check_messages(whole, source)
        except DataError as error:
            errors.append(error)
        else:
            return whole, Assumed(source, groups, same_work)
    raise errors[0]


def _sources(traced: Sequence[int], missing: Sequence[int], first_traced: int) -> dict[int, int]:
    """Returns the traced rank that stands in for each missing one: the pattern is laid again and again, so that the
    first missing rank is in place of `first_traced`.

    >>> _sources([0, 1], [2, 3, 4], 0)
    {2: 0, 3: 1, 4: 0}
    >>> _sources([0, 2], [1, 3], 0)
    {1: 0, 3: 2}
    """
    source: dict[int, int] = {}
    for first in missing:
        if first not in source:
            at = {rank + first - first_traced: rank for rank in traced}
            source |= {rank: at[rank] for rank in missing if rank in at and rank not in source}
    return source


def _stand_in(traced: RankFacts, rank: int) -> RankFacts:
    """Returns the facts of a missing rank, which does what a traced one does."""
    distance = rank - traced.rank
    groups = [_moved(group, rank, distance) for group in traced.calls.groups]
    # the last is for messages, whose group is -1
    is_moved = np.array([moved != group for moved, group in zip(groups, traced.calls.groups, strict=True)] + [True])
    moved_by = np.where(is_moved[traced.calls.group], distance, 0)
    ends = {
        name: np.where(traced.calls.type == NodeType.COMM_COLL, column, column + distance)
        for name, column in (("source", traced.calls.source), ("target", traced.calls.target))
    }
    return traced._replace(rank=rank, calls=replace(traced.calls, groups=groups, **ends), moved_by=moved_by)


def _were_not_traced(source: Mapping[int, int]) -> str:
    few = "rank" if len(source) == 1 else "ranks"
    return f"{few} {ranks_text(sorted(source))} not traced, and unlike those that were"


@cache
def _members(ranks: str) -> frozenset[int]:
    return frozenset(ranks_of(ranks))


def _moved(group: Group, rank: int, distance: int) -> Group:
    """Returns the group of a missing rank that is in place of a traced one's."""
    if not group.ranks or rank in _members(group.ranks):
        return group
    members = tuple(member + distance for member in ranks_of(group.ranks))
    if min(members) < 0:
        raise DataError(
            f"rank {rank} was not traced and does not repeat rank {rank - distance}: there is no group in place of group "
            f"{group.ranks}; {ALL_NEEDED}"
        )
    return group._replace(ranks=ranks_text(members))


def _new_groups(whole: Sequence[RankFacts], source: Mapping[int, int], removed: Collection[int]) -> Iterator[RankList]:
    """Yields the groups that no traced rank is in. Raises DataError unless each group is used by all its members."""
    done = defaultdict[str, dict[int, tuple[str, ...]]](dict)
    for rank in whole:
        of_ranks = defaultdict[str, list[str]](list)
        for group, digest in rank.calls.done().items():
            of_ranks[group.ranks].append(digest)
        for ranks, digests in of_ranks.items():
            done[ranks][rank.rank] = tuple(sorted(digests))
    for ranks, by_user in done.items():
        users, lacking = set(by_user), set(_members(ranks)) - set(by_user) - set(removed)
        if (lacking and not users.isdisjoint(source)) or not lacking.isdisjoint(source):
            raise DataError(f"{_were_not_traced(source)}: group {ranks} would lack rank {min(lacking)}; {ALL_NEEDED}")
        of_traced = {digests for user, digests in by_user.items() if user not in source}
        if odd := [user for user in sorted(users & set(source)) if of_traced and by_user[user] not in of_traced]:
            raise DataError(
                f"{_were_not_traced(source)}: rank {odd[0]} would do in "
                f"group {ranks} what rank {source[odd[0]]} does in another one; {ALL_NEEDED}"
            )
        if ranks and not of_traced:
            yield ranks_of(ranks)


def _check_messages(whole: Sequence[RankFacts], source: Mapping[int, int]) -> None:
    """Raises DataError unless each message from or to a missing rank has both its ends."""
    ends = {NodeType.COMM_SEND: Counter[tuple[int, int, int]](), NodeType.COMM_RECV: Counter[tuple[int, int, int]]()}
    for calls in (rank.calls for rank in whole):
        for type_, counts in ends.items():
            rows = np.flatnonzero(calls.type == type_)
            counts.update(
                zip(*(column[rows].tolist() for column in (calls.source, calls.target, calls.tag)), strict=True)
            )
    sent, received = ends.values()
    for start, end, tag in sorted({*sent, *received}):
        if sent[start, end, tag] != received[start, end, tag] and not {start, end}.isdisjoint(source):
            raise DataError(
                f"{_were_not_traced(source)}: messages from rank {start} to rank {end} would lack an end; {ALL_NEEDED}"
            )
