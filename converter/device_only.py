"""Graphs without their host: only activities, in the order that the host imposed, with the host time that delayed them.

"The host awaited an activity and then launched another one" becomes a dependency of kind host sync, unless clocks over
the lanes show that others imply it. Host time for which the device really waited becomes `host_delay_ns` before the
activity, a node at the end waits for what follows the last one: a replay ends when the measured run did.
"""

from itertools import groupby
from operator import itemgetter

import numpy as np

from ..schema.columns import ABSENT, Bool, Int64, group_ids
from ..schema.errors import DataError, Remedy
from ..schema.graph import DependencyKind, ExecutionGraph, NodeType
from ..schema.linked import NEVER
from .edges import Edges, deduplicated
from .rewiring import data_edges, edited_graph, lanes_of, whole_microseconds, with_added_nodes

Clock = tuple[int, ...]
"""The last row of each lane that is known to have ended, -1 for none."""
COMMUNICATION = (NodeType.COMM_SEND, NodeType.COMM_RECV, NodeType.COMM_COLL)
SILENT = (NodeType.INVALID, NodeType.METADATA)
HOST_TIME_AFTER = "host time after the last activity"
"""The name of the node that ends when the host did."""


def known_after(edges: Edges, lane: Int64, lanes: int) -> list[Clock]:
    """Returns a clock for each row; nodes without a lane (-1) only pass on what they know.

    The edges must be sorted by target and point forward. O((n + e) · lanes) at worst; mostly O(n + e), as nodes that
    learn nothing share the clock of their predecessor.
    """
    nothing: Clock = (-1,) * lanes
    clocks: list[Clock] = []
    sources, targets = edges.source.tolist(), edges.target.tolist()
    sources.append(-1)
    targets.append(len(lane))
    index = 0
    for row, own_lane in enumerate(lane.tolist()):
        clock = nothing
        while targets[index] == row:
            clock = joined(clock, clocks[sources[index]])
            index += 1
        clocks.append(clock if own_lane < 0 else (*clock[:own_lane], row, *clock[own_lane + 1 :]))
    return clocks


def joined(first: Clock, second: Clock) -> Clock:
    """Returns the elementwise maximum of two clocks; one of the two objects where it equals that."""
    if first is second:
        return first
    merged = tuple(map(max, first, second))
    return first if merged == first else second if merged == second else merged


def without_host(graph: ExecutionGraph) -> ExecutionGraph:
    """Returns the graph of the activities, and of communication that only the host recorded; without control
    dependencies and tensors.

    The graph must be in topological order and its streams chained, as `convert` makes it. O((n + e) · streams) at
    worst. Raises DataError for a graph without any of these nodes.
    """
    is_kept = (graph.is_activity & ~np.isin(graph.type, SILENT)) | np.isin(graph.type, COMMUNICATION)
    if not is_kept.any():
        raise DataError(
            "the graph has no device activity, so nothing is left without the host; leave out ", Remedy.NO_HOST
        )
    edges = data_edges(graph)
    direct = edges.where(is_kept[edges.source] & is_kept[edges.target])
    through = _through_host(edges, is_kept, lanes_of(graph))
    edges = deduplicated(Edges.joined([direct, through]), len(graph))
    device = edited_graph(graph, edges, kept_rows=np.flatnonzero(is_kept))
    device.tensors = None
    runs = graph.type != NodeType.METADATA
    device = _with_host_time_after(device, int((graph.host_clock_start_ns + graph.duration_ns)[runs].max()))
    for name in ("latency_ns", "chain_gap_ns"):
        # without launches there is only one gap, that after dependencies
        device.attributes.pop(name, None)
    # the host delay is the time from the end of an activity's dependencies, or the trace's start, less its gap
    start, gap, edges = device.host_clock_start_ns, device.integers("gap_ns", 0), data_edges(device)
    released = np.full(len(device), NEVER)
    np.maximum.at(released, edges.target, (start + device.duration_ns)[edges.source])
    released[np.setdiff1d(np.arange(len(device)), edges.target)] = int(graph.host_clock_start_ns[runs].min())
    delay = np.maximum(start - gap - released, 0)
    if delay.any():
        device.attributes["host_delay_ns"] = np.where(delay > 0, delay, ABSENT)
    device.duration_micros = whole_microseconds(delay + gap + device.duration_ns, lanes_of(device))
    return device


def _with_host_time_after(device: ExecutionGraph, end_of_run: int) -> ExecutionGraph:
    """Returns the graph with a node at the end of the run, after all activities, if the run ended later than these."""
    end = device.host_clock_start_ns + device.duration_ns
    last = end.argmax(axis=0, keepdims=True)
    if end_of_run <= end[last[0]]:
        return device
    start = np.array([end_of_run - device.number("clock_offset_ns", 0)])
    ended = with_added_nodes(device, last, HOST_TIME_AFTER, {"start_time_ns": start})
    edges = data_edges(device)
    lasts = np.setdiff1d(np.arange(len(device)), edges.source)
    awaited = Edges.of(lasts, np.full(len(lasts), len(device)), DependencyKind.HOST_SYNC)
    return edited_graph(ended, Edges.joined([edges, awaited]))


def _through_host(edges: Edges, is_kept: Bool, lane: Int64) -> Edges:
    """Returns edges between kept nodes that are ordered only by paths through removed nodes, without implied ones."""
    stream = np.full(len(lane), -1, np.int64)
    stream[is_kept] = group_ids(lane[is_kept])
    clocks = known_after(edges, stream, int(stream.max()) + 1)
    into = edges.where(is_kept[edges.target])
    columns = (column.tolist() for column in (into.target, into.source, is_kept[into.source]))
    pairs = []
    for target, group in groupby(zip(*columns, strict=True), itemgetter(0)):
        # the last rows of lanes that kept and removed sources know to have ended
        implied = required = (-1,) * len(clocks[0])
        for _, source, source_is_kept in group:
            if source_is_kept:
                implied = joined(implied, clocks[source])
            else:
                required = joined(required, clocks[source])
        # the latest row first, as it often follows the others
        for row, number in sorted(((row, number) for number, row in enumerate(required)), reverse=True):
            if row > implied[number]:
                implied = joined(implied, clocks[row])
                pairs.append((row, target))
    sources, targets = np.array(pairs, np.int64).reshape(-1, 2).T
    return Edges.of(sources, targets, DependencyKind.HOST_SYNC)
