"""Numbers the process groups of a scaled job: first those that all copies share, then those of each copy."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ...schema.comm_groups import RankList
from .rank_copies import RankCopies


class GroupNumbering(NamedTuple):
    """The distinct rank lists of the job's groups, sorted: those that the copies join, and those that each copy has."""

    joined: tuple[RankList, ...]
    separate: tuple[RankList, ...]

    @staticmethod
    def of(rank_copies: RankCopies, groups: Iterable[tuple[RankList, bool]]) -> "GroupNumbering":
        """Returns the numbering of groups, (ranks, is joined); with one copy nothing is joined."""
        kept_groups = {
            (ranks, is_joined and rank_copies.copies > 1) for ranks, is_joined in groups if rank_copies.of(ranks, 0)
        }
        lists = (sorted(ranks for ranks, is_joined in kept_groups if is_joined is joined) for joined in (True, False))
        return GroupNumbering(*map(tuple, lists))

    def number(self, ranks: RankList, is_joined: bool, copy: int) -> int:
        """Returns the number of a group of a copy, from 1 on."""
        if is_joined and ranks in self.joined:
            return 1 + self.joined.index(ranks)
        return 1 + len(self.joined) + copy * len(self.separate) + self.separate.index(ranks)


def all_groups(numbering: GroupNumbering, rank_copies: RankCopies) -> Iterator[tuple[RankList, int]]:
    """Yields every group of the scaled job that has several members, with its number."""
    for ranks in numbering.joined:
        yield rank_copies.joined(ranks), numbering.number(ranks, True, 0)
    for copy in range(rank_copies.copies):
        for ranks in numbering.separate:
            if len(members := rank_copies.of(ranks, copy)) > 1:
                yield members, numbering.number(ranks, False, copy)
