"""Turns waiting before nodes whose duration the simulator computes into nodes of its own.

These are communication and, in roofline mode, kernels of known work.

The time of collectives beyond what the fitted network gives them, as nodes of a fixed length.

A simulator that models communication gives each collective the time of a network. What a collective took beyond that
in the measured run, such as contention or waiting for ranks that were not traced, would be lost, and the run end early.

The start offset of a rank as a node, for a simulator that starts all ranks at once.

A host node after the last messages of a rank, for a simulator that must not end with one.

ASTRA-sim v3 stops where the last event of a rank with host nodes is a send or receive: it reports the end of the rank
from within the network, where nothing catches what it throws.

A rank that takes no part in a job, for a simulator that cannot run a network of one rank.
"""

import dataclasses

import numpy as np

from ...schema.arguments import ASTRA_SIM
from ...schema.columns import ABSENT, Bool, Categorical, NodeIds, NodeNumbers, Ragged
from ...schema.graph import CollectiveType, DependencyKind, ExecutionGraph, NodeType
from ..device_only import COMMUNICATION
from ..edges import Edges
from ..ranks import measured_times
from ..rewiring import NO_EDGES, control_edges, data_edges, edited_graph, set_rows, with_added_nodes
from .limits import FIRST_BYTES, has_work

NAME = "host delay"


def delays_before_communication(graph: ExecutionGraph) -> tuple[ExecutionGraph, int]:
    """Returns the graph without `host_delay_ns` on communication, and the number of nodes of no length that have it
    instead.

    Each of these stands between a communication and its dependencies. Control dependencies are lost if there is one.
    """
    return _waiting_before(graph, np.isin(graph.type, COMMUNICATION), ("host_delay_ns",))


def waits_before_known_work(graph: ExecutionGraph) -> tuple[ExecutionGraph, int]:
    """Returns the same for computation of known work, which loses its gaps, too."""
    return _waiting_before(graph, has_work(graph), ("host_delay_ns", "gap_ns"))


def _waiting_before(graph: ExecutionGraph, before: Bool, parts: tuple[str, ...]) -> tuple[ExecutionGraph, int]:
    """Returns the graph in which the attributes `parts` of these nodes became nodes of their own, and the number of
    these.
    """
    wait = np.sum([graph.integers(name, 0) for name in parts], axis=0)
    late = NodeNumbers(np.flatnonzero(before & (wait > 0)))
    if not len(late):
        return graph, 0
    count, added = len(graph), NodeNumbers(len(graph) + np.arange(len(late)))
    data = data_edges(graph)
    stand_in = np.arange(count)
    stand_in[late] = added
    moved = data._replace(target=NodeNumbers(stand_in[data.target]))
    launches = Edges.of(added, late, DependencyKind.LAUNCH)
    gap_before = 0 if "gap_ns" in parts else graph.integers("gap_ns", 0)[late]
    start, on_device = graph.start_ns[late] - gap_before, np.zeros(len(late), np.int64)
    values = {"is_cpu_op": on_device, "start_time_ns": start, "host_delay_ns": wait[late]}
    widened = with_added_nodes(graph, late, NAME, values)
    for name in parts:
        widened.attributes[name] = set_rows(widened.integers(name), late, ABSENT)
    rows = NodeNumbers(np.arange(count + len(late)))
    return edited_graph(widened, rows, Edges.joined([moved, launches]), NO_EDGES), len(late)


EXCESS_TIME = "beyond the fitted network"
"""The name of the nodes."""


def with_excess_time(graph: ExecutionGraph) -> tuple[ExecutionGraph, float]:
    """Returns the graph with a node of whole µs after each collective that has `excess_ns`, before everything that
    depends on the collective; and the time of these nodes, in µs.

    The nodes are broadcasts, which the simulator runs for their duration: they take the place of communication, as the
    collective did. They take time in the simulator only: their measured length is 0, and `duration_micros` of the
    collective is that much shorter, so that both together take the measured time in replay mode.
    """
    excess = graph.integers("excess_ns", 0)
    whole_us = np.minimum((excess + 500) // 1000, graph.duration_micros.astype(np.int64))
    is_simulated = (graph.type == NodeType.COMM_COLL) & (graph.integers("comm_type") != CollectiveType.BROADCAST)
    collectives = NodeNumbers(np.flatnonzero(is_simulated & (whole_us > 0)))
    attributes = {name: column for name, column in graph.attributes.items() if name != "excess_ns"}
    if not len(collectives):
        return dataclasses.replace(graph, attributes=attributes), 0.0
    data, count, after = data_edges(graph), len(graph), np.arange(len(graph))
    after[collectives] = count + np.arange(len(collectives))
    values = {
        "is_cpu_op": np.zeros(len(collectives), np.int64),
        "start_time_ns": graph.integers("start_time_ns")[collectives] + graph.duration_ns[collectives],
        "comm_type": np.full(len(collectives), CollectiveType.BROADCAST),
        "comm_size": graph.integers("comm_size")[collectives],
        "excess_ns": excess[collectives],
    }
    longer = with_added_nodes(dataclasses.replace(graph, attributes=attributes), collectives, EXCESS_TIME, values)
    longer.type[count:] = NodeType.COMM_COLL
    longer.duration_micros[count:] = whole_us[collectives]
    longer.duration_micros[collectives] -= whole_us[collectives].astype(longer.duration_micros.dtype)
    group = longer.attributes["pg_name"]
    assert isinstance(group, Categorical)
    group.codes[count:] = group.codes[collectives]
    data, control = (edges._replace(source=NodeNumbers(after[edges.source])) for edges in (data, control_edges(graph)))
    follows = Edges.of(collectives, NodeNumbers(after[collectives]), DependencyKind.COLLECTIVE)
    edited = edited_graph(longer, NodeNumbers(np.arange(len(longer))), Edges.joined([data, follows]), control)
    return edited, float(whole_us[collectives].sum())


START_OFFSET = "start offset"
"""The name of the node."""


def with_start_offset(graph: ExecutionGraph, offset_ns: int) -> ExecutionGraph:
    """Returns the graph with a node of `offset_ns` before all others, of whole µs; the same graph for less than half
    a µs.

    The node takes time in the simulator only: it has no measured length, and starts with the recording of the rank.
    """
    whole_us = (offset_ns + 500) // 1000
    if not whole_us:
        return graph
    data, count = data_edges(graph), len(graph)
    roots, on_host = np.setdiff1d(np.arange(count), data.target), graph.integers("is_cpu_op", 0)
    # on the host, as the rank itself was, unless the graph has none
    first = NodeNumbers(roots[np.lexsort((graph.host_clock_start_ns[roots], -on_host[roots]))[:1]])
    shift = np.where(on_host[first], 0, graph.number("clock_offset_ns", 0))
    start = measured_times(graph).begin_ns - shift
    values = {"is_cpu_op": on_host[first], "start_time_ns": start, "start_offset_ns": np.array([offset_ns])}
    delayed = with_added_nodes(graph, first, START_OFFSET, values)
    delayed.duration_micros[count] = whole_us
    before_all = Edges.of(NodeNumbers(np.full(len(roots), count)), NodeNumbers(roots), DependencyKind.PROGRAM_ORDER)
    order = NodeNumbers(np.roll(np.arange(count + 1), 1))
    return edited_graph(delayed, order, Edges.joined([before_all, data]), control_edges(graph))


AFTER_MESSAGES = "after the last messages"
"""The name of the node."""


def with_node_after_messages(graph: ExecutionGraph) -> ExecutionGraph:
    """Returns the graph with a host node of 1 µs after all messages on which nothing depends; the same graph if it has
    none of these or no host node.

    The node takes time in the simulator only: it has no measured length. v1 has no event for a node of 0 µs.
    """
    data, count = data_edges(graph), len(graph)
    is_message = np.isin(graph.type, (NodeType.COMM_SEND, NodeType.COMM_RECV))
    last_messages = np.setdiff1d(np.flatnonzero(is_message), data.source)
    end = graph.host_clock_start_ns + graph.duration_ns
    host = np.flatnonzero(graph.integers("is_cpu_op", 0) > 0)
    if not len(last_messages) or not len(host):
        return graph
    like = NodeNumbers(host[[end[host].argmax()]])
    start = end[last_messages].max(keepdims=True)
    ended = with_added_nodes(graph, like, AFTER_MESSAGES, {"is_cpu_op": np.ones_like(start), "start_time_ns": start})
    ended.duration_micros[count] = 1
    awaited = Edges.of(
        NodeNumbers(last_messages), NodeNumbers(np.full(len(last_messages), count)), DependencyKind.HOST_SYNC
    )
    return edited_graph(ended, NodeNumbers(np.arange(count + 1)), Edges.joined([data, awaited]), control_edges(graph))


def idle_rank(rank: int) -> ExecutionGraph:
    """Returns a graph of one computation of 1 µs, as a graph without nodes does not run; in roofline mode of the least
    work that takes any time.
    """
    ones, no_dependencies = np.ones(1, np.int64), Ragged.of([[]])
    return ExecutionGraph(
        id=NodeIds(ones),
        name=Categorical.of(["no work"]),
        type=np.array([NodeType.COMP], np.uint8),
        data_deps=no_dependencies,
        ctrl_deps=no_dependencies,
        start_time_micros=ones * 0,
        duration_micros=ones,
        attributes={"is_cpu_op": ones * 0, "num_ops": ones, "tensor_size": ones * FIRST_BYTES},
        metadata={"rank": rank, "target": ASTRA_SIM},
    )
