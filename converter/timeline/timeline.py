"""Cuts the timeline of every host thread into nodes: slices of ops, calls outside ops, waits for the device, idle time.

A thread is cut where an op begins or ends, where a call launches, around blocking calls, and at hand-offs to other
threads. Time in which a thread only waited has no node: the node after it waits instead. All times are int64 ns.
"""

from dataclasses import dataclass

import numpy as np

from ...schema.columns import (
    ABSENT,
    Bool,
    CallRows,
    Categorical,
    Int64,
    Keys,
    NodeNumbers,
    Ns,
    OpRows,
    RowMap,
    SummaryRepr,
    asof_backward,
    asof_forward,
    group_searchsorted,
)
from ...schema.linked import LinkedTrace
from .call_times import blocking_calls, submit_times
from .host_nodes import HostNodes, communicate, fold_short_slices, host_nodes, host_spans

IDLE = "host idle"


@dataclass(slots=True, repr=False)
class Timeline(SummaryRepr):
    """n host nodes, by thread and then in program order.

    `op_row` and `call_row` are the op (for a slice) or call (for a call outside ops, or a wait) of each node, -1 for
    none; `is_wait` are nodes that wait for the device. For each call, `launch_node` is the slice that launches it and
    `sync_node` the wait of a blocking call, -1 for other calls. `handoff_source_node` and `handoff_target_node` are the
    nodes at both ends of each hand-off between threads. A wait begins `return_ns` after the end of what it awaited, and
    `call_ns` after the node before it; both are 0 for other nodes.
    """

    is_wait: Bool
    thread: Int64
    start: Int64
    end: Int64
    op_row: OpRows
    call_row: CallRows
    launch_node: NodeNumbers
    sync_node: NodeNumbers
    handoff_source_node: NodeNumbers
    handoff_target_node: NodeNumbers
    return_ns: Ns
    call_ns: Ns
    folded: int
    zero_length: int

    def __len__(self) -> int:
        return len(self.start)


def slice_host(linked: LinkedTrace, shortest_ns: int) -> Timeline:
    """Returns the host side of a linked trace as nodes; slices shorter than `shortest_ns` are folded. O(n log n)."""
    ops, handoffs = linked.ops, linked.handoffs
    submit_ns = submit_times(linked)
    spans = host_spans(linked)
    blocking = blocking_calls(linked, submit_ns)
    unfolded = host_nodes(linked, spans, submit_ns, blocking)
    op_rows = RowMap(spans.op_row)
    nodes = fold_short_slices(unfolded, handoffs, shortest_ns, _communicating(linked, unfolded, op_rows[unfolded.span]))
    call = RowMap(spans.call_row)[nodes.span]
    source_node = asof_backward(Keys(nodes.thread, nodes.end), Keys(handoffs.source_thread, handoffs.source_time))
    target_node = asof_forward(Keys(nodes.thread, nodes.start), Keys(handoffs.target_thread, handoffs.target_time))
    return Timeline(
        is_wait=nodes.is_wait,
        thread=nodes.thread,
        start=nodes.start,
        end=nodes.end,
        op_row=op_rows[nodes.span],
        call_row=CallRows(np.where(nodes.is_wait, nodes.call, call)),
        launch_node=_launch_nodes(linked, nodes, submit_ns),
        sync_node=_node_of_call(nodes, nodes.is_wait, len(linked.calls)),
        handoff_source_node=NodeNumbers(source_node),
        handoff_target_node=NodeNumbers(target_node),
        return_ns=_of_waits(nodes, blocking.call, blocking.return_ns),
        call_ns=_of_waits(nodes, blocking.call, blocking.call_ns),
        folded=len(unfolded) - len(nodes),
        zero_length=int(((ops.start == ops.end) & (ops.start != ABSENT)).sum()),
    )


def _of_waits(nodes: HostNodes, call: CallRows, values: Int64) -> Int64:
    """Returns the value of each wait's call, by sorted call rows; 0 for other nodes."""
    column = np.zeros(len(nodes), np.int64)
    column[nodes.is_wait] = values[np.searchsorted(call, nodes.call[nodes.is_wait])]
    return column


def _communicating(linked: LinkedTrace, nodes: HostNodes, op_row: OpRows) -> Bool:
    """Marks the longest node of each op that communicates."""
    row = np.flatnonzero(communicate(linked, op_row))
    row = row[np.lexsort((nodes.end[row] - nodes.start[row], op_row[row]))]
    longest = np.zeros(len(nodes), np.bool_)
    longest[row[np.append(op_row[row][1:] != op_row[row][:-1], True)[: len(row)]]] = True
    return longest


def _node_of_call(nodes: HostNodes, chosen: Bool, calls: int) -> NodeNumbers:
    """Returns the chosen node of each call, -1 for none."""
    node = np.full(calls, -1, np.int64)
    node[nodes.call[chosen]] = np.flatnonzero(chosen)
    return NodeNumbers(node)


def _launch_nodes(linked: LinkedTrace, nodes: HostNodes, submit_ns: Int64) -> NodeNumbers:
    """Returns the node that launches for each call, -1 for calls that launch nothing."""
    launch_node = _node_of_call(nodes, (nodes.call >= 0) & ~nodes.is_wait, len(linked.calls))
    # calls of one op with the same submit time share the slice that ends then, which begins before nodes of no length
    sharing = np.flatnonzero((submit_ns != ABSENT) & (launch_node < 0))
    order = np.lexsort((nodes.end, nodes.thread))
    ends = Keys(nodes.thread[order], nodes.end[order])
    launch_node[sharing] = order[group_searchsorted(ends, Keys(linked.calls.thread[sharing], submit_ns[sharing]))]
    return launch_node


def names_of(linked: LinkedTrace, timeline: Timeline) -> Categorical:
    """Returns the name of each host node: its op, or its call if it has none; the blocking call of a wait; or idle."""
    ops, calls = linked.ops.name, linked.calls.name
    of_op = (timeline.op_row >= 0) & ~timeline.is_wait
    of_call = np.where(timeline.call_row >= 0, timeline.call_row, len(calls)) + len(ops)
    return Categorical.joined((ops, calls, Categorical.of([IDLE]))).take(np.where(of_op, timeline.op_row, of_call))
