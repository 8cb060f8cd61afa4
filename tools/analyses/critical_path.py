"""The critical path of the job, which its length consists of, piece by piece, and the error of the replay behind it.

All ranks are replayed together, as trace-replay does it, so the path goes from rank to rank through what they share.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...schema.columns import ABSENT, Int64, Rows, group_sums
from ...schema.errors import DataError
from ...schema.graph import ExecutionGraph
from ..replay import (
    KINDS,
    NodeClass,
    Pieces,
    Replay,
    critical_path as path_of,
    explained_pct,
    pieces_of,
    replay_ranks,
    time_by_kind,
    trust,
)
from .rank import Analysis, Column, Options, RankTrace, Table, integers, microseconds, percentage

if TYPE_CHECKING:
    import networkx as nx

NO_GRAPH = "there is no execution graph to replay"
NO_TIME = "nothing in the replayed run takes time"


class RankGraph(NamedTuple):
    """The graph of a rank, if it has one with nodes."""

    rank: int
    graph: ExecutionGraph | None


def _graph(rank: RankTrace, _: Options) -> RankGraph:
    return RankGraph(rank.rank, rank.graph if rank.graph is not None and len(rank.graph) else None)


def _over_ranks(parts: Sequence[RankGraph], _: Options) -> Table:
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
    details = (_replays(replays, note), _by_rank(replays, ranks, rank, path, note), _nodes(replays, path, node, rank))
    return Table(NAME, "Critical path", _by_kind(rank, path), note, details)


def _nodes_of_path(replay: Replay, rows: Rows) -> Rows:
    """Returns the node of each piece: a transfer between ranks is of the node that came last to it."""
    schedule, count = replay.schedule, len(replay.work)
    node_of = np.full(len(schedule.end_ns), -1)
    shared = np.bincount(schedule.finish_row, minlength=len(node_of)) > 1
    node_of[schedule.finish_row] = np.arange(count)
    node_of[shared] = -1
    node_of[:count] = np.arange(count)
    path = path_of(replay).row
    last_known = np.maximum.accumulate(np.where(node_of[path] >= 0, np.arange(len(path)), 0))
    node_of[path] = node_of[path[last_known]]
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


def _nodes(replays: Sequence[Replay], path: Pieces, node: Rows, rank: Int64) -> Table:
    graphs = replays[0].work.graphs if replays else []
    first = replays[0].work.first_row if replays else node
    position = replays[0].work.ranks_of(node) if replays else node
    row = node - first[position] if len(node) else node
    ids, names = np.zeros(len(node), np.int64), [""] * len(node)
    locations = {name: np.full(len(node), -1) for name in ("device", "stream", "tid")}
    for number, graph in enumerate(graphs):
        chosen = np.flatnonzero(position == number)
        ids[chosen] = graph.id[row[chosen]]
        for piece in chosen.tolist():
            names[piece] = graph.name[int(row[piece])]
        for name, values in locations.items():
            column = graph.integers(name)[row[chosen]]
            values[chosen] = np.where(column == ABSENT, -1, column)
    columns = [
        Column("rank", "", rank),
        Column("node", "", ids),
        Column("name", "", names),
        Column("kind", "", [KINDS[kind] for kind in path.kind.tolist()]),
        microseconds("start", path.start),
        microseconds("time", path.time),
        *(Column(name, "", values) for name, values in locations.items()),
    ]
    return Table(f"{NAME}_nodes", "The critical path, piece by piece", columns, "" if len(node) else NO_TIME)


def reliability(replay: Replay) -> str:
    """Returns how many ranks were replayed, if several or not all of the job's, and how reliable the replay is."""
    graphs = replay.work.graphs
    world = max(graph.number("world_size", 0) for graph in graphs)
    isolated = f"{len(graphs)} of {world:,} ranks, without waiting for the others" if len(graphs) < world else ""
    joint = f"{len(graphs)} ranks, which wait for each other" if len(graphs) > 1 else ""
    return "; ".join(filter(None, [isolated or joint, trust(replay)]))


def to_networkx(replay: Replay) -> "nx.DiGraph[int]":
    """Returns one rank's replay as a DiGraph to try changes on: nodes by id with `name`, `class`, `wait_ns`,
    `duration_ns`, `critical`.

    The weight of an edge is its lag plus the wait and duration of its target. Nodes without dependencies have an edge
    from a node -1. So `networkx.dag_longest_path_length` is the makespan and `networkx.dag_longest_path` the critical
    path, also after edits.
    """
    import networkx as nx

    work, graph = replay.work, replay.work.graphs[0]
    ids, cost = graph.id.tolist(), (work.wait_ns + work.duration_ns).tolist()
    critical = set(path_of(replay).row.tolist())
    digraph: nx.DiGraph[int] = nx.DiGraph()
    digraph.add_node(SOURCE, name="start", critical=True)
    labels = [node_class.label for node_class in NodeClass]
    columns = zip(ids, work.node_class.tolist(), work.wait_ns.tolist(), work.duration_ns.tolist(), strict=True)
    for row, (node, node_class, wait, duration) in enumerate(columns):
        values = {"name": graph.name[row], "class": labels[node_class], "wait_ns": wait, "duration_ns": duration}
        digraph.add_node(node, **values, critical=row in critical)
    for source, target, lag in zip(work.source.tolist(), work.target.tolist(), work.lag_ns.tolist(), strict=True):
        digraph.add_edge(ids[source], ids[target], weight=lag + cost[target])
    for row in np.flatnonzero(np.bincount(work.target, minlength=len(work)) == 0).tolist():
        digraph.add_edge(SOURCE, ids[row], weight=cost[row])
    return digraph


SOURCE = -1
"""The id of the node before all others; no node of a graph has it."""
NAME = "critical_path"
critical_path = Analysis(NAME, _graph, _over_ranks)
