"""Some ranks of a job on their own: ranks renumbered from 0, groups reduced to the members that are left."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from ...schema.columns import ABSENT, Int64, Ragged
from ...schema.errors import DataError
from ...schema.graph import Column, ExecutionGraph

OUTSIDE = -1


def restrict_to_ranks(graph: ExecutionGraph, ranks: Sequence[int], *, whole_groups: bool = False) -> ExecutionGraph:
    """The graph of one of `ranks` in a job that consists of these alone: rank `ranks[i]` becomes i. O(n + ranks recorded).

    Groups keep the members that are left, in their order. With `whole_groups` members that are not stay in, as rank -1, so that
    the group's collectives can be told and replayed for their measured time. Peers that are not left become -1.
    Raises DataError if the graph's own rank is not among them.
    """
    own = int(graph.metadata.get("rank", OUTSIDE))
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
    if isinstance(groups := attributes.get("pg_ranks"), Ragged):
        members = Ragged(groups.starts, _renumbered(groups.values, kept))
        attributes["pg_ranks"] = members if whole_groups else _of_members(members, members)
        if isinstance(splits := attributes.get("comm_split"), Ragged) and not whole_groups:
            attributes["comm_split"] = _of_members(splits, members)
    metadata = {**graph.metadata, "rank": list(ranks).index(own), "world_size": len(ranks)}
    return dataclasses.replace(graph, attributes=attributes, metadata=metadata)


def _renumbered(column: Int64, kept: Int64) -> Int64:
    order = np.argsort(kept)
    place = order[np.minimum(np.searchsorted(kept, column, sorter=order), len(kept) - 1)]
    return np.where(kept[place] == column, place, OUTSIDE)


def _of_members(column: Ragged, groups: Ragged) -> Ragged:
    """A column that has a value for each member, in the rows that it has, without those of members that are outside."""
    has = (column.lengths() > 0)[groups.rows()]
    left = groups.values[has] != OUTSIDE
    return Ragged.grouped(column.rows()[left], column.values[left], len(column))
