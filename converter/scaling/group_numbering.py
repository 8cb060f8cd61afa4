"""Numbers for the process groups of a scaled job: first those that are one for all copies, then those of each copy."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ...schema.comm_groups import RankList
from .rank_copies import RankCopies


class GroupNumbering(NamedTuple):
    """The distinct rank lists of the job's groups, sorted: of those that the copies join, and of those that each copy
    has.
    """

    joined: tuple[RankList, ...]
    separate: tuple[RankList, ...]

    @staticmethod
    def of(copies: RankCopies, groups: Iterable[tuple[RankList, bool]]) -> "GroupNumbering":
        """Returns the numbering of groups by ranks and whether they are joined; with one copy that is the same."""
        distinct = {(ranks, is_joined and copies.copies > 1) for ranks, is_joined in groups if copies.of(ranks, 0)}
        lists = (sorted(ranks for ranks, is_joined in distinct if is_joined is joined) for joined in (True, False))
        return GroupNumbering(*map(tuple, lists))

    def number(self, ranks: RankList, is_joined: bool, copy: int) -> int:
        """Returns the number of a group as a copy knows it, from 1 on."""
        if is_joined and ranks in self.joined:
            return 1 + self.joined.index(ranks)
        return 1 + len(self.joined) + copy * len(self.separate) + self.separate.index(ranks)


def all_groups(numbering: GroupNumbering, copies: RankCopies) -> Iterator[tuple[RankList, int]]:
    """Yields every group of the scaled job that has several members, with its number."""
    for ranks in numbering.joined:
        yield copies.joined(ranks), numbering.number(ranks, True, 0)
    for copy in range(copies.copies):
        for ranks in numbering.separate:
            if len(members := copies.of(ranks, copy)) > 1:
                yield members, numbering.number(ranks, False, copy)
