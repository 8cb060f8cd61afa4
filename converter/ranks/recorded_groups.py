"""The rank lists of the groups that a graph's communication records."""

from typing import NamedTuple

import numpy as np

from ...schema.columns import Int64, Ragged
from ...schema.comm_groups import RankList
from ...schema.graph import ExecutionGraph


class Groups(NamedTuple):
    """The distinct rank lists of a graph, and for each node the place of its own in `lists`, -1 where none is recorded."""

    lists: list[RankList]
    of_node: Int64


def recorded_groups(graph: ExecutionGraph) -> Groups:
    """The groups by `pg_ranks`. O(n + ranks recorded)."""
    ranks, place = graph.attributes.get("pg_ranks"), dict[bytes, int]()
    of_node = np.full(len(graph), -1, np.int64)
    if isinstance(ranks, Ragged):
        for row in np.flatnonzero(ranks.lengths()).tolist():
            of_node[row] = place.setdefault(ranks[row].tobytes(), len(place))
    return Groups([tuple(np.frombuffer(text, np.int64).tolist()) for text in place], of_node)
