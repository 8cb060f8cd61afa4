"""The columns that a replay works on, from the graphs of one or several ranks: one row per node, rank after rank.

Graphs are given as objects, files or folders. Measured times count from the first recorded start of the node's own
rank. A node has one class, what its time is spent on.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...converter.edges import Edges
from ...converter.rewiring import recorded_edges
from ...schema.arguments import InputFile, is_file, is_path, path_of, wrong_argument
from ...schema.columns import ABSENT, Bool, Categorical, Int64, Ns, Rows, Summary, SummaryRepr, format_counts, group_ids
from ...schema.errors import DataError, Remedy
from ...schema.graph import (
    ATTRIBUTES,
    CONCURRENCY_LIMIT,
    RANKS_OF_GROUP,
    DependencyKind,
    ExecutionGraph,
    NodeType,
    json_to_graph,
    read_et,
)
from ...schema.linked import FOREVER, MEMORY_CATEGORIES
from ...schema.progress import unseen
from ..recognise import InputKind
from ..wrong_kind import file_for_folder, instead_of_folder, reading

Classes = npt.NDArray[np.uint8]

UNRECORDED_WORK = ("unrecorded host",)
"""Names of host nodes for unrecorded work. `host idle` is not among them: it is mostly Python running between ops."""

COMMUNICATION_TYPES = (NodeType.COMM_SEND, NodeType.COMM_RECV, NodeType.COMM_COLL)
MEMORY_TYPES = (NodeType.MEM_LOAD, NodeType.MEM_STORE)
MEMORY_NAME = re.compile(r"__amd_rocclr_(copy|fill)Buffer|MEMORY_COPY_|dma_request$")
"""Names of copies and sets that are recorded as kernels: ROCm's runtime launches kernels for them, MTIA DMA requests.
"""
START = "start_time_ns"
LENGTHS = [attribute.name for attribute in ATTRIBUTES if attribute.unit == "ns" and attribute.name != START]
LENGTHS_IN_A_SUM = 2
HOST_THREAD = ABSENT + 1
"""Stands for the stream of a lane that is a host thread; ABSENT stands for a stream that was not recorded."""
Graphs = ExecutionGraph | InputFile | Iterable[ExecutionGraph | InputFile]
"""The graph of one rank, or one for each rank of a job; a folder stands for the graphs in it."""
KINDS = "an ExecutionGraph (trace.to_graph() makes one), a Job, a .et file, a folder of these, or a list"
IN_A_LIST = "ExecutionGraphs and .et files in a list"
BUILT = re.compile(r"graph\.(\d+)\.et")


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
    classes[graph.name.equal(*UNRECORDED_WORK) & ~graph.is_activity] = NodeClass.UNRECORDED
    memory = graph.is_activity & moves_memory(graph.name, graph.texts("cat"))
    classes[memory | np.isin(graph.type, MEMORY_TYPES)] = NodeClass.MEMORY
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
    def is_of_delays(self) -> bool:
        """Whether it is the lane of all delays of a rank, which run nowhere."""
        return self.stream == HOST_THREAD and self.number == ABSENT

    @property
    def label(self) -> str:
        """Its name for people: `thread 4711`, `device 0 stream 7` or `delays`."""
        if self.is_of_delays:
            return "delays"
        if self.is_stream:
            return f"device {number_text(self.number)} stream {number_text(self.stream)}"
        return f"thread {number_text(self.number)}"


def number_text(number: int) -> str:
    """Returns a device, stream or thread number, `?` where none was recorded."""
    return "?" if number == ABSENT else str(number)


class SlotPool(NamedTuple):
    """How many activities a device runs at once, and for how much longer than recorded (ns) each keeps its slot."""

    slot_count: int
    cut_off_ns: int


@dataclass(slots=True, repr=False)
class Columns(SummaryRepr):
    """n nodes and e dependencies; `source` and `target` are rows of nodes, dependencies are sorted by target.

    A node starts at least `lag_ns` after the end of each dependency: an activity a launch latency after its launch, a
    gap after others; a wait the latency of a return after what it awaited, the rest of an idle call after the node
    before. After all of them it waits for `wait_ns` more, which is the host delay before it (`host_delay_ns`). The wait
    of a node without dependencies counts from the rank's start: it is the measured start for the first node of a lane,
    else 0, so that a missing dependency shows. Measured times are on the host's clock, ABSENT where none was recorded.

    Where durations are changed and a device runs a limited number of activities at once, `slot_pool` is the position of
    the device in the Workload's `slot_pools`; it is -1 for nodes that take no slot.
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


@dataclass(slots=True, repr=False)
class Workload(Columns):
    """The columns of all ranks; the rows of a rank begin at its `first_row`. It began to record `start_offset_ns` later
    than the first rank.
    """

    graphs: Sequence[ExecutionGraph]
    lanes: list[Lane]
    first_row: Rows
    start_offset_ns: Ns
    slot_pools: list[SlotPool]
    missing_dependencies: int

    def __len__(self) -> int:
        return len(self.lane)

    def summary(self) -> Summary:
        """Returns how many nodes, dependencies, ranks and lanes there are."""
        counts = {"dependencies": len(self.source), "ranks": len(self.graphs), "lanes": len(self.lanes)}
        return Summary(f"Workload: {len(self):,} nodes", {"of": format_counts(counts)})

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
    def is_of_scaled_job(self) -> bool:
        """Whether the graphs are of a job that trace-scale made, which nobody ran and measured."""
        return any(name.startswith(RANKS_OF_GROUP) for graph in self.graphs for name in graph.metadata)

    def rank_of(self, row: int) -> int:
        """Returns the position in `graphs` of a row's graph."""
        return int(np.searchsorted(self.first_row, row, side="right")) - 1

    def ranks_of(self, rows: Int64) -> Int64:
        """Returns the same for many rows."""
        return np.searchsorted(self.first_row, rows, side="right").astype(np.int64) - 1

    def without_dependencies(self, chosen: Bool) -> "Workload":
        """Returns the workload without some of its dependencies."""
        columns = {name: getattr(self, name)[~chosen] for name in ("source", "target", "kind", "lag_ns")}
        return replace(self, **columns)

    def rank_numbers(self) -> list[int]:
        """Returns the recorded ranks, or the graphs' positions if a rank is missing or occurs twice."""
        recorded = [graph.number("rank", -1) for graph in self.graphs]
        if -1 not in recorded and len(set(recorded)) == len(recorded):
            return recorded
        return [*range(len(self.graphs))]

    def rank_labels(self) -> list[str]:
        """Returns the same as texts."""
        return [*map(str, self.rank_numbers())]

    def rank_column(self, rows: Int64) -> Int64:
        """Returns the rank of each of these rows."""
        return np.array(self.rank_numbers(), np.int64)[self.ranks_of(rows)]


def gather(graphs: Sequence[ExecutionGraph]) -> Workload:
    """Returns the nodes and dependencies of all graphs, in O(n + e) time and memory.

    Raises DataError if times of a graph are so large that sums of them may overflow.
    """
    for position, graph in enumerate(graphs):
        _check_times(graph, position)
    lanes: list[Lane] = []
    ranks: list[Columns] = []
    slot_pools: list[SlotPool] = []
    missing_dependencies = 0
    first_row = np.cumsum([0] + [len(graph) for graph in graphs])
    for rank, graph in enumerate(graphs):
        lane, own_lanes = _lanes(graph)
        edges = recorded_edges(graph)
        columns = _rank_columns(graph, lane, edges)
        missing_dependencies += int((edges.source < 0).sum())
        source, target = columns.source + first_row[rank], columns.target + first_row[rank]
        ranks.append(replace(columns, lane=lane + len(lanes), source=source, target=target))
        lanes += [Lane(rank, number, stream) for number, stream in own_lanes]
        slot_pools += slot_pools_by_device(graph).values()
    columns_of_all = {
        field.name: np.concatenate([getattr(rank, field.name) for rank in ranks]) for field in fields(Columns)
    }
    return Workload(
        **columns_of_all,
        graphs=graphs,
        lanes=lanes,
        first_row=first_row[:-1],
        start_offset_ns=np.zeros(len(graphs), np.int64),
        slot_pools=slot_pools,
        missing_dependencies=missing_dependencies,
    )


def _check_times(graph: ExecutionGraph, position: int) -> None:
    """Raises DataError unless a start plus a few durations, and all durations of a lane, add up within 64 bits."""
    starts = graph.start_time_micros * 1e3, graph.integers(START, 0)
    lengths = graph.duration_micros * 1e3, *(graph.integers(name, 0) for name in LENGTHS)
    largest = [*(np.abs(column.astype(np.float64)).max(initial=0) for column in starts)]
    largest += [LENGTHS_IN_A_SUM * np.abs(column.astype(np.float64)).max(initial=0) for column in lengths]
    worked = np.where(graph.is_delay, 0, np.abs(graph.duration_ns.astype(np.float64)))
    largest += [np.bincount(_lanes(graph)[0], worked).max(initial=0)]
    if max(largest) > FOREVER:
        what = f"the graph of rank {graph.number('rank', position)} has times beyond any clock"
        raise DataError(f"{what}; convert the trace again")


def _rank_columns(graph: ExecutionGraph, lane: Int64, edges: Edges) -> Columns:
    node_class = node_classes(graph)
    # the ranks' own communication tells the offsets of all, also where a graph has none
    edges = edges.where((edges.source >= 0) & ~graph.is_start_offset[edges.source])
    source, target, kind = edges
    gap, delay = graph.integers("gap_ns", 0), graph.integers("host_delay_ns", 0)
    rooted = np.bincount(target, minlength=len(graph)) == 0
    start, end = _measured(graph, node_class, np.where(rooted & (delay > 0), gap + delay, 0))
    heads = np.zeros(len(graph), np.bool_)
    heads[_first_of_lane(lane, start)] = True
    host_delay = np.where(rooted & ~heads, 0, delay)
    wait = np.where(rooted, np.where(heads, start, 0), host_delay)
    lag, no_pool = _lags(graph, target, kind), np.full(len(graph), -1)
    return Columns(
        node_class, lane, start, end, wait, host_delay, graph.duration_ns, source, target, kind, lag, no_pool
    )


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


def _measured(graph: ExecutionGraph, node_class: Classes, before: Int64) -> tuple[Int64, Int64]:
    """Returns the recorded start and end (ns) of each node, ABSENT where no time was recorded.

    They count from the first start, or from up to `before` ns earlier if a node is known to have waited that long.
    """
    recorded = (graph.integers("start_time_ns") != ABSENT) | (graph.start_time_micros > 0)
    recorded &= node_class != NodeClass.METADATA
    start = graph.host_clock_start_ns
    first = int((start - before)[recorded].min()) if recorded.any() else 0
    # a trimmed duration and its overlap make the recorded one
    end = start + graph.duration_ns + graph.integers("overlap_ns", 0)
    return np.where(recorded, start - first, ABSENT), np.where(recorded, end - first, ABSENT)


def _lanes(graph: ExecutionGraph) -> tuple[Int64, list[tuple[int, int]]]:
    """Returns for each node the number of its lane, and for each lane its thread or device and its stream."""
    activity = graph.is_activity
    thread = np.where(graph.is_delay, ABSENT, graph.integers("tid", 0))
    number = np.where(activity, graph.integers("device"), thread)
    stream = np.where(activity, graph.integers("stream"), HOST_THREAD)
    lane = group_ids(number, stream)
    first = np.unique(lane, return_index=True)[1]
    return lane, list(zip(number[first].tolist(), stream[first].tolist(), strict=True))


def _first_of_lane(lane: Int64, start: Int64) -> Int64:
    """Returns the row of the earliest recorded start of each lane, the first of equals."""
    timed = np.flatnonzero(start != ABSENT)
    earliest = np.full(int(lane.max(initial=-1)) + 1, FOREVER)
    np.minimum.at(earliest, lane[timed], start[timed])
    heads = timed[start[timed] == earliest[lane[timed]]]
    return np.asarray(heads[np.unique(lane[heads], return_index=True)[1]])


def given_graphs(argument: Graphs, call: str) -> list[ExecutionGraph]:
    """Returns a graph for each rank, read where it is given as a file or in a folder.

    Raises TypeError for anything else, and ValueError for no graph; `call` is what the caller wrote.
    """
    if isinstance(argument, ExecutionGraph) or is_file(argument):
        return _graphs(argument, call)
    if not isinstance(argument, Iterable):
        raise wrong_argument(call, KINDS, argument)
    graphs = [graph for item in argument for graph in _graphs(item, call, IN_A_LIST)]
    if not graphs:
        raise ValueError(f"{call} takes at least one graph; the list is empty")
    return graphs


def _graphs(argument: object, call: str, expected: str = KINDS) -> list[ExecutionGraph]:
    if isinstance(argument, ExecutionGraph):
        return [argument]
    if not is_file(argument):
        raise wrong_argument(call, expected, argument)
    if is_path(argument) and Path(argument).is_dir():
        return [read_graph_file(path) for path in graph_files(Path(argument))]
    return [read_graph_file(argument)]


def graph_files(folder: Path) -> list[str]:
    """Returns the graphs in a folder in the order of their ranks. Raises DataError where there is none."""
    if not folder.is_dir():
        raise DataError(file_for_folder(folder, InputKind.GRAPH))
    graphs = {int(match[1]): str(path) for path in folder.iterdir() if (match := BUILT.fullmatch(path.name))}
    if not graphs:
        remedy = instead_of_folder(folder, InputKind.GRAPH) or f"give graphs or the folder that {Remedy.BUILD} wrote"
        raise DataError(f"{folder}: holds no graph.N.et; {remedy}")
    return [graphs[rank] for rank in sorted(graphs)]


def read_graph_file(file: InputFile, tensors: bool = True) -> ExecutionGraph:
    """Reads a graph from a .et file, or from JSON where the name ends in .json; a further .gz makes no difference.

    Raises DataError for a file that is no graph, with what it is instead.
    """
    with path_of(file) as path:
        if not path.removesuffix(".gz").endswith(".json"):
            with reading(path, InputKind.GRAPH):
                return read_et(path, tensors)
        with TemporaryDirectory(prefix="execgraph-") as folder, reading(path, InputKind.GRAPH_JSON):
            encoded = str(Path(folder, "graph.et"))
            json_to_graph(path, encoded, unseen)
            return read_et(encoded, tensors)
