"""The data-parallel groups that the user names, whole or by some types of their collectives alone.

One process group may carry gradients, reduced among all replicas, and exchanges within a replica, as in a recommender
whose tables are spread over the ranks. `NAME=all_reduce` tells them apart.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ...schema.comm_groups import LARGEST_JOB
from ...schema.graph import CollectiveType
from ..ranks import Group, Matching, given_ranks, ranks_of
from .rank_facts import RankFacts


class NamedGroup(NamedTuple):
    """A group by its name, description or ranks, and the types of its collectives that are meant; all if empty.

    >>> NamedGroup.of("0-7=all_reduce,barrier").kinds == {CollectiveType.ALL_REDUCE, CollectiveType.BARRIER}
    True
    >>> NamedGroup.of("a=b").name
    'a=b'
    """

    text: str
    name: str
    kinds: frozenset[int] = frozenset()

    @staticmethod
    def of(text: str) -> "NamedGroup":
        """Returns the group of a text NAME or NAME=TYPE,TYPE; a text whose end is no type is a name."""
        name, _, types = text.rpartition("=")
        number_of = {kind.name.lower(): int(kind) for kind in CollectiveType}
        chosen = [number_of.get(type_, -1) for type_ in types.split(",")]
        return NamedGroup(text, name, frozenset(chosen)) if name and min(chosen) >= 0 else NamedGroup(text, text)

    def names(self, group: Group) -> bool:
        """Returns whether it is this group."""
        if self.name in {group.name, group.description, group.ranks} - {""}:
            return True
        return given_ranks(self.name, LARGEST_JOB) == ranks_of(group.ranks) != ()

    def means(self, group: Group, kinds: frozenset[int]) -> bool:
        """Returns whether it is this group, and collectives of all these types are meant."""
        return self.names(group) and (not self.kinds or kinds <= self.kinds)


def separated(facts: Sequence[RankFacts], matching: Matching, named: Sequence[NamedGroup]) -> Matching:
    """Returns the matching in which the other collectives of groups named with types are groups of their own."""
    groups, numbers = list(matching.groups), list(matching.group)
    for number, group in enumerate(matching.groups):
        kinds = [*frozenset[int]().union(*(choice.kinds for choice in named if choice.names(group)))]
        chosen = [np.isin(rank.calls.kind, kinds) for rank in facts]
        of_group = np.concatenate([is_chosen[of == number] for is_chosen, of in zip(chosen, numbers, strict=True)])
        if of_group.any() and not of_group.all():
            numbers = [
                np.where((of == number) & ~is_chosen, len(groups), of)
                for is_chosen, of in zip(chosen, numbers, strict=True)
            ]
            groups.append(group)
    return replace(matching, groups=groups, group=numbers)
