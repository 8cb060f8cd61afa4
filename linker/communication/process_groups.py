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
from ...schema.comm_groups import LARGEST_JOB
from ...schema.linked import Communication, Communications, ProcessGroup
from ...schema.traces import GROUP_INIT, argument_lists, integer, literal, name_of
from .recorded_arguments import members, regular_ranks

WAIT = "wait"
UNREADABLE_GROUPS = "descriptions of process groups that cannot be read"
MEMBERS_EACH = 1 << 12
MANY_MEMBERS = (
    f"communications and process groups of too many members (a trace may name {LARGEST_JOB}, and {MEMBERS_EACH} for each communication; "
    "theirs are taken as unknown)"
)
FROM_ROOT, TO_ROOT = ("broadcast", "scatter"), ("reduce", "gather")


def groups_of_host(
    names: Categorical, inputs: Sequence[bytes], unreadable: MutableSequence[int] | None = None
) -> Iterator[dict[str, Any]]:
    """Yields what host ops of these names and inputs describe of process groups; for each description that is none -1
    goes to `unreadable`.
    """
    nodes = np.flatnonzero(names.where(lambda name: GROUP_INIT in name))
    for node in nodes[np.argsort(names.codes[nodes], kind="stable")].tolist():
        yield from _described(inputs[node], unreadable)


def process_groups(
    described: Iterable[dict[str, Any]], unlisted: MutableSequence[int] | None = None
) -> list[ProcessGroup]:
    """Returns the groups that either trace describes, each name and rank list once. Without ranks it is 0 to size - 1.

    Those whose ranks are not recorded have LARGEST_JOB members in all; for each that has too many for that -1 goes to
    `unlisted`.
    """
    found: dict[tuple[str, tuple[int, ...]], ProcessGroup] = {}
    room, seen = LARGEST_JOB, set[tuple[str, range]]()
    for entry in described:
        size = integer(entry.get("group_size", entry.get("pg_size")), -1)
        name, ranks = name_of(entry.get("pg_name", "")), members(entry.get("ranks")) or regular_ranks(0, 1, size)
        if isinstance(ranks, range):
            if (name, ranks) in seen:
                continue
            seen.add((name, ranks))
            if len(ranks) > room:
                _note(unlisted)
                continue
            room -= len(ranks)
        group = ProcessGroup(name, name_of(entry.get("pg_desc", "")), list(ranks), size)
        found.setdefault((name, tuple(ranks)), group)
    return list(found.values())


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
    """Returns the communications with the global ranks of their groups, where these can be told, and with those of
    their peers and roots.

    From the arguments, else from the one described group of that name and size; a group of the world's size is the
    world, by its recorded size or the length of its split lists, and so is the only group of a trace that describes
    none.

    A few bytes may name very many ranks: all communications have LARGEST_JOB members, and MEMBERS_EACH for each of
    them. Those that have too many for that keep their peers and lose their members; for each -1 goes to `unlisted`.
    """
    world = regular_ranks(0, 1, world_size)
    described: dict[str, list[ProcessGroup]] = defaultdict(list)
    for group in groups:
        described[group.name].append(group)
    only = not groups and len({found.group for found in communications if found.name != WAIT}) == 1

    @cache
    def described_ranks(name: str, sizes: frozenset[int]) -> Sequence[int]:
        named = described.get(name, [])
        fitting = [group for group in named if not sizes or len(group.ranks) in sizes] or named
        if fitting:
            lists = {tuple(group.ranks or world) for group in fitting}
            return list(lists.pop()) if len(lists) == 1 else []
        return world if world_size in sizes or only else []

    def ranks_of(found: Communication) -> Sequence[int]:
        sizes = frozenset({found.group_size, len(found.in_split), len(found.out_split)} - {-1, 0})
        return found.ranks or described_ranks(found.group, sizes)

    lists = _Lists(LARGEST_JOB + MEMBERS_EACH * len(communications), unlisted)

    def complete(found: Communication) -> Communication:
        ranks = ranks_of(found)
        known = [msgspec.structs.replace(part, ranks=part.ranks or ranks) for part in found.coalesced]
        parts = [lists.written_out(_with_peer(part)) for part in known]
        return lists.written_out(_with_peer(msgspec.structs.replace(found, ranks=ranks, coalesced=parts)))

    return Communications.of(map(complete, communications))


class _Lists:
    """Writes ranges of ranks out, each once for all that have it, while there is room for so many members."""

    def __init__(self, room: int, unlisted: MutableSequence[int] | None) -> None:
        self._room, self._unlisted = room, unlisted
        self._known: dict[range, list[int]] = {}

    def written_out(self, found: Communication) -> Communication:
        ranks = found.ranks
        if len(ranks) > self._room:
            _note(self._unlisted)
            return msgspec.structs.replace(found, ranks=[])
        self._room -= len(ranks)
        if not isinstance(ranks, range):
            return found
        if ranks not in self._known:
            self._known[ranks] = list(ranks)
        return msgspec.structs.replace(found, ranks=self._known[ranks])


def _with_peer(found: Communication) -> Communication:
    """Returns the communication with the global rank of its peer or root, recorded by place in the group."""
    if not 0 <= found.place < len(found.ranks):
        return found
    name, rank = found.name.lower().replace("_", ""), found.ranks[found.place]
    if found.source < 0 and name.startswith(("recv", "irecv", *FROM_ROOT)):
        return msgspec.structs.replace(found, source=rank)
    to_root = name.startswith(TO_ROOT) and not name.startswith("reducescatter")
    if found.target < 0 and (name.startswith(("send", "isend")) or to_root):
        return msgspec.structs.replace(found, target=rank)
    return found
