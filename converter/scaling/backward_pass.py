"""When in a training step the host issued each collective: which part of the backward pass, or none.

Autograd runs a node for each function of the forward pass, and the node AccumulateGrad for each parameter, when its
gradient is complete. So what is issued there concerns the gradient of a parameter; what a function's node issues may
as well be the gradient of an activation, as in tensor parallelism.
"""

from enum import IntEnum

import numpy as np

from ...schema.columns import Bool, Int64, nearest, rows_in_circles, rows_of
from ...schema.graph import DependencyKind, ExecutionGraph
from ..rewiring import data_edges

ENGINE = "autograd::engine::evaluate_function"
BACKWARD_SCOPE = 1
PARAMETER_NODES = ("AccumulateGrad", "RegisterPostBackwardFunction")
"""Autograd's node of a parameter, at which DDP, FSDP, DeepSpeed and Megatron hook in; and the node of FSDP2."""


class Phase(IntEnum):
    """Where a collective is issued: not in the backward pass as far as known; in the backward of a function; on a
    thread of the backward pass, in no function; or when the gradient of a parameter is complete.
    """

    OTHER = 0
    FUNCTION = 1
    THREAD = 2
    PARAMETER = 3


def phases(graph: ExecutionGraph, rows: Int64) -> Int64:
    """Returns the Phase of each node, by the enclosing ops of its issuer and by the thread of that."""
    caller = _callers(graph)
    is_backward: Bool = graph.name.where(lambda name: name.startswith(ENGINE))
    is_backward = is_backward | (graph.integers("scope") == BACKWARD_SCOPE) | (graph.integers("fw_tid") > 0)
    of_parameter: Bool = graph.name.where(lambda name: any(node in name for node in PARAMETER_NODES))
    enclosing = nearest(is_backward, caller)
    issuer = _issued_by(graph, rows, caller)
    frame = np.where(issuer >= 0, enclosing[issuer], -1)
    on_thread = (issuer >= 0) & np.isin(graph.integers("tid", -1)[issuer], _backward_threads(graph, enclosing))
    conditions = [(frame >= 0) & of_parameter[frame], frame >= 0, on_thread]
    return np.select(conditions, [Phase.PARAMETER, Phase.FUNCTION, Phase.THREAD], Phase.OTHER).astype(np.int64)


def _backward_threads(graph: ExecutionGraph, enclosing: Int64) -> Int64:
    """Returns the threads that run nothing but the backward pass, while another one runs ops that autograd records."""
    thread = graph.integers("tid", -1)
    forward = np.unique(thread[(enclosing < 0) & (graph.integers("seq_id", -1) >= 0)])
    # without recorded sequence numbers the main thread, too, would seem to run no forward op
    return np.setdiff1d(thread[enclosing >= 0], forward) if len(forward) else forward


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
    handed = edges.kind & DependencyKind.HANDOFF != 0
    giver = np.full(len(graph), -1, np.int64)
    giver[edges.target[handed]] = edges.source[handed]
    return np.where(caller[rows] >= 0, caller[rows], giver[_begun_at(graph, rows, giver >= 0)])


def _begun_at(graph: ExecutionGraph, rows: Int64, is_handed: Bool) -> Int64:
    """Returns the node with which each node's thread took its work over, the node itself where that is not known.

    A thread of gloo may wait for a copy from the device before it communicates; it took that over, too, unless another
    communication lies between.
    """
    thread, position = graph.integers("tid", -1), np.arange(len(graph))
    order = np.argsort(thread, kind="stable")
    communicates = np.isin(order, rows)
    is_first = np.append(True, (np.diff(thread[order]) != 0) | communicates[:-1])[: len(order)]
    first = np.maximum.accumulate(np.where(is_first, position, 0))
    handed = np.maximum.accumulate(np.where(is_handed[order], position, -1))
    begun = np.empty_like(order)
    begun[order] = order[np.where(handed >= first, handed, position)]
    return begun[rows]
