"""The critical path of the job, over all ranks together, the replay's error, lengths of steps, and gains of changes."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from ...schema.columns import ABSENT, Categorical, Floats, Frame, Int64, Intervals, Rows, group_sums, groupby, nullable
from ...schema.errors import DataError
from ...schema.graph import ExecutionGraph
from .. import replay as replays
from ..replay import KINDS, NodeClass, Pieces, Replay
from ..terminal import list_names
from .rank import ActivityClass, Analysis, AnalysisOptions, RankTrace, Steps, per_rank
from .table import Columns, Quantity, Table, ints, pct, ratio, tabulate, texts, us

NO_GRAPH = "there is no execution graph to replay"
NO_TIME = "nothing in the replayed run takes time"
ONE_RANK = "the critical path stays on one rank"
LOCATIONS = ("device", "stream", "tid")
NO_STEPS = "no activity ran in a step"
WORK = (NodeClass.COMPUTATION, NodeClass.COMMUNICATION, NodeClass.MEMORY)
OF_DEVICE = (*(node_class.label for node_class in WORK), "stream order", "event wait", "launched graph", "collective")
"""The kinds of time on the critical path for which the device is the limit: its work, and its waits for other work."""
OUTLIERS_NAMED = 6
FAR, LEAST = 5.0, 0.05
"""Outliers are more than FAR median absolute deviations, and more than LEAST of the median, away from the median."""


def _over_ranks(parts: Sequence[tuple[int, ExecutionGraph | None]], _: AnalysisOptions) -> Table:
    """Returns the path's time by rank and kind; the replay's error, the path by rank, between ranks, and by piece."""
    ranks = ints(rank for rank, graph in parts if graph is not None and len(graph))
    graphs, of_job, note = [graph for _, graph in parts if graph is not None and len(graph)], list[Replay](), NO_GRAPH
    if graphs:
        try:
            of_job = [replays.replay_ranks(graphs)]
        except DataError as error:
            note = str(error)
    path = Pieces(*np.empty((5, 0), np.int64))
    for replay in of_job:
        path = replays.pieces_of(replay)
        note = reliability(replay) if len(path.row) else NO_TIME
    graphs = graphs if of_job else []
    rank = ranks[of_job[0].work.ranks_of(path.node)] if of_job else path.node
    groups = groupby(rank, path.kind)
    groups = groups.largest_first(groups.sum(path.time))
    columns: Columns = {
        "rank": rank[groups.first], "kind": texts(KINDS, path.kind[groups.first]), "time": us(groups.sum(path.time)),
        "pct": pct(groups.sum(path.time), path.time.sum()),
    }  # fmt: skip
    names = Categorical.joined([Categorical.nulls(0), *(graph.name for graph in graphs)])
    by_piece: Columns = {
        "rank": rank, "node": np.concatenate([path.row[:0], *(graph.id for graph in graphs)])[path.node],
        "name": names.take(path.node), "kind": texts(KINDS, path.kind), "start": us(path.start), "time": us(path.time),
        **{name: np.where((column := _of_nodes(graphs, name, path)) == ABSENT, -1, column) for name in LOCATIONS},
    }  # fmt: skip
    by_rank, between = _by_rank(of_job, ranks, rank, path, note), _between_ranks(of_job, ranks, path, names, note)
    pieces = tabulate("critical_path_nodes", "The critical path, piece by piece", by_piece, empty=NO_TIME)
    details = _replays(of_job, note), by_rank, between, pieces
    return tabulate("critical_path", "Critical path", columns, note, *details)


critical_path = Analysis("critical_path", lambda rank, _: (rank.rank, rank.graph), _over_ranks)


def _replays(of_job: Sequence[Replay], note: str) -> Table:
    """Returns a table of one row, or none without a replay."""
    error = [np.nan if replay.error_pct is None else replay.error_pct for replay in of_job]
    explained = [replays.explained_pct(replay) for replay in of_job]
    columns: Columns = {
        "ranks": ints(len(replay.work.graphs) for replay in of_job),
        "measured": us([replay.measured_ns for replay in of_job]),
        "replayed": us([replay.makespan_ns for replay in of_job]), "error": Quantity("%", np.array(error, np.float64)),
        "explained": Quantity("%", np.array(explained, np.float64)),
    }  # fmt: skip
    title = "The replay of all ranks beside the measured run"
    return tabulate("critical_path_replay", title, columns, empty=note)


def _by_rank(of_job: Sequence[Replay], ranks: Int64, rank: Int64, path: Pieces, note: str) -> Table:
    """Returns when each rank begins and ends on the clock that all share, and how much of the path is on it."""
    ranks = ranks if of_job else ranks[:0]
    begin, end = np.full(len(ranks), np.iinfo(np.int64).max), np.zeros(len(ranks), np.int64)
    for work in (replay.work for replay in of_job):
        timed = np.flatnonzero(work.is_timed)
        np.minimum.at(begin, work.ranks_of(timed), work.measured_start_ns[timed])
        np.maximum.at(end, work.ranks_of(timed), work.measured_end_ns[timed])
    time = ints(path.time[rank == number].sum() for number in ranks.tolist())
    columns: Columns = {
        "rank": ranks, "begins": us(np.minimum(begin, end)), "ends": us(end), "on_path": us(time),
        "on_path_pct": pct(time, time.sum()),
    }  # fmt: skip
    return tabulate("critical_path_by_rank", "Ranks on the job's clock", columns, empty=note)


def _between_ranks(of_job: Sequence[Replay], ranks: Int64, path: Pieces, names: Categorical, note: str) -> Table:
    """Returns how often the path goes from one rank to another through what both shared, and how long it takes."""
    count, time = Counter[tuple[int, int, str]](), Counter[tuple[int, int, str]]()
    is_shared = path.kind == KINDS.index(NodeClass.COMMUNICATION.label)
    for replay in of_job:
        spent_ns = group_sums(path.node[is_shared], path.time[is_shared], len(replay.work))
        for shared, source, target in zip(*(column.tolist() for column in replays.crossings(replay)), strict=True):
            key = int(ranks[source]), int(ranks[target]), names[shared]
            count[key] += 1
            time[key] += int(spent_ns[shared])
    keys = sorted(count, key=lambda key: (-time[key], key))
    columns: Columns = {
        "rank": ints(source for source, _, _ in keys), "to_rank": ints(target for _, target, _ in keys),
        "name": [name for _, _, name in keys], "crossings": ints(count[key] for key in keys),
        "time": us([time[key] for key in keys]), "pct": pct([time[key] for key in keys], path.time.sum()),
    }  # fmt: skip
    title, empty = "Where the critical path goes from rank to rank", ONE_RANK if len(path.row) else note
    return tabulate("critical_path_between_ranks", title, columns, empty=empty)


def _of_nodes(graphs: Sequence[ExecutionGraph], attribute: str, path: Pieces) -> Int64:
    """Returns the attribute of the node of each piece, which are rows of all graphs, one after the other."""
    return np.concatenate([path.node[:0], *(graph.integers(attribute) for graph in graphs)])[path.node]


def path_rows(replay: Replay) -> Rows:
    """Returns the rows of the replay's nodes that are on the critical path, piece by piece."""
    return replays.pieces_of(replay).node


def path_frame(replay: Replay) -> Frame:
    """Returns the critical path piece by piece, times in ns, as a table for data frames."""
    path, work = replays.pieces_of(replay), replay.work
    return Frame(
        "critical path",
        {
            "rank": work.rank_column(path.node),
            "id": np.concatenate([graph.id for graph in work.graphs])[path.node],
            "name": Categorical.joined([graph.name for graph in work.graphs]).take(path.node),
            "kind": Categorical(path.kind.astype(np.int32), list(KINDS)),
            "start_ns": path.start, "duration_ns": path.time,
            **{name: nullable(_of_nodes(work.graphs, name, path)) for name in LOCATIONS},
        },
    )  # fmt: skip


def reliability(replay: Replay) -> str:
    """Returns how many ranks were replayed, if several or not all of the job's, and how reliable the replay is."""
    graphs = replay.work.graphs
    world = max(graph.number("world_size", 0) for graph in graphs)
    isolated = f"{len(graphs)} of {world:,} ranks, without waiting for the others" if len(graphs) < world else ""
    joint = f"{len(graphs)} ranks, which wait for each other" if len(graphs) > 1 else ""
    return "; ".join(filter(None, [isolated or joint, replays.trust(replay)]))


@per_rank
def step_breakdown(rank: RankTrace, _: AnalysisOptions) -> Table:
    """Returns for each step and device its length, busy time, exposed communication, what limits it, and outliers."""
    steps, devices = rank.steps, rank.linked.activities.device
    inside = np.flatnonzero(steps.of_activity >= 0)
    first = inside[groupby(steps.of_activity[inside], devices[inside]).first]
    step, device, length = steps.of_activity[first], devices[first], steps.end - steps.start
    computes = rank.classes == ActivityClass.COMPUTATION
    communicates = rank.classes == ActivityClass.COMMUNICATION
    times, all_work = Intervals(steps.start[step], steps.end[step]), np.ones(len(devices), np.bool_)
    works = all_work, computes, computes | communicates
    busy, computing, either = (rank.covered_time(work, times, device) for work in works)
    by_device, outliers = _device_share(rank, steps), _outliers(length)
    bound = np.where(np.isnan(by_device), "", np.where(by_device > 50, "device", "host"))
    columns: Columns = {
        "device": device, "step": texts(steps.name, step), "time": us(length[step]), "busy": us(busy),
        "computation": us(computing), "exposed_communication": us(either - computing),
        "idle_pct": pct(length[step] - busy, length[step], of="step"), "by_device": Quantity("%", by_device[step]),
        "bound": bound[step].tolist(), "outlier": [outliers[number] for number in step.tolist()],
    }  # fmt: skip
    outlying = [f"{steps.name[row]} ({length[row] / 1000:,.0f} µs)" for row, outlier in enumerate(outliers) if outlier]
    note = ""
    if outlying:
        median_us = np.median(length) / 1000
        note = f"unlike the median of {median_us:,.0f} µs: {list_names(outlying, OUTLIERS_NAMED)}"
    return tabulate("step_breakdown", "Steps", columns, note, empty=NO_STEPS)


def _device_share(rank: RankTrace, steps: Steps) -> Floats:
    """Returns the share (percent) of the critical path in each step that is the device's; NaN without a replay."""
    replay = rank.replay
    if replay is None or rank.graph is None or not replay.work.is_timed.any():
        return np.full(len(steps.name), np.nan)
    pieces, timed = replays.pieces_of(replay), replay.work.is_timed
    begin = int(rank.graph.start_ns[timed].min() - replay.work.measured_start_ns[timed].min())
    of_device = np.isin(np.array(KINDS)[pieces.kind], OF_DEVICE)
    ended = np.concatenate(([0], pieces.start + pieces.time))
    spent = np.concatenate(([0], np.cumsum(np.where(of_device, pieces.time, 0))))
    part = np.interp(steps.end - begin, ended, spent) - np.interp(steps.start - begin, ended, spent)
    return ratio(100 * part, steps.end - steps.start)


def _outliers(length: Int64) -> list[str]:
    """Returns for each step whether it is unusually slow or fast, "" for most."""
    if not len(length):
        return []
    deviation = length - np.median(length)
    is_outlier = np.abs(deviation) > max(FAR * float(np.median(np.abs(deviation))), LEAST * float(np.median(length)))
    return texts(("", "fast", "slow"), np.where(is_outlier, np.where(deviation > 0, 2, 1), 0))
