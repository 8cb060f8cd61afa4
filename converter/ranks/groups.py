"""Recognises the process groups of a job: which of the groups that different ranks used are one.

A group is known by its ranks. Those of the same ranks are told apart by name where there is a rank that knows all
names; else they differ, as every process counts its own groups, and say little: then by description and by what was
done in them, as far as that is alike.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

from ...schema.comm_groups import ADDRESS, natural
from .rank_lists import ranks_text

DEFAULT = "default_pg"
"""How PyTorch describes the group of all ranks."""


class Group(NamedTuple):
    """A process group: its ranks as text (see `rank_lists`; empty where not recorded), its name and description."""

    ranks: str
    name: str
    description: str = ""

    @property
    def text(self) -> str:
        """The group as messages name it."""
        return f"group {self.ranks}" + (f" ({self.name})" if self.name else "")


Used = Mapping[Group, str]
"""The groups of a rank in the order in which it used them first, and for each a digest of what it did there."""
Use = tuple[int, Group]
"""A group as the rank at this place knows it."""
Reading = Callable[[Group, str], Hashable]
READINGS: tuple[Reading, ...] = (
    lambda group, done: (group.description, done),
    lambda group, done: done,
    lambda group, done: group.description,
    lambda group, done: "",
)
"""What tells groups of the same ranks apart where names do not; those that are alike in it by which was made first."""


class GroupNames:
    """A rank's groups as others can know them: an address is a name on no other rank, but all make their groups in one
    order.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[tuple[int, ...], str], Group] = {}
        self._addresses = Counter[str]()

    def group_of(self, ranks: Sequence[int], name: str, description: str) -> Group:
        """Returns the group of these ranks; one that is named by where it lies in memory gets a number instead."""
        recorded = tuple(ranks), name
        group = self._known.get(recorded)
        if group is None:
            text, label = ranks_text(ranks), name
            if ADDRESS.fullmatch(name):
                self._addresses[text] += 1
                label = f"number {self._addresses[text]}" if self._addresses[text] > 1 else ""
            group = self._known[recorded] = Group(text, label, description)
        return group


def recognised(ranks: Sequence[Used]) -> list[dict[Group, Group]]:
    """Returns for each rank the group of the job that each of its groups is. O(g log g) in the groups of all ranks.

    A group of the job goes by what the first rank that uses it knows of it.
    """
    same_ranks: defaultdict[str, dict[Use, str]] = defaultdict(dict)
    recorded = _recorded_lists(ranks)
    for place, used in enumerate(ranks):
        for group, done in used.items():
            others = (recorded[key] for key in _keys(group) if key in recorded)
            same_ranks[group.ranks or next(others, "")][place, group] = done
    known: list[dict[Group, Group]] = [{} for _ in ranks]
    for members, uses in same_ranks.items():
        first, taken = dict[Hashable, Group](), set[str]()
        for (place, group), label in _labels(members, uses).items():
            if label not in first:
                name = group.name if group.name not in taken else f"{group.name} of the rank at {place}"
                taken.add(name)
                first[label] = Group(members, name, group.description)
            known[place][group] = first[label]
    return known


def _keys(group: Group) -> list[str]:
    """Returns what a group whose ranks are not recorded is known by: its name, and that it is the default one."""
    return [key for key in (group.name, group.description if group.description == DEFAULT else "") if key]


def _recorded_lists(ranks: Iterable[Used]) -> dict[str, str]:
    """Returns for each such key the ranks that are recorded for it, where these are one list."""
    lists: defaultdict[str, set[str]] = defaultdict(set)
    for used in ranks:
        for group in used:
            for key in _keys(group) if group.ranks else ():
                lists[key].add(group.ranks)
    return {key: found.pop() for key, found in lists.items() if len(found) == 1}


def _labels(members: str, uses: Mapping[Use, str]) -> dict[Use, Hashable]:
    """Returns what to tell groups of the same ranks apart by: of names that differ, and of all READINGS, what leaves
    least to differ.
    """
    by_name: dict[Use, Hashable] = {(place, group): group.name for place, group in uses}
    names: defaultdict[int, set[str]] = defaultdict(set)
    for place, group in uses:
        names[place].add(group.name)
    # without ranks a name is all there is, and other ranks may be other groups; a rank may lack a group, but not know
    # another one
    if not members or set().union(*names.values()) in names.values():
        return by_name
    return min((by_name, *(_read(uses, reading) for reading in READINGS)), key=lambda labels: _unlike(uses, labels))


def _unlike(uses: Mapping[Use, str], labels: Mapping[Use, Hashable]) -> tuple[int, int]:
    """Returns how many different things were done under a label, of all labels, and how many labels there are."""
    return len({(label, uses[use]) for use, label in labels.items()}), len(set(labels.values()))


def _read(uses: Mapping[Use, str], reading: Reading) -> dict[Use, Hashable]:
    labels, alike = dict[Use, Hashable](), Counter[Hashable]()
    for place, group in _as_made(uses):
        told = reading(group, uses[place, group])
        labels[place, group] = told, alike[place, told]
        alike[place, told] += 1
    return {use: labels[use] for use in uses}


def _as_made(uses: Iterable[Use]) -> list[Use]:
    """Returns each rank's groups in the order in which it made them, which numbers tell, else in that of their first
    use.
    """
    return sorted(uses, key=lambda use: (use[0], natural(use[1].name) if use[1].name.isdecimal() else (0, "")))
