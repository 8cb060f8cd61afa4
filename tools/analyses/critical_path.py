"""The critical path of the run, which its length consists of, piece by piece, and the error of the replay behind it."""

from typing import TYPE_CHECKING

import numpy as np

from ...schema.columns import Int64
from ...schema.graph import ExecutionGraph
from ..replay import (
    KINDS,
    NodeClass,
    Pieces,
    Replay,
    critical_path as path_of,
    explained_pct,
    pieces_of,
    time_by_kind,
    trust,
)
from .rank import Column, Options, RankTrace, Table, microseconds, per_rank, percentage, rank_column

if TYPE_CHECKING:
    import networkx as nx

NO_GRAPH = "there is no execution graph of this rank to replay"
NO_TIME = "nothing in the replayed run takes time"


def _table(rank: RankTrace, _: Options) -> Table:
    replay = rank.replayed()
    pieces = pieces_of(replay) if replay is not None else Pieces(*np.empty((4, 0), np.int64))
    times = time_by_kind(pieces)
    note = NO_GRAPH if replay is None else trust(replay) if times else NO_TIME
    columns = [
        rank_column(rank.rank, len(times)),
        Column("kind", "", list(times)),
        microseconds("time", list(times.values())),
        percentage("pct", list(times.values()), sum(times.values())),
    ]
    return Table(NAME, "Critical path", columns, note, (_replays(rank, times), _nodes(rank, pieces, note)))


def _replays(rank: RankTrace, times: dict[str, int]) -> Table:
    """Returns a table of one row, or none without a replay."""
    replays = [replay for replay in [rank.replayed()] if replay is not None]
    error = [np.nan if replay.error_pct is None else replay.error_pct for replay in replays]
    columns = [
        rank_column(rank.rank, len(replays)),
        microseconds("measured", [replay.measured_ns for replay in replays]),
        microseconds("replayed", [replay.makespan_ns for replay in replays]),
        Column("error", "%", np.array(error, np.float64)),
        Column("explained", "%", np.array([explained_pct(replay, times) for replay in replays], np.float64)),
    ]
    return Table(f"{NAME}_replay", "The replay beside the measured run", columns, "" if replays else NO_GRAPH)


def _nodes(rank: RankTrace, pieces: Pieces, note: str) -> Table:
    graph = rank.graph
    names = [graph.name[row] for row in pieces.row.tolist()] if graph is not None else []
    columns = [
        rank_column(rank.rank, len(pieces.row)),
        Column("node", "", graph.id[pieces.row] if graph is not None else pieces.row),
        Column("name", "", names),
        Column("kind", "", [KINDS[kind] for kind in pieces.kind.tolist()]),
        microseconds("start", pieces.start),
        microseconds("time", pieces.time),
        *(Column(name, "", _column(graph, name, pieces.row)) for name in ("device", "stream", "tid")),
    ]
    return Table(f"{NAME}_nodes", "The critical path, piece by piece", columns, note)


def _column(graph: ExecutionGraph | None, attribute: str, row: Int64) -> Int64:
    return graph.integers(attribute, -1)[row] if graph is not None else row


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
critical_path = per_rank(NAME, _table)
