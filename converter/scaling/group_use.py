"""What the members of a process group use it for, over all ranks of a job."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...schema.comm_groups import RankList
from ...schema.graph import CollectiveType, NodeType
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
    """A group, its members, the types of its collectives, the least bytes that it reduces in the backward pass, and the most that it
    reduces elsewhere, or gathers where that is no shard (-1 for none); `same_work` is whether all members run the same kernels."""

    group: Group
    members: RankList
    kinds: frozenset[int]
    least_inside: int
    most_beside: int
    same_work: bool

    @property
    def scatters(self) -> bool:
        """Whether it reduces and scatters: what it gathers then are shards of one whole."""
        return not self.kinds.isdisjoint(SCATTERING)

    @property
    def text(self) -> str:
        """The group and what goes on in it."""
        kinds = ", ".join(sorted(CollectiveType(kind).name.lower() for kind in self.kinds if kind >= 0))
        purpose = f", {self.group.description}" if self.group.description else ""
        return f"{self.group.text}{purpose}: {kinds or 'nothing known'}"


def group_uses(facts: Sequence[RankFacts], matching: Matching) -> list[GroupUse]:
    """The use of each group of the matching."""
    return [_use(number, facts, matching) for number in range(len(matching.groups))]


def _use(number: int, facts: Sequence[RankFacts], matching: Matching) -> GroupUse:
    group, kinds = matching.groups[number], set[int]()
    inside, outside, gathered = list[int](), list[int](), list[int]()
    for rank, groups in zip(facts, matching.group, strict=True):
        calls = rank.calls
        own = (groups == number) & (calls.type == NodeType.COMM_COLL)
        kinds |= set(np.unique(calls.kind[own]).tolist())
        reduced = own & np.isin(calls.kind, REDUCING)
        inside += calls.size[reduced & rank.in_backward].tolist()
        outside += calls.size[reduced & ~rank.in_backward].tolist()
        gathered += calls.size[own & np.isin(calls.kind, GATHERING)].tolist()
    members = ranks_of(group.ranks)
    work = {rank.work for rank in facts if rank.rank in members}
    use = GroupUse(group, members, frozenset(kinds), min(inside, default=-1), -1, len(work) == 1)
    return use._replace(most_beside=max(outside if use.scatters else outside + gathered, default=-1))
