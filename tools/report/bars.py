"""What the page draws of a rank: nodes as bars on the clock of all ranks, ops around them, and a step's data flow."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...schema import columns
from ...schema.columns import ABSENT, Bool, Categorical, Int64, Intervals, NodeIds, Ns, OpRows, Rows
from ...schema.linked import Ops
from .. import view
from ..analyses import RankTrace
from ..replay import WAITS, Replay, Workload, critical_path, replay_ranks
from ..view import LOOKS, REASONS, Box, DataFlow, Selection, ShownFlow
from .cells import Row

ROWS = 10
"""The most rows of a thread; what lies deeper is drawn in the last one."""
ON_PAGE, OPEN = 500, 36
"""How many boxes can be seen at once on a page at most, and how many are at first."""


class Slices(NamedTuple):
    """Timed ops by lane, then start, by thread on the device trace's clock at first; `row` 0 is the outermost."""

    lane: Int64
    start_ns: Ns
    end_ns: Ns
    name: Categorical
    row: Int64

    def take(self, rows: Int64 | Bool) -> "Slices":
        """Returns some of the slices, in the order of the rows."""
        lane, start, end, row = (column[rows] for column in (self.lane, self.start_ns, self.end_ns, self.row))
        return Slices(lane, start, end, self.name.take(rows), row)


NO_TIMES = np.zeros(0, np.int64)
NO_OPS = Slices(NO_TIMES, NO_TIMES, NO_TIMES, Categorical.of([]), NO_TIMES)


def host_ops(ops: Ops) -> Slices:
    """Returns copies of what is needed of the ops, nested by time: parents that host traces name may end before."""
    rows = np.flatnonzero((ops.start != ABSENT) & (ops.end > ops.start))
    rows = rows[np.lexsort((-ops.end[rows], ops.start[rows], ops.thread[rows]))]
    thread, start, end = (column[rows] for column in (ops.thread, ops.start, ops.end))
    row = np.arange(len(rows)) - _ended(thread, end, thread, start)
    return Slices(thread, start, end, ops.name.take(rows), np.minimum(row, ROWS - 1))


def _ended(lane: Int64, time: Ns, at_lane: Int64, at_time: Ns) -> Int64:
    """Returns for each time how many of its lane and those before lie at or before it; 0 on a lane without any."""
    order = np.lexsort((time, lane))
    rows, keys = columns.Keys(lane[order], time[order]), columns.Keys(at_lane, at_time)
    return columns.group_searchsorted(rows, keys, "right")


class Arrows(NamedTuple):
    """Dependencies by the rows of two bars of different lanes; `reason` is a position in REASONS."""

    source: Rows
    target: Rows
    reason: Int64
    is_step: Bool


@dataclass(slots=True)
class Bars:
    """The n timed nodes of a rank by lane, then start; times count from the run's first start.

    `lanes` have host threads above streams. From `alone_ns` on a bar has its lane for itself, so that a lane is never
    busy twice. `ops` are the ops of threads in which several bars lie; `row` is a bar's row in them.
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

    @property
    def kind(self) -> Int64:
        """Twice the look, plus one on the critical path."""
        return np.asarray(2 * self.look + self.critical)

    def lane_times(self) -> list[Row]:
        """Returns the time (µs) by lane and look, in which overlapping bars of a lane count once."""
        groups = columns.groupby(self.lane, self.look)
        lanes, looks = self.lane[groups.first].tolist(), self.look[groups.first].tolist()
        times = (groups.sum(self.end_ns - self.alone_ns) / 1000).tolist()
        rows = zip(lanes, looks, times, strict=True)
        return [{"lane": self.lanes[lane], "kind": LOOKS[look], "time": time} for lane, look, time in rows if time]


def on_one_clock(replays: Sequence[Replay]) -> list[tuple[int, Rows]]:
    """Returns for each rank its first start (ns) on the clock of all, replayed together, and its critical path."""
    joint = replays[0] if len(replays) == 1 else replay_ranks([replay.work.graphs[0] for replay in replays])
    work = joint.work
    start = np.where(work.is_timed, work.measured_start_ns, np.iinfo(np.int64).max)
    first = np.minimum.reduceat(start, work.first_row)
    path = critical_path(joint)[0]
    path = path[path < len(work)]
    rank = work.ranks_of(path)
    begins = enumerate((first - first.min()).tolist())
    return [(begin, path[rank == number] - int(work.first_row[number])) for number, begin in begins]


def bars_of(rank: int, replay: Replay, on_clock: tuple[int, Rows], ops: Slices = NO_OPS) -> Bars:
    """Returns the bars of a rank on the shared clock, in its ops. O(n log n)."""
    work, graph, (begin_ns, path) = replay.work, replay.work.graphs[0], on_clock
    timed = np.flatnonzero(work.is_timed)
    spent = np.bincount(work.lane[timed], (work.measured_end_ns - work.measured_start_ns)[timed], len(work.lanes))
    # without threads on which nothing takes time, unless nothing does at all
    is_drawn = (spent > 0) | np.array([lane.is_stream for lane in work.lanes], bool)
    timed = timed[is_drawn[work.lane[timed]]] if is_drawn[work.lane[timed]].any() else timed
    lanes = np.unique(work.lane[timed]).tolist()
    lanes.sort(key=lambda number: (work.lanes[number].is_stream, work.lanes[number]))
    position = np.full(len(work.lanes), -1)
    position[lanes] = range(len(lanes))
    rows = timed[np.lexsort((work.measured_start_ns[timed], position[work.lane[timed]]))]
    lane, start, end = position[work.lane[rows]], work.measured_start_ns[rows], work.measured_end_ns[rows]
    start, end = start + begin_ns, end + begin_ns
    path = path[work.is_timed[path]]
    slices = _on_lanes(ops, work, lanes, begin_ns)
    # the innermost op around a bar's middle
    middle = start + (end - start) // 2
    row = _ended(slices.lane, slices.start_ns, lane, middle) - _ended(slices.lane, slices.end_ns, lane, middle) - 1
    # an op in which a single bar begins looks like its bar
    until, since = (_ended(lane, start, slices.lane, time - 1) for time in (slices.end_ns, slices.start_ns))
    names = view.lane_names(work)
    return Bars(
        rank, [f"rank {rank} · {names[number]}" for number in lanes], lane, start, end,
        np.clip(columns.busy_until(lane, Intervals(start, end)), start, np.maximum(end, start)), graph.name.take(rows),
        view.looks(graph, work.node_class)[rows], np.isin(rows, path), NodeIds(graph.id[rows]),
        _arrows(work, rows, path), np.clip(row, 0, ROWS - 1), slices.take(until - since >= 2),
    )  # fmt: skip


def _on_lanes(ops: Slices, work: Workload, lanes: list[int], begin_ns: int) -> Slices:
    """Returns the ops of the threads among the drawn lanes, on the clock on which the rank begins at `begin_ns`."""
    timed = np.flatnonzero(work.is_timed)[:1]
    shift = int((work.measured_start_ns - work.graphs[0].host_clock_start_ns)[timed].sum()) + begin_ns
    positions = {work.lanes[lane].number: row for row, lane in enumerate(lanes) if not work.lanes[lane].is_stream}
    threads, thread = np.unique(ops.lane, return_inverse=True)
    lane = np.array([positions.get(number, -1) for number in threads.tolist()], np.int64)[thread.reshape(-1)]
    moved = ops._replace(lane=lane, start_ns=ops.start_ns + shift, end_ns=ops.end_ns + shift)
    return moved.take(np.argsort(lane, kind="stable")[(lane < 0).sum() :])


def _arrows(work: Workload, rows: Rows, path: Rows) -> Arrows:
    """Returns the arrows between bars; `rows` are the nodes of the bars, `path` those of the critical path."""
    reason = np.full(len(work.kind), REASONS.index("unknown"))
    for number, (bit, _) in reversed([*enumerate(WAITS)]):
        reason[work.kind & bit != 0] = number
    before, bar = np.full((2, len(work)), -1)
    path = path[np.append(True, path[1:] != path[:-1])[: len(path)]]
    before[path[1:]] = path[:-1]
    bar[rows] = np.arange(len(rows))
    source, target = work.source, work.target
    drawn = (bar[source] >= 0) & (bar[target] >= 0) & (work.lane[source] != work.lane[target])
    source, target = source[drawn], target[drawn]
    return Arrows(bar[source], bar[target], reason[drawn], before[target] == source)


def step_flow(rank: RankTrace) -> DataFlow | None:
    """Returns the data flow of a rank's step of median length, or of the run if no steps are marked; None for none."""
    graph, replay, ops = rank.graph, rank.replay, rank.linked.ops
    if graph is None or replay is None:
        return None
    step = view.median_step(graph)
    seen = view.view(graph, Selection(step=step)).graph
    path_ns = view.path_times(replay)[graph.rows_of(seen.id)]
    title = f"rank {rank.rank}, {f'step {step}' if step is not None else 'the whole run'}"
    tensors = None
    if len(ops):  # graphs for analyses hold no tensors, the ops do
        op_id = seen.integers("op_id")
        nodes = np.flatnonzero((seen.integers("slice") == 0) & (op_id != ABSENT))
        op_rows = columns.rows_of(ops.id, op_id[nodes])
        nodes, op_rows = nodes[op_rows >= 0], op_rows[op_rows >= 0]
        tensors = ops.arguments.tensors.of(OpRows(op_rows))
        tensors = tensors._replace(row=nodes[tensors.row])
    flow = view.data_flow(seen, title, path_ns, tensors=tensors)
    return flow if len(flow.boxes) else None


def flow_boxes(flow: DataFlow) -> dict[str, Any]:
    """Returns what the page shows of a data flow: boxes by number in layers, those `open` at first, and arrows."""
    shown, open_at_first = ShownFlow(flow, flow.open_boxes(ON_PAGE, ON_PAGE)), flow.open_boxes(OPEN)
    number = {box: position for position, box in enumerate(flow.root.walk())}
    kinds = sorted({link.kind for link in shown.links.values()})

    def layers(box: Box) -> list[list[dict[str, Any]]]:
        return [[*map(described, layer)] for layer in shown.layers.get(box, ())] if box in shown.opened else []

    def described(box: Box) -> dict[str, Any]:
        looks = "box", box.kind.label, "heavy" * (box in shown.heavy), "on-path" * flow.is_on_path(box)
        return {
            "number": number[box], "title": box.title, "figures": flow.figures(box), "text": flow.full_text(box),
            "share": flow.share(box), "look": " ".join(filter(None, looks)), "open": box in open_at_first,
            "layers": layers(box),
        }  # fmt: skip

    links = shown.links.items()
    arrows = [[number[source], number[target], kinds.index(link.kind), link.text] for (source, target), link in links]
    return {"title": flow.title, "kinds": kinds, "arrows": arrows, "layers": layers(flow.root)}
