"""Matches the nodes of several ranks' graphs that are one collective or message; nodes without a counterpart are left
out.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...converter.device_only import COMMUNICATION
from ...converter.ranks import Calls, graph_calls, match
from ...schema.columns import Int64, NodeNumbers, Ns
from ...schema.graph import ExecutionGraph, NodeType


@dataclass(slots=True)
class MatchedNodes:
    """Pairs of a row and the number of its match, sorted by match; `count` is the number of matches.

    Rows are numbered over all graphs, one after the other.
    """

    row: Int64
    matched: Int64
    count: int

    def shortest(self, duration_ns: Ns) -> Ns:
        """Returns how long each match takes, given the durations of all rows: as long as its shortest member, as the
        others also wait for it. A match without members takes no time.
        """
        shortest = np.full(self.count, np.iinfo(np.int64).max)
        np.minimum.at(shortest, self.matched, duration_ns[self.row])
        return np.where(np.bincount(self.matched, minlength=self.count) > 0, shortest, 0)


def match_nodes(graphs: Sequence[ExecutionGraph]) -> MatchedNodes:
    """Matches collectives and messages over ranks; O(n log n) in the communication nodes."""
    calls = [communication_of(graph, position) for position, graph in enumerate(graphs)] if len(graphs) > 1 else []
    matches = match(calls)
    first_row = np.cumsum([0, *map(len, graphs)])
    row = np.concatenate(
        [np.empty(0, np.int64), *(of_graph.row + first for of_graph, first in zip(calls, first_row, strict=False))]
    )
    rank = np.repeat(np.arange(len(calls)), [len(of_graph) for of_graph in calls])
    matched = np.concatenate([np.empty(0, np.int64), *matches.matched])
    ranks = np.bincount(np.unique(matched * len(graphs) + rank) // len(graphs), minlength=len(matches))
    order = np.argsort(matched, kind="stable")
    order = order[ranks[matched[order]] > 1]
    _, number = np.unique(matched[order], return_inverse=True)
    return MatchedNodes(row[order], number, int((ranks > 1).sum()))


def communication_of(graph: ExecutionGraph, position: int) -> Calls:
    """Returns the collectives and messages of the graph at this position, in the order in which they were issued."""
    # of a kernel that carries several messages only the last one has the kernel's duration, the others last 0 ns
    instant = (graph.type == NodeType.COMM_SEND) & (graph.duration_ns == 0)
    rows = np.flatnonzero(np.isin(graph.type, COMMUNICATION) & ~instant)
    by_id = rows[np.argsort(graph.id[rows], kind="stable")]
    return graph_calls(graph, NodeNumbers(by_id), graph.number("rank", position))
