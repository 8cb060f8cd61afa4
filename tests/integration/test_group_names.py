"""Names of process groups for a simulator, by the effort that they take."""

from collections.abc import Callable
from typing import Any

import numpy as np
from execgraph.converter.ranks import Groups
from execgraph.converter.targets.communication import name_groups
from execgraph.schema.graph import NodeType
from support.effort import growth
from support.graphs import LAUNCH, GraphBuilder


class Ranks(tuple[int, ...]):
    """A rank list whose comparisons count, as they are calls."""

    __hash__ = tuple.__hash__

    def __eq__(self, other: object) -> bool:
        return tuple.__eq__(self, other)  # type: ignore[arg-type]


def many_groups(count: int) -> Callable[[], object]:
    g = GraphBuilder()
    op = g.host("op", 0, 10)
    for number in range(count):
        g.activity("nccl", 10 + number, 1, type=NodeType.COMM_COLL, after=[(op, LAUNCH)])
    graph: Any = g.build()
    lists = [Ranks((0, rank)) for rank in range(1, count + 1)]
    of_node = np.cumsum(graph.type == NodeType.COMM_COLL) - 1
    return lambda: name_groups(graph, Groups(lists, of_node, {}), None, None)


def test_the_effort_grows_with_the_groups_and_not_with_their_square() -> None:
    assert growth(many_groups, 50) < 2.5
