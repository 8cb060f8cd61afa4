"""The process groups of a job: their ranks as short text, and which groups of different ranks are the same. A group is
identified by its ranks, groups of the same ranks by name if one rank knows all names. Otherwise names say little, as
every process counts its own groups: description and work distinguish them.
"""

import dataclasses
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import NamedTuple

import numpy as np

from ...schema.columns import ABSENT, Bool, Int64, Ragged, rows_of
from ...schema.comm_groups import ADDRESS, LARGEST_JOB, RankList, natural
from ...schema.errors import DataError
from ...schema.graph import RANKS_OF_GROUP, Column, ExecutionGraph
from ..communication import COALESCED

RUN = re.compile(r"(-?\d+)(?:-(-?\d+)(?::(-?\d+))?)?")
_GIVEN_RUN = r"[0-9]{1,9}(?:-[0-9]{1,9}(?::-?[1-9][0-9]{0,8})?)?"
LIST = re.compile(rf"{_GIVEN_RUN}(?:,{_GIVEN_RUN})*")
DEFAULT = "default_pg"
"""PyTorch's description of the group of all ranks."""
MOST_LISTED = 4 * LARGEST_JOB
"""The most ranks in all lists of a graph's metadata, where a few bytes may mean a million ranks."""
OUTSIDE = -1


def ranks_text(ranks: Sequence[int]) -> str:
    """Returns the ranks in their order as text, with runs of equal steps as first-last:step.

    >>> ranks_text([0, 1, 2, 3, 8]), ranks_text(range(0, 64, 8)), ranks_text([5, 4, 9])
    ('0-3,8', '0-56:8', '5,4,9')
    """
    runs, start = list[str](), 0
    while start < len(ranks):
        first, end = ranks[start], start + 1
        step = ranks[end] - first if end < len(ranks) else 0
        while step and end < len(ranks) and ranks[end] - ranks[end - 1] == step:
            end += 1
        if end - start < 3:
            end = start + 1
        last = ranks[end - 1]
        runs.append(str(first) if last == first else f"{first}-{last}" + (f":{step}" if step != 1 else ""))
        start = end
    return ",".join(runs)


def given_ranks(text: str, limit: int) -> tuple[int, ...] | None:
    """Returns the ranks of a text from elsewhere; None if it is no list, or one of more than `limit` ranks.

    >>> given_ranks("0-3,8", 9), given_ranks("0-99999999999", 9), given_ranks("all", 9)
    ((0, 1, 2, 3, 8), None, None)
    """
    if not LIST.fullmatch(text):
        return None
    return ranks_of(text) if sum(map(len, _runs(text))) <= limit else None


def _runs(text: str) -> Iterator[range]:
    for run in RUN.finditer(text):
        step = int(run[3] or 1)
        yield range(int(run[1]), int(run[2] or run[1]) + (1 if step > 0 else -1), step)


@cache
def ranks_of(text: str) -> tuple[int, ...]:
    """Returns the ranks of a text.

    >>> ranks_of("0-3,8"), ranks_of("9-3:-3")
    ((0, 1, 2, 3, 8), (9, 6, 3))
    """
    return tuple(chain.from_iterable(_runs(text)))


@cache
def positions_in(text: str) -> dict[int, int]:
    """The position of each rank in the list that a text stands for; of a rank that is there twice the last.

    >>> positions_in("4-6:2,5")
    {4: 0, 6: 1, 5: 2}
    """
    return {rank: position for position, rank in enumerate(ranks_of(text))}


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
    lambda group, done: (group.description, done), lambda group, done: done, lambda group, done: group.description,
    lambda group, done: "",
)  # fmt: skip
"""What distinguishes groups of the same ranks if names do not; groups that agree in it are ordered by creation."""


class GroupNames:
    """The groups of a rank as others know them: addresses mean nothing elsewhere, but the order of making does."""

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
    """Returns for each rank which group of the job each of its groups is, described as the first rank knows it."""
    lists: defaultdict[str, set[str]] = defaultdict(set)
    for used in ranks:
        for group in used:
            for key in _keys(group) if group.ranks else ():
                lists[key].add(group.ranks)
    # the ranks recorded for a key count if they are the same everywhere
    recorded = {key: next(iter(rank_texts)) for key, rank_texts in lists.items() if len(rank_texts) == 1}
    same_ranks: defaultdict[str, dict[Use, str]] = defaultdict(dict)
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


def _labels(members: str, uses: Mapping[Use, str]) -> dict[Use, Hashable]:
    """Returns labels that distinguish groups of the same ranks: names, or the one of READINGS that differs least."""
    by_name: dict[Use, Hashable] = {(position, group): group.name for position, group in uses}
    names: defaultdict[int, set[str]] = defaultdict(set)
    for position, group in uses:
        names[position].add(group.name)
    # without ranks only the name is known, and other ranks may have other groups; a rank may lack a group, but cannot
    # know another one
    if not members or set().union(*names.values()) in names.values():
        return by_name
    # each rank's groups in the order of creation, which numbered names tell, or else in that of first use
    made = sorted(uses, key=lambda use: (use[0], natural(use[1].name if use[1].name.isdecimal() else "")))
    readings = [by_name]
    for reading in READINGS:
        labels, counts = dict[Use, Hashable](), Counter[Hashable]()
        for position, group in made:
            label = reading(group, uses[position, group])
            labels[position, group] = label, counts[position, label]
            counts[position, label] += 1
        readings.append({use: labels[use] for use in uses})
    return min(
        readings,
        key=lambda labels: (len({(label, uses[use]) for use, label in labels.items()}), len({*labels.values()})),
    )


class Groups(NamedTuple):
    """The distinct rank lists of a graph, and by node and by `pg_name` the position in `lists`, -1 for none."""

    lists: list[RankList]
    of_node: Int64
    named: dict[str, int]


def recorded_groups(graph: ExecutionGraph) -> Groups:
    """Returns the groups by `pg_ranks`, and by name in the metadata; DataError for one that is no list of ranks."""
    ranks, numbers = graph.attributes.get("pg_ranks"), dict[RankList, int]()
    of_node = np.full(len(graph), -1, np.int64)
    if isinstance(ranks, Ragged):
        number_of_text = dict[bytes, int]()
        for row in np.flatnonzero(ranks.lengths()).tolist():
            text = ranks[row].tobytes()
            if text not in number_of_text:
                number_of_text[text] = numbers.setdefault(tuple(ranks[row].tolist()), len(numbers))
            of_node[row] = number_of_text[text]
    listed, left_to_list = dict[str, int](), MOST_LISTED
    for name, value in graph.metadata.items():
        if name.startswith(RANKS_OF_GROUP):
            limit = min(left_to_list, LARGEST_JOB)
            if (members := given_ranks(str(value), limit)) is None:
                raise DataError(
                    f"the metadata {name} of the graph is no list of ranks such as 0-3,8, or one of more than {limit}; "
                    "scale the job again"
                )
            left_to_list -= len(members)
            listed[name.removeprefix(RANKS_OF_GROUP)] = numbers.setdefault(members, len(numbers))
    if listed:
        by_name = graph.texts("pg_name").numbers(lambda name: listed.get(name, -1), -1)
        of_node = np.where(of_node < 0, by_name, of_node)
    return Groups(list(numbers), of_node, listed)


def restrict_to_ranks(graph: ExecutionGraph, ranks: Sequence[int]) -> ExecutionGraph:
    """Returns the graph of one of `ranks` for a job of these only: rank `ranks[i]` becomes i, a removed peer -1."""
    own_rank = graph.number("rank", OUTSIDE)
    if own_rank not in ranks:
        raise DataError(
            f"the graph is of rank {own_rank}, which is not one of the {len(ranks)} ranks that are to be kept"
        )
    kept_ranks = np.array(ranks, np.int64)
    attributes = {**graph.attributes, **renumbered_ends(graph, lambda peers, _: rows_of(kept_ranks, peers))}
    groups = recorded_groups(graph)
    members = [rows_of(kept_ranks, np.array(group, np.int64)) for group in groups.lists]
    if isinstance(splits := attributes.get("comm_split"), Ragged):
        is_kept = [group != OUTSIDE for group in members]
        attributes["comm_split"] = _without_removed(splits, is_kept, groups.of_node)
    if isinstance(listed := attributes.get("pg_ranks"), Ragged):
        renumbered, row = rows_of(kept_ranks, listed.values), np.repeat(np.arange(len(graph)), listed.lengths())
        is_left = renumbered != OUTSIDE
        attributes["pg_ranks"] = Ragged.grouped(row[is_left], renumbered[is_left], len(graph))
    metadata = {key: value for key, value in graph.metadata.items() if not key.startswith(RANKS_OF_GROUP)}
    metadata |= {"rank": list(ranks).index(own_rank), "world_size": len(ranks)}
    for name, number in groups.named.items():
        if text := ranks_text([rank for rank in members[number].tolist() if rank != OUTSIDE]):
            metadata[RANKS_OF_GROUP + name] = text
    return dataclasses.replace(graph, attributes=attributes, metadata=metadata)


def renumbered_ends(graph: ExecutionGraph, number_of: Callable[[Int64, Int64], Int64]) -> dict[str, Column]:
    """Returns the attributes with sources, targets and roots as `number_of` gives them for ranks and rows of nodes."""
    attributes = dict[str, Column]()
    for name in ("comm_src", "comm_dst"):
        column = graph.integers(name)
        if len(rows := np.flatnonzero(column != ABSENT)):
            column[rows] = number_of(column[rows], rows)
            attributes[name] = column
        if isinstance(ends := graph.attributes.get(COALESCED[name]), Ragged):
            attributes[COALESCED[name]] = Ragged(ends.starts, number_of(ends.values, ends.rows()))
    return attributes


def _without_removed(column: Ragged, is_kept: Sequence[Bool], of_node: Int64) -> Ragged:
    """Returns a column with a value for each member of a node's group, without those of removed members."""
    rows = np.flatnonzero(column.lengths())
    left = [
        values[is_kept[number]] if number >= 0 and len(values) == len(is_kept[number]) else values
        for values, number in zip(column[rows], of_node[rows].tolist(), strict=True)
    ]
    columns = np.repeat(rows, [*map(len, left)]), np.concatenate([np.empty(0, np.int64), *left])
    return Ragged.grouped(*columns, len(column))
