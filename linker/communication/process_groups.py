"""Process groups: as the traces describe them, and the global ranks of the groups that communications name.

Names say little: a process numbers its groups as it makes them, one name may come again for other ranks, some are
hashes or addresses. So a group is known by its ranks.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, MutableSequence, Sequence
from functools import cache
from typing import Any

import msgspec
import numpy as np

from ...schema.columns import Categorical
from ...schema.comm_groups import LARGEST_JOB, MEMBERS_EACH
from ...schema.linked import (
    GROUP_INIT,
    Communication,
    Communications,
    ProcessGroup,
    argument_lists,
    integer,
    literal,
    name_of,
)
from .recorded_arguments import members, regular_ranks

WAIT = "wait"
FROM_ROOT, TO_ROOT = ("broadcast", "scatter"), ("reduce", "gather")


def groups_of_host(
    names: Categorical, inputs: Sequence[bytes], unreadable: MutableSequence[int] | None = None
) -> Iterator[dict[str, Any]]:
    """Yields the descriptions of process groups in host ops with these names and inputs.

    For each description that cannot be read, -1 is added to `unreadable`.
    """
    nodes = np.flatnonzero(names.where(lambda name: GROUP_INIT in name))
    for node in nodes[np.argsort(names.codes[nodes], kind="stable")].tolist():
        yield from _described(inputs[node], unreadable)


def process_groups(
    described: Iterable[dict[str, Any]], unlisted: MutableSequence[int] | None = None
) -> list[ProcessGroup]:
    """Returns the groups that either trace describes, each name and list of ranks once.

    A group without listed ranks has the ranks 0 to size - 1. All such groups together have at most LARGEST_JOB
    members; for each group beyond that limit, -1 is added to `unlisted`.
    """
    groups: dict[tuple[str, tuple[int, ...]], ProcessGroup] = {}
    budget, seen = LARGEST_JOB, set[tuple[str, range]]()
    for entry in described:
        size = integer(entry.get("group_size", entry.get("pg_size")), -1)
        name, ranks = name_of(entry.get("pg_name", "")), members(entry.get("ranks")) or regular_ranks(0, 1, size)
        if isinstance(ranks, range):
            if (name, ranks) in seen:
                continue
            seen.add((name, ranks))
            if len(ranks) > budget:
                _note(unlisted)
                continue
            budget -= len(ranks)
        elif not ranks and size > LARGEST_JOB:
            _note(unlisted)
        group = ProcessGroup(name, name_of(entry.get("pg_desc", "")), list(ranks), size)
        groups.setdefault((name, tuple(ranks)), group)
    return list(groups.values())


def _note(unlisted: MutableSequence[int] | None) -> None:
    if unlisted is not None:
        unlisted.append(-1)


def _described(inputs: bytes, unreadable: MutableSequence[int] | None) -> Iterable[dict[str, Any]]:
    """Yields the dicts in the text argument of a `process_group:init` node."""
    [values] = argument_lists(inputs, "values")
    for text in values:
        if not isinstance(text, str):
            continue
        entries = literal(text)
        groups = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
        if not isinstance(entries, list) or len(groups) < len(entries):
            _note(unreadable)
        yield from groups


def with_members(
    communications: Sequence[Communication],
    groups: Sequence[ProcessGroup],
    world_size: int,
    unlisted: MutableSequence[int] | None = None,
) -> Communications:
    """Returns the communications with the global ranks of their groups, peers and roots, where these are known.

    They are known from the arguments, else from the only described group of that name and size. A group of the world's
    size, by its recorded size or the length of its split lists, is the world, and so is the only group of a trace that
    describes none.

    A few bytes may name very many ranks: all communications together have at most LARGEST_JOB members, and MEMBERS_EACH
    for each of them. Communications beyond that limit keep their peers and lose their members; for each of them, -1 is
    added to `unlisted`.
    """
    world = regular_ranks(0, 1, world_size)
    described: dict[str, list[ProcessGroup]] = defaultdict(list)
    for group in groups:
        described[group.name].append(group)
    only = not groups and len({each.group for each in communications if each.name != WAIT}) == 1

    @cache
    def described_ranks(name: str, sizes: frozenset[int]) -> Sequence[int]:
        of_name = described.get(name, [])
        of_size = [group for group in of_name if not sizes or len(group.ranks) in sizes] or of_name
        if of_size:
            rank_lists = {tuple(group.ranks or world) for group in of_size}
            return list(rank_lists.pop()) if len(rank_lists) == 1 else []
        return world if world_size in sizes or only else []

    lists = _RankLists(LARGEST_JOB + MEMBERS_EACH * len(communications), unlisted)

    def complete(each: Communication) -> Communication:
        sizes = frozenset({each.group_size, len(each.in_split), len(each.out_split)} - {-1, 0})
        ranks = each.ranks or described_ranks(each.group, sizes)
        if not ranks and each.group_size > LARGEST_JOB:
            _note(unlisted)
        parts = [msgspec.structs.replace(part, ranks=part.ranks or ranks) for part in each.coalesced]
        parts = [lists.write_out(_with_peer(part)) for part in parts]
        return lists.write_out(_with_peer(msgspec.structs.replace(each, ranks=ranks, coalesced=parts)))

    return Communications.of(map(complete, communications))


class _RankLists:
    """Writes ranges of ranks out as lists, each once for all that share it, within a budget of members."""

    def __init__(self, budget: int, unlisted: MutableSequence[int] | None) -> None:
        self._budget, self._unlisted = budget, unlisted
        self._lists: dict[range, list[int]] = {}

    def write_out(self, communication: Communication) -> Communication:
        ranks = communication.ranks
        if len(ranks) > self._budget:
            _note(self._unlisted)
            return msgspec.structs.replace(communication, ranks=[])
        self._budget -= len(ranks)
        if not isinstance(ranks, range):
            return communication
        if ranks not in self._lists:
            self._lists[ranks] = list(ranks)
        return msgspec.structs.replace(communication, ranks=self._lists[ranks])


def _with_peer(each: Communication) -> Communication:
    """Returns the communication with the global rank of its peer or root, which is recorded as a rank in the group."""
    if not 0 <= each.group_rank < len(each.ranks):
        return each
    name, rank = each.name.lower().replace("_", ""), each.ranks[each.group_rank]
    if each.source < 0 and name.startswith(("recv", "irecv", *FROM_ROOT)):
        return msgspec.structs.replace(each, source=rank)
    to_root = name.startswith(TO_ROOT) and not name.startswith("reducescatter")
    if each.target < 0 and (name.startswith(("send", "isend")) or to_root):
        return msgspec.structs.replace(each, target=rank)
    return each
