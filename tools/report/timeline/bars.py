"""The nodes of a rank as bars on lanes, from its replay, on the clock that all ranks share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ....schema.columns import Bool, Categorical, Int64, Intervals, NodeIds, Ns, Rows, busy_until
from ....schema.graph import DependencyKind
from ...replay import Replay, Workload, critical_path, replay_ranks
from ...view import LOOKS, lane_names, looks
from ..rows import Row


class Arrows(NamedTuple):
    """Launches, and steps of the critical path, from the end of a bar to the start of one on another lane.

    `source` and `target` are rows of bars.
    """

    source: Rows
    target: Rows
    is_step: Bool


@dataclass(slots=True)
class Bars:
    """The n timed nodes of a rank by lane, then start; times count from the run's first start.

    `lane` is a position in `lanes`, which are in the order in which they are drawn: host threads above streams. From
    `alone_ns` on a bar has its lane for itself: what began before it has ended, so that a lane is never busy twice.
    `look` is a position in LOOKS.
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

    def __len__(self) -> int:
        return len(self.lane)


def rank_starts(replays: Sequence[Replay]) -> Ns:
    """Returns when each rank's first timed node started (ns), on the clock aligned by shared communication."""
    if len(replays) < 2:
        return np.zeros(len(replays), np.int64)
    joint = replay_ranks([replay.work.graphs[0] for replay in replays]).work
    start = np.where(joint.is_timed, joint.measured_start_ns, np.iinfo(np.int64).max)
    first = np.minimum.reduceat(start, joint.first_row)
    return np.asarray(first - first.min())


def bars_of(rank: int, replay: Replay, begin_ns: int = 0) -> Bars:
    """Returns the bars of a rank whose first node started at `begin_ns`. O(n log n)."""
    work = replay.work
    graph, timed = work.graphs[0], _on_lanes_with_time(work)
    drawn = sorted(
        np.unique(work.lane[timed]).tolist(),
        key=lambda number: (work.lanes[number].is_stream, work.lanes[number]),
    )
    position = np.full(len(work.lanes), -1)
    position[drawn] = range(len(drawn))
    order = timed[np.lexsort((work.measured_start_ns[timed], position[work.lane[timed]]))]
    lane, start, end = (column[order] for column in (position[work.lane], work.measured_start_ns, work.measured_end_ns))
    path = critical_path(replay).row
    path = path[path < len(work)]
    path = path[work.is_timed[path]]
    critical = np.zeros(len(work), bool)
    critical[path] = True
    names = lane_names(work)
    return Bars(
        rank,
        [f"rank {rank} · {names[lane_number]}" for lane_number in drawn],
        lane,
        start + begin_ns,
        end + begin_ns,
        np.clip(busy_until(lane, Intervals(start, end)), start, np.maximum(end, start)) + begin_ns,
        graph.name.take(order),
        looks(graph, work.node_class)[order],
        critical[order],
        NodeIds(graph.id[order]),
        _arrows(work, order, path),
    )


def _on_lanes_with_time(work: Workload) -> Rows:
    """Returns the timed nodes without those of threads on which nothing takes time, unless nothing does at all."""
    is_timed, is_stream = work.is_timed, np.array([lane.is_stream for lane in work.lanes], bool)
    total = np.bincount(work.lane[is_timed], (work.measured_end_ns - work.measured_start_ns)[is_timed], len(work.lanes))
    rows = np.flatnonzero(is_timed & ((total > 0) | is_stream)[work.lane])
    return rows if len(rows) else np.flatnonzero(is_timed)


def _arrows(work: Workload, order: Rows, path: Rows) -> Arrows:
    """Returns the arrows between bars; `order` are the nodes of the bars, `path` those of the critical path."""
    launch = work.kind & DependencyKind.LAUNCH != 0
    source, target = np.append(work.source[launch], path[:-1]), np.append(work.target[launch], path[1:])
    is_step = np.arange(len(source)) >= launch.sum()
    bar = np.full(len(work), -1)
    bar[order] = np.arange(len(order))
    drawn = (bar[source] >= 0) & (bar[target] >= 0) & (work.lane[source] != work.lane[target])
    return Arrows(bar[source[drawn]], bar[target[drawn]], is_step[drawn])


def lane_times(bars: Bars) -> list[Row]:
    """Returns the time (µs) by lane and look, in which overlapping bars of a lane count once."""
    cell = bars.lane * len(LOOKS) + bars.look
    total = np.bincount(cell, bars.end_ns - bars.alone_ns)
    return [
        {
            "lane": bars.lanes[number // len(LOOKS)],
            "kind": LOOKS[number % len(LOOKS)],
            "time": float(total[number]) / 1000,
        }
        for number in np.flatnonzero(total).tolist()
    ]


def with_recorded_times(replays: Mapping[int, Replay]) -> dict[int, Replay]:
    """Returns the ranks with any recorded time."""
    return {rank: replay for rank, replay in replays.items() if replay.work.is_timed.any()}
