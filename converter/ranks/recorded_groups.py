"""The process groups of a graph's communication."""

from typing import NamedTuple

import numpy as np

from ...schema.columns import Int64, Ragged
from ...schema.comm_groups import LARGEST_JOB, RankList
from ...schema.errors import DataError
from ...schema.graph import RANKS_OF_GROUP, ExecutionGraph
from .rank_lists import given_ranks

MOST_LISTED = 4 * LARGEST_JOB
"""The most ranks in all lists of a graph's metadata, where a few bytes may mean a million ranks."""


class Groups(NamedTuple):
    """The distinct rank lists of a graph, and the position of each node's list in `lists`, -1 where none is recorded.

    `named` are the positions of the lists in the metadata, by `pg_name`.
    """

    lists: list[RankList]
    of_node: Int64
    named: dict[str, int]


def recorded_groups(graph: ExecutionGraph) -> Groups:
    """Returns the groups by `pg_ranks`, and those that the metadata lists by name. O(n + ranks recorded).

    Raises DataError where an entry of the metadata is no list of ranks.
    """
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
            members = _listed(name, str(value), min(left_to_list, LARGEST_JOB))
            left_to_list -= len(members)
            listed[name.removeprefix(RANKS_OF_GROUP)] = numbers.setdefault(members, len(numbers))
    if listed:
        by_name = graph.texts("pg_name").numbers(lambda name: listed.get(name, -1), -1)
        of_node = np.where(of_node < 0, by_name, of_node)
    return Groups(list(numbers), of_node, listed)


def _listed(name: str, text: str, limit: int) -> RankList:
    ranks = given_ranks(text, limit)
    if ranks is None:
        raise DataError(
            f"the metadata {name} of the graph is no list of ranks such as 0-3,8, or one of more than {limit}; scale "
            "the job again"
        )
    return ranks
