"""Turns waiting before nodes whose duration the simulator computes into nodes of its own.

These are communication and, in roofline mode, kernels of known work.
"""

import dataclasses

import numpy as np

from ...schema.columns import ABSENT, Bool, Categorical, Int64, NodeNumbers, Ragged
from ...schema.graph import Column, DependencyKind, ExecutionGraph, NodeType
from ..context import Edges
from ..edit import COMMUNICATION, NO_EDGES, data_edges, edited_graph, rows_of_graph
from .roofline import has_work

NAME = "host delay"
SHARED = ("device", "stream")
"""Attributes that such a node shares with the node after it."""


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
    widened = _widened(graph, late, wait[late], parts)
    rows = NodeNumbers(np.arange(count + len(late)))
    return edited_graph(widened, rows, Edges.joined([moved, launches]), NO_EDGES), len(late)


def _widened(graph: ExecutionGraph, late: NodeNumbers, wait: Int64, parts: tuple[str, ...]) -> ExecutionGraph:
    """Returns the graph's rows and, after them, a row for the waiting before each of the `late` rows, which lose these
    `parts`.
    """
    widened = rows_of_graph(graph, NodeNumbers(np.concatenate((np.arange(len(graph)), late))))
    added = np.arange(len(graph), len(widened))
    gap_before = 0 if "gap_ns" in parts else graph.integers("gap_ns", 0)[late]
    start = graph.start_ns[late] - gap_before
    values_of_new: dict[str, Int64 | int] = {"is_cpu_op": 0, "start_time_ns": start, "duration_ns": 0}
    for name, column in widened.attributes.items():
        widened.attributes[name] = (
            _blank(column, added, values_of_new.get(name, ABSENT)) if name not in SHARED else column
        )
    for name in parts:
        widened.attributes[name] = _blank(widened.integers(name), late, ABSENT)
    widened.attributes["host_delay_ns"] = _blank(widened.integers("host_delay_ns"), added, wait)
    widened.type[added] = NodeType.COMP
    widened.name.codes[added] = len(widened.name.table)
    return dataclasses.replace(
        widened,
        name=Categorical(widened.name.codes, [*widened.name.table, NAME]),
        start_time_micros=np.concatenate((graph.start_time_micros, start // 1000)),
    )


def _blank(column: Column, rows: Int64, value: Int64 | int) -> Column:
    """Returns the column with this value in the rows if it holds integers, and without values in the rows otherwise."""
    if isinstance(column, Ragged):
        left = np.isin(column.rows(), rows, invert=True)
        return Ragged.grouped(column.rows()[left], column.values[left], len(column))
    if isinstance(column, Categorical):
        column.codes[rows] = -1
    else:
        column[rows] = value
    return column
