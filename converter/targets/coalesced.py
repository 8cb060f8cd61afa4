"""Splits coalesced messages, which one kernel carried, into a node each: a simulator's send or receive has one peer.

Sends come first, and each message follows the previous one: as they run in sequence, a receive must not block a send
for which its own sender waits.
"""

import dataclasses
from typing import NamedTuple

import numpy as np

from ...schema.columns import ABSENT, Bool, Int64, NodeNumbers, Ragged, is_group_start
from ...schema.graph import Column, DependencyKind, ExecutionGraph, NodeType
from ..building import COALESCED
from ..context import Edges
from ..rewiring import control_edges, data_edges, edited_graph, rows_of_graph

BEFORE = ("gap_ns", "host_delay_ns")
"""Times before the first message. The last message has the kernel's duration, the others none."""


class _Messages(NamedTuple):
    """Coalesced messages: the row of the kernel, the message's own row, and whether it is the first or the last."""

    kernel: Int64
    row: Int64
    is_first: Bool
    is_last: Bool


def separate_messages(graph: ExecutionGraph) -> ExecutionGraph:
    """Returns the graph with a node for every message; the same graph if it has no coalesced messages. O((n + e) log
    n).
    """
    lists = {name: graph.attributes.get(several) for name, several in COALESCED.items()}
    sizes = lists["comm_size"]
    if not isinstance(sizes, Ragged) or not len(sizes.values):
        return graph
    messages = _messages(sizes)
    row = messages.row
    separate = _with_rows_of(messages, graph)
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
    entry[messages.kernel[messages.is_first]] = row[messages.is_first]
    follows = ~messages.is_first[1:]
    chain = Edges.of(NodeNumbers(row[:-1][follows]), NodeNumbers(row[1:][follows]), DependencyKind.STREAM_ORDER)
    data, control = (
        edges._replace(target=NodeNumbers(entry[edges.target])) for edges in (data_edges(graph), control_edges(graph))
    )
    return edited_graph(separate, NodeNumbers(np.arange(len(separate))), Edges.joined([data, chain]), control)


def _messages(sizes: Ragged) -> _Messages:
    """Returns the messages of the rows of `sizes`; the last message of a kernel keeps the kernel's row."""
    kernel = sizes.rows()
    is_last = np.zeros(len(kernel), np.bool_)
    is_last[sizes.starts[1:] - 1] = True
    row = np.where(is_last, kernel, len(sizes) + np.cumsum(~is_last) - 1)
    return _Messages(kernel, row, is_group_start(kernel), is_last)


def _with_rows_of(messages: _Messages, graph: ExecutionGraph) -> ExecutionGraph:
    """Returns the graph with a row for each message; those added are copies of the kernel's without a duration.

    The times before a kernel move to its first message.
    """
    copied, added = messages.kernel[~messages.is_last], messages.row[~messages.is_last]
    kernels, entries = messages.kernel[messages.is_first], messages.row[messages.is_first]
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
