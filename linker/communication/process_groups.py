"""Process groups: as the traces describe them, and the global ranks of the groups that communications name.

Names say little: a process numbers its groups as it makes them, one name may come again for other ranks, some are hashes or addresses.
So a group is known by its ranks.
"""

import ast
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np

from ...schema.columns import Strings
from ...schema.linked import Communication, ProcessGroup
from ...schema.traces import GROUP_INIT, argument_lists, integer
from .recorded_arguments import members, regular_ranks

WAIT = "wait"
FROM_ROOT, TO_ROOT = ("broadcast", "scatter"), ("reduce", "gather")


def groups_of_host(names: Strings, inputs: Sequence[bytes]) -> Iterator[dict[str, Any]]:
    """What host ops of these names and inputs describe of process groups."""
    for code in np.flatnonzero([GROUP_INIT in name for name in names.table]).tolist():
        for node in np.flatnonzero(names.codes == code).tolist():
            yield from _described(inputs[node])


def process_groups(described: Iterable[dict[str, Any]]) -> list[ProcessGroup]:
    """The groups that either trace describes, each name and rank list once. Without ranks it is 0 to size - 1."""
    found: dict[tuple[str, tuple[int, ...]], ProcessGroup] = {}
    for entry in described:
        size = integer(entry.get("group_size", entry.get("pg_size")), -1)
        group = ProcessGroup(
            name=str(entry.get("pg_name", "")),
            description=str(entry.get("pg_desc", "")),
            ranks=members(entry.get("ranks")) or regular_ranks(0, 1, size),
            size=size,
        )
        found.setdefault((group.name, tuple(group.ranks)), group)
    return list(found.values())


def _described(inputs: bytes) -> Iterable[dict[str, Any]]:
    """The dicts in the text argument of a `process_group:init` node: JSON, or Python's own notation in 2.1."""
    [values] = argument_lists(inputs, "values")
    for text in values:
        if not isinstance(text, str):
            continue
        try:
            entries = json.loads(text)
        except ValueError:
            try:
                entries = ast.literal_eval(text)
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                continue
        yield from (entry for entry in entries if isinstance(entry, dict)) if isinstance(entries, list) else ()


def with_members(
    communications: Sequence[Communication], groups: Sequence[ProcessGroup], world_size: int
) -> list[Communication]:
    """The communications with the global ranks of their groups, where these can be told, and with those of their peers and roots.

    From the arguments, else from the one described group of that name and size; a group of the world's size is the world, by its
    recorded size or the length of its split lists, and so is the only group of a trace that describes none.
    """
    world = regular_ranks(0, 1, world_size)
    described: dict[str, list[ProcessGroup]] = defaultdict(list)
    for group in groups:
        described[group.name].append(group)
    only = len({found.group for found in communications if found.name != WAIT}) == 1 and not groups

    def ranks_of(found: Communication) -> list[int]:
        sizes = {found.group_size, len(found.in_split), len(found.out_split)} - {-1, 0}
        named = described.get(found.group, [])
        fitting = [group for group in named if not sizes or len(group.ranks) in sizes] or named
        if found.ranks or fitting:
            lists = {tuple(group.ranks or world) for group in fitting}
            return found.ranks or (list(lists.pop()) if len(lists) == 1 else [])
        return world if world_size in sizes or only else []

    def complete(found: Communication) -> Communication:
        ranks = ranks_of(found)
        known = [msgspec.structs.replace(part, ranks=part.ranks or ranks) for part in found.coalesced]
        parts = [_with_peer(part) for part in known]
        return _with_peer(msgspec.structs.replace(found, ranks=ranks, coalesced=parts))

    return [complete(found) for found in communications]


def _with_peer(found: Communication) -> Communication:
    """The communication with the global rank of its peer or root, recorded by place in the group."""
    if not 0 <= found.place < len(found.ranks):
        return found
    name, rank = found.name.lower().replace("_", ""), found.ranks[found.place]
    if found.source < 0 and name.startswith(("recv", "irecv", *FROM_ROOT)):
        return msgspec.structs.replace(found, source=rank)
    to_root = name.startswith(TO_ROOT) and not name.startswith("reducescatter")
    if found.target < 0 and (name.startswith(("send", "isend")) or to_root):
        return msgspec.structs.replace(found, target=rank)
    return found
