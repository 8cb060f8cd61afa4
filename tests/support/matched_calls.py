"""The calls of a job as its ranks have matched them, a row each, without graphs."""

from typing import NamedTuple

import numpy as np
from execgraph.converter.ranks import MatchedCalls
from execgraph.schema.graph import CollectiveType, NodeType


class Issued(NamedTuple):
    """A call of a rank: the id of its node, the number of its match, when it ran, and the positions of the rank's calls
    that it follows.
    """

    node: int
    matched: int
    start_ns: int = 0
    end_ns: int = 0
    follows: tuple[int, ...] = ()
    type: NodeType = NodeType.COMM_COLL
    kind: int = int(CollectiveType.ALL_REDUCE)
    members: int = 2
    size: int = 8
    kernel: int = -1
    on_host: bool = False
    slack_ns: int = 0


def job_of(*ranks: list[Issued]) -> MatchedCalls:
    """The calls of all ranks on one clock."""
    calls = [(rank, call) for rank, calls in enumerate(ranks) for call in calls]
    first_row = np.cumsum([0, *map(len, ranks)]).tolist()
    pairs = [
        (first_row[rank] + before, first_row[rank] + row)
        for rank, of_rank in enumerate(ranks)
        for row, call in enumerate(of_rank)
        for before in call.follows
    ]
    before, after = np.array(pairs, np.int64).reshape(-1, 2).T
    names = ("node", "matched", "start_ns", "end_ns", "type", "kind", "members", "size", "kernel", "slack_ns")
    columns = {name: np.array([int(getattr(call, name)) for _, call in calls], np.int64) for name in names}
    return MatchedCalls(
        **columns,
        rank=np.array([rank for rank, _ in calls], np.int64),
        transfer_ns=columns["end_ns"] - columns["start_ns"],
        on_host=np.array([call.on_host for _, call in calls], np.bool_),
        before=before,
        after=after,
        offset_ns=np.zeros(len(ranks), np.int64),
    )


def follows(calls: MatchedCalls) -> list[list[int]]:
    """The rows on which each row depends."""
    return [calls.before[calls.after == row].tolist() for row in range(len(calls))]
