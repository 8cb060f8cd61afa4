"""The use that the members of a process group make of it, over all ranks of a job."""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...schema.columns import Int64, rows_by_number
from ...schema.comm_groups import RankList
from ...schema.graph import CollectiveType
from ..ranks import Group, Matching, ranks_of
from .rank_facts import RankFacts

REDUCING = (
    CollectiveType.ALL_REDUCE,
    CollectiveType.REDUCE,
    CollectiveType.REDUCE_SCATTER,
    CollectiveType.REDUCE_SCATTER_BLOCK,
)
SCATTERING = (CollectiveType.REDUCE_SCATTER, CollectiveType.REDUCE_SCATTER_BLOCK)
GATHERING = (CollectiveType.ALL_GATHER, CollectiveType.GATHER)


class GroupUse(NamedTuple):
    """A group, its members and the types of its collectives.

    `least_inside` is the least number of bytes that it reduces in the backward pass, `most_beside` the most that it
    reduces elsewhere or gathers other than as shards; -1 for none. `same_work` is whether all members run the same
    kernels.
    """

    group: Group
    members: RankList
    kinds: frozenset[int]
    least_inside: int
    most_beside: int
    same_work: bool

    @property
    def scatters(self) -> bool:
        """Whether it reduces and scatters; what it gathers are then shards of one whole."""
        return not self.kinds.isdisjoint(SCATTERING)

    @property
    def text(self) -> str:
        """The group and its collectives in words."""
        kinds = ", ".join(sorted(CollectiveType(kind).name.lower() for kind in self.kinds if kind >= 0))
        purpose = f", {self.group.description}" if self.group.description else ""
        return f"{self.group.text}{purpose}: {kinds or 'nothing known'}"


def group_uses(facts: Sequence[RankFacts], matching: Matching) -> list[GroupUse]:
    """Returns the use of each group of the matching. O(n log n) in the calls."""
    parts = defaultdict[int, list[_Part]](list)
    for rank, groups in zip(facts, matching.group, strict=True):
        for number, rows in rows_by_number(np.flatnonzero(groups >= 0), groups).items():
            parts[number].append(_part(rank, rows))
    return [_use(group, parts[number]) for number, group in enumerate(matching.groups)]


class _Part(NamedTuple):
    """The use that one member makes of a group: types, and the sizes that it reduces in the backward pass, elsewhere,
    and gathers.
    """

    work: str
    kinds: set[int]
    inside: list[int]
    outside: list[int]
    gathered: list[int]


def _part(rank: RankFacts, rows: Int64) -> _Part:
    kind, size, inside = rank.calls.kind[rows], rank.calls.size[rows], rank.in_backward[rows]
    reduced, gathered = np.isin(kind, REDUCING), np.isin(kind, GATHERING)
    sizes = (size[chosen].tolist() for chosen in (reduced & inside, reduced & ~inside, gathered))
    return _Part(rank.work, set(np.unique(kind).tolist()), *sizes)


def _use(group: Group, parts: Sequence[_Part]) -> GroupUse:
    kinds = frozenset[int]().union(*(part.kinds for part in parts))
    inside = [size for part in parts for size in part.inside]
    beside = [size for part in parts for size in part.outside]
    if kinds.isdisjoint(SCATTERING):
        beside += [size for part in parts for size in part.gathered]
    same_work = len({part.work for part in parts}) == 1
    return GroupUse(group, ranks_of(group.ranks), kinds, min(inside, default=-1), max(beside, default=-1), same_work)
