"""Recognises the process groups of a job: which groups of different ranks are the same.

A group is identified by its ranks. Groups of the same ranks are distinguished by name if one rank knows all names.
Otherwise names differ, as every process counts its own groups, and say little: then description and work distinguish
the groups, as far as these agree between ranks.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

from ...schema.comm_groups import ADDRESS, natural
from .rank_lists import ranks_text

DEFAULT = "default_pg"
"""PyTorch's description of the group of all ranks."""


class Group(NamedTuple):
    """A process group: its ranks as text (see `rank_lists`; empty if not recorded), its name and description."""

    ranks: str
    name: str
    description: str = ""

    @property
    def text(self) -> str:
        """The group as messages name it."""
        return f"group {self.ranks}" + (f" ({self.name})" if self.name else "")


Used = Mapping[Group, str]
"""The groups of a rank in the order of first use, with a digest of the rank's work in each."""
Use = tuple[int, Group]
"""The position of a rank, and a group as this rank knows it."""
Reading = Callable[[Group, str], Hashable]
READINGS: tuple[Reading, ...] = (
    lambda group, done: (group.description, done),
    lambda group, done: done,
    lambda group, done: group.description,
    lambda group, done: "",
)
"""What distinguishes groups of the same ranks if names do not; groups that agree in it are ordered by creation."""


class GroupNames:
    """The groups of a rank as other ranks can know them: addresses mean nothing elsewhere, but all make their groups in
    one order.
    """

    def __init__(self) -> None:
        self._group_of_name: dict[tuple[tuple[int, ...], str], Group] = {}
        self._addresses = Counter[str]()

    def group_of(self, ranks: Sequence[int], name: str, description: str) -> Group:
        """Returns the group of these ranks; a number replaces a name that is an address in memory."""
        recorded = tuple(ranks), name
        group = self._group_of_name.get(recorded)
        if group is None:
            text, label = ranks_text(ranks), name
            if ADDRESS.fullmatch(name):
                self._addresses[text] += 1
                label = f"number {self._addresses[text]}" if self._addresses[text] > 1 else ""
            group = self._group_of_name[recorded] = Group(text, label, description)
        return group


def recognised(ranks: Sequence[Used]) -> list[dict[Group, Group]]:
    """Returns, for each rank, the group of the job that each of its groups is. O(g log g) in the groups of all ranks.

    A group of the job is described as the first rank that uses it knows it.
    """
    same_ranks: defaultdict[str, dict[Use, str]] = defaultdict(dict)
    recorded = _recorded_lists(ranks)
    for position, used in enumerate(ranks):
        for group, done in used.items():
            recorded_ranks = (recorded[key] for key in _keys(group) if key in recorded)
            same_ranks[group.ranks or next(recorded_ranks, "")][position, group] = done
    recognised_groups: list[dict[Group, Group]] = [{} for _ in ranks]
    for members, uses in same_ranks.items():
        first, names = dict[Hashable, Group](), set[str]()
        for (position, group), label in _labels(members, uses).items():
            if label not in first:
                name = group.name if group.name not in names else f"{group.name} of the rank at {position}"
                names.add(name)
                first[label] = Group(members, name, group.description)
            recognised_groups[position][group] = first[label]
    return recognised_groups


def _keys(group: Group) -> list[str]:
    """Returns the keys of a group whose ranks are not recorded: its name, and that it is the default group."""
    return [key for key in (group.name, group.description if group.description == DEFAULT else "") if key]


def _recorded_lists(ranks: Iterable[Used]) -> dict[str, str]:
    """Returns for each key the ranks that are recorded for it, if they are the same everywhere."""
    lists: defaultdict[str, set[str]] = defaultdict(set)
    for used in ranks:
        for group in used:
            for key in _keys(group) if group.ranks else ():
                lists[key].add(group.ranks)
    return {key: rank_texts.pop() for key, rank_texts in lists.items() if len(rank_texts) == 1}


def _labels(members: str, uses: Mapping[Use, str]) -> dict[Use, Hashable]:
    """Returns labels that distinguish groups of the same ranks: names, or the one of READINGS that leaves the fewest
    differences.
    """
    by_name: dict[Use, Hashable] = {(position, group): group.name for position, group in uses}
    names: defaultdict[int, set[str]] = defaultdict(set)
    for position, group in uses:
        names[position].add(group.name)
    # without ranks only the name is known, and other ranks may have other groups; a rank may lack a group, but cannot
    # know another one
    if not members or set().union(*names.values()) in names.values():
        return by_name
    return min((by_name, *(_read(uses, reading) for reading in READINGS)), key=lambda labels: _unlike(uses, labels))


def _unlike(uses: Mapping[Use, str], labels: Mapping[Use, Hashable]) -> tuple[int, int]:
    """Returns how many different kinds of work the labels have in all, and how many labels there are."""
    return len({(label, uses[use]) for use, label in labels.items()}), len(set(labels.values()))


def _read(uses: Mapping[Use, str], reading: Reading) -> dict[Use, Hashable]:
    labels, counts = dict[Use, Hashable](), Counter[Hashable]()
    for position, group in _as_made(uses):
        label = reading(group, uses[position, group])
        labels[position, group] = label, counts[position, label]
        counts[position, label] += 1
    return {use: labels[use] for use in uses}


def _as_made(uses: Iterable[Use]) -> list[Use]:
    """Returns each rank's groups in the order of creation, which numbered names tell, or else in that of first use."""
    return sorted(uses, key=lambda use: (use[0], natural(use[1].name if use[1].name.isdecimal() else "")))
