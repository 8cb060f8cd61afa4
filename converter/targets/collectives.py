"""Collectives as ASTRA-sim runs them: types that it supports, and sizes on which it does not hang."""

from collections import Counter

import numpy as np

from ...schema.columns import Bool
from ...schema.graph import CollectiveType, ExecutionGraph, NodeType

PLAYED = (
    CollectiveType.ALL_REDUCE,
    CollectiveType.ALL_GATHER,
    CollectiveType.REDUCE_SCATTER,
    CollectiveType.ALL_TO_ALL,
    CollectiveType.BROADCAST,  # for its measured duration
)

LOWERED = {
    # a pipelined reduction sends the buffer once over each link of the ring, as reduce-scatter does
    CollectiveType.REDUCE: CollectiveType.REDUCE_SCATTER,
    # the root's link carries everybody's shard, as every link of an all-gather does
    CollectiveType.GATHER: CollectiveType.ALL_GATHER,
    # the reverse of a gather: the root's link carries all shards but its own
    CollectiveType.SCATTER: CollectiveType.REDUCE_SCATTER,
    CollectiveType.REDUCE_SCATTER_BLOCK: CollectiveType.REDUCE_SCATTER,
    # as in NCCL: no member has the sum before all have arrived
    CollectiveType.BARRIER: CollectiveType.ALL_REDUCE,
}
"""For each type that the simulator refuses, the type with the most similar load of the network; sizes stay."""

LEAST_BYTES = 128
"""An all-gather of fewer bytes than the simulated system splits a data set into (usually 4 to 64) never ends."""


def simulated_as(kind: int) -> int:
    """Returns the CollectiveType as which the simulator runs one of this type; other numbers stay."""
    return int(LOWERED.get(CollectiveType(kind), kind)) if kind >= 0 else kind


def lower_collectives(graph: ExecutionGraph) -> Counter[str]:
    """Replaces types that the simulator refuses, in place; returns the number of replacements by kind."""
    collective, recorded = graph.type == NodeType.COMM_COLL, graph.integers("comm_type")
    lowered, counts = recorded.copy(), Counter[str]()
    for kind, instead in LOWERED.items():
        rows = collective & (recorded == kind)
        if rows.any():
            lowered[rows] = instead
            counts[f"{kind.name.lower()} as {instead.name.lower()}"] = int(rows.sum())
    graph.attributes["comm_type"] = lowered
    _grow(graph, collective & (recorded == CollectiveType.BARRIER))
    return counts


def pad_all_gathers(graph: ExecutionGraph) -> int:
    """Gives all-gathers at least LEAST_BYTES, in place; returns how many were smaller."""
    gathers = (graph.type == NodeType.COMM_COLL) & (graph.integers("comm_type") == CollectiveType.ALL_GATHER)
    return _grow(graph, gathers)


def _grow(graph: ExecutionGraph, rows: Bool) -> int:
    size = graph.integers("comm_size")
    small = rows & (size < LEAST_BYTES)
    graph.attributes["comm_size"] = np.where(small, LEAST_BYTES, size)
    return int(small.sum())
