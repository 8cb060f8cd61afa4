"""The columns that a replay works on, from the graphs of one or several ranks: one row per node, rank after rank.

Measured times count from the first recorded start of the node's own rank, or of all ranks once these are on one clock.
How much later than the first one a rank began, its start offset, is known from what ranks share, but not why: its
recording may have begun later, or the rank was late. So no change scales it.
"""

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...converter.ranks import Calls, begin_of_ranks, contradictions, graph_calls, match
from ...converter.rewiring import COMMUNICATION, recorded_edges
from ...schema import columns
from ...schema.columns import ABSENT, Bool, Categorical, Int64, Ns, Rows
from ...schema.errors import DataError
from ...schema.graph import (
    ATTRIBUTES,
    CHANGED_BY,
    CONCURRENCY_LIMIT,
    RANKS_OF_GROUP,
    UNPROFILED,
    DependencyKind,
    ExecutionGraph,
    NodeType,
)  # fmt: skip
from ...schema.linked import FOREVER, MEMORY_CATEGORIES

if TYPE_CHECKING:
    from .recording import Recording

log = logging.getLogger("execgraph")
Classes = npt.NDArray[np.uint8]

UNRECORDED_WORK = "unrecorded host"
"""The name of host nodes for unrecorded work. `host idle` is none: it is mostly Python running between ops."""
COMMUNICATION_TYPES = (NodeType.COMM_SEND, NodeType.COMM_RECV, NodeType.COMM_COLL)
MEMORY_NAME = re.compile(r"__amd_rocclr_(copy|fill)Buffer|MEMORY_COPY_|dma_request$")
"""Names of copies and sets that ROCm's runtime and MTIA record as kernels."""
START = "start_time_ns"
LENGTHS = [attribute.name for attribute in ATTRIBUTES if attribute.unit == "ns" and attribute.name != START]
LENGTHS_IN_A_SUM = 2
HOST_THREAD = ABSENT + 1
"""Stands for the stream of a lane that is a host thread; ABSENT stands for a stream that was not recorded."""
NOTEWORTHY_PCT = 1.0
"""A smaller share of the run hardly changes an answer."""
WHY = "recording began later, the rank was late, or times are wrong: not known"


class NodeClass(IntEnum):
    """What the time of a node is spent on; DELAY is time that no dependency explains."""

    HOST = 0
    COMPUTATION = 1
    COMMUNICATION = 2
    MEMORY = 3
    UNRECORDED = 4
    METADATA = 5
    DELAY = 6

    @property
    def label(self) -> str:
        """The name in lower case."""
        return self.name.lower()


def node_classes(graph: ExecutionGraph) -> Classes:
    """Returns the NodeClass of each of the graph's n nodes."""
    classes = np.where(graph.is_activity, NodeClass.COMPUTATION, NodeClass.HOST).astype(np.uint8)
    classes[graph.name.equal(UNRECORDED_WORK) & ~graph.is_activity] = NodeClass.UNRECORDED
    memory = graph.is_activity & moves_memory(graph.name, graph.texts("cat"))
    classes[memory | np.isin(graph.type, (NodeType.MEM_LOAD, NodeType.MEM_STORE))] = NodeClass.MEMORY
    classes[np.isin(graph.type, (NodeType.STORAGE, NodeType.BATCH, NodeType.CHECKPOINT))] = NodeClass.HOST
    classes[np.isin(graph.type, COMMUNICATION_TYPES)] = NodeClass.COMMUNICATION
    classes[(graph.type == NodeType.METADATA) | graph.is_start_offset] = NodeClass.METADATA
    classes[graph.is_delay] = NodeClass.DELAY
    return classes


def moves_memory(name: Categorical, category: Categorical) -> Bool:
    """Returns which activities only copy or set memory: by category, or by name if the category is that of kernels."""
    by_category = category.where(lambda text: text.lower() in MEMORY_CATEGORIES)
    return by_category | name.where(lambda text: MEMORY_NAME.match(text) is not None)


class Lane(NamedTuple):
    """A host thread (`number` is its tid) or a device stream (`number` is its device) of the `rank`-th graph."""

    rank: int
    number: int
    stream: int

    @property
    def is_stream(self) -> bool:
        """Whether it is a device's stream."""
        return self.stream != HOST_THREAD

    @property
    def label(self) -> str:
        """Its name for people: `thread 4711`, `device 0 stream 7`, or `delays`, which run nowhere."""
        if self.is_stream:
            return f"device {number_text(self.number)} stream {number_text(self.stream)}"
        return "delays" if self.number == ABSENT else f"thread {number_text(self.number)}"


def number_text(number: int) -> str:
    """Returns a device, stream or thread number, `?` where none was recorded."""
    return "?" if number == ABSENT else str(number)


class SlotPool(NamedTuple):
    """How many activities a device runs at once, and for how much longer than recorded (ns) each keeps its slot."""

    slot_count: int
    cut_off_ns: int


@dataclass(slots=True, repr=False)
class Workload(columns.SummaryRepr):
    """The n nodes and e dependencies of all ranks; the rows of a rank begin at its `first_row`.

    Dependencies are sorted by `target`. A node starts at least `lag_ns` after the end of each, and waits for `wait_ns`
    more after all. Without dependencies that counts from the rank's start: it is the measured start of the first node
    of a lane, else 0, so that a missing dependency shows. Measured times are on the host's clock, ABSENT if not
    recorded.

    `members` are the nodes of several ranks that meet, none before ranks are on one clock. `slot_pool` is the position
    of a full device in `slot_pools`, -1 for nodes that take no slot. With a `recording` this is the run without a
    profiler, and `others` are by other models. `differs` says what graphs replay as that are not of the run.
    """

    node_class: Classes
    lane: Int64
    measured_start_ns: Ns
    measured_end_ns: Ns
    wait_ns: Ns
    host_delay_ns: Ns
    duration_ns: Ns
    source: Rows
    target: Rows
    kind: Int64
    lag_ns: Ns
    slot_pool: Int64
    graphs: Sequence[ExecutionGraph]
    lanes: list[Lane]
    first_row: Rows
    start_offset_ns: Ns
    slot_pools: list[SlotPool]
    missing_dependencies: int
    members: Calls
    recording: "Recording | None" = None
    others: Sequence["Workload"] = ()
    differs: str = ""

    def __len__(self) -> int:
        return len(self.lane)

    def summary(self) -> columns.Summary:
        """Returns how many nodes, dependencies, ranks and lanes there are."""
        counts = {"dependencies": len(self.source), "ranks": len(self.graphs), "lanes": len(self.lanes)}
        return columns.Summary(f"Workload: {len(self):,} nodes", {"of": columns.format_counts(counts)})

    @property
    def unprofiled(self) -> "Recording | None":
        """What is known of the run without a profiler, if this is that run."""
        return self.recording if self.recording and self.recording.is_known else None

    @property
    def is_timed(self) -> Bool:
        """Which nodes have a recorded start."""
        return np.asarray(self.measured_start_ns != ABSENT)

    @property
    def is_activity(self) -> Bool:
        """Activities of device streams; not metadata."""
        on_stream = np.array([lane.is_stream for lane in self.lanes], bool)[self.lane]
        return np.asarray(on_stream & (self.node_class != NodeClass.METADATA))

    @property
    def is_rooted(self) -> Bool:
        """Which nodes depend on nothing."""
        return np.asarray(np.bincount(self.target, minlength=len(self)) == 0)

    @property
    def is_of_scaled_job(self) -> bool:
        """Whether the graphs are of a job that trace-scale made, or of a changed run, which nobody measured."""
        return any(name.startswith((RANKS_OF_GROUP, CHANGED_BY)) for graph in self.graphs for name in graph.metadata)

    @property
    def is_modelled(self) -> bool:
        """Whether the graphs hold the run without a profiler."""
        return any(UNPROFILED in graph.metadata for graph in self.graphs)

    @property
    def origin(self) -> str:
        """How it is known how long the run of the graphs takes."""
        return "modelled" if self.is_modelled else "measured"

    def ranks_of(self, rows: Int64) -> Int64:
        """Returns the position in `graphs` of the graph of each row."""
        return np.searchsorted(self.first_row, rows, side="right").astype(np.int64) - 1

    def without_dependencies(self, chosen: Bool) -> "Workload":
        """Returns the workload without some of its dependencies."""
        kept = {name: getattr(self, name)[~chosen] for name in ("source", "target", "kind", "lag_ns")}
        return replace(self, **kept)

    def rank_labels(self) -> list[str]:
        """Returns the recorded ranks, or the graphs' positions if a rank is missing or occurs twice, as texts."""
        recorded = [graph.number("rank", -1) for graph in self.graphs]
        is_known = -1 not in recorded and len(set(recorded)) == len(recorded)
        return [*map(str, recorded if is_known else range(len(recorded)))]

    def rank_column(self, rows: Int64) -> Int64:
        """Returns the rank of each of these rows."""
        return np.array([*map(int, self.rank_labels())], np.int64)[self.ranks_of(rows)]

    def late_rank(self, makespan_ns: int) -> tuple[str, int] | None:
        """Returns the rank that began last, and how many ns after the first; None where that changes no answer."""
        last = int(self.start_offset_ns.argmax())
        offset_ns = int(self.start_offset_ns[last])
        is_noteworthy = offset_ns >= NOTEWORTHY_PCT / 100 * max(makespan_ns, 1)
        return (self.rank_labels()[last], offset_ns) if is_noteworthy else None


def with_causes(work: Workload) -> tuple[Workload, Rows]:
    """Returns the workload in which what started late for no known reason follows the last host work before it.

    It takes as long if unchanged. Also returns these nodes, whose dependencies come last.
    """
    is_unrecorded, rank = work.node_class == NodeClass.UNRECORDED, work.ranks_of(np.arange(len(work)))
    is_fixed = work.is_rooted & (work.wait_ns > work.start_offset_ns[rank])
    is_fixed[work.target[is_unrecorded[work.source]]] = True
    is_fixed &= work.is_timed & ~is_unrecorded
    host = np.flatnonzero(work.is_timed & (work.node_class == NodeClass.HOST))
    host = host[np.lexsort((work.measured_end_ns[host], rank[host]))]
    ends, fixed = columns.Keys(rank[host], work.measured_end_ns[host]), np.flatnonzero(is_fixed)
    starts = columns.Keys(rank[fixed], work.measured_start_ns[fixed])
    cause = np.append(host, -1)[columns.asof_backward(ends, starts)]
    # rows are in an order in which they can run
    is_known = (cause >= 0) & (cause < fixed)
    fixed, cause = fixed[is_known], cause[is_known]
    lag_ns = work.measured_start_ns[fixed] - work.measured_end_ns[cause]
    added = {"source": cause, "target": fixed, "kind": 0 * fixed + DependencyKind.INFERRED, "lag_ns": lag_ns}
    edges: dict[str, Any] = {name: np.append(getattr(work, name), of) for name, of in added.items()}
    wait_ns, host_delay_ns = work.wait_ns.copy(), work.host_delay_ns.copy()
    freed = fixed[work.is_rooted[fixed]]
    wait_ns[freed] = host_delay_ns[freed] = 0
    duration_ns = np.where(is_unrecorded, 0, work.duration_ns)
    return replace(work, wait_ns=wait_ns, host_delay_ns=host_delay_ns, duration_ns=duration_ns, **edges), fixed


def gather(graphs: Sequence[ExecutionGraph]) -> Workload:
    """Returns the nodes and dependencies of all graphs, in O(n + e); raises DataError if sums of times may overflow."""
    lanes, slot_pools, ranks, missing_dependencies = list[Lane](), list[SlotPool](), list[dict[str, Any]](), 0
    first_row = np.cumsum([0] + [len(graph) for graph in graphs])
    for rank, graph in enumerate(graphs):
        lane, lanes_of_rank = _lanes(graph)
        _check_times(graph, rank, lane)
        edges = recorded_edges(graph)
        missing_dependencies += int((edges.source < 0).sum())
        # the ranks' own communication tells the offsets of all, also where a graph has none
        source, target, kind = edges.where((edges.source >= 0) & ~graph.is_start_offset[edges.source])
        of_nodes = {"lane": lane + len(lanes), "slot_pool": np.full(len(graph), -1)}
        of_edges = {"source": source + first_row[rank], "target": target + first_row[rank], "kind": kind}
        ranks.append({**_times(graph, lane, target), **of_nodes, **of_edges, "lag_ns": _lags(graph, target, kind)})
        lanes += [Lane(rank, number, stream) for number, stream in lanes_of_rank]
        slot_pools += slot_pools_by_device(graph).values()
    several = len(ranks) > 1  # else nothing is copied
    joined: dict[str, Any] = {
        name: np.concatenate([each[name] for each in ranks]) if several else ranks[0][name] for name in ranks[0]
    }
    return Workload(
        **joined, graphs=graphs, lanes=lanes, first_row=first_row[:-1], start_offset_ns=np.zeros(len(graphs), np.int64),
        slot_pools=slot_pools, missing_dependencies=missing_dependencies, members=Calls.of([]),
    )  # fmt: skip


def _check_times(graph: ExecutionGraph, position: int, lane: Int64) -> None:
    """Raises DataError unless a start plus a few durations, and all durations of a lane, add up within 64 bits."""
    starts = graph.start_time_micros * 1e3, graph.integers(START, 0)
    lengths = graph.duration_micros * 1e3, *(graph.integers(name, 0) for name in LENGTHS)
    largest = [*(np.abs(column.astype(np.float64)).max(initial=0) for column in starts)]
    largest += [LENGTHS_IN_A_SUM * np.abs(column.astype(np.float64)).max(initial=0) for column in lengths]
    worked = np.where(graph.is_delay, 0, np.abs(graph.duration_ns.astype(np.float64)))
    if max(*largest, np.bincount(lane, worked).max(initial=0)) > FOREVER:
        rank = graph.number("rank", position)
        raise DataError(f"the graph of rank {rank} has times beyond any clock; convert the trace again")


def _times(graph: ExecutionGraph, lane: Int64, target: Int64) -> dict[str, Any]:
    """Returns the columns of classes and times, from the first start on, or from earlier if a node waited that long."""
    node_class, gap, delay = node_classes(graph), graph.integers("gap_ns", 0), graph.integers("host_delay_ns", 0)
    rooted = np.bincount(target, minlength=len(graph)) == 0
    recorded = (graph.integers(START) != ABSENT) | (graph.start_time_micros > 0)
    recorded &= node_class != NodeClass.METADATA
    start = graph.host_clock_start_ns
    before = np.where(rooted & (delay > 0), gap + delay, 0)
    first = int((start - before)[recorded].min()) if recorded.any() else 0
    # a trimmed duration and its overlap make the recorded one
    end = start + graph.duration_ns + graph.integers("overlap_ns", 0)
    start, end = (np.where(recorded, time - first, ABSENT) for time in (start, end))
    # the earliest recorded start of each lane, the first of equals
    timed, earliest = np.flatnonzero(recorded), np.full(int(lane.max(initial=-1)) + 1, FOREVER)
    np.minimum.at(earliest, lane[timed], start[timed])
    first_rows = timed[start[timed] == earliest[lane[timed]]]
    heads = np.zeros(len(graph), np.bool_)
    heads[first_rows[np.unique(lane[first_rows], return_index=True)[1]]] = True
    host_delay = np.where(rooted & ~heads, 0, delay)
    return {
        "node_class": node_class, "measured_start_ns": start, "measured_end_ns": end,
        "wait_ns": np.where(rooted, np.where(heads, start, 0), host_delay), "host_delay_ns": host_delay,
        "duration_ns": graph.duration_ns,
    }  # fmt: skip


def slot_pools_by_device(graph: ExecutionGraph) -> dict[int, SlotPool]:
    """Returns the slots of each device that was full at some time."""
    devices = np.unique(graph.integers("device")).tolist()
    limits = ((device, graph.number(f"{CONCURRENCY_LIMIT}{device}", 0)) for device in devices)
    return {device: SlotPool(count, cut_off_ns(graph)) for device, count in limits if count > 0}


def cut_off_ns(graph: ExecutionGraph) -> int:
    """Returns by how many ns durations are too short on average, as traces in whole µs cut off the fraction."""
    return graph.number("resolution_ns", 1) // 2


def _lags(graph: ExecutionGraph, target: Int64, kind: Int64) -> Int64:
    """Returns for each dependency the time (ns) from its end to its target: a launch latency, a return's, or a gap."""
    gap = graph.integers("gap_ns", 0)
    launched, chained = (graph.integers(name) for name in ("latency_ns", "chain_gap_ns"))
    launched, chained = (np.where(column == ABSENT, gap, column) for column in (launched, chained))
    is_awaited = (kind & DependencyKind.HOST_SYNC != 0) & ~graph.is_activity[target]
    after_others = np.where(is_awaited, gap[target], chained[target])
    return np.where(kind & DependencyKind.LAUNCH != 0, launched[target], after_others)


def _lanes(graph: ExecutionGraph) -> tuple[Int64, list[tuple[int, int]]]:
    """Returns for each node the number of its lane, and for each lane its thread or device and its stream."""
    activity = graph.is_activity
    thread = np.where(graph.is_delay, ABSENT, graph.integers("tid", 0))
    number = np.where(activity, graph.integers("device"), thread)
    stream = np.where(activity, graph.integers("stream"), HOST_THREAD)
    lane = columns.group_ids(number, stream)
    first = np.unique(lane, return_index=True)[1]
    return lane, list(zip(number[first].tolist(), stream[first].tolist(), strict=True))


def gather_job(graphs: Sequence[ExecutionGraph]) -> Workload:
    """Gathers the graphs of a job's ranks, with the nodes that meet, on the clock of the first rank to begin."""
    work, members = gather(graphs), Calls.of([])
    if len(graphs) > 1:
        calls = match([communication_of(graph, position) for position, graph in enumerate(graphs)])
        calls = replace(calls, row=calls.row + work.first_row[calls.rank])
        members = calls.met()
    if work.missing_dependencies:
        log.warning("warning: ignored dependencies on nodes that the graph lacks: %d", work.missing_dependencies)
    timed, start, end = work.is_timed, work.measured_start_ns, work.measured_end_ns
    met = members.take(timed[members.row])
    offset = begin_of_ranks(len(graphs), replace(met, start_ns=start[met.row], end_ns=end[met.row]))
    if len(graphs) > 1 and not work.is_of_scaled_job:
        ranks = [graph.number("rank", position) for position, graph in enumerate(graphs)]
        members = replace(members, disagreements=(*contradictions(calls.take(timed[calls.row]), ranks),))
    begin = np.repeat(offset, [len(graph) for graph in graphs])
    return replace(
        work, members=members, measured_start_ns=np.where(timed, start + begin, ABSENT),
        measured_end_ns=np.where(timed, end + begin, ABSENT), wait_ns=work.wait_ns + np.where(work.is_rooted, begin, 0),
        start_offset_ns=offset,
    )  # fmt: skip


def shortest_members(members: Calls, duration_ns: Ns) -> Ns:
    """Returns for each member how long its match takes: as long as its shortest member, as the others also wait."""
    shortest = np.full(int(members.matched.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(shortest, members.matched, duration_ns[members.row])
    return shortest[members.matched]


def communication_of(graph: ExecutionGraph, position: int) -> Calls:
    """Returns the collectives and messages of the graph at this position, in the order in which they were issued."""
    # of a kernel that carries several messages only the last one has the kernel's duration, the others last 0 ns
    # a simulator's graph has the time beyond its network as collectives that each rank takes by itself, and 0 ns here
    is_own = (graph.type == NodeType.COMM_SEND) | (graph.integers("excess_ns") != ABSENT)
    rows = np.flatnonzero(np.isin(graph.type, COMMUNICATION) & ~(is_own & (graph.duration_ns == 0)))
    by_id = rows[np.argsort(graph.id[rows], kind="stable")]
    return graph_calls(graph, columns.NodeNumbers(by_id), graph.number("rank", position))
