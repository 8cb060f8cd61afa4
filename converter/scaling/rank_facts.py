"""The facts of one rank's graph that scaling needs: its communication, when in a step that is, and its computation."""

import hashlib
from typing import NamedTuple

import numpy as np

from ...schema.columns import Bool, Int64, NodeNumbers, nearest, rows_in_circles, rows_of
from ...schema.graph import DependencyKind, ExecutionGraph, NodeType
from ..edit import COMMUNICATION, data_edges
from ..ranks import Calls, graph_calls

ENGINE = "autograd::engine::evaluate_function"
BACKWARD_SCOPE = 1


class RankFacts(NamedTuple):
    """A rank of a job of `world_size`, the target of its graph, and its `calls`, whose `row` is that of the node.

    For each call, how long its node took, and whether it is known to have been issued in the backward pass. `work` is a
    digest of the names and numbers of kernels. `notes` are about the graph's file.
    """

    rank: int
    world_size: int
    target: str
    calls: Calls
    length_ns: Int64
    in_backward: Bool
    work: str
    notes: list[str]


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
        in_backward=_in_backward(graph, calls.row),
        work=_work(graph),
        notes=graph.notes,
    )


def _in_backward(graph: ExecutionGraph, rows: Int64) -> Bool:
    """Returns whether each node is known to be issued in the backward pass, by the enclosing ops of its issuer."""
    caller = _callers(graph)
    is_backward: Bool = graph.name.where(lambda name: name.startswith(ENGINE))
    is_backward = is_backward | (graph.integers("scope") == BACKWARD_SCOPE)
    issuer = _issued_by(graph, rows, caller)
    return (issuer >= 0) & (nearest(is_backward, caller)[issuer] >= 0)


def _callers(graph: ExecutionGraph) -> Int64:
    """Returns the slice of the calling op for each node, -1 for none.

    A graph from elsewhere may have circles of callers: these nodes have none.
    """
    row, caller = np.arange(len(graph)), np.full(len(graph), -1, np.int64)
    caller[graph.ctrl_deps.rows()] = rows_of(graph.id, graph.ctrl_deps.values)
    caller[caller == row] = -1
    caller[rows_in_circles(row, caller)] = -1
    return caller


def _issued_by(graph: ExecutionGraph, rows: Int64, caller: Int64) -> Int64:
    """Returns the slice that launched each node, or handed it to a communicating thread (gloo); -1 where neither is
    known.
    """
    edges = data_edges(graph)
    handed = (edges.kind & DependencyKind.HANDOFF != 0) & np.isin(edges.target, rows)
    giver = np.full(len(graph), -1, np.int64)
    giver[edges.target[handed]] = edges.source[handed]
    return np.where(caller[rows] >= 0, caller[rows], giver[rows])


def _work(graph: ExecutionGraph) -> str:
    computing = graph.is_activity & (graph.type == NodeType.COMP) & graph.texts("cat").equal("kernel")
    count = np.bincount(graph.name.codes[computing], minlength=len(graph.name.table)).tolist()
    kernels = sorted((name, often) for name, often in zip(graph.name.table, count, strict=True) if often)
    return hashlib.blake2b(repr(kernels).encode(), digest_size=8).hexdigest()
