"""What the run's length consists of: the longest path through the execution graph under its replay, piece by piece.

A node contributes the wait before it, by what was waited for, and its own time, by its class; the pieces fill the replayed run without
a gap and without overlap.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...schema.columns import Int64
from ...schema.graph import DependencyKind, ExecutionGraph
from ..replay import NodeClass, Replay
from ..replay import critical_path as path_of
from .rank import Column, Options, RankTrace, Table, microseconds, per_rank, percentage, rank_column

if TYPE_CHECKING:
    import networkx as nx

KINDS = (
    "host", "kernel", "communication", "memory", "unrecorded", "metadata", "delay", "launch", "host sync", "event wait", "hand-over",
    "gap", "host delay", "before the first node",
)  # fmt: skip
GAP, HOST_DELAY, BEFORE = (KINDS.index(kind) for kind in ("gap", "host delay", "before the first node"))
WAITS = (
    (DependencyKind.LAUNCH, "launch"),
    (DependencyKind.HOST_SYNC, "host sync"),
    (DependencyKind.EVENT_WAIT, "event wait"),
    (DependencyKind.HAND_OVER, "hand-over"),
)
"""What the wait behind a dependency is called; of several reasons the first here. Behind any other it is a gap."""
NO_GRAPH = "there is no execution graph of this rank to replay"
NO_TIME = "nothing in the replayed run takes time"


@dataclass(slots=True)
class Pieces:
    """The path in order of time: piece i belongs to the node at `row`, is of `kind` (a place in KINDS) and lasts from `start` (ns)."""

    row: Int64
    kind: Int64
    start: Int64
    time: Int64


def pieces_of(replay: Replay) -> Pieces:
    """The pieces of one rank's critical path; they sum up to the replayed makespan exactly. Linear in nodes and dependencies."""
    work, path = replay.work, path_of(replay)
    row, waited = path.row, path.dependency >= 0
    host_delay = work.host_delay_ns[row]
    wait = np.zeros(len(row), np.int64)
    wait[waited] = work.lag_ns[path.dependency[waited]]
    before = np.where(waited, 0, work.wait_ns[row] - host_delay)
    kinds = (
        _wait_kind(work.kind, path.dependency),
        np.full(len(row), HOST_DELAY),
        np.full(len(row), BEFORE),
        _class_kind(replay, row),
    )
    times = (wait, host_delay, before, work.duration_ns[row])
    kind, time = np.stack(kinds, axis=1).reshape(-1), np.stack(times, axis=1).reshape(-1)
    start = np.cumsum(time) - time
    kept = time != 0
    return Pieces(np.repeat(row, len(kinds))[kept], kind[kept], start[kept], time[kept])


def _class_kind(replay: Replay, row: Int64) -> Int64:
    names = {NodeClass.COMPUTATION: "kernel"}
    place = np.array([KINDS.index(names.get(one, one.label)) for one in NodeClass])
    return place[replay.work.node_class[row]]


def _wait_kind(kind: Int64, dependency: Int64) -> Int64:
    found = np.full(len(dependency), GAP)
    if len(kind):
        for bit, label in reversed(WAITS):
            found[(dependency >= 0) & (kind[dependency] & bit != 0)] = KINDS.index(label)
    return found


def _table(rank: RankTrace, _: Options) -> Table:
    replay = rank.replayed()
    found = pieces_of(replay) if replay is not None else Pieces(*np.empty((4, 0), np.int64))
    time = np.zeros(len(KINDS), np.int64)
    np.add.at(time, found.kind, found.time)
    order = np.argsort(-time, kind="stable")
    order = order[time[order] > 0]
    note = "" if len(order) else NO_TIME if replay is not None else NO_GRAPH
    columns = [
        rank_column(rank.rank, len(order)),
        Column("kind", "", [KINDS[one] for one in order.tolist()]),
        microseconds("time", time[order]),
        percentage("pct", time[order], time.sum()),
    ]
    return Table(NAME, "Critical path", columns, note, (_nodes(rank, found, note),))


def _nodes(rank: RankTrace, found: Pieces, note: str) -> Table:
    graph = rank.graph
    names = [graph.name[row] for row in found.row.tolist()] if graph is not None else []
    columns = [
        rank_column(rank.rank, len(found.row)),
        Column("node", "", graph.id[found.row] if graph is not None else found.row),
        Column("name", "", names),
        Column("kind", "", [KINDS[one] for one in found.kind.tolist()]),
        microseconds("start", found.start),
        microseconds("time", found.time),
        *(Column(name, "", _place(graph, name, found.row)) for name in ("device", "stream", "tid")),
    ]
    return Table(f"{NAME}_nodes", "The critical path, piece by piece", columns, note)


def _place(graph: ExecutionGraph | None, attribute: str, row: Int64) -> Int64:
    return graph.integers(attribute, -1)[row] if graph is not None else row


def to_networkx(replay: Replay) -> "nx.DiGraph[int]":
    """One rank's replay as a DiGraph to try changes on: nodes by id with `name`, `class`, `wait_ns`, `duration_ns`, `critical`.

    Every edge weighs its lag and what its target costs (wait and duration), and edges from a node -1 start what waits for nothing, so that
    `networkx.dag_longest_path_length` is the makespan and `networkx.dag_longest_path` the critical path, also after edits.
    """
    import networkx as nx

    work, graph = replay.work, replay.work.graphs[0]
    ids, cost = graph.id.tolist(), (work.wait_ns + work.duration_ns).tolist()
    critical = set(path_of(replay).row.tolist())
    made: nx.DiGraph[int] = nx.DiGraph()
    made.add_node(SOURCE, name="start", critical=True)
    labels = [one.label for one in NodeClass]
    columns = zip(ids, work.node_class.tolist(), work.wait_ns.tolist(), work.duration_ns.tolist(), strict=True)
    for row, (node, node_class, wait, duration) in enumerate(columns):
        values = {"name": graph.name[row], "class": labels[node_class], "wait_ns": wait, "duration_ns": duration}
        made.add_node(node, **values, critical=row in critical)
    for source, target, lag in zip(work.source.tolist(), work.target.tolist(), work.lag_ns.tolist(), strict=True):
        made.add_edge(ids[source], ids[target], weight=lag + cost[target])
    for row in np.flatnonzero(np.bincount(work.target, minlength=len(work)) == 0).tolist():
        made.add_edge(SOURCE, ids[row], weight=cost[row])
    return made


SOURCE = -1
"""The id of the node before all others, which no graph uses."""
NAME = "critical_path"
critical_path = per_rank(NAME, _table)
