"""The nodes of a rank as bars on lanes, from its replay, on the clock that all ranks share; and the ops of host threads
that these lie in, one below the one that called it, as slices around the bars.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...schema.columns import ABSENT, Bool, Categorical, Int64, Intervals, NodeIds, Ns, Rows, busy_until
from ...schema.linked import Ops
from ..replay import WAITS, Replay, Workload, critical_path, replay_ranks
from ..view import LOOKS, REASONS, lane_names, looks
from .cells import Row

ROWS = 10
"""The most rows of a thread; what lies deeper is drawn in the last one."""
NO_TIMES = np.zeros(0, np.int64)


class HostOps(NamedTuple):
    """The timed ops of a rank by thread, then start, outer before inner ones; times on the device trace's clock."""

    thread: Int64
    start_ns: Ns
    end_ns: Ns
    name: Categorical


class Slices(NamedTuple):
    """Ops around bars by lane, then start; `row` is 0 for the outermost ones."""

    lane: Int64
    start_ns: Ns
    end_ns: Ns
    name: Categorical
    row: Int64

    def take(self, rows: Int64 | Bool) -> "Slices":
        """Returns some of the slices, in the order of the rows."""
        lane, start, end, row = (column[rows] for column in (self.lane, self.start_ns, self.end_ns, self.row))
        return Slices(lane, start, end, self.name.take(rows), row)


def host_ops(ops: Ops) -> HostOps:
    """Returns copies of what is needed of the ops, so that the others can go."""
    rows = np.flatnonzero((ops.start != ABSENT) & (ops.end > ops.start))
    rows = rows[np.lexsort((-ops.end[rows], ops.start[rows], ops.thread[rows]))]
    return HostOps(ops.thread[rows], ops.start[rows], ops.end[rows], ops.name.take(rows))


def ops_on_lanes(ops: HostOps, work: Workload, drawn_lanes: list[int], begin_ns: int) -> Slices:
    """Returns the ops of the threads that are drawn, on the clock on which the rank begins at `begin_ns`.

    Ops are nested by time, as the parents that host traces name may have ended before.
    """
    timed = np.flatnonzero(work.is_timed)[:1]
    shift = int((work.measured_start_ns - work.graphs[0].host_clock_start_ns)[timed].sum()) + begin_ns
    positions = {work.lanes[lane].number: row for row, lane in enumerate(drawn_lanes) if not work.lanes[lane].is_stream}
    threads, thread = np.unique(ops.thread, return_inverse=True)
    lane = np.array([positions.get(number, -1) for number in threads.tolist()], np.int64)[thread.reshape(-1)]
    order = np.flatnonzero(lane >= 0)
    order = order[np.argsort(lane[order], kind="stable")]
    lane, start, end = lane[order], ops.start_ns[order] + shift, ops.end_ns[order] + shift
    row = np.arange(len(order)) - _ended(lane, end, lane, start)
    return Slices(lane, start, end, ops.name.take(order), np.minimum(row, ROWS - 1))


def rows_of_bars(slices: Slices, lane: Int64, start_ns: Ns, end_ns: Ns) -> Int64:
    """Returns the row of each bar: that of the innermost op around its middle, 0 without one."""
    middle = start_ns + (end_ns - start_ns) // 2
    around = _ended(slices.lane, slices.start_ns, lane, middle) - _ended(slices.lane, slices.end_ns, lane, middle)
    return np.asarray(np.clip(around - 1, 0, ROWS - 1))


def around_several(slices: Slices, lane: Int64, start_ns: Ns) -> Slices:
    """Returns the ops in which two bars or more begin, as others look like their bar."""
    until, since = (_ended(lane, start_ns, slices.lane, time - 1) for time in (slices.end_ns, slices.start_ns))
    return slices.take(until - since >= 2)


def _ended(lane: Int64, time: Ns, at_lane: Int64, at_time: Ns) -> Int64:
    """Returns for each time on a lane how many times of the lanes before and of this one lie at or before it."""
    everything = np.concatenate((time, at_time))
    order = np.lexsort((np.arange(len(everything)) >= len(time), everything, np.concatenate((lane, at_lane))))
    before = np.empty(len(order), np.int64)
    before[order] = np.cumsum(order < len(time))
    return before[len(time) :]


class Arrows(NamedTuple):
    """Dependencies, from the end of a bar to the start of one on another lane; `is_step` on the critical path.

    `source` and `target` are rows of bars, `reason` is a position in REASONS.
    """

    source: Rows
    target: Rows
    reason: Int64
    is_step: Bool


@dataclass(slots=True)
class Bars:
    """The n timed nodes of a rank by lane, then start; times count from the run's first start.

    `lane` is a position in `lanes`, which are in the order in which they are drawn: host threads above streams. From
    `alone_ns` on a bar has its lane for itself: what began before it has ended, so that a lane is never busy twice.
    `look` is a position in LOOKS. `ops` are the ops of threads in which several bars lie; `row` is a bar's row in them.
    """

    rank: int
    lanes: list[str]
    lane: Int64
    start_ns: Ns
    end_ns: Ns
    alone_ns: Ns
    name: Categorical
    look: Int64
    critical: Bool
    node: NodeIds
    arrows: Arrows
    row: Int64
    ops: Slices

    def __len__(self) -> int:
        return len(self.lane)


class RankOnClock(NamedTuple):
    """When a rank's first timed node started (ns), and the nodes of the rank on the critical path, in its order."""

    begin_ns: int
    path: Rows


def on_one_clock(replays: Sequence[Replay]) -> list[RankOnClock]:
    """Returns for each rank its start on the clock aligned by shared communication, and its part of the critical path.

    The ranks are replayed together.
    """
    if not replays:
        return []
    joint = replays[0] if len(replays) == 1 else replay_ranks([replay.work.graphs[0] for replay in replays])
    work = joint.work
    start = np.where(work.is_timed, work.measured_start_ns, np.iinfo(np.int64).max)
    first = np.minimum.reduceat(start, work.first_row)
    path = critical_path(joint).row
    path = path[path < len(work)]
    rank = work.ranks_of(path)
    return [
        RankOnClock(int(begin - first.min()), path[rank == number] - int(work.first_row[number]))
        for number, begin in enumerate(first.tolist())
    ]


NO_OPS = HostOps(NO_TIMES, NO_TIMES, NO_TIMES, Categorical.of([]))


def bars_of(rank: int, replay: Replay, on_clock: RankOnClock | None = None, ops: HostOps = NO_OPS) -> Bars:
    """Returns the bars of a rank, by itself unless it is `on_clock` with others, in its ops. O(n log n)."""
    begin_ns, path = on_clock or on_one_clock([replay])[0]
    work = replay.work
    graph, timed = work.graphs[0], _on_lanes_with_time(work)
    drawn = sorted(
        np.unique(work.lane[timed]).tolist(), key=lambda number: (work.lanes[number].is_stream, work.lanes[number])
    )
    position = np.full(len(work.lanes), -1)
    position[drawn] = range(len(drawn))
    order = timed[np.lexsort((work.measured_start_ns[timed], position[work.lane[timed]]))]
    lane, start, end = (column[order] for column in (position[work.lane], work.measured_start_ns, work.measured_end_ns))
    path = path[work.is_timed[path]]
    critical = np.zeros(len(work), bool)
    critical[path] = True
    names = lane_names(work)
    start, end = start + begin_ns, end + begin_ns
    slices = ops_on_lanes(ops, work, drawn, begin_ns)
    return Bars(
        rank,
        [f"rank {rank} · {names[lane_number]}" for lane_number in drawn],
        lane,
        start,
        end,
        np.clip(busy_until(lane, Intervals(start, end)), start, np.maximum(end, start)),
        graph.name.take(order),
        looks(graph, work.node_class)[order],
        critical[order],
        NodeIds(graph.id[order]),
        _arrows(work, order, path),
        rows_of_bars(slices, lane, start, end),
        around_several(slices, lane, start),
    )


def _on_lanes_with_time(work: Workload) -> Rows:
    """Returns the timed nodes without those of threads on which nothing takes time, unless nothing does at all."""
    is_timed, is_stream = work.is_timed, np.array([lane.is_stream for lane in work.lanes], bool)
    total = np.bincount(work.lane[is_timed], (work.measured_end_ns - work.measured_start_ns)[is_timed], len(work.lanes))
    rows = np.flatnonzero(is_timed & ((total > 0) | is_stream)[work.lane])
    return rows if len(rows) else np.flatnonzero(is_timed)


def _arrows(work: Workload, order: Rows, path: Rows) -> Arrows:
    """Returns the arrows between bars; `order` are the nodes of the bars, `path` those of the critical path."""
    reason = np.full(len(work.kind), REASONS.index("unknown"))
    for number, (bit, _) in reversed([*enumerate(WAITS)]):
        reason[work.kind & bit != 0] = number
    before = np.full(len(work), -1)
    path = path[np.append(True, path[1:] != path[:-1])[: len(path)]]
    before[path[1:]] = path[:-1]
    bar = np.full(len(work), -1)
    bar[order] = np.arange(len(order))
    source, target = work.source, work.target
    drawn = (bar[source] >= 0) & (bar[target] >= 0) & (work.lane[source] != work.lane[target])
    source, target = source[drawn], target[drawn]
    return Arrows(bar[source], bar[target], reason[drawn], before[target] == source)


def lane_times(bars: Bars) -> list[Row]:
    """Returns the time (µs) by lane and look, in which overlapping bars of a lane count once."""
    cell = bars.lane * len(LOOKS) + bars.look
    total = np.bincount(cell, bars.end_ns - bars.alone_ns)
    lanes_and_looks = ((number, *divmod(number, len(LOOKS))) for number in np.flatnonzero(total).tolist())
    return [
        {"lane": bars.lanes[lane], "kind": LOOKS[look], "time": float(total[number]) / 1000}
        for number, lane, look in lanes_and_looks
    ]
