"""Gaps for simulators that know one gap for each activity, whatever released it.

An activity starts a launch latency after its launch, or a gap after the activities before it on the device, whichever
comes later. `gap_ns` is the measured one of these, so it is a latency where the host launched just in time. A simulator
that adds it to every start adds up latencies where a what-if has activities queue, and gaps the other way round.

So an activity gets the gap after other activities here, whatever released it. Those that follow it run earlier, or
later, by the difference. An activity that anything but the next activity waits for makes up for it and ends as
measured: the host runs as before, and no node is added.
"""

from typing import NamedTuple

import numpy as np

from ..schema.columns import ABSENT, Int64, Ragged
from ..schema.graph import ExecutionGraph
from .device_only import COMMUNICATION
from .edges import Edges, topological_order


class ChainGaps(NamedTuple):
    """The `gap` (ns) before each node, and by how many ns each node is `earlier` than measured."""

    gap: Int64
    earlier: Int64


def chain_gaps(graph: ExecutionGraph, edges: Edges, *, lengthen: bool = True) -> ChainGaps:
    """Returns the gap of each activity after other activities, and what that moves.

    Communication, activities that the host or a delay waits for and those without dependencies or dependents end as
    measured, as far as a gap of 0 allows. O((n + e) log n).

    Args:
        graph: a graph with `chain_gap_ns` where that differs from `gap_ns`; without that attribute nothing changes.
        edges: the dependencies between its rows.
        lengthen: whether gaps may become longer than measured.
    """
    measured, chain = graph.integers("gap_ns", 0), graph.integers("chain_gap_ns")
    changed = chain != ABSENT if lengthen else (chain != ABSENT) & (chain < measured)
    gap, earlier = np.where(changed, chain, measured), np.zeros(len(graph), np.int64)
    if not changed.any():
        return ChainGaps(gap, earlier)
    moves = graph.is_activity & ~np.isin(graph.type, COMMUNICATION)
    moves &= np.bincount(edges.source, minlength=len(graph)) > 0
    moves &= np.bincount(edges.target, minlength=len(graph)) > 0
    moves[edges.source[~graph.is_activity[edges.target]]] = False
    before = Ragged.grouped(edges.target, edges.source, len(graph))
    starts, sources, is_moved = before.starts.tolist(), before.values.tolist(), moves.tolist()
    times = (graph.start_ns, measured, graph.duration_ns, gap, earlier)
    end, gap_before, duration, gap_after, shift = (column.tolist() for column in times)
    for row in topological_order(graph.start_ns, edges).tolist():
        shifted = 0
        if starts[row] < starts[row + 1]:
            sources_of_row = sources[starts[row] : starts[row + 1]]
            ready = max([end[source] for source in sources_of_row])
            shifted = ready - max([end[source] - shift[source] for source in sources_of_row])
            end[row] = ready + gap_before[row]
        end[row] += duration[row]
        if not is_moved[row]:
            gap_after[row] = max(gap_before[row] + shifted, 0)
        shift[row] = shifted + gap_before[row] - gap_after[row]
    return ChainGaps(np.array(gap_after, np.int64), np.array(shift, np.int64))
