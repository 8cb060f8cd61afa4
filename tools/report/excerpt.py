"""An excerpt of one rank's graph and replay for the page: a window of its timeline around the critical path, and its lanes' times.

Times are µs from the run's first recorded start, as measured.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...schema.columns import Bool, Int64, Ns
from ..analyses import Floats
from ..replay import Replay, Workload, critical_path, replay_ranks
from ..view import LOOKS, lane_names, looks, short_name

Row = dict[str, Any]
Window = tuple[float, float]


@dataclass(slots=True)
class Excerpt:
    """What a timeline shows of a rank: bars, and the steps of the critical path from one lane to another.

    `shown` of the rank's `nodes` nodes run in the window; `lanes` are in the order in which they are drawn. `lane_times` has the
    time of each lane by what it was spent on, over the whole run.
    """

    rank: int
    window: Window
    nodes: int
    whole: Window
    lanes: list[str] = field(default_factory=list)
    bars: list[Row] = field(default_factory=list)
    steps: list[Row] = field(default_factory=list)
    lane_times: list[Row] = field(default_factory=list)


def excerpts(replays: Mapping[int, Replay], most: int) -> list[Excerpt]:
    """One of each rank, all of the same window and on one clock, of about `most` nodes together; of ranks without times none."""
    known = {rank: replay for rank, replay in replays.items() if replay.work.is_timed.any()}
    began, found = _began(list(known.values())), list[Excerpt]()
    for (rank, replay), begin in zip(known.items(), began, strict=True):
        found.append(excerpt(rank, replay, most // len(known), found[0].window if found else None, begin))
    return found


def _began(replays: Sequence[Replay]) -> Ns:
    """When each rank's first node with a time started (ns), as all ranks together tell by what they did together."""
    if len(replays) < 2:
        return np.zeros(len(replays), np.int64)
    together = replay_ranks([replay.work.graphs[0] for replay in replays]).work
    start = np.where(together.is_timed, together.measured_start_ns, np.iinfo(np.int64).max)
    first = np.minimum.reduceat(start, together.first_row)
    return np.asarray(first - first.min())


def excerpt(rank: int, replay: Replay, most: int, window: Window | None = None, begin_ns: int = 0) -> Excerpt:
    """A window of at most about `most` nodes, around the longest piece of the critical path unless one is given. O(n log n)."""
    work, (start, end) = replay.work, _times_us(replay.work, begin_ns)
    path = critical_path(replay).row
    path = path[path < len(work)]
    path = path[work.is_timed[path]]
    timed = work.is_timed
    whole = float(start[timed].min()), float(end[timed].max())
    window = window or _around(path, start, end, np.flatnonzero(timed), most, whole)
    seen = timed & (end >= window[0]) & (start <= window[1])
    look = looks(work.graphs[0], work.node_class)
    critical = np.zeros(len(work), bool)
    critical[path] = True
    found = Excerpt(rank, window, int(timed.sum()), whole)
    names = [f"rank {rank} · {name}" for name in lane_names(work)]
    found.lanes = [names[lane] for lane in _lane_order(work, np.unique(work.lane[seen]))]
    found.bars = _bars(rank, work, (start, end), np.flatnonzero(seen), look, critical, names)
    found.steps = _steps(path[seen[path]], work, start, end, names)
    found.lane_times = _lane_times(rank, work, look, names)
    return found


def _times_us(work: Workload, begin_ns: int) -> tuple[Floats, Floats]:
    return (work.measured_start_ns + begin_ns) / 1000, (work.measured_end_ns + begin_ns) / 1000


def _around(path: Int64, start: Floats, end: Floats, timed: Int64, most: int, whole: Window) -> Window:
    if len(timed) <= most or not len(path):
        return whole
    longest = path[np.argmax(end[path] - start[path])]
    distance = np.maximum(np.maximum(start[longest] - end[timed], start[timed] - end[longest]), 0)
    reach = float(np.partition(distance, most)[most])
    return max(float(start[longest]) - reach, whole[0]), min(float(end[longest]) + reach, whole[1])


def _lane_order(work: Workload, lanes: Int64) -> list[int]:
    """Host threads above streams, each in order of number."""
    return sorted(lanes.tolist(), key=lambda lane: (work.lanes[lane].is_stream, work.lanes[lane]))


def _bars(
    rank: int, work: Workload, times: tuple[Floats, Floats], rows: Int64, look: Int64, critical: Bool, names: list[str]
) -> list[Row]:
    graph, (start, end) = work.graphs[0], times
    return [
        {
            "lane": names[work.lane[row]],
            "start": float(start[row]),
            "end": float(end[row]),
            "time": float(end[row] - start[row]),
            "name": graph.name[row],
            "short": short_name(graph.name[row]),
            "kind": LOOKS[look[row]],
            "critical": bool(critical[row]),
            "node": f"{rank}/{graph.id[row]}",
        }
        for row in rows.tolist()
    ]


def _steps(path: Int64, work: Workload, start: Floats, end: Floats, names: list[str]) -> list[Row]:
    """From the end of one piece of the path to the start of the next where these are on different lanes."""
    pairs = zip(path[:-1].tolist(), path[1:].tolist(), strict=True)
    return [
        {
            "from": float(end[one]),
            "to": float(start[next_]),
            "lane": names[work.lane[one]],
            "to_lane": names[work.lane[next_]],
        }
        for one, next_ in pairs
        if work.lane[one] != work.lane[next_]
    ]


def _lane_times(rank: int, work: Workload, look: Int64, names: list[str]) -> list[Row]:
    """Time per lane and kind over all nodes; `duration_ns` is without overlap, so a lane's parts do not exceed the run."""
    rows = np.flatnonzero(work.is_timed)
    cell = work.lane[rows] * len(LOOKS) + look[rows]
    total = np.bincount(cell, work.duration_ns[rows])
    return [
        {
            "rank": rank,
            "lane": names[place // len(LOOKS)],
            "stream": work.lanes[place // len(LOOKS)].is_stream,
            "kind": LOOKS[place % len(LOOKS)],
            "time": float(total[place]) / 1000,
        }
        for place in np.flatnonzero(total).tolist()
    ]
