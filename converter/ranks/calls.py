"""The communication of one rank as columns, from its graph or its recorded arguments: small even for a large graph."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import numpy as np

from ...schema.columns import Bool, Int64, NodeNumbers, Ragged
from ...schema.graph import CollectiveType, ExecutionGraph, NodeType
from ...schema.linked import Communication
from ..building import COALESCED, meaning, peers
from .groups import Group, GroupNames
from .recorded_groups import recorded_groups

SAME_SIZE = (
    CollectiveType.ALL_REDUCE, CollectiveType.REDUCE, CollectiveType.BROADCAST, CollectiveType.REDUCE_SCATTER,
    CollectiveType.BARRIER,
)  # fmt: skip
"""Collectives of which every member records the same bytes; the shards of other types may differ."""
ROOTED = (CollectiveType.BROADCAST, CollectiveType.REDUCE, CollectiveType.GATHER, CollectiveType.SCATTER)
DIGEST_BYTES = 8


class Call(NamedTuple):
    """A collective, or one end of a message, as a rank recorded it.

    `row` identifies it for the caller, `kind` is a CollectiveType, `size` is in bytes. A message has a source, target
    and tag instead of a group. -1 is not known.
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
    """The calls of a rank as columns, in the order of issue; `group` is a position in `groups`, -1 for messages."""

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
        numbers: dict[Group, int] = {}
        rows = [
            (row, type_, numbers.setdefault(group, len(numbers)) if group else -1, *facts)
            for row, type_, group, *facts in calls
        ]
        return Calls(list(numbers), *np.array(rows, np.int64).reshape(-1, len(Call._fields)).T)

    @property
    def is_placed(self) -> Bool:
        """Whether it is known who takes part: by the ranks or name of the group, or by both ends of the message."""
        is_known = np.array([*(bool(group.ranks or group.name) for group in self.groups), False])
        message = self.type != NodeType.COMM_COLL
        return np.asarray(np.where(message, np.minimum(self.source, self.target) >= 0, is_known[self.group]))

    def take(self, rows: Int64) -> "Calls":
        """Returns the calls at these positions."""
        columns = {name: getattr(self, name)[rows] for name in Call._fields}
        return replace(self, **columns)

    def done(self) -> dict[Group, str]:
        """Returns a digest of the collectives of each group, by what all members have in common."""
        import hashlib  # slow to load

        size = np.where(np.isin(self.kind, SAME_SIZE), self.size, 0)
        order = np.argsort(self.group, kind="stable")
        starts = np.searchsorted(self.group[order], np.arange(len(self.groups) + 1))
        facts = np.stack((self.kind, size), axis=1)[order]
        return {
            group: hashlib.blake2b(facts[begin:end].tobytes(), digest_size=DIGEST_BYTES).hexdigest()
            for group, begin, end in zip(self.groups, starts[:-1].tolist(), starts[1:].tolist(), strict=True)
        }


def awaits_all(kind: Int64) -> Bool:
    """Returns for which kinds no member can end before all have begun: those without a root; not for messages and
    unknown kinds, -1.
    """
    return np.asarray((kind >= 0) & ~np.isin(kind, ROOTED))


def recorded_calls(recorded: Sequence[Communication], kernels: Sequence[str], own_rank: int) -> Calls:
    """Returns the calls of a rank from the recorded arguments of each; by the kernel's name where these do not tell.

    Coalesced messages are not separated.
    """
    names = GroupNames()

    def call(row: int, arguments: Communication, kernel: str) -> Call:
        decoded = meaning(arguments, kernel)
        if decoded is not None and decoded.type is None:
            source, target = peers(arguments, decoded.node, own_rank)
            return Call(row, decoded.node, size=decoded.size, source=source, target=target, tag=arguments.tag)
        group = names.group_of(arguments.ranks, arguments.group, arguments.description)
        kind, size = (-1, 0) if decoded is None or decoded.type is None else (int(decoded.type), decoded.size)
        return Call(row, NodeType.COMM_COLL, group, kind, size, arguments.sequence)

    return Calls.of(call(row, *pair) for row, pair in enumerate(zip(recorded, kernels, strict=True)))


def graph_calls(graph: ExecutionGraph, rows: NodeNumbers, own_rank: int) -> Calls:
    """Returns the calls of a rank in these rows of its graph; a node with several messages comes once for each."""
    names, groups = GroupNames(), recorded_groups(graph)
    lists = [*groups.lists, ()]
    recorded, name, purpose = graph.texts("pg_recorded"), graph.texts("pg_name"), graph.texts("pg_desc")
    kind = graph.collective_types().tolist()
    size, sequence, tag = (
        graph.integers(f"comm_{what}", default).tolist() for what, default in (("size", 0), ("seq", -1), ("tag", 0))
    )
    # the side that is not recorded is the node's own rank
    source, target = graph.integers("comm_src", own_rank).tolist(), graph.integers("comm_dst", own_rank).tolist()
    coalesced = [graph.attributes.get(COALESCED[f"comm_{side}"]) for side in ("src", "dst", "tag")]
    sizes = graph.attributes.get(COALESCED["comm_size"])

    @cache
    def group_of(listed: int, name: str, purpose: str) -> Group:
        # to find a list of very many ranks takes as long as it is
        return names.group_of(lists[listed], name, purpose)

    def calls(row: int, node: NodeType) -> Iterable[Call]:
        if node is NodeType.COMM_COLL:
            group = group_of(int(groups.of_node[row]), recorded[row] or name[row], purpose[row])
            return [Call(row, node, group, kind[row], size[row], sequence[row])]
        several = [column[row].tolist() for column in coalesced if isinstance(column, Ragged)]
        if len(several) < len(coalesced) or not several[0]:
            return [Call(row, node, size=size[row], source=source[row], target=target[row], tag=tag[row])]
        message_sizes = sizes[row].tolist() if isinstance(sizes, Ragged) else [0] * len(several[0])
        return [
            Call(
                row,
                (NodeType.COMM_RECV, NodeType.COMM_SEND)[start == own_rank],
                None,
                -1,
                message_size,
                -1,
                start,
                end,
                label,
            )
            for start, end, label, message_size in zip(*several, message_sizes, strict=True)
        ]

    types = graph.type[rows].tolist()
    return Calls.of(call for row, node in zip(rows.tolist(), types, strict=True) for call in calls(row, NodeType(node)))
