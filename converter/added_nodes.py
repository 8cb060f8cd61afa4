"""Nodes that a graph gets for time in which no recorded node runs."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from ..schema.columns import ABSENT, Categorical, Int64, NodeNumbers, Ragged
from ..schema.graph import Column, ExecutionGraph, NodeType
from .rewiring import rows_of_graph

LANE = ("device", "stream", "tid")


def with_added_nodes(
    graph: ExecutionGraph, like: NodeNumbers, name: str, values: Mapping[str, Int64]
) -> ExecutionGraph:
    """Returns the graph's rows and, after them, a computation of no length for each of the rows `like`, without
    dependencies.

    Args:
        graph: The graph, which stays as it is.
        like: Rows whose device and stream, or thread, the new nodes share.
        name: The name of the new nodes.
        values: The other attributes of the new nodes, with `start_time_ns`.
    """
    wider = rows_of_graph(graph, NodeNumbers(np.concatenate((np.arange(len(graph)), like))))
    added = np.arange(len(graph), len(wider))
    values = {**values, "duration_ns": np.zeros(len(like), np.int64)}
    for attribute in dict.fromkeys([*wider.attributes, *values]):
        if attribute not in LANE:
            column = wider.attributes.get(attribute, wider.integers(attribute))
            wider.attributes[attribute] = set_rows(column, added, values.get(attribute, ABSENT))
    wider.type[added] = NodeType.COMP
    wider.name.codes[added] = len(wider.name.table)
    wider.duration_micros[added] = 0
    wider.start_time_micros[added] = values["start_time_ns"] // 1000
    return dataclasses.replace(wider, name=Categorical(wider.name.codes, [*wider.name.table, name]))


def set_rows(column: Column, rows: Int64, value: Int64 | int) -> Column:
    """Returns the column with this value in the rows if it holds integers, and without values in the rows otherwise."""
    if isinstance(column, Ragged):
        left = np.isin(column.rows(), rows, invert=True)
        return Ragged.grouped(column.rows()[left], column.values[left], len(column))
    if isinstance(column, Categorical):
        column.codes[rows] = -1
    else:
        column[rows] = value
    return column
