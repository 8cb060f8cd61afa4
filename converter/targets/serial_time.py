"""Durations for a simulator that runs one host node, one computation and one communication at a time.

Nodes of one kind that ran at the same time on several threads or streams would run in sequence there and take longer.
So each moment counts for one node of a kind only: for the one that ended first of those that worked, as others depend
on ends; and for waiting (idle host time, host delays, gaps) only where none worked.
"""

from typing import NamedTuple

import numpy as np

from ...schema.columns import Bool, Int64, Intervals, NodeNumbers
from ...schema.graph import ExecutionGraph, NodeType
from ..building import UNRECORDED
from ..chain_gaps import chain_gaps
from ..context import Edges
from ..device_only import COMMUNICATION
from ..lanes import lanes_of, whole_microseconds
from ..order import topological_order
from ..rewiring import control_edges, data_edges, edited_graph
from ..timeline import IDLE
from ..uncovered_time import uncovered

WAITING = (IDLE, UNRECORDED)
"""Names of host nodes that wait."""


class SerialTime(NamedTuple):
    """The time, in ns, that was cut as something else of its kind ran at the same time.

    `communication_overlap` is without receives, which run beside all other communication.
    """

    idle_cut: int
    delay_cut: int
    host_overlap: int
    device_overlap: int
    communication_overlap: int


def in_order_of_ends(graph: ExecutionGraph) -> ExecutionGraph:
    """Returns the graph with ids in the order of measured ends: of several ready nodes the simulator takes the lowest
    id.
    """
    data, control = data_edges(graph), control_edges(graph)
    order = topological_order(graph.start_ns + graph.duration_ns, Edges.joined([data, control]))
    return edited_graph(graph, NodeNumbers(order), data, control)


def serialise(graph: ExecutionGraph) -> SerialTime:
    """Sets `duration_micros` in place: whole µs that keep the total of each thread and stream. `duration_ns` stays."""
    on_host = ~graph.is_activity & ~graph.is_delay
    communicates = np.isin(graph.type, COMMUNICATION)
    gaps = chain_gaps(graph, data_edges(graph), lengthen=_computes_on_one_stream(graph, communicates))
    start, length = graph.start_ns - gaps.earlier, graph.duration_ns
    delay = graph.integers("host_delay_ns", 0)
    idles = on_host & graph.name.where(WAITING.__contains__)
    work, waiting = np.where(idles, 0, length), np.where(idles, length, gaps.gap + delay)
    until = np.where(idles, start + length, start)
    begin = _after_communication(graph, start, communicates)
    kept_work, kept_waiting = start + work - begin, waiting.copy()
    for kind in (on_host & ~communicates, ~on_host & ~communicates, communicates):
        worked, waited = kind & (kept_work > 0), kind & (waiting > 0)
        spans, nothing = Intervals(begin[worked], (start + work)[worked]), Intervals(start[:0], start[:0])
        kept_work[worked] = uncovered(spans, nothing)
        kept_waiting[waited] = uncovered(Intervals((until - waiting)[waited], until[waited]), spans)
    graph.duration_micros = whole_microseconds(kept_work + kept_waiting, lanes_of(graph))
    cut, not_waited = work - kept_work, waiting - kept_waiting
    return SerialTime(
        idle_cut=int(not_waited[idles].sum()),
        delay_cut=int(not_waited[~on_host].sum()),
        host_overlap=int(cut[on_host & ~communicates].sum()),
        device_overlap=int(cut[~on_host & ~communicates].sum()),
        communication_overlap=int(cut[communicates & (graph.type != NodeType.COMM_RECV)].sum()),
    )


def _computes_on_one_stream(graph: ExecutionGraph, communicates: Bool) -> bool:
    """Returns whether no gap can pass while another stream computes, as gaps take the only place of computation."""
    return len(np.unique(lanes_of(graph)[graph.is_activity & ~communicates])) == 1


def _after_communication(graph: ExecutionGraph, start: Int64, communicates: Bool) -> Int64:
    """Returns the start of each node, but communication that the ranks ordered after other communication begins when
    that ends.
    """
    begin, end, edges = start.copy(), start + graph.duration_ns, data_edges(graph)
    inside = communicates[edges.source] & communicates[edges.target]
    np.maximum.at(begin, edges.target[inside], end[edges.source[inside]])
    return np.asarray(np.minimum(begin, end))
