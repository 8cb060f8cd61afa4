"""The calls in a graph: each op with all of its slices is one, each other host node and each activity is one by itself.

Idle time, metadata and delays are no calls.
"""

from dataclasses import dataclass

import numpy as np

from ...schema.columns import ABSENT, Int64, NodeIds, Rows, Table, group_ids, is_group_start
from ...schema.graph import ExecutionGraph
from ..replay import NodeClass, node_classes

IDLE = "host idle"
NO_CALLS = (NodeClass.METADATA, NodeClass.DELAY, NodeClass.UNRECORDED)


@dataclass(slots=True, repr=False)
class Calls(Table):
    """Calls in the order of their first nodes: rows of their first and last nodes, the call that called or launched
    them, -1 for none. `of_row` is the call of each node of the graph, -1 for none.
    """

    first_row: Rows
    last_row: Rows
    parent: Int64
    of_row: Int64

    def __len__(self) -> int:
        return len(self.first_row)

    def roots(self) -> Int64:
        """Returns the outermost call around each call. O(n log n)."""
        above = np.where(self.parent < 0, np.arange(len(self)), self.parent)
        while (above[above] != above).any():
            above = above[above]
        return above


def calls_of(graph: ExecutionGraph) -> Calls:
    """Returns the calls of a graph, in O(n log n)."""
    is_call = ~np.isin(node_classes(graph), NO_CALLS) & ~graph.name.equal(IDLE)
    rows = np.flatnonzero(is_call)
    number = _call_numbers(graph, rows)
    first = np.unique(number, return_index=True)[1]
    in_order = np.argsort(first, kind="stable")
    number = np.argsort(in_order)[number] if len(rows) else number
    of_row = np.full(len(graph), -1)
    of_row[rows] = number
    last = np.zeros(len(first), np.int64)
    np.maximum.at(last, number, rows)
    first_row = rows[first[in_order]]
    return Calls(first_row, last, _callers(graph, first_row, of_row), of_row)


def _call_numbers(graph: ExecutionGraph, rows: Rows) -> Int64:
    """Returns equal numbers for slices of one op: those with its id, else those of a thread's ops of one name that
    count on.
    """
    part, op = graph.integers("slice")[rows], graph.integers("op_id")[rows]
    is_slice = part != ABSENT
    thread, name = graph.integers("tid")[rows], graph.name.codes[rows].astype(np.int64)
    order = np.lexsort((rows, name, thread))
    is_start = is_group_start(thread[order], name[order])
    is_start[1:] |= part[order][1:] <= part[order][:-1]
    without_id = np.empty(len(rows), np.int64)
    without_id[order] = np.cumsum(is_start)
    known_by = np.where(~is_slice, 0, np.where(op == ABSENT, 1, 2))
    return group_ids(known_by, np.choose(known_by, (rows, without_id, op)))


def _callers(graph: ExecutionGraph, first_row: Rows, of_row: Int64) -> Int64:
    """Returns the call of the slice that each call's first node names as its caller's, or as what launched it."""
    controls = graph.ctrl_deps
    has_caller = np.flatnonzero(controls.lengths() > 0)
    row_of_caller = np.full(len(graph), -1)
    row_of_caller[has_caller] = graph.rows_of(NodeIds(controls.values[controls.starts[has_caller]]))
    above = row_of_caller[first_row]
    # a caller begins before what it calls: what a damaged file says otherwise is left out, so that there is no circle
    return np.where((above >= 0) & (above < first_row), np.append(of_row, -1)[above], -1)
