"""The time of collectives beyond what the fitted network gives them, as nodes of a fixed length.

A simulator that models communication gives each collective the time of a network. What a collective took beyond that
in the measured run, such as contention or waiting for ranks that were not traced, would be lost, and the run end early.
"""

import dataclasses

import numpy as np

from ...schema.columns import Categorical, NodeNumbers
from ...schema.graph import CollectiveType, DependencyKind, ExecutionGraph, NodeType
from ..added_nodes import with_added_nodes
from ..context import Edges
from ..rewiring import control_edges, data_edges, edited_graph

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
