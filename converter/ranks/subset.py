"""Some ranks of a job on their own: ranks renumbered from 0, groups reduced to the members that are left."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from ...schema.columns import ABSENT, Int64, Ragged
from ...schema.errors import DataError
from ...schema.graph import RANKS_OF_GROUP, Column, ExecutionGraph
from .rank_lists import ranks_text
from .recorded_groups import recorded_groups

OUTSIDE = -1
NOBODY: Int64 = np.empty(0, np.int64)


def restrict_to_ranks(graph: ExecutionGraph, ranks: Sequence[int], *, whole_groups: bool = False) -> ExecutionGraph:
    """Returns the graph of one of `ranks` in a job that consists of these alone: rank `ranks[i]` becomes i. O(n + ranks
    recorded).

    Groups keep the members that are left, in their order, where they are recorded. With `whole_groups` members that are
    not stay in, as rank -1, so that the group's collectives can be told and replayed for their measured time; the
    metadata cannot list such groups, their nodes do. Peers that are not left become -1. Raises DataError if the graph's
    own rank is not among them, or the metadata lists no ranks where it should.
    """
    own = graph.number("rank", OUTSIDE)
    if own not in ranks:
        raise DataError(f"the graph is of rank {own}, which is not one of the {len(ranks)} ranks that are to be kept")
    kept = np.array(ranks, np.int64)
    attributes: dict[str, Column] = dict(graph.attributes)
    for name in ("comm_src", "comm_dst"):
        if name in attributes:
            column = graph.integers(name)
            attributes[name] = np.where(column == ABSENT, ABSENT, _renumbered(column, kept))
    for name in ("coalesced_src", "coalesced_dst"):
        if isinstance(peers := attributes.get(name), Ragged):
            attributes[name] = Ragged(peers.starts, _renumbered(peers.values, kept))
    metadata = {**graph.metadata, "rank": list(ranks).index(own), "world_size": len(ranks)}
    restricted = dataclasses.replace(graph, attributes=attributes, metadata=metadata)
    return _with_groups(restricted, kept, whole_groups)


def _with_groups(graph: ExecutionGraph, kept: Int64, whole: bool) -> ExecutionGraph:
    """Returns the graph with the members of its groups that are left, at its nodes and in its metadata; `whole` with
    all, others as OUTSIDE.
    """
    groups, attributes = recorded_groups(graph), dict(graph.attributes)
    members = [_renumbered(np.array(group, np.int64), kept) for group in groups.lists]
    if isinstance(splits := attributes.get("comm_split"), Ragged) and not whole:
        attributes["comm_split"] = _of_those_left(splits, members, groups.of_node)
    if not whole:
        members = [group[group != OUTSIDE] for group in members]
    named = {name: members[place] for name, place in groups.named.items()}
    listed = {name: group for name, group in named.items() if len(group) and OUTSIDE not in group}
    own = graph.attributes.get("pg_ranks")
    at_node = own.lengths() > 0 if isinstance(own, Ragged) else np.zeros(len(graph), np.bool_)
    at_node |= (groups.of_node >= 0) & ~graph.texts("pg_name").equal(*listed)
    if len(rows := np.flatnonzero(at_node)):
        own_members = [members[place] for place in groups.of_node[rows].tolist()]
        attributes["pg_ranks"] = _ragged(own_members, rows, len(graph))
    metadata = {key: value for key, value in graph.metadata.items() if not key.startswith(RANKS_OF_GROUP)}
    metadata |= {RANKS_OF_GROUP + name: ranks_text(group.tolist()) for name, group in listed.items()}
    return dataclasses.replace(graph, attributes=attributes, metadata=metadata)


def _renumbered(column: Int64, kept: Int64) -> Int64:
    order = np.argsort(kept)
    place = order[np.minimum(np.searchsorted(kept, column, sorter=order), len(kept) - 1)]
    return np.where(kept[place] == column, place, OUTSIDE)


def _of_those_left(column: Ragged, members: list[Int64], of_node: Int64) -> Ragged:
    """Returns a column that has a value for each member of a node's group, without those of members that are outside."""
    rows = np.flatnonzero(column.lengths())
    values = [column[row] for row in rows.tolist()]
    groups = [members[place] if place >= 0 else NOBODY for place in of_node[rows].tolist()]
    left = [own[group != OUTSIDE] if len(own) == len(group) else own for own, group in zip(values, groups, strict=True)]
    return _ragged(left, rows, len(column))


def _ragged(values: list[Int64], rows: Int64, count: int) -> Ragged:
    """Returns a column of `count` rows that has values in these."""
    return Ragged.grouped(np.repeat(rows, [*map(len, values)]), np.concatenate([NOBODY, *values]), count)
