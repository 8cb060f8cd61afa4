"""The critical path of the job, which its length consists of, piece by piece, and the error of the replay behind it.

All ranks are replayed together, as trace-replay does it, so the path goes from rank to rank through what they share.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...schema.columns import ABSENT, Categorical, Frame, Int64, Rows, group_sums, nullable
from ...schema.errors import DataError
from ...schema.graph import ExecutionGraph
from ..replay import (
    KINDS,
    NodeClass,
    Pieces,
    Replay,
    crossings,
    explained_pct,
    path_nodes,
    pieces_of,
    replay_ranks,
    time_by_kind,
    trust,
)
from .rank_trace import Analysis, AnalysisOptions, RankTrace
from .table import Column, Table, integers, microseconds, percentage, text_column

NO_GRAPH = "there is no execution graph to replay"
NO_TIME = "nothing in the replayed run takes time"
ONE_RANK = "the critical path stays on one rank"
LOCATIONS = ("device", "stream", "tid")


class RankGraph(NamedTuple):
    """The graph of a rank, if it has one with nodes."""

    rank: int
    graph: ExecutionGraph | None


def _graph(rank: RankTrace, _: AnalysisOptions) -> RankGraph:
    return RankGraph(rank.rank, rank.graph if rank.graph is not None and len(rank.graph) else None)


def _over_ranks(parts: Sequence[RankGraph], _: AnalysisOptions) -> Table:
    ranks = np.array([part.rank for part in parts if part.graph is not None], np.int64)
    graphs = [part.graph for part in parts if part.graph is not None]
    replays, note = list[Replay](), NO_GRAPH
    if graphs:
        try:
            replays = [replay_ranks(graphs)]
        except DataError as error:
            note = str(error)
    path = pieces_of(replays[0]) if replays else Pieces(*np.empty((4, 0), np.int64))
    if replays:
        note = reliability(replays[0]) if len(path.row) else NO_TIME
    node = _nodes_of_path(replays[0], path.row) if replays else path.row
    rank = ranks[replays[0].work.ranks_of(node)] if replays else path.row
    details = (
        _replays(replays, note),
        _by_rank(replays, ranks, rank, path, note),
        _between_ranks(replays, ranks, path, node, note),
        _nodes(replays, path, node, rank),
    )
    return Table(NAME, "Critical path", _by_kind(rank, path), note, details)


def _nodes_of_path(replay: Replay, rows: Rows) -> Rows:
    """Returns the node of each piece."""
    path, node = path_nodes(replay)
    node_of = np.full(len(replay.schedule.end_ns), -1)
    node_of[path] = node
    return np.asarray(node_of[rows])


def _by_kind(rank: Int64, path: Pieces) -> list[Column]:
    """Returns the columns of a row for each rank and kind of time, the longest first."""
    keys, number = np.unique(np.stack((rank, path.kind)), axis=1, return_inverse=True)
    time = group_sums(number.reshape(-1), path.time, keys.shape[1])
    order = np.argsort(-time, kind="stable")
    return [
        Column("rank", "", keys[0][order]),
        Column("kind", "", [KINDS[kind] for kind in keys[1][order].tolist()]),
        microseconds("time", time[order]),
        percentage("pct", time[order], time.sum()),
    ]


def _replays(replays: Sequence[Replay], note: str) -> Table:
    """Returns a table of one row, or none without a replay."""
    error = [np.nan if replay.error_pct is None else replay.error_pct for replay in replays]
    explained = [explained_pct(replay, time_by_kind(pieces_of(replay))) for replay in replays]
    columns = [
        integers("ranks", [len(replay.work.graphs) for replay in replays]),
        microseconds("measured", [replay.measured_ns for replay in replays]),
        microseconds("replayed", [replay.makespan_ns for replay in replays]),
        Column("error", "%", np.array(error, np.float64)),
        Column("explained", "%", np.array(explained, np.float64)),
    ]
    return Table(f"{NAME}_replay", "The replay of all ranks beside the measured run", columns, "" if replays else note)


def _by_rank(replays: Sequence[Replay], ranks: Int64, rank: Int64, path: Pieces, note: str) -> Table:
    """Returns when each rank begins and ends on the clock that all share, and how much of the path is on it."""
    count = len(ranks) if replays else 0
    begin, end = np.zeros((2, count), np.int64)
    for work in (replay.work for replay in replays):
        timed = np.flatnonzero(work.is_timed)
        begin, end = np.full(count, np.iinfo(np.int64).max), np.zeros(count, np.int64)
        np.minimum.at(begin, work.ranks_of(timed), work.measured_start_ns[timed])
        np.maximum.at(end, work.ranks_of(timed), work.measured_end_ns[timed])
        begin = np.minimum(begin, end)
    time = np.array([path.time[rank == number].sum() for number in ranks.tolist()], np.int64)[:count]
    columns = [
        Column("rank", "", ranks[:count]),
        microseconds("begins", begin),
        microseconds("ends", end),
        microseconds("on_path", time),
        percentage("on_path_pct", time, time.sum()),
    ]
    return Table(f"{NAME}_by_rank", "Ranks on the job's clock", columns, "" if count else note)


def _between_ranks(replays: Sequence[Replay], ranks: Int64, path: Pieces, node: Rows, note: str) -> Table:
    """Returns how often the path goes from one rank to another through what both shared, and how long it takes."""
    count, time = Counter[tuple[int, int, str]](), Counter[tuple[int, int, str]]()
    is_shared = path.kind == KINDS.index(NodeClass.COMMUNICATION.label)
    for replay in replays:
        spent_ns = group_sums(node[is_shared], path.time[is_shared], len(replay.work))
        names = text_column("name", Categorical.joined([graph.name for graph in replay.work.graphs])).values
        for shared, source, target in zip(*(column.tolist() for column in crossings(replay)), strict=True):
            key = (int(ranks[source]), int(ranks[target]), str(names[shared]))
            count[key] += 1
            time[key] += int(spent_ns[shared])
    keys = sorted(count, key=lambda key: (-time[key], key))
    columns = [
        integers("rank", [source for source, _, _ in keys]),
        integers("to_rank", [target for _, target, _ in keys]),
        Column("name", "", [name for _, _, name in keys]),
        integers("crossings", [count[key] for key in keys]),
        microseconds("time", [time[key] for key in keys]),
        percentage("pct", [time[key] for key in keys], path.time.sum()),
    ]
    title = "Where the critical path goes from rank to rank"
    return Table(f"{NAME}_between_ranks", title, columns, "" if keys else ONE_RANK if len(path.row) else note)


def _nodes(replays: Sequence[Replay], path: Pieces, node: Rows, rank: Int64) -> Table:
    graphs = replays[0].work.graphs if replays else []
    locations = {name: np.where((column := _of_nodes(graphs, name, node)) == ABSENT, -1, column) for name in LOCATIONS}
    columns = [
        Column("rank", "", rank),
        Column("node", "", np.concatenate([path.row[:0], *(graph.id for graph in graphs)])[node]),
        text_column("name", Categorical.joined([Categorical.nulls(0), *(graph.name for graph in graphs)]).take(node)),
        Column("kind", "", [KINDS[kind] for kind in path.kind.tolist()]),
        microseconds("start", path.start),
        microseconds("time", path.time),
        *(Column(name, "", values) for name, values in locations.items()),
    ]
    return Table(f"{NAME}_nodes", "The critical path, piece by piece", columns, "" if len(node) else NO_TIME)


def _of_nodes(graphs: Sequence[ExecutionGraph], attribute: str, node: Rows) -> Int64:
    """Returns the attribute of these rows of all graphs, one after the other."""
    return np.concatenate([node[:0], *(graph.integers(attribute) for graph in graphs)])[node]


def path_rows(replay: Replay) -> Rows:
    """Returns the rows of the replay's nodes that are on the critical path, piece by piece."""
    return _nodes_of_path(replay, pieces_of(replay).row)


def path_frame(replay: Replay) -> Frame:
    """Returns the critical path piece by piece, times in ns, as a table for data frames."""
    path, work = pieces_of(replay), replay.work
    node = _nodes_of_path(replay, path.row)
    return Frame(
        "critical path",
        {
            "rank": work.rank_column(node),
            "id": np.concatenate([graph.id for graph in work.graphs])[node],
            "name": Categorical.joined([graph.name for graph in work.graphs]).take(node),
            "kind": Categorical(path.kind.astype(np.int32), list(KINDS)),
            "start_ns": path.start,
            "duration_ns": path.time,
            **{name: nullable(_of_nodes(work.graphs, name, node)) for name in LOCATIONS},
        },
    )


def reliability(replay: Replay) -> str:
    """Returns how many ranks were replayed, if several or not all of the job's, and how reliable the replay is."""
    graphs = replay.work.graphs
    world = max(graph.number("world_size", 0) for graph in graphs)
    isolated = f"{len(graphs)} of {world:,} ranks, without waiting for the others" if len(graphs) < world else ""
    joint = f"{len(graphs)} ranks, which wait for each other" if len(graphs) > 1 else ""
    return "; ".join(filter(None, [isolated or joint, trust(replay)]))


NAME = "critical_path"
critical_path = Analysis(NAME, _graph, _over_ranks)
