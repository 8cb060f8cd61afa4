"""Counts how many of a graph's dependencies are true, and how many true ones it has, for a simulated rank.

A dependency is false if the run could have gone the other way: neither a stream nor an event nor the host, which
launched and waited, imposed it. A true one is missing if the graph's data dependencies do not imply it. Activities are
known by their call, stream and place there; what a thread did is known by time, as exactly as the machine writes it.
"""

from dataclasses import astuple, dataclass
from operator import add

import numpy as np
from execgraph.schema.columns import Bool, Int64, is_group_start
from execgraph.schema.errors import DataError
from execgraph.schema.graph import DependencyKind, ExecutionGraph
from execgraph.tools.generate import Job, Machine, RankRun, Table, as_numpy, is_recorded, record
from execgraph.tools.replay import gather

from .partial_order import PartialOrder

ACROSS_STREAMS = DependencyKind.EVENT_WAIT | DependencyKind.TENSOR_FLOW | DependencyKind.INFERRED
HELD_UP = ("across streams, held up", "host for device, held up")
"""The kinds of waits that held something up in the measured run."""
CALL_NS = 2000
"""A wait of the host that is over sooner does not show: a synchronising call takes as long with nothing to wait for."""
CUT_NS = 2000
"""By less than this an end that is written in whole µs is too early: both the start and the length are cut."""


@dataclass(frozen=True, slots=True)
class Tally:
    """`edges` of the graph, of which `false`; `needed` by the run, of which `missing` in the graph."""

    edges: int = 0
    false: int = 0
    needed: int = 0
    missing: int = 0

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(*map(add, astuple(self), astuple(other)))

    @property
    def precision_pct(self) -> float | None:
        """How many of a hundred dependencies of the graph are true; None if it has none."""
        return 100 * (1 - self.false / self.edges) if self.edges else None

    @property
    def recall_pct(self) -> float | None:
        """How many of a hundred dependencies of the run are in the graph; None if the run needed none."""
        return 100 * (1 - self.missing / self.needed) if self.needed else None


class TrueOrder:
    """The points of a rank's run: both ends of ops, calls and activities, and both sides of hand-offs.

    Lanes are the rank's threads, then its streams. What other ranks impose through collectives is not among it.
    """

    def __init__(self, rank: RankRun, machine: Machine) -> None:
        ops, calls, activities, handoffs = rank.ops, rank.calls, rank.activities, rank.handoffs
        threads = 1 + max(
            max(column, default=0) for column in (ops.thread, calls.thread, handoffs.source, handoffs.target)
        )
        _, stream = np.unique(as_numpy(activities.stream), return_inverse=True)
        on_stream = threads + stream.reshape(-1)
        # of the points of a lane at one time the earlier ones here come first
        blocks = [
            (as_numpy(calls.thread), as_numpy(calls.end)),
            (on_stream, as_numpy(activities.end)),
            (as_numpy(ops.thread), as_numpy(ops.end)),
            (as_numpy(handoffs.target), as_numpy(handoffs.taken_ns)),
            (as_numpy(handoffs.source), as_numpy(handoffs.given_ns)),
            (as_numpy(ops.thread), as_numpy(ops.start)),
            (on_stream, as_numpy(activities.start)),
            (as_numpy(calls.thread), as_numpy(calls.start)),
        ]
        lane, time = (np.concatenate(columns) for columns in zip(*blocks, strict=True))
        by_lane = np.lexsort((time, lane))
        position = np.empty(len(by_lane), np.int64)
        position[by_lane] = np.arange(len(by_lane))
        bounds = np.cumsum([len(block) for block, _ in blocks])[:-1]
        self.call_end, self.ended, _, self.taken, self.given, _, self.started, self.call_start = np.split(
            position, bounds
        )
        source, target = self._edges(rank, lane[by_lane])
        written = machine.cut(time[by_lane])
        self.order = PartialOrder(lane[by_lane], written, written, source, target)

    def from_then(self, thread: Int64, time: Int64, tolerance: int) -> Int64:
        """Returns for each thread and time the first point from then on, of those that may be meant the last."""
        return np.maximum(self.order.first_ended(thread, time), self.order.last_ended(thread, time + tolerance - 1))

    def by_then(self, thread: Int64, time: Int64, tolerance: int) -> Int64:
        """Returns for each thread and time the last point up to then, of those that may be meant the first."""
        last, first = self.order.last_ended(thread, time), self.order.first_ended(thread, time - tolerance + 1)
        return np.where(first >= 0, np.minimum(last, first), last)

    def _edges(self, rank: RankRun, lane: Int64) -> tuple[Int64, Int64]:
        chained = np.flatnonzero(~is_group_start(lane)[1:])
        call, awaited = _pairs(rank.host_waits)
        edges = [
            (chained, chained + 1),
            (self.call_start[as_numpy(rank.activities.call)], self.started),
            *((self.ended[s], self.started[t]) for s, t in map(_pairs, (rank.event_waits, rank.graph_order))),
            (self.ended[awaited], self.call_end[call]),
            (self.given, self.taken),
        ]
        source, target = (np.concatenate(columns) for columns in zip(*edges, strict=True))
        return source, target


def _pairs(edges: Table) -> tuple[Int64, Int64]:
    return as_numpy(edges.source), as_numpy(edges.target)


class GraphOrder:
    """A graph's nodes by activity (`node`, -1 if the trace lacks it; back by `activity`) and thread (`lane`, `thread`).

    Times count from the run's start. Raises DataError where the graph does not hold each activity once and as the trace
    shows it.
    """

    def __init__(self, rank: RankRun, machine: Machine, tids: tuple[int, ...], graph: ExecutionGraph) -> None:
        self.work = work = gather([graph])
        self.begin = graph.start_ns - machine.first_ns
        self.end = self.begin + graph.duration_ns
        self.order = PartialOrder(work.lane, self.begin, self.end, work.source, work.target)
        self.node = self._nodes(rank, machine, graph)
        self.activity = np.full(len(graph), -1, np.int64)
        self.activity[self.node[self.node >= 0]] = np.flatnonzero(self.node >= 0)
        numbers = {lane.number: number for number, lane in enumerate(work.lanes) if not lane.is_stream}
        self.lane = np.array([numbers.get(tid, -1) for tid in tids], np.int64)
        self.thread = np.full(len(work.lanes), -1, np.int64)
        self.thread[self.lane[self.lane >= 0]] = np.flatnonzero(self.lane >= 0)

    def _nodes(self, rank: RankRun, machine: Machine, graph: ExecutionGraph) -> Int64:
        nodes, rows = np.flatnonzero(graph.is_activity), np.flatnonzero(is_recorded(rank))
        numbers = np.array([record.correlation(call) for call in rank.activities.call], np.int64)
        written = machine.cut(machine.clock(rank.rank).read(as_numpy(rank.activities.start)))
        ran = [column[rows] for column in (written, as_numpy(rank.activities.stream), numbers)]
        in_graph = [column[nodes] for column in (self.begin, graph.integers("stream"), graph.integers("correlation"))]
        ran_order, graph_order = np.lexsort([rows, *ran]), np.lexsort([graph.id[nodes], *in_graph])
        if not np.array_equal(np.array(ran)[:, ran_order], np.array(in_graph)[:, graph_order]):
            raise DataError(f"the graph's {len(nodes)} activities are not the {len(rows)} in the trace of the run")
        node = np.full(len(numbers), -1, np.int64)
        node[rows[ran_order]] = nodes[graph_order]
        return node

    def edges(self, kind: int) -> tuple[Int64, Int64]:
        """Source and target rows of the edges that have a reason of these."""
        chosen = (self.work.kind & kind) != 0
        return self.work.source[chosen], self.work.target[chosen]


def dependency_accuracy(job: Job, rank: RankRun, graph: ExecutionGraph) -> dict[str, Tally]:
    """Tallies by kind of dependency of the graph of one rank of the job.

    O((n + e) lanes). Raises DataError where the graph is of another run.
    """
    machine = job.machine
    true, derived = TrueOrder(rank, machine), GraphOrder(rank, machine, rank.tids, graph)
    on_host = CUT_NS if machine.whole_us else 0
    _, end = rank.period()
    clocks_apart = abs(machine.clock(rank.rank).read(end) - end)
    return {
        **_across_streams(rank, machine, true, derived),
        **_host_waits(rank, true, derived, on_host + clocks_apart),
        **_handoffs(rank, true, derived, on_host),
    }


def _across_streams(rank: RankRun, machine: Machine, true: TrueOrder, derived: GraphOrder) -> dict[str, Tally]:
    """Scores dependencies across streams; those inside a CUDA graph count by themselves, as no trace records them."""
    stream = as_numpy(rank.activities.stream)
    source, target = (derived.activity[rows] for rows in derived.edges(ACROSS_STREAMS))
    between = (source >= 0) & (target >= 0) & (stream[source] != stream[target])
    holds = true.order.holds(true.ended[source[between]], true.started[target[between]])
    true_edges = [_pairs(edges) for edges in (rank.event_waits, rank.graph_order)]
    has_nodes = [(derived.node[before] >= 0) & (derived.node[after] >= 0) for before, after in true_edges]
    waits, branches = (
        derived.order.holds(derived.node[before], derived.node[after])[has_node]
        for (before, after), has_node in zip(true_edges, has_nodes, strict=True)
    )
    held_up = _held_up_streams(rank, machine)[has_nodes[0]]
    return {
        "across streams": Tally(len(holds), _count(~holds), len(waits), _count(~waits)),
        HELD_UP[0]: Tally(needed=_count(held_up), missing=_count(held_up & ~waits)),
        "inside CUDA graphs": Tally(needed=len(branches), missing=_count(~branches)),
    }


def _held_up_streams(rank: RankRun, machine: Machine) -> Bool:
    """Returns which event waits held their activity up: it started as soon as the awaited one had ended.

    Neither the activity before it on its stream nor another awaited one ended later.
    """
    source, target = _pairs(rank.event_waits)
    start, end, stream = (
        as_numpy(column) for column in (rank.activities.start, rank.activities.end, rank.activities.stream)
    )
    latest = np.full(len(start), -1, np.int64)
    order = np.lexsort((start, stream))
    chained = np.flatnonzero(~is_group_start(stream[order])[1:])
    latest[order[chained + 1]] = end[order[chained]]
    np.maximum.at(latest, target, end[source])
    usual_gap = round(machine.gap_ns * (1 + machine.gap_spread))
    held_up: Bool = (end[source] == latest[target]) & (start[target] - end[source] <= usual_gap)
    return held_up


def _host_waits(rank: RankRun, true: TrueOrder, derived: GraphOrder, tolerance: int) -> dict[str, Tally]:
    awaited, waiting = derived.edges(DependencyKind.HOST_SYNC)
    # a launch that waited for room goes on after its wait
    returned = true.from_then(derived.thread[derived.work.lane[waiting]], derived.end[waiting], tolerance)
    holds = true.order.holds(true.ended[derived.activity[awaited]], returned)
    call, activity = _pairs(rank.host_waits)
    has_node = derived.node[activity] >= 0
    call, activity = call[has_node], activity[has_node]
    thread, end = as_numpy(rank.calls.thread)[call], as_numpy(rank.calls.end)[call]
    waits = derived.order.holds(derived.node[activity], derived.order.last_ended(derived.lane[thread], end + tolerance))
    ended = as_numpy(rank.activities.end)
    last = np.zeros(len(rank.calls), np.int64)
    np.maximum.at(last, call, ended[activity])
    held_up = (ended[activity] == last[call]) & (last[call] > as_numpy(rank.calls.start)[call] + CALL_NS)
    return {
        "host for device": Tally(len(holds), _count(~holds), len(waits), _count(~waits)),
        HELD_UP[1]: Tally(needed=_count(held_up), missing=_count(held_up & ~waits)),
    }


def _handoffs(rank: RankRun, true: TrueOrder, derived: GraphOrder, tolerance: int) -> dict[str, Tally]:
    """Scores hand-offs; those that no thread had to wait for count by themselves, as they leave no trace."""
    source, target = derived.edges(DependencyKind.HANDOFF)
    gave = true.by_then(derived.thread[derived.work.lane[source]], derived.end[source], tolerance)
    took = true.from_then(derived.thread[derived.work.lane[target]], derived.begin[target], tolerance)
    holds = true.order.holds(gave, took)
    handoffs = rank.handoffs
    giver = derived.order.last_ended(derived.lane[as_numpy(handoffs.source)], as_numpy(handoffs.given_ns) - tolerance)
    taker = derived.order.first_begun(derived.lane[as_numpy(handoffs.target)], as_numpy(handoffs.taken_ns) + tolerance)
    # a thread that does nothing before or after has nothing to be ordered
    missing = (giver >= 0) & (taker >= 0) & ~derived.order.holds(giver, taker)
    waited = as_numpy(handoffs.waited) > 0
    return {
        "between threads": Tally(len(holds), _count(~holds), _count(waited), _count(missing & waited)),
        "between threads, no wait": Tally(needed=_count(~waited), missing=_count(missing & ~waited)),
    }


def _count(mask: Bool) -> int:
    return int(mask.sum())
