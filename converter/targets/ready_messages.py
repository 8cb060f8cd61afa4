"""Ready messages and the common order of communication, for a simulator that sends without waiting for the receiver.

ASTRA-sim sends a message when its node is ready, and a receive that comes later takes no time. Where the measured send
waited for its receiver, the receiver's kernel sends a few bytes back as soon as it can start, and the send waits for
them. Sends and collectives take the place of communication, so they follow each other in the common order; a receive
takes none, and follows only what its kernel follows.
"""

import dataclasses

import numpy as np

from ...schema.columns import ABSENT, Int64, NodeNumbers, Ragged, group_ids
from ...schema.graph import DependencyKind, ExecutionGraph, NodeType
from ..added_nodes import with_added_nodes
from ..context import Edges
from ..lanes import lanes_of
from ..order import deduplicated
from ..rewiring import control_edges, data_edges, edited_graph, take_rows

READY, AWAITED = "ready to receive", "receiver is ready"
"""The names of the nodes that send and receive ready messages."""
READY_BYTES = 64
PLAN = ("comm_order", "ready_tag")
"""What the ranks agreed on, at the nodes that it concerns."""
MESSAGES = (NodeType.COMM_SEND, NodeType.COMM_RECV)


def in_common_order(graph: ExecutionGraph) -> ExecutionGraph:
    """Returns the graph with a dependency between each two consecutive sends and collectives by `comm_order`."""
    order = graph.integers("comm_order")
    rows = np.flatnonzero((order != ABSENT) & (graph.type != NodeType.COMM_RECV))
    rows = rows[np.argsort(order[rows], kind="stable")]
    if len(rows) < 2:
        return graph
    chain = Edges.of(NodeNumbers(rows[:-1]), NodeNumbers(rows[1:]), DependencyKind.COLLECTIVE)
    data = deduplicated(Edges.joined([data_edges(graph), chain]), len(graph))
    return edited_graph(graph, NodeNumbers(np.arange(len(graph))), data, control_edges(graph))


def with_ready_messages(graph: ExecutionGraph) -> tuple[ExecutionGraph, int]:
    """Returns the graph with a node for each `ready_tag`, and the number of ready messages that it sends.

    A receive's node sends it after what its kernel depends on, and before the first collective that comes after the
    message in the common order: that one takes the place of communication until all members are there, and one of them
    may wait for the message. A send's node receives it.
    """
    order, tags = graph.integers("comm_order"), graph.integers("ready_tag")
    receives, sends = (np.flatnonzero((tags != ABSENT) & (graph.type == kind)) for kind in reversed(MESSAGES))
    if not len(receives) and not len(sends):
        return _without_plan(graph), 0
    data, first, count = data_edges(graph), _first_messages(graph)[receives], len(graph)
    added = count + np.arange(len(receives) + len(sends))
    ready, awaited = NodeNumbers(added[: len(receives)]), NodeNumbers(added[len(receives) :])
    widened = _with_answers(_with_answers(graph, receives, first, READY), sends, sends, AWAITED)
    widened.type[ready], widened.type[awaited] = MESSAGES
    edges = [
        data,
        _same_dependencies(data, first, ready, count),
        _same_dependencies(data, sends, awaited, count),
        Edges.of(ready, NodeNumbers(receives), DependencyKind.COLLECTIVE),
        Edges.of(ready, _next_collectives(graph, order, receives), DependencyKind.COLLECTIVE),
        Edges.of(awaited, NodeNumbers(sends), DependencyKind.COLLECTIVE),
    ]
    rows, joined = NodeNumbers(np.arange(len(widened))), deduplicated(Edges.joined(edges), len(widened))
    return edited_graph(_without_plan(widened), rows, joined, control_edges(graph)), len(receives)


def _without_plan(graph: ExecutionGraph) -> ExecutionGraph:
    attributes = {name: column for name, column in graph.attributes.items() if name not in PLAN}
    return dataclasses.replace(graph, attributes=attributes)


def _with_answers(graph: ExecutionGraph, messages: Int64, like: Int64, name: str) -> ExecutionGraph:
    """Returns the graph with a node for each of the messages that goes the other way, at the start of the rows
    `like`.
    """
    values = {
        "is_cpu_op": np.zeros(len(messages), np.int64),
        "start_time_ns": graph.integers("start_time_ns")[like],
        "comm_src": graph.integers("comm_dst")[messages],
        "comm_dst": graph.integers("comm_src")[messages],
        "comm_tag": graph.integers("ready_tag")[messages],
        "comm_size": np.full(len(messages), READY_BYTES),
    }
    return with_added_nodes(graph, NodeNumbers(like), name, values)


def _next_collectives(graph: ExecutionGraph, order: Int64, messages: Int64) -> NodeNumbers:
    """Returns the first collective after each of the messages in the common order, -1 where none follows."""
    rows = np.flatnonzero((order != ABSENT) & (graph.type == NodeType.COMM_COLL))
    rows = rows[np.argsort(order[rows], kind="stable")]
    following = np.searchsorted(order[rows], order[messages], side="right")
    return NodeNumbers(np.append(rows, -1)[following])


def _first_messages(graph: ExecutionGraph) -> Int64:
    """Returns for each row of a message the first message of its kernel, which begin together on its stream."""
    rows, first = np.flatnonzero(np.isin(graph.type, MESSAGES)), np.arange(len(graph))
    kernel = group_ids(lanes_of(graph)[rows], graph.start_ns[rows])
    earliest = np.full(len(rows), len(graph))
    np.minimum.at(earliest, kernel, rows)
    first[rows] = earliest[kernel]
    return first


def _same_dependencies(data: Edges, like: Int64, rows: NodeNumbers, count: int) -> Edges:
    """Returns edges to the rows from what the rows `like` depend on, without the order of communication."""
    own_edges = data.where(data.kind != DependencyKind.COLLECTIVE)
    sources = take_rows(Ragged.grouped(own_edges.target, own_edges.source, count), like)
    targets = np.repeat(rows, sources.lengths())
    return Edges.of(NodeNumbers(sources.values), NodeNumbers(targets), DependencyKind.LAUNCH)
