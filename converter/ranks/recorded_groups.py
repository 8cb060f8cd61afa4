"""The process groups of a graph's communication."""

from typing import NamedTuple

import numpy as np

from ...schema.columns import Int64, Ragged
from ...schema.comm_groups import LARGEST_JOB, RankList
from ...schema.errors import DataError
from ...schema.graph import RANKS_OF_GROUP, ExecutionGraph
from .rank_lists import given_ranks

MOST_LISTED = 4 * LARGEST_JOB
"""Ranks in all lists of a graph's metadata, where a few bytes stand for a million."""


class Groups(NamedTuple):
    """The distinct rank lists of a graph, and for each node the place of its own in `lists`, -1 where none is recorded.

    `named` has the places of those that the metadata lists, by `pg_name`.
    """

    lists: list[RankList]
    of_node: Int64
    named: dict[str, int]


def recorded_groups(graph: ExecutionGraph) -> Groups:
    """Returns the groups by `pg_ranks`, and those that the metadata lists by name. O(n + ranks recorded).

    Raises DataError where the metadata's list is none.
    """
    ranks, place = graph.attributes.get("pg_ranks"), dict[RankList, int]()
    of_node = np.full(len(graph), -1, np.int64)
    if isinstance(ranks, Ragged):
        known = dict[bytes, int]()
        for row in np.flatnonzero(ranks.lengths()).tolist():
            text = ranks[row].tobytes()
            if text not in known:
                known[text] = place.setdefault(tuple(ranks[row].tolist()), len(place))
            of_node[row] = known[text]
    listed, room = dict[str, int](), MOST_LISTED
    for name, value in graph.metadata.items():
        if name.startswith(RANKS_OF_GROUP):
            members = _listed(name, str(value), min(room, LARGEST_JOB))
            room -= len(members)
            listed[name.removeprefix(RANKS_OF_GROUP)] = place.setdefault(members, len(place))
    if listed:
        by_name = graph.texts("pg_name").numbers(lambda name: listed.get(name, -1), -1)
        of_node = np.where(of_node < 0, by_name, of_node)
    return Groups(list(place), of_node, listed)


def _listed(name: str, text: str, most: int) -> RankList:
    ranks = given_ranks(text, most)
    if ranks is None:
        raise DataError(
            f"the metadata {name} of the graph is no list of ranks such as 0-3,8, or one of more than {most}; scale the job again"
        )
    return ranks
