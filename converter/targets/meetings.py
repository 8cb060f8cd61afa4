"""Which collectives of different ranks are one, from what each rank recorded of its own."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

from ...schema.comm_groups import natural

FEW = 4
"""So many meetings prove nothing."""

Meeting = tuple[Hashable, ...]
Group = tuple[Hashable, str]


class Call(NamedTuple):
    """A collective as one rank recorded it: the members and name of the group, the type, the sequence number (-1: not recorded)."""

    members: Hashable
    name: str
    kind: int
    sequence: int


def meetings(calls: Sequence[Sequence[Call]]) -> list[list[Meeting]]:
    """For the calls of each rank, in order, what they have in common with the same calls of other ranks. O(calls).

    Members issue a group's collectives in one order. Sequence numbers tell more, as ranks may have begun to record at different ones, but
    where messages count too they differ: order counts where it finds many more meetings.
    """
    names = _common_names(calls)
    common = [
        [call._replace(name=known[call.members, call.name]) for call in own]
        for own, known in zip(calls, names, strict=True)
    ]
    numbered, in_order = ([_counted(own, use) for own in common] for use in (True, False))
    groups = [[(call.members, call.name) for call in own] for own in common]
    by_number, by_order = (_complete(groups, keys) for keys in (numbered, in_order))
    return [
        [
            (*group, *(second if by_order[group] > 2 * by_number[group] + FEW else first))
            for group, first, second in zip(*columns, strict=True)
        ]
        for columns in zip(groups, numbered, in_order, strict=True)
    ]


def _common_names(calls: Sequence[Sequence[Call]]) -> list[Mapping[Group, str]]:
    """For each rank what to call its groups. Where ranks name those of the same members otherwise, they count them as they made them."""
    own_names: list[defaultdict[Hashable, set[str]]] = []
    for own in calls:
        names: defaultdict[Hashable, set[str]] = defaultdict(set)
        for call in own:
            names[call.members].add(call.name)
        own_names.append(names)
    distinct: defaultdict[Hashable, set[frozenset[str]]] = defaultdict(set)
    for names in own_names:
        for members, known in names.items():
            distinct[members].add(frozenset(known))
    return [
        {
            (members, name): name if len(distinct[members]) == 1 else f"number {place}"
            for members, known in names.items()
            for place, name in enumerate(sorted(known, key=natural), 1)
        }
        for names in own_names
    ]


def _counted(calls: Iterable[Call], with_sequence: bool) -> list[tuple[int, int, int]]:
    """Type, sequence number and which call it is of those that are alike, for each."""
    seen, keys = Counter[Call](), list[tuple[int, int, int]]()
    for call in calls:
        alike = call if with_sequence else call._replace(sequence=-1)
        keys.append((alike.kind, alike.sequence, seen[alike]))
        seen[alike] += 1
    return keys


def _complete(groups: Sequence[Sequence[Group]], keys: Sequence[Sequence[Hashable]]) -> Counter[Group]:
    """For each group how many keys all ranks have that use it at all."""
    users = Counter(group for own in groups for group in set(own))
    known = Counter(pair for own, of in zip(groups, keys, strict=True) for pair in zip(own, of, strict=True))
    return Counter(group for (group, _), count in known.items() if count == users[group])
