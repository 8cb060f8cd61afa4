"""Times as ASTRA-sim takes them: waits, offsets and excess time as nodes, overlaps once, operations and bytes. It runs
one host node, one computation and one communication of a rank at a time, so each moment counts for one node of a kind
only. In roofline mode a computation takes as long as its operations at the peak or its bytes.
"""

import dataclasses
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ...schema.arguments import ASTRA_SIM
from ...schema.columns import ABSENT, Bool, Categorical, Int64, Intervals, NodeIds, Ns, Ragged, covered_until
from ...schema.comm_groups import RankList
from ...schema.device_peaks import peak_of
from ...schema.errors import Remedy
from ...schema.graph import Change, CollectiveType, DependencyKind, ExecutionGraph, NodeType, TargetChanges
from .. import rewiring
from ..edges import Edges, topological_order
from ..ranks import measured_times
from ..rewiring import COMMUNICATION, control_edges, data_edges, edited_graph, with_added_nodes
from ..timeline import IDLE, UNRECORDED

HOST_DELAY, EXCESS_TIME, START_OFFSET = "host delay", "beyond the fitted network", "start offset"
AFTER_MESSAGES = "after the last messages"
"""The names of the nodes that are added."""
WAITING = (IDLE, UNRECORDED)
FIRST_BYTES = 1 << 16
"""Least bytes of a node without dependencies, as the simulator stops at an event of 0 ns at its start."""
LEAST_PEAK, MOST_PEAK = 1e-6, 1e6
"""TFLOP/s and GB/s between which times and numbers of operations fit 64 bits."""
HALF_NS = 0.5
"""Added to measured times, as the simulator truncates to whole ns."""
ONCE = (
    "host work at the same time on several threads counts once, as one host node runs at a time",
    "device work at the same time on several streams counts once, as one runs at a time",
    "communication beside other communication counts once, as a rank runs one send or collective at a time",
)


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
    if all(LEAST_PEAK <= number <= MOST_PEAK for number in numbers):
        return Roofline(*numbers)
    peak = peak_of(device)
    if peak is None or not peak.memory:
        raise ValueError(f"{text!r} is not DEVICE:FORMAT of a device whose peaks are known; TFLOPS:GB/S says them")
    formats = {name: tflops for name, tflops in peak._asdict().items() if tflops and name != "memory"}
    if number_format not in formats:
        raise ValueError(f"{text!r}: the peaks of {device} that are known are of {', '.join(formats)}")
    return Roofline(formats[number_format], peak.memory)


@dataclass(slots=True)
class Lowering:
    """What the passes know of the job, such as the number of each rank list, and the changes so far."""

    groups: Mapping[RankList, int] | None
    roofline: Roofline | None
    start_offset_ns: int
    counts: dict[tuple[Change, str], float] = field(default_factory=lambda: defaultdict(int))
    notes: list[str] = field(default_factory=list)

    def add(self, change: Change, number: float, reason: str = "") -> None:
        """Adds to what is counted of a change, by its reason where it has several."""
        self.counts[change, reason] += number

    def note(self, applies: object, sentence: str) -> None:
        """Adds a sentence about what the user should know, if it applies."""
        if applies:
            self.notes.append(sentence)

    @property
    def changes(self) -> TargetChanges:
        """What was counted, without zeros, and the notes."""
        in_order = ((change, reason) for change in Change for of, reason in self.counts if of is change)
        named = {key: f"{key[0]}: {key[1]}" if key[1] else str(key[0]) for key in in_order}
        return TargetChanges({name: self.counts[key] for key, name in named.items() if self.counts[key]}, self.notes)


def with_delay_nodes(graph: ExecutionGraph, lowering: Lowering) -> ExecutionGraph:
    """Returns the graph with nodes for host delays of what the simulator times; control dependencies are lost then."""
    graph = _waiting_before(graph, lowering, np.isin(graph.type, COMMUNICATION), ("host_delay_ns",))
    return (
        _waiting_before(graph, lowering, has_work(graph), ("host_delay_ns", "gap_ns")) if lowering.roofline else graph
    )


def _waiting_before(graph: ExecutionGraph, lowering: Lowering, before: Bool, parts: tuple[str, ...]) -> ExecutionGraph:
    """Returns the graph in which the attributes `parts` of these nodes became nodes of their own."""
    wait = np.sum([graph.integers(name, 0) for name in parts], axis=0)
    late = np.flatnonzero(before & (wait > 0))
    if not len(late):
        return graph
    stand_in, added = np.arange(len(graph)), len(graph) + np.arange(len(late))
    stand_in[late] = added
    gap_before = 0 if "gap_ns" in parts else graph.integers("gap_ns", 0)[late]
    values = {"start_time_ns": graph.start_ns[late] - gap_before, "host_delay_ns": wait[late]}
    widened = with_added_nodes(graph, late, HOST_DELAY, values)
    for name in parts:
        widened.attributes[name] = rewiring.set_rows(widened.integers(name), late, ABSENT)
    lowering.add(Change.DELAY_NODES, len(late))
    launches = Edges.of(added, late, DependencyKind.LAUNCH)
    return edited_graph(widened, Edges.joined([data_edges(graph).renumbered(target=stand_in), launches]))


def with_excess_time(graph: ExecutionGraph, lowering: Lowering) -> ExecutionGraph:
    """Returns the graph with a broadcast, which the simulator runs for its duration, for the `excess_ns` of each
    collective. Its measured length is 0, and `duration_micros` of the collective that much shorter.
    """
    excess = graph.integers("excess_ns", 0)
    whole_us = np.minimum((excess + 500) // 1000, graph.duration_micros.astype(np.int64))
    is_simulated = (graph.type == NodeType.COMM_COLL) & (graph.integers("comm_type") != CollectiveType.BROADCAST)
    collectives = np.flatnonzero(is_simulated & (whole_us > 0))
    attributes = {name: column for name, column in graph.attributes.items() if name != "excess_ns"}
    graph = dataclasses.replace(graph, attributes=attributes)
    if not len(collectives):
        return graph
    count, after = len(graph), np.arange(len(graph))
    after[collectives] = count + np.arange(len(collectives))
    values = {
        "start_time_ns": graph.integers("start_time_ns")[collectives] + graph.duration_ns[collectives],
        "comm_type": np.full(len(collectives), CollectiveType.BROADCAST),
        "comm_size": graph.integers("comm_size")[collectives],
        "excess_ns": excess[collectives],
    }
    longer = with_added_nodes(graph, collectives, EXCESS_TIME, values)
    longer.type[count:] = NodeType.COMM_COLL
    longer.duration_micros[count:] = whole_us[collectives]
    longer.duration_micros[collectives] -= whole_us[collectives].astype(longer.duration_micros.dtype)
    group = longer.attributes["pg_name"]
    assert isinstance(group, Categorical)
    group.codes[count:] = group.codes[collectives]
    data, control = (edges.renumbered(after) for edges in (data_edges(graph), control_edges(graph)))
    follows = Edges.of(collectives, after[collectives], DependencyKind.COLLECTIVE)
    lowering.add(Change.EXCESS, float(whole_us[collectives].sum()))
    return edited_graph(longer, Edges.joined([data, follows]), control)


def with_start_offset(graph: ExecutionGraph, lowering: Lowering) -> ExecutionGraph:
    """Returns the graph with a node of the rank's start offset, in whole µs, before all others."""
    offset_ns = lowering.start_offset_ns
    lowering.add(Change.START_OFFSET, offset_ns / 1000)
    whole_us = (offset_ns + 500) // 1000
    if not whole_us:
        return graph
    data, count = data_edges(graph), len(graph)
    roots, on_host = np.setdiff1d(np.arange(count), data.target), graph.integers("is_cpu_op", 0)
    # on the host, as the rank itself was, unless the graph has none
    first = roots[np.lexsort((graph.host_clock_start_ns[roots], -on_host[roots]))[:1]]
    shift = np.where(on_host[first], 0, graph.number("clock_offset_ns", 0))
    start = measured_times(graph).begin_ns - shift
    values = {"is_cpu_op": on_host[first], "start_time_ns": start, "start_offset_ns": np.array([offset_ns])}
    delayed = with_added_nodes(graph, first, START_OFFSET, values)
    delayed.duration_micros[count] = whole_us
    before_all = Edges.of(np.full(len(roots), count), roots, DependencyKind.PROGRAM_ORDER)
    order = np.roll(np.arange(count + 1), 1)
    return edited_graph(delayed, Edges.joined([before_all, data]), control_edges(graph), order)


def with_node_after_messages(graph: ExecutionGraph, _: Lowering) -> ExecutionGraph:
    """Returns the graph with a host node of 1 µs after all messages on which nothing depends. v1 has no event for 0 µs,
    and v3 stops where the last event of a rank with host nodes is a send or receive.
    """
    data, count = data_edges(graph), len(graph)
    is_message = np.isin(graph.type, (NodeType.COMM_SEND, NodeType.COMM_RECV))
    last_messages = np.setdiff1d(np.flatnonzero(is_message), data.source)
    end = graph.host_clock_start_ns + graph.duration_ns
    host = np.flatnonzero(graph.integers("is_cpu_op", 0) > 0)
    if not len(last_messages) or not len(host):
        return graph
    like = host[end[host].argmax(axis=0, keepdims=True)]
    start = end[last_messages].max(keepdims=True)
    ended = with_added_nodes(graph, like, AFTER_MESSAGES, {"is_cpu_op": np.ones_like(start), "start_time_ns": start})
    ended.duration_micros[count] = 1
    awaited = Edges.of(last_messages, np.full(len(last_messages), count), DependencyKind.HOST_SYNC)
    return edited_graph(ended, Edges.joined([data, awaited]), control_edges(graph))


def in_order_of_ends(graph: ExecutionGraph, _: Lowering) -> ExecutionGraph:
    """Returns the graph with ids by measured ends: of several ready nodes the simulator takes the lowest id."""
    data, control = data_edges(graph), control_edges(graph)
    order = topological_order(graph.start_ns + graph.duration_ns, Edges.joined([data, control]))
    return edited_graph(graph, data, control, order)


def serialise(graph: ExecutionGraph, lowering: Lowering) -> ExecutionGraph:
    """Sets `duration_micros` in place: whole µs that keep the total of each thread and stream. As nodes of one kind run
    in sequence, each moment counts for one of them, and for waiting only where none worked.
    """
    on_host, communicates = ~graph.is_activity & ~graph.is_delay, np.isin(graph.type, COMMUNICATION)
    lanes, data = rewiring.lanes_of(graph), data_edges(graph)
    # no gap can pass while another stream computes, as gaps take the only place of computation
    on_one_stream = len(np.unique(lanes[graph.is_activity & ~communicates])) == 1
    gap, earlier = chain_gaps(graph, data, lengthen=on_one_stream)
    start, length = graph.start_ns - earlier, graph.duration_ns
    idles = on_host & graph.name.where(WAITING.__contains__)
    work, waiting = np.where(idles, 0, length), np.where(idles, length, gap + graph.integers("host_delay_ns", 0))
    until = np.where(idles, start + length, start)
    # communication that the ranks ordered after other communication begins when that ends
    begin, inside = start.copy(), data.where(communicates[data.source] & communicates[data.target])
    np.maximum.at(begin, inside.target, (start + length)[inside.source])
    begin = np.minimum(begin, start + length)
    kept_work, kept_waiting = start + work - begin, waiting.copy()
    kinds = (on_host & ~communicates, ~on_host & ~communicates, communicates)
    for kind in kinds:
        worked, waited = kind & (kept_work > 0), kind & (waiting > 0)
        spans, nothing = Intervals(begin[worked], (start + work)[worked]), Intervals(start[:0], start[:0])
        kept_work[worked] = uncovered(spans, nothing)
        kept_waiting[waited] = uncovered(Intervals((until - waiting)[waited], until[waited]), spans)
    graph.duration_micros = rewiring.whole_microseconds(kept_work + kept_waiting, lanes)
    cut, not_waited = work - kept_work, waiting - kept_waiting
    lowering.add(Change.IDLE_TIME_CUT, int(not_waited[idles].sum()) / 1000)
    lowering.add(Change.HOST_DELAY_CUT, int(not_waited[~on_host].sum()) / 1000)
    # receives run beside all other communication
    cut[graph.type == NodeType.COMM_RECV] = 0
    for kind, words in zip(kinds, ONCE, strict=True):
        overlap = int(cut[kind].sum())
        lowering.note(overlap, f"{overlap / 1000:.1f} µs of {words}")
    return graph


def chain_gaps(graph: ExecutionGraph, edges: Edges, *, lengthen: bool = True) -> tuple[Ns, Ns]:
    """Returns the gap of each activity after other activities, and by how much each node starts earlier with it.
    `gap_ns` is a launch latency where the host launched just in time, which adds up where a what-if has activities
    queue. What others wait for ends as measured, as far as a gap of 0 allows. O((n + e) log n).
    """
    measured, chain = graph.integers("gap_ns", 0), graph.integers("chain_gap_ns")
    changed = chain != ABSENT if lengthen else (chain != ABSENT) & (chain < measured)
    gap, earlier = np.where(changed, chain, measured), np.zeros(len(graph), np.int64)
    if not changed.any():
        return gap, earlier
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
    return np.array(gap_after, np.int64), np.array(shift, np.int64)


def uncovered(spans: Intervals, others: Intervals) -> Int64:
    """Returns how many ns of each span neither the others cover, nor spans of its own kind that ended sooner."""
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


def has_work(graph: ExecutionGraph) -> Bool:
    """Returns which computations of the device have known operations and bytes."""
    has_both = (graph.integers("num_ops") != ABSENT) & (graph.integers("tensor_size") != ABSENT)
    return np.asarray(computes(graph) & has_both)


def computes(graph: ExecutionGraph) -> Bool:
    """Returns which nodes are computations of the device."""
    return np.asarray((graph.type == NodeType.COMP) & (graph.integers("is_cpu_op", 0) == 0))


def with_known_work(graph: ExecutionGraph, lowering: Lowering) -> ExecutionGraph:
    """Gives computations of the device at least one operation and one byte, in place."""
    peaks, computing, has_known_work = lowering.roofline, computes(graph), has_work(graph)
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
    unknown = int((computing & ~has_known_work & ~waits).sum())
    lowering.add(Change.WITHOUT_WORK, unknown)
    they = "they take their measured time" if peaks else f"the graph is for roofline mode only with {Remedy.ROOFLINE}"
    is_told = unknown and "num_ops" in graph.attributes
    lowering.note(is_told, f"operations or bytes of {unknown} computations are not known, so {they}")
    return graph


def idle_rank(rank: int) -> ExecutionGraph:
    """Returns the graph of a rank that takes no part in a job: one computation of 1 µs, as empty graphs do not run."""
    ones, no_dependencies = np.ones(1, np.int64), Ragged.of([[]])
    return ExecutionGraph(
        id=NodeIds(ones), name=Categorical.of(["no work"]), type=np.array([NodeType.COMP], np.uint8),
        data_deps=no_dependencies, ctrl_deps=no_dependencies, start_time_micros=ones * 0, duration_micros=ones,
        attributes={"is_cpu_op": ones * 0, "num_ops": ones, "tensor_size": ones * FIRST_BYTES},
        metadata={"rank": rank, "target": ASTRA_SIM},
    )  # fmt: skip
