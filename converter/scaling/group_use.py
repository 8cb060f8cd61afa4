"""The use that the members of a process group make of it, over all ranks of a job."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ...schema.columns import Int64, rows_by_number
from ...schema.comm_groups import RankList
from ...schema.graph import CollectiveType
from ..ranks import Group, Matching, ranks_of
from .backward_pass import Phase
from .rank_facts import RankFacts

REDUCING = (
    CollectiveType.ALL_REDUCE,
    CollectiveType.REDUCE,
    CollectiveType.REDUCE_SCATTER,
    CollectiveType.REDUCE_SCATTER_BLOCK,
)
SCATTERING = (CollectiveType.REDUCE_SCATTER, CollectiveType.REDUCE_SCATTER_BLOCK)
GATHERING = (CollectiveType.ALL_GATHER, CollectiveType.GATHER)


@dataclass(frozen=True, eq=False, slots=True)
class GroupUse:
    """A group, its members and the types of its collectives; a row for each member's call in `kind`, `size` in bytes
    and `phase` of the step. `same_work` is whether all members run the same kernels, `has_host` whether their graphs
    hold the host ops that tell the phase.
    """

    group: Group
    members: RankList
    kinds: frozenset[int]
    kind: Int64
    size: Int64
    phase: Int64
    same_work: bool
    has_host: bool

    @property
    def scatters(self) -> bool:
        """Whether it reduces and scatters; what it gathers are then shards of one whole."""
        return not self.kinds.isdisjoint(SCATTERING)

    @property
    def text(self) -> str:
        """The group and its collectives in words."""
        purpose = f", {self.group.description}" if self.group.description else ""
        return f"{self.group.text}{purpose}: {kinds_text(self.kinds) or 'nothing known'}"

    def reduced(self, *phases: Phase) -> Int64:
        """Returns the sizes of what it reduces in these phases."""
        return self.size[np.isin(self.kind, REDUCING) & np.isin(self.phase, phases)]

    def gathered(self) -> Int64:
        """Returns the sizes of what it gathers other than as shards."""
        return self.size[np.isin(self.kind, GATHERING) & (not self.scatters)]


def kinds_text(kinds: Iterable[int]) -> str:
    """Returns the names of the known types of collectives among these."""
    return ", ".join(sorted(CollectiveType(kind).name.lower() for kind in kinds if kind >= 0))


def group_uses(facts: Sequence[RankFacts], matching: Matching) -> list[GroupUse]:
    """Returns the use of each group of the matching. O(n log n) in the calls."""
    parts = defaultdict[int, list[tuple[RankFacts, Int64]]](list)
    for rank, groups in zip(facts, matching.group, strict=True):
        for number, rows in rows_by_number(np.flatnonzero(groups >= 0), groups).items():
            parts[number].append((rank, rows))
    return [_use(group, parts[number]) for number, group in enumerate(matching.groups)]


def _use(group: Group, parts: Sequence[tuple[RankFacts, Int64]]) -> GroupUse:
    kind = np.concatenate([rank.calls.kind[rows] for rank, rows in parts])
    return GroupUse(
        group,
        members=ranks_of(group.ranks),
        kinds=frozenset(np.unique(kind).tolist()),
        kind=kind,
        size=np.concatenate([rank.calls.size[rows] for rank, rows in parts]),
        phase=np.concatenate([rank.phase[rows] for rank, rows in parts]),
        same_work=len({rank.work for rank, _ in parts}) == 1,
        has_host=all(rank.has_host for rank, _ in parts),
    )
