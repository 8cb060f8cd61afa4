"""Restricts a job to some of its ranks: these are renumbered from 0, and groups keep the remaining members."""

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
    """Returns the graph of one of `ranks` for a job of these ranks only: rank `ranks[i]` becomes i. O(n + ranks
    recorded).

    Groups keep their remaining members, in order, where they are recorded. With `whole_groups` the removed members stay
    as rank -1, so that the group's collectives can be recognised and replayed for their measured time; such groups are
    listed at their nodes, not in the metadata. Removed peers become -1. Raises DataError if the graph's own rank is
    removed, or an entry of the metadata is no list of ranks.
    """
    own_rank = graph.number("rank", OUTSIDE)
    if own_rank not in ranks:
        raise DataError(
            f"the graph is of rank {own_rank}, which is not one of the {len(ranks)} ranks that are to be kept"
        )
    kept_ranks = np.array(ranks, np.int64)
    attributes: dict[str, Column] = dict(graph.attributes)
    for name in ("comm_src", "comm_dst"):
        if name in attributes:
            column = graph.integers(name)
            attributes[name] = np.where(column == ABSENT, ABSENT, _renumbered(column, kept_ranks))
    for name in ("coalesced_src", "coalesced_dst"):
        if isinstance(peers := attributes.get(name), Ragged):
            attributes[name] = Ragged(peers.starts, _renumbered(peers.values, kept_ranks))
    metadata = {**graph.metadata, "rank": list(ranks).index(own_rank), "world_size": len(ranks)}
    restricted = dataclasses.replace(graph, attributes=attributes, metadata=metadata)
    return _with_groups(restricted, kept_ranks, whole_groups)


def _with_groups(graph: ExecutionGraph, kept_ranks: Int64, whole: bool) -> ExecutionGraph:
    """Returns the graph with the remaining members of its groups, at nodes and in the metadata; `whole` with all
    members, removed ones as OUTSIDE.
    """
    groups, attributes = recorded_groups(graph), dict(graph.attributes)
    members = [_renumbered(np.array(group, np.int64), kept_ranks) for group in groups.lists]
    if isinstance(splits := attributes.get("comm_split"), Ragged) and not whole:
        attributes["comm_split"] = _without_removed(splits, members, groups.of_node)
    if not whole:
        members = [group[group != OUTSIDE] for group in members]
    named = {name: members[number] for name, number in groups.named.items()}
    listed = {name: group for name, group in named.items() if len(group) and OUTSIDE not in group}
    recorded = graph.attributes.get("pg_ranks")
    at_node = recorded.lengths() > 0 if isinstance(recorded, Ragged) else np.zeros(len(graph), np.bool_)
    at_node |= (groups.of_node >= 0) & ~graph.texts("pg_name").equal(*listed)
    if len(rows := np.flatnonzero(at_node)):
        own_members = [members[number] for number in groups.of_node[rows].tolist()]
        attributes["pg_ranks"] = _ragged(own_members, rows, len(graph))
    metadata = {key: value for key, value in graph.metadata.items() if not key.startswith(RANKS_OF_GROUP)}
    metadata |= {RANKS_OF_GROUP + name: ranks_text(group.tolist()) for name, group in listed.items()}
    return dataclasses.replace(graph, attributes=attributes, metadata=metadata)


def _renumbered(column: Int64, kept_ranks: Int64) -> Int64:
    order = np.argsort(kept_ranks)
    position = order[np.minimum(np.searchsorted(kept_ranks, column, sorter=order), len(kept_ranks) - 1)]
    return np.where(kept_ranks[position] == column, position, OUTSIDE)


def _without_removed(column: Ragged, members: list[Int64], of_node: Int64) -> Ragged:
    """Returns a column with a value for each member of a node's group, without those of removed members."""
    rows = np.flatnonzero(column.lengths())
    values = [column[row] for row in rows.tolist()]
    groups = [members[number] if number >= 0 else NOBODY for number in of_node[rows].tolist()]
    left = [
        row_values[group != OUTSIDE] if len(row_values) == len(group) else row_values
        for row_values, group in zip(values, groups, strict=True)
    ]
    return _ragged(left, rows, len(column))


def _ragged(values: list[Int64], rows: Int64, count: int) -> Ragged:
    """Returns a column of `count` rows with values in these rows."""
    return Ragged.grouped(np.repeat(rows, [*map(len, values)]), np.concatenate([NOBODY, *values]), count)
