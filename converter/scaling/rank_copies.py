"""The ranks of a scaled job: copy after copy, the kept ranks in their order."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ...schema.columns import Int64
from ...schema.comm_groups import RankList

GONE = -1


class RankCopies(NamedTuple):
    """`copies` copies of the `kept_ranks` of a job of `world_size`.

    >>> copies = RankCopies((0, 1, 4, 5), 2, 6)
    >>> copies.ranks, copies.of((4, 1), 1), copies.joined((0, 4))
    (8, (6, 5), (0, 2, 4, 6))
    """

    kept_ranks: RankList
    copies: int
    world_size: int

    @property
    def ranks(self) -> int:
        """How many ranks the scaled job has."""
        return len(self.kept_ranks) * self.copies

    def renumbered(self, copy: int) -> Int64:
        """Returns the number of each rank in a copy, GONE for those that are not kept."""
        numbers = np.full(self.world_size, GONE, np.int64)
        numbers[list(self.kept_ranks)] = copy * len(self.kept_ranks) + np.arange(len(self.kept_ranks))
        return numbers

    def of(self, ranks: Iterable[int], copy: int) -> RankList:
        """Returns a group's members in a copy, in its order."""
        numbers = self.renumbered(copy)[list(ranks)]
        return tuple(numbers[numbers != GONE].tolist())

    def joined(self, ranks: RankList) -> RankList:
        """Returns the members of a group that all copies join."""
        first = np.array(self.of(ranks, 0), np.int64)
        return tuple((first + len(self.kept_ranks) * np.arange(self.copies)[:, None]).reshape(-1).tolist())
