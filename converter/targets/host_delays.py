"""Host delay before communication, whose duration is the simulator's affair, as nodes of its own before it."""

import dataclasses

import numpy as np

from ...schema.columns import ABSENT, Int64, Ragged, Strings
from ...schema.graph import Column, DependencyKind, ExecutionGraph, NodeType
from ..context import Edges
from ..edit import COMMUNICATION, NO_EDGES, data_edges, edited_graph, rows_of_graph

NAME = "host delay"
PLACE = ("device", "stream")
"""What such a node has in common with the communication that follows it."""
NO_WORK = {"num_ops": 0, "tensor_size": 0}


def delays_before_communication(graph: ExecutionGraph) -> tuple[ExecutionGraph, int]:
    """The graph in which no communication has `host_delay_ns`, and how many computations of no length have it instead.

    Each stands between the communication and all that it depended on. Control dependencies are lost where there is one.
    """
    delay = graph.integers("host_delay_ns", 0)
    late = np.flatnonzero(np.isin(graph.type, COMMUNICATION) & (delay > 0))
    if not len(late):
        return graph, 0
    count, added = len(graph), len(graph) + np.arange(len(late))
    data = data_edges(graph)
    stand_in = np.arange(count)
    stand_in[late] = added
    moved = data._replace(target=stand_in[data.target])
    launches = Edges.of(added, late, DependencyKind.LAUNCH)
    widened = _widened(graph, late)
    return edited_graph(widened, np.arange(count + len(late)), Edges.joined([moved, launches]), NO_EDGES), len(late)


def _widened(graph: ExecutionGraph, late: Int64) -> ExecutionGraph:
    """The graph's rows and, after them, one for the delay before each of the `late` rows."""
    widened = rows_of_graph(graph, np.concatenate((np.arange(len(graph)), late)))
    added = np.arange(len(graph), len(widened))
    start = graph.start_ns[late] - graph.integers("gap_ns", 0)[late]
    own: dict[str, Int64 | int] = {"is_cpu_op": 0, "start_time_ns": start, "duration_ns": 0, **NO_WORK}
    for name, column in widened.attributes.items():
        widened.attributes[name] = _blank(column, added, own.get(name, ABSENT)) if name not in PLACE else column
    delay = graph.integers("host_delay_ns")
    moved = np.concatenate((delay, delay[late]))
    moved[late] = ABSENT
    widened.attributes["host_delay_ns"] = moved
    widened.type[added] = NodeType.COMP
    widened.name.codes[added] = len(widened.name.table)
    return dataclasses.replace(
        widened,
        name=Strings(widened.name.codes, [*widened.name.table, NAME]),
        start_time_micros=np.concatenate((graph.start_time_micros, start // 1000)),
    )


def _blank(column: Column, rows: Int64, value: Int64 | int) -> Column:
    """The column with this value in the rows if it holds integers, with nothing in them otherwise."""
    if isinstance(column, Ragged):
        left = np.isin(column.rows(), rows, invert=True)
        return Ragged.grouped(column.rows()[left], column.values[left], len(column))
    if isinstance(column, Strings):
        column.codes[rows] = -1
    else:
        column[rows] = value
    return column
