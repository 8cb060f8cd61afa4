"""Splits coalesced messages, which one kernel carried, into a node each: a simulator's send or receive has one peer.

Sends come first, and each message follows the previous one: as they run in sequence, a receive must not block a send
for which its own sender waits.
"""

import dataclasses

import numpy as np

from ...schema.columns import ABSENT, Int64, NodeNumbers, Ragged, is_group_start
from ...schema.graph import Column, DependencyKind, ExecutionGraph, NodeType
from ..building import COALESCED
from ..context import Edges
from ..edit import control_edges, data_edges, edited_graph, rows_of_graph

BEFORE = ("gap_ns", "host_delay_ns")
"""Times before the first message. The last message has the kernel's duration, the others none."""


def separate_messages(graph: ExecutionGraph) -> ExecutionGraph:
    """Returns the graph with a node for every message; the same graph if it has no coalesced messages. O((n + e) log
    n).
    """
    lists = {name: graph.attributes.get(several) for name, several in COALESCED.items()}
    sizes = lists["comm_size"]
    if not isinstance(sizes, Ragged) or not len(sizes.values):
        return graph
    # the last message of a kernel keeps the kernel's row
    last = np.zeros(len(sizes.values), np.bool_)
    last[sizes.starts[1:] - 1] = True
    kernel, row = sizes.rows(), np.empty(len(last), np.int64)
    row[last], row[~last] = kernel[last], len(graph) + np.arange(int((~last).sum()))
    first = is_group_start(kernel)
    separate = _rows(graph, copied=kernel[~last], added=row[~last], kernels=kernel[first], entries=row[first])
    for name, column in lists.items():
        if isinstance(column, Ragged):
            values = separate.integers(name)
            values[row] = column.values
            separate.attributes[name] = values
    own_rank = graph.number("rank", -1)
    separate.type[row] = np.where(
        separate.integers("comm_src")[row] == own_rank, NodeType.COMM_SEND, NodeType.COMM_RECV
    )
    entry = np.arange(len(graph))
    entry[kernel[first]] = row[first]
    follows = ~first[1:]
    chain = Edges.of(NodeNumbers(row[:-1][follows]), NodeNumbers(row[1:][follows]), DependencyKind.STREAM_ORDER)
    data, control = (
        edges._replace(target=NodeNumbers(entry[edges.target])) for edges in (data_edges(graph), control_edges(graph))
    )
    return edited_graph(separate, NodeNumbers(np.arange(len(separate))), Edges.joined([data, chain]), control)


def _rows(graph: ExecutionGraph, *, copied: Int64, added: Int64, kernels: Int64, entries: Int64) -> ExecutionGraph:
    """Returns the graph's rows and, at the rows `added`, copies of `copied` without a duration.

    The times before the `kernels` move to their `entries`.
    """
    # the lists of all messages of a kernel are not copied to each message
    coalesced = COALESCED.values()
    single = {name: column for name, column in graph.attributes.items() if name not in coalesced}
    bare = dataclasses.replace(graph, attributes=single)
    widened = rows_of_graph(bare, NodeNumbers(np.concatenate((np.arange(len(graph)), copied))))
    attributes: dict[str, Column] = {**widened.attributes}
    duration = widened.duration_ns
    duration[added] = 0
    attributes["duration_ns"] = duration
    for name in BEFORE:
        if name in attributes:
            column = widened.integers(name)
            before = column[kernels]
            column[added], column[kernels] = ABSENT, ABSENT
            column[entries] = before
            attributes[name] = column
    return dataclasses.replace(widened, attributes=attributes)
