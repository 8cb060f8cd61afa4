"""The communication of one rank's graph, which the job needs from all ranks before any of them is written."""

from typing import NamedTuple

import numpy as np

from ...schema.columns import ABSENT, Bool, Int64, NodeNumbers, Ragged
from ...schema.graph import ExecutionGraph, NodeType
from ..device_only import COMMUNICATION
from ..ranks import Calls, graph_calls, measured_times


class RankCommunication(NamedTuple):
    """The calls of a rank, with a row for each: times in ns since the rank's first node, whether a host thread
    communicates, the root, and the bytes of an all-to-all for each member of its group (empty if not known).

    `last_end_ns` is when the rank's last node ended.
    """

    rank: int
    calls: Calls
    start_ns: Int64
    duration_ns: Int64
    on_host: Bool
    root: Int64
    splits: list[tuple[int, ...]]
    last_end_ns: int


def rank_communication(graph: ExecutionGraph, position: int) -> RankCommunication:
    """Returns the communication of a graph; its rank is `position` where the graph has none. O(n log n)."""
    rank = graph.number("rank", position)
    rows = np.flatnonzero(np.isin(graph.type, COMMUNICATION))
    calls = graph_calls(graph, NodeNumbers(rows[np.argsort(graph.id[rows], kind="stable")]), rank)
    times, splits = measured_times(graph), graph.attributes.get("comm_split")
    source, target = (graph.integers(name)[calls.row] for name in ("comm_src", "comm_dst"))
    timed = graph.type != NodeType.METADATA
    return RankCommunication(
        rank=rank,
        calls=calls,
        start_ns=times.start_ns[calls.row],
        duration_ns=graph.duration_ns[calls.row],
        on_host=~graph.is_activity[calls.row],
        root=np.where(source == ABSENT, target, source),
        splits=[tuple(splits[row].tolist()) if isinstance(splits, Ragged) else () for row in calls.row.tolist()],
        last_end_ns=int(times.end_ns[timed].max(initial=0)),
    )
