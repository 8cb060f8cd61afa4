"""How much later each node of a graph could have ended without its rank ending later."""

import numpy as np

from ...schema.columns import Int64
from ...schema.graph import ExecutionGraph
from ..rewiring import data_edges
from .measured_times import MeasuredTimes


def slack_ns(graph: ExecutionGraph, times: MeasuredTimes) -> Int64:
    """Returns the slack of each node of a graph in topological order, if all else takes as long as measured. O(n + e).

    A node may end as late as the first of those that depend on it may start.
    """
    edges, end = data_edges(graph), times.end_ns
    waited = graph.integers("gap_ns", 0) + graph.integers("host_delay_ns", 0)
    durations_ns = (times.end_ns - times.start_ns + waited).tolist()
    latest = np.full(len(graph), end.max(initial=0)).tolist()
    # sorted by target, so that a node is final before its dependencies are reached
    for source, target in zip(edges.source[::-1].tolist(), edges.target[::-1].tolist(), strict=True):
        latest[source] = min(latest[source], latest[target] - durations_ns[target])
    slack: Int64 = np.array(latest, np.int64) - end
    return slack.clip(min=0)
