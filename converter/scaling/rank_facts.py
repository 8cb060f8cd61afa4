"""The facts of one rank's graph that scaling needs: its communication, when in a step that is, and its computation."""

import hashlib
from typing import NamedTuple

import numpy as np

from ...schema.columns import Int64, NodeNumbers
from ...schema.graph import ExecutionGraph, NodeType
from ..device_only import COMMUNICATION
from ..ranks import Calls, graph_calls
from .backward_pass import phases


class RankFacts(NamedTuple):
    """A rank of a job of `world_size`, the target of its graph, and its `calls`, whose `row` is that of the node.

    For each call, how long its node took, and the Phase in which it was issued; `has_host` is whether the graph holds
    host ops, which tell phases. `work` is a digest of the names and numbers of kernels. `notes` are about the graph's
    file.

    `source` is the rank of the graph: another one for a rank that was not traced. Then `moved_by` is what is added to
    the ranks that are recorded with each call.
    """

    rank: int
    world_size: int
    target: str
    calls: Calls
    length_ns: Int64
    phase: Int64
    has_host: bool
    work: str
    notes: list[str]
    source: int
    moved_by: Int64


def rank_facts(graph: ExecutionGraph) -> RankFacts:
    """Returns the facts of a graph; O(n log n + ranks recorded)."""
    rank = graph.number("rank", -1)
    rows = NodeNumbers(np.flatnonzero(np.isin(graph.type, COMMUNICATION)))
    calls = graph_calls(graph, rows, rank)
    return RankFacts(
        rank=rank,
        world_size=graph.number("world_size", -1),
        target=str(graph.metadata.get("target", "")),
        calls=calls,
        length_ns=graph.duration_ns[calls.row],
        phase=phases(graph, calls.row),
        has_host=bool(graph.integers("is_cpu_op", 0).any()),
        work=_work(graph),
        notes=graph.notes,
        source=rank,
        moved_by=np.zeros(len(calls), np.int64),
    )


def _work(graph: ExecutionGraph) -> str:
    computing = graph.is_activity & (graph.type == NodeType.COMP) & graph.texts("cat").equal("kernel")
    count = np.bincount(graph.name.codes[computing], minlength=len(graph.name.table)).tolist()
    kernels = sorted((name, often) for name, often in zip(graph.name.table, count, strict=True) if often)
    return hashlib.blake2b(repr(kernels).encode(), digest_size=8).hexdigest()
