"""The columns that a replay works on, from the graphs of one or several ranks: one row per node, rank after rank.

Measured times count from the first recorded start of the node's own rank.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import numpy as np

from ...converter.edit import recorded_edges
from ...schema.columns import ABSENT, Bool, Int64, Ns, Rows, Summary, Table, format_counts, group_ids, rows_by_number
from ...schema.errors import DataError
from ...schema.graph import ATTRIBUTES, ROOM, Delay, DependencyKind, ExecutionGraph
from ...schema.traces import FOREVER
from .node_class import Classes, NodeClass, node_classes
from .scaling import Scale, class_factor, node_factors

START = "start_time_ns"
LENGTHS = [one.name for one in ATTRIBUTES if one.unit == "ns" and one.name != START]
LENGTHS_IN_A_SUM = 2
HOST_THREAD = ABSENT + 1
"""Stands for the stream of a lane that is a host thread; ABSENT stands for a stream that was not recorded."""


class Lane(NamedTuple):
    """A host thread (`place` is its tid) or a device stream (`place` is its device) of the `rank`-th graph."""

    rank: int
    place: int
    stream: int

    @property
    def is_stream(self) -> bool:
        """Whether it is a device's stream."""
        return self.stream != HOST_THREAD

    @property
    def is_of_delays(self) -> bool:
        """Whether it is the lane of all delays of a rank, which run nowhere."""
        return self.stream == HOST_THREAD and self.place == ABSENT

    @property
    def label(self) -> str:
        """Its name for people: `thread 4711`, `device 0 stream 7` or `delays`."""
        if self.is_of_delays:
            return "delays"
        if self.is_stream:
            return f"device {number_text(self.place)} stream {number_text(self.stream)}"
        return f"thread {number_text(self.place)}"


def number_text(number: int) -> str:
    """Returns a device, stream or thread number, `?` where none was recorded."""
    return "?" if number == ABSENT else str(number)


class DeviceSlots(NamedTuple):
    """How many activities a device runs at once, and how much longer each takes its place than was recorded."""

    at_once: int
    cut_off_ns: int


@dataclass(slots=True, repr=False)
class Columns(Table):
    """n nodes and e dependencies: `source` before `target`, rows, sorted by target.

    A node follows each of its dependencies by `lag_ns` at least, an activity its launch by a latency and others by a
    gap, and lies `wait_ns` behind all: the host delay in front of it (`host_delay_ns`, included). Without dependencies
    that counts from the rank's start: the measured start for the first node of a lane, else nothing, so that a missing
    dependency shows. Measured times are ABSENT where none were recorded, and on the host's clock.

    Where durations are changed and a device has room for some activities only, `place` is the position in a Workload's
    `places` of how many, -1 for what takes no place.
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
    place: Int64


@dataclass(slots=True, repr=False)
class Workload(Columns):
    """The columns of all ranks; the rows of a rank begin at its `first_row`."""

    graphs: Sequence[ExecutionGraph]
    lanes: list[Lane]
    first_row: Rows
    places: list[DeviceSlots]
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

    def rank_of(self, row: int) -> int:
        """Returns the place in `graphs` of the graph that a row is of."""
        return int(np.searchsorted(self.first_row, row, side="right")) - 1

    def ranks_of(self, rows: Int64) -> Int64:
        """Returns the same for many rows."""
        return np.searchsorted(self.first_row, rows, side="right").astype(np.int64) - 1

    def rank_labels(self) -> list[str]:
        """Returns the recorded ranks, or the order of the graphs where these do not tell them apart."""
        recorded = [str(graph.metadata.get("rank", "")) for graph in self.graphs]
        if "" not in recorded and len(set(recorded)) == len(recorded):
            return recorded
        return [str(place) for place in range(len(self.graphs))]


def gather(graphs: Sequence[ExecutionGraph]) -> Workload:
    """Returns the nodes of all graphs; time and memory linear in nodes and dependencies.

    Raises DataError where a graph's times are beyond any clock.
    """
    for place, graph in enumerate(graphs):
        _check_times(graph, place)
    lanes: list[Lane] = []
    ranks: list[Columns] = []
    places: list[DeviceSlots] = []
    missing = 0
    first_row = np.cumsum([0] + [len(graph) for graph in graphs])
    for rank, graph in enumerate(graphs):
        lane, lane_places = _lanes(graph)
        columns = _rank_columns(graph, lane)
        missing += len(graph.data_deps.values) - len(columns.source)
        ranks.append(
            replace(
                columns,
                lane=lane + len(lanes),
                source=columns.source + first_row[rank],
                target=columns.target + first_row[rank],
            )
        )
        lanes += [Lane(rank, place, stream) for place, stream in lane_places]
        places += rooms(graph).values()
    joined = {field.name: np.concatenate([getattr(rank, field.name) for rank in ranks]) for field in fields(Columns)}
    return Workload(
        **joined, graphs=graphs, lanes=lanes, first_row=first_row[:-1], places=places, missing_dependencies=missing
    )


def _check_times(graph: ExecutionGraph, place: int) -> None:
    """Sums of a start and a few lengths must stay in 64 bits, and so must all that one lane does."""
    starts = graph.start_time_micros * 1e3, graph.integers(START, 0)
    lengths = graph.duration_micros * 1e3, *(graph.integers(name, 0) for name in LENGTHS)
    largest = [*(np.abs(some.astype(np.float64)).max(initial=0) for some in starts)]
    largest += [LENGTHS_IN_A_SUM * np.abs(some.astype(np.float64)).max(initial=0) for some in lengths]
    worked = np.where(graph.is_delay, 0, np.abs(graph.duration_ns.astype(np.float64)))
    largest += [np.bincount(_lanes(graph)[0], worked).max(initial=0)]
    if max(largest) > FOREVER:
        what = f"the graph of rank {graph.number('rank', place)} has times beyond any clock"
        raise DataError(f"{what}; convert the trace again")


def _rank_columns(graph: ExecutionGraph, lane: Int64) -> Columns:
    node_class, edges = node_classes(graph), recorded_edges(graph)
    source, target, kind = (column[edges.source >= 0] for column in edges)
    gap, delay = graph.integers("gap_ns", 0), graph.integers("host_delay_ns", 0)
    rooted = np.bincount(target, minlength=len(graph)) == 0
    start, end = _measured(graph, node_class, np.where(rooted & (delay > 0), gap + delay, 0))
    heads = np.zeros(len(graph), np.bool_)
    heads[_first_of_lane(lane, start)] = True
    host_delay = np.where(rooted & ~heads, 0, delay)
    wait = np.where(rooted, np.where(heads, start, 0), host_delay)
    lag, nowhere = _lags(graph, target, kind), np.full(len(graph), -1)
    return Columns(
        node_class, lane, start, end, wait, host_delay, graph.duration_ns, source, target, kind, lag, nowhere
    )


def scaled(work: Workload, scale: Sequence[Scale]) -> Workload:
    """Returns the workload as it was measured with changed durations. In the run as it was, what waited for room waited
    as long as measured.
    """
    graphs = work.graphs
    factor = np.concatenate(node_factors(graphs, np.split(work.node_class, work.first_row[1:]), scale))
    host_delay = np.rint(work.host_delay_ns * class_factor(scale, NodeClass.HOST)).astype(np.int64)
    # what was cut off is in the gaps, and scales with the duration
    cut_off = np.concatenate([np.where(graph.is_activity, _cut_off(graph), 0) for graph in graphs])
    duration = np.maximum(np.rint((work.duration_ns + cut_off) * factor - cut_off).astype(np.int64), 0)
    place = _places(graphs, work.node_class) if bool((factor != 1).any()) else work.place
    if place.max(initial=-1) >= 0:
        # the replay itself keeps waiting what there is no room for
        duration[np.concatenate([graph.integers("delay", 0) for graph in graphs]) == Delay.CONTENTION] = 0
    wait = work.wait_ns + host_delay - work.host_delay_ns
    return replace(work, wait_ns=wait, host_delay_ns=host_delay, duration_ns=duration, place=place)


def rooms(graph: ExecutionGraph) -> dict[int, DeviceSlots]:
    """Returns what room each device had, of devices that were full."""
    devices = np.unique(graph.integers("device")).tolist()
    known = ((device, graph.number(f"{ROOM}{device}", 0)) for device in devices)
    return {device: DeviceSlots(count, _cut_off(graph)) for device, count in known if count > 0}


def _cut_off(graph: ExecutionGraph) -> int:
    """Returns by how many ns a recorded duration is too short on average: where times are in whole µs the rest was cut
    off.
    """
    return graph.number("resolution_ns", 1) // 2


def _places(graphs: Sequence[ExecutionGraph], node_class: Classes) -> Int64:
    """Returns of what takes a place on a device that was full the position of the device among all such, -1 elsewhere."""
    places, before = [], 0
    for graph in graphs:
        place, device = np.full(len(graph), -1), graph.integers("device")
        full = {number: position for position, number in enumerate(rooms(graph), before)}
        before += len(full)
        for number, own in rows_by_number(np.flatnonzero(graph.is_activity), device).items():
            if number in full:
                place[own] = full[number]
        places.append(place)
    place = np.concatenate(places)
    place[node_class == NodeClass.COMMUNICATION] = -1
    return place


def _lags(graph: ExecutionGraph, target: Int64, kind: Int64) -> Int64:
    """Returns for each dependency the time that passes after its end: the launch latency of the target, or its gap
    after others.
    """
    gap = graph.integers("gap_ns", 0)
    launched, chained = (graph.integers(name) for name in ("latency_ns", "chain_gap_ns"))
    launched, chained = (np.where(column == ABSENT, gap, column) for column in (launched, chained))
    return np.where(kind & DependencyKind.LAUNCH != 0, launched[target], chained[target])


def _measured(graph: ExecutionGraph, node_class: Classes, before: Int64) -> tuple[Int64, Int64]:
    """Recorded start and end, ABSENT for nodes without a recorded time, from the first start on, or as much `before` it
    as is known.
    """
    recorded = (graph.integers("start_time_ns") != ABSENT) | (graph.start_time_micros > 0)
    recorded &= node_class != NodeClass.METADATA
    start = graph.start_ns + np.where(graph.is_activity, graph.number("clock_offset_ns", 0), 0)
    first = int((start - before)[recorded].min()) if recorded.any() else 0
    # a trimmed duration and its overlap make the recorded one
    end = start + graph.duration_ns + graph.integers("overlap_ns", 0)
    return np.where(recorded, start - first, ABSENT), np.where(recorded, end - first, ABSENT)


def _lanes(graph: ExecutionGraph) -> tuple[Int64, list[tuple[int, int]]]:
    """Returns for each node the number of its lane, and for each lane its place and stream."""
    activity = graph.is_activity
    thread = np.where(graph.is_delay, ABSENT, graph.integers("tid", 0))
    place = np.where(activity, graph.integers("device"), thread)
    stream = np.where(activity, graph.integers("stream"), HOST_THREAD)
    lane = group_ids(place, stream)
    first = np.unique(lane, return_index=True)[1]
    return lane, list(zip(place[first].tolist(), stream[first].tolist(), strict=True))


def _first_of_lane(lane: Int64, start: Int64) -> Int64:
    """Returns the row of the earliest recorded start of each lane, the first of equals."""
    timed = np.flatnonzero(start != ABSENT)
    earliest = np.full(int(lane.max(initial=-1)) + 1, FOREVER)
    np.minimum.at(earliest, lane[timed], start[timed])
    heads = timed[start[timed] == earliest[lane[timed]]]
    _, first = np.unique(lane[heads], return_index=True)
    return np.asarray(heads[first])
