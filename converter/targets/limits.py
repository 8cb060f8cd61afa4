"""Durations for a simulator that runs one host node, one computation and one communication at a time.

Nodes of one kind that ran at the same time on several threads or streams would run in sequence there and take longer.
So each moment counts for one node of a kind only: for the one that ended first of those that worked, as others depend
on ends; and for waiting (idle host time, host delays, gaps) only where none worked.

Operations and bytes for the roofline mode of a simulator, which divides one by the other for every computation.

A computation takes as long there as its operations at the peak or its bytes, whichever is longer; its measured duration
is not read. With a `Roofline`, computation without known work gets the work of its measured time at both peaks, so that
its duration stays.

The number of nodes that are ready at once: the cost of simulating a graph grows with its square.

Finds control dependencies that data dependencies imply: with only these, all simulators run the graph alike.

With data dependencies a → b → c along one lane, a control dependency of c on a is implied.

How much of a time span no other span covers.
"""

import re
from typing import NamedTuple

import numpy as np

from ...schema.columns import ABSENT, Bool, Int64, Intervals, NodeNumbers, Ragged, covered_until, previous_in_group
from ...schema.graph import ExecutionGraph, NodeType
from ...schema.machine import peak_of
from ..device_only import COMMUNICATION
from ..edges import Edges, topological_order
from ..rewiring import control_edges, data_edges, edited_graph, lanes_of, whole_microseconds
from ..timeline import IDLE, UNRECORDED


def uncovered(spans: Intervals, others: Intervals) -> Int64:
    """Returns how many ns of each span neither the other spans cover, nor spans of its own kind that ended sooner.
    O(n log n).

    For spans 0–10 and 6–12 and the other span 2–5, 7 are left of the first and 2 of the second.
    """
    # on a clock that stops during other spans, only the spans themselves overlap
    begin = spans.start - covered_until(spans.start, others)
    stop = spans.end - covered_until(spans.end, others)
    order = np.lexsort((-spans.start, spans.end))
    free, covered = np.empty(len(order), np.int64), list[tuple[int, int]]()
    for row, since, until in zip(order.tolist(), begin[order].tolist(), stop[order].tolist(), strict=True):
        remaining, opens = until - since, since
        # merge with the latest spans that this one overlaps
        while covered and covered[-1][1] > since:
            first, last = covered.pop()
            remaining -= last - max(first, since)
            opens = min(opens, first)
        covered.append((opens, until))
        free[row] = remaining
    return free


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


FIRST_BYTES = 1 << 16
"""Least bytes of a node without dependencies: the simulator stops at an event of 0 ns at its start, and no memory moves
so many bytes within 1 ns.
"""
HALF_NS = 0.5
"""Added to measured times, as the simulator truncates to whole ns."""


class Roofline(NamedTuple):
    """The peaks of a device per second: 10**12 floating-point operations, and 10**9 bytes of memory traffic."""

    tflops: float
    memory_gb_s: float


def roofline_of(text: str) -> Roofline:
    """Returns the peaks for DEVICE:FORMAT, from the table of devices, or TFLOPS:GB/S. Raises ValueError for other text.

    >>> roofline_of("V100:fp32"), roofline_of("312:2039")
    (Roofline(tflops=15.7, memory_gb_s=900), Roofline(tflops=312.0, memory_gb_s=2039.0))
    """
    device, _, number_format = text.rpartition(":")
    numbers = [float(part) if re.fullmatch(r"\d+(\.\d+)?", part) else 0.0 for part in (device, number_format)]
    if all(numbers):
        return Roofline(*numbers)
    peak = peak_of(device)
    if peak is None:
        raise ValueError(f"{text!r} is not DEVICE:FORMAT of a device whose peaks are known; TFLOPS:GB/S says them")
    formats = {name: tflops for name, tflops in peak._asdict().items() if tflops and name != "memory"}
    if number_format not in formats:
        raise ValueError(f"{text!r}: the peaks of {device} that are known are of {', '.join(formats)}")
    return Roofline(formats[number_format], peak.memory)


def has_work(graph: ExecutionGraph) -> Bool:
    """Returns which computations of the device have known operations and bytes."""
    has_both = (graph.integers("num_ops") != ABSENT) & (graph.integers("tensor_size") != ABSENT)
    return np.asarray(computes(graph) & has_both)


def computes(graph: ExecutionGraph) -> Bool:
    """Returns which nodes are computations of the device."""
    return np.asarray((graph.type == NodeType.COMP) & (graph.integers("is_cpu_op", 0) == 0))


def for_roofline(graph: ExecutionGraph, peaks: Roofline | None = None) -> int:
    """Gives computations of the device at least one operation and one byte, in place; returns how many have unknown
    work.

    Nodes that only move bytes then take the time of their bytes. Without `peaks`, nodes that take no time, such as
    delays, take none, and unknown work stays unknown. With `peaks` both get the work of `duration_micros` at either
    peak.
    """
    computing, has_known_work = computes(graph), has_work(graph)
    waits = computing & ~has_known_work & (graph.is_delay | (graph.duration_ns == 0))
    if peaks or has_known_work.any():
        operations, moved = graph.integers("num_ops"), graph.integers("tensor_size")
        needs_work = computing if peaks else has_known_work | waits
        least = np.where(graph.data_deps.lengths() == 0, FIRST_BYTES, 1)
        if peaks:
            time = graph.duration_micros * 1000 + HALF_NS
            operations = np.where(has_known_work, operations, (time * peaks.tflops * 1e3).astype(np.int64))
            moved = np.where(has_known_work, moved, (time * peaks.memory_gb_s).astype(np.int64))
        graph.attributes["num_ops"] = np.where(needs_work, np.maximum(operations, 1), operations)
        graph.attributes["tensor_size"] = np.where(needs_work, np.maximum(moved, least), moved)
    return int((computing & ~has_known_work & ~waits).sum())


WIDE = 2_000
"""From this width on a simulation takes seconds where a chained graph takes milliseconds."""


def widest_ready_set(graph: ExecutionGraph, edges: Edges) -> int:
    """Returns the largest number of nodes that were released and had not ended, by the measured clock. O(n log n).

    A node without dependencies is ready from the start.
    """
    if not len(graph):
        return 0
    end = graph.start_ns + graph.duration_ns
    released = np.full(len(graph), graph.start_ns.min())
    np.maximum.at(released, edges.target, end[edges.source])
    time = np.concatenate((released, np.maximum(end, released + 1)))
    change = np.repeat((1, -1), len(graph))
    return int(np.cumsum(change[np.lexsort((change, time))]).max())


def implied(control: Edges, data: Edges, lane: Int64) -> Bool:
    """Returns the control edges that follow from a data edge, or from the chain of a lane. Linear, apart from sorts.

    An edge that follows only from a path over several lanes does not count as implied.
    """
    if not len(data.kind):
        return np.zeros(len(control.kind), np.bool_)
    keys = np.sort(_keys(data.source, data.target, len(lane)))
    chain = _chains(data, keys, lane)
    along = (chain[control.source] == chain[control.target]) & (control.source < control.target)
    return np.asarray(along | _contains(keys, _keys(control.source, control.target, len(lane))))


def _chains(data: Edges, keys: Int64, lane: Int64) -> Int64:
    """Returns a number for each row, equal for neighbours on a lane if one depends on the other, directly or through
    one node.
    """
    order = np.argsort(lane, kind="stable")
    before = previous_in_group(order, lane)[data.target]
    chained = np.zeros(len(lane), np.bool_)
    chained[data.target[(data.source == before) | _contains(keys, _keys(before, data.source, len(lane)))]] = True
    chain = np.empty(len(lane), np.int64)
    chain[order] = np.cumsum(~chained[order])
    return chain


def _keys(source: Int64, target: Int64, count: int) -> Int64:
    """Returns a number for each pair of rows, -1 for a pair whose source is missing (-1)."""
    return np.where(source >= 0, target * count + source, -1)


def _contains(keys: Int64, pairs: Int64) -> Bool:
    """Returns which of the pairs, by their keys, are among the sorted keys."""
    position = np.minimum(np.searchsorted(keys, pairs), len(keys) - 1)
    return np.asarray(keys[position] == pairs)


class ChainGaps(NamedTuple):
    """The `gap` (ns) before each node, and by how many ns each node is `earlier` than measured."""

    gap: Int64
    earlier: Int64


def chain_gaps(graph: ExecutionGraph, edges: Edges, *, lengthen: bool = True) -> ChainGaps:
    """Returns the gap of each activity after other activities, and what that moves.

    `gap_ns` is the measured time since a launch or since other activities, whichever came later, so a latency where the
    host launched just in time. A simulator that adds it to every start adds up latencies where a what-if has activities
    queue. So each activity gets the gap after other activities here, whatever released it; those that follow it run
    earlier, or later, by the difference, and one that anything but the next activity waits for makes up for it.

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
