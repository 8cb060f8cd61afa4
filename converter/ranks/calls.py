"""What one rank communicates as columns, from its graph or from the recorded arguments: small, where a graph is large."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import numpy as np

from ...schema.columns import Bool, Int64, Ragged
from ...schema.graph import CollectiveType, ExecutionGraph, NodeType
from ...schema.linked import Communication
from ..building import COALESCED, meaning, peers
from .groups import Group, GroupNames
from .recorded_groups import recorded_groups

SAME_SIZE = (
    CollectiveType.ALL_REDUCE, CollectiveType.REDUCE, CollectiveType.BROADCAST, CollectiveType.REDUCE_SCATTER, CollectiveType.BARRIER
)  # fmt: skip
"""Of which every member records the same bytes; the shards of others may differ."""
ROOTED = (CollectiveType.BROADCAST, CollectiveType.REDUCE, CollectiveType.GATHER, CollectiveType.SCATTER)
DIGEST_BYTES = 8


class Call(NamedTuple):
    """A collective, or one end of a message, as a rank recorded it.

    `row` is what the caller knows it by, `kind` a CollectiveType, `size` in bytes. Messages have no group, but source,
    target and tag; -1 where something is not known.
    """

    row: int
    type: NodeType
    group: Group | None = None
    kind: int = -1
    size: int = 0
    sequence: int = -1
    source: int = -1
    target: int = -1
    tag: int = 0


@dataclass(frozen=True, slots=True)
class Calls:
    """The columns of a rank's calls in the order in which they were issued; `group` is the place in `groups`, -1 for
    messages.
    """

    groups: list[Group]
    row: Int64
    type: Int64
    group: Int64
    kind: Int64
    size: Int64
    sequence: Int64
    source: Int64
    target: Int64
    tag: Int64

    def __len__(self) -> int:
        return len(self.row)

    @staticmethod
    def of(calls: Iterable[Call]) -> "Calls":
        """Returns the calls as columns; groups are numbered in the order in which they come first."""
        place: dict[Group, int] = {}
        rows = [
            (row, type_, place.setdefault(group, len(place)) if group else -1, *facts)
            for row, type_, group, *facts in calls
        ]
        return Calls(list(place), *np.array(rows, np.int64).reshape(-1, len(Call._fields)).T)

    @property
    def is_placed(self) -> Bool:
        """Of which it is known who takes part: by the ranks or name of their group, or both ends of the message."""
        known = np.array([*(bool(group.ranks or group.name) for group in self.groups), False])
        message = self.type != NodeType.COMM_COLL
        return np.asarray(np.where(message, np.minimum(self.source, self.target) >= 0, known[self.group]))

    def take(self, rows: Int64) -> "Calls":
        """Returns those at these places."""
        columns = {name: getattr(self, name)[rows] for name in Call._fields}
        return replace(self, **columns)

    def done(self) -> dict[Group, str]:
        """Returns for each group a digest of its collectives, by what all members have in common of them."""
        size = np.where(np.isin(self.kind, SAME_SIZE), self.size, 0)
        order = np.argsort(self.group, kind="stable")
        starts = np.searchsorted(self.group[order], np.arange(len(self.groups) + 1))
        facts = np.stack((self.kind, size), axis=1)[order]
        return {
            group: hashlib.blake2b(facts[begin:end].tobytes(), digest_size=DIGEST_BYTES).hexdigest()
            for group, begin, end in zip(self.groups, starts[:-1].tolist(), starts[1:].tolist(), strict=True)
        }


def awaits_all(kind: Int64) -> Bool:
    """Returns of which kinds no member can end before all have come: those without a root; not of messages and unknown
    kinds, -1.
    """
    return np.asarray((kind >= 0) & ~np.isin(kind, ROOTED))


def recorded_calls(recorded: Sequence[Communication], kernels: Sequence[str], own: int) -> Calls:
    """Returns the calls of rank `own` from the recorded arguments of each, and the kernel's name where these do not
    tell; not of coalesced ones.
    """
    names = GroupNames()

    def call(row: int, found: Communication, kernel: str) -> Call:
        meant = meaning(found, kernel)
        if meant is not None and meant.type is None:
            source, target = peers(found, meant.node, own)
            return Call(row, meant.node, size=meant.size, source=source, target=target, tag=found.tag)
        group = names.group_of(found.ranks, found.group, found.description)
        kind, size = (-1, 0) if meant is None or meant.type is None else (int(meant.type), meant.size)
        return Call(row, NodeType.COMM_COLL, group, kind, size, found.sequence)

    return Calls.of(call(row, *pair) for row, pair in enumerate(zip(recorded, kernels, strict=True)))


def graph_calls(graph: ExecutionGraph, rows: Int64, own: int) -> Calls:
    """Returns the calls of rank `own` in these rows of its graph; a node that carries several messages comes once for
    each.
    """
    names, known = GroupNames(), recorded_groups(graph)
    lists = [*known.lists, ()]
    recorded, name, purpose = graph.texts("pg_recorded"), graph.texts("pg_name"), graph.texts("pg_desc")
    kind = graph.collective_types().tolist()
    size, sequence, tag = (
        graph.integers(f"comm_{what}", default).tolist() for what, default in (("size", 0), ("seq", -1), ("tag", 0))
    )
    # a side that is not recorded is the node's own rank
    source, target = graph.integers("comm_src", own).tolist(), graph.integers("comm_dst", own).tolist()
    together = [graph.attributes.get(COALESCED[f"comm_{side}"]) for side in ("src", "dst", "tag")]
    sizes = graph.attributes.get(COALESCED["comm_size"])

    @cache
    def group_of(listed: int, name: str, purpose: str) -> Group:
        # to find a list of very many ranks takes as long as it is
        return names.group_of(lists[listed], name, purpose)

    def calls(row: int, node: NodeType) -> Iterable[Call]:
        if node is NodeType.COMM_COLL:
            group = group_of(int(known.of_node[row]), recorded[row] or name[row], purpose[row])
            return [Call(row, node, group, kind[row], size[row], sequence[row])]
        several = [column[row].tolist() for column in together if isinstance(column, Ragged)]
        if len(several) < len(together) or not several[0]:
            return [Call(row, node, size=size[row], source=source[row], target=target[row], tag=tag[row])]
        carries = sizes[row].tolist() if isinstance(sizes, Ragged) else [0] * len(several[0])
        return [
            Call(row, (NodeType.COMM_RECV, NodeType.COMM_SEND)[start == own], None, -1, carried, -1, start, end, label)
            for start, end, label, carried in zip(*several, carries, strict=True)
        ]

    types = graph.type[rows].tolist()
    return Calls.of(call for row, node in zip(rows.tolist(), types, strict=True) for call in calls(row, NodeType(node)))
