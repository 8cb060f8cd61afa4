"""The time that passes before activities and waits: gaps and latencies, in which nothing works.

A kernel that starts 2 µs after the one before it has a gap of 2 µs. A wait that returns 8 µs after the end of what it
awaited, where calls that have nothing to wait for take 2 µs, has a gap of 6 µs and lasts 2.
"""

from typing import NamedTuple

import numpy as np

from ...schema.columns import ABSENT, Int64, Intervals, NodeNumbers
from ...schema.linked import FOREVER, NEVER
from ..context import ConversionContext, Edges
from .start_timing import StartTiming


class Gaps(NamedTuple):
    """Attributes of nodes in graph order (ns), ABSENT for nodes without them.

    `gap` is the one of the run. `latency` after a launch and `chain` after other dependencies are the least ones, where
    they differ from it.
    """

    gap: Int64
    latency: Int64
    chain: Int64


def gaps_of(
    context: ConversionContext, timing: StartTiming, order: NodeNumbers, edges: Edges, times: Intervals
) -> Gaps:
    """Returns the gaps of the nodes `order`; `edges` and `times` are of the graph's rows."""
    activities = range(context.activities_from, context.unrecorded_from)
    is_activity = (order >= activities.start) & (order < activities.stop)
    waits = np.flatnonzero((context.timeline.return_ns > 0) | (context.timeline.call_ns > 0))
    row_of = np.full(len(order), -1, np.int64)
    row_of[order] = np.arange(len(order))

    def spread(of_activities: Int64) -> Int64:
        column = np.full(len(order), ABSENT, np.int64)
        column[row_of[activities.start : activities.stop]] = of_activities
        return column

    gap = np.where(is_activity, _since_dependencies(edges, times), ABSENT)
    latency, chain = spread(timing.latency), spread(timing.gap)
    gap[row_of[waits]], chain[row_of[waits]] = context.timeline.return_ns[waits], context.timeline.call_ns[waits]
    return Gaps(gap, *(np.where(column == gap, ABSENT, column) for column in (latency, chain)))


def _since_dependencies(edges: Edges, times: Intervals) -> Int64:
    """Returns the time (ns) from the end of each row's last dependency, or from the trace's start, to its own start."""
    start, end = times
    ready = np.full(len(start), start.min(initial=FOREVER))
    ready[edges.target] = NEVER
    np.maximum.at(ready, edges.target, end[edges.source])
    return np.asarray(np.maximum(start - ready, 0))
