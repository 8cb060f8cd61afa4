"""How many nodes stand ready at once: the cost of simulating a graph grows with the square of it."""

import numpy as np

from ...schema.graph import ExecutionGraph
from ..context import Edges

WIDE = 2_000
"""From here on simulation takes seconds for what a chained graph does in milliseconds."""


def widest_ready_set(graph: ExecutionGraph, edges: Edges) -> int:
    """Returns the largest number of nodes that, by the measured clock, were released and had not ended; O(n log n).

    A node without dependencies is ready from the start.
    """
    if not len(graph):
        return 0
    end = graph.start_ns + graph.duration_ns
    released = np.full(len(graph), graph.start_ns.min())
    np.maximum.at(released, edges.target, end[edges.source])
    time = np.concatenate((released, np.maximum(end, released + 1)))
    change = np.repeat((1, -1), len(graph))
    return int(np.cumsum(change[np.lexsort((change, time))]).max())
