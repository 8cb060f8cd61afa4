"""The critical path of a replay: the chain of nodes and waits that its makespan consists of.

Walked back from the node that ends last, through the dependency that each node waited for longest; the pieces sum up to
the makespan exactly.
"""

from dataclasses import dataclass

import numpy as np

from ...schema.columns import Int64, group_sums
from ...schema.graph import DependencyKind
from .execution import Replay, Schedule
from .node_class import NodeClass

WAITS = (
    (DependencyKind.LAUNCH, "launch"),
    (DependencyKind.HOST_SYNC, "host sync"),
    (DependencyKind.EVENT_WAIT, "event wait"),
    (DependencyKind.HAND_OVER, "hand-over"),
    (DependencyKind.COLLECTIVE, "collective"),
    (DependencyKind.TENSOR_FLOW, "tensor flow"),
    (DependencyKind.STREAM_ORDER, "stream order"),
    (DependencyKind.PROGRAM_ORDER, "program order"),
)
"""What a gap behind a dependency is called; of several reasons the first here, as it is the most telling."""

GAP, HOST_DELAY, MEASURED_START = "gap", "host delay", "measured start"
KINDS = (*(one.label for one in NodeClass), *(label for _, label in WAITS), GAP, HOST_DELAY, MEASURED_START)
"""What time on the path is spent on: a node's own by its class, in the order of NodeClass; the wait before it by what
was waited for, a gap where that is not said; time that a device's work waited for the host, left out of the graph; and
time up to a start without any cause.
"""


@dataclass(slots=True)
class CriticalPath:
    """Schedule rows in order of time, and for each the dependency (its index) that it waited for, -1 for the first and
    for those that waited for room on their device.
    """

    row: Int64
    dependency: Int64


def critical_path(replay: Replay) -> CriticalPath:
    """Returns the chain that ends last; O(n + e). Where several dependencies end at once, the first listed counts."""
    schedule = replay.schedule
    if not len(schedule.end_ns):
        return CriticalPath(*np.empty((2, 0), np.int64))
    binding = _binding_dependencies(schedule)
    before = np.where(binding < 0, -1, schedule.source[binding] if len(schedule.source) else -1)
    before = np.where(schedule.place_of >= 0, schedule.place_of, before).tolist()
    rows = []
    row = int(schedule.end_ns.argmax())
    while row >= 0:
        rows.append(row)
        row = before[row]
    path = np.array(rows[::-1], np.int64)
    return CriticalPath(path, binding[path])


def _binding_dependencies(schedule: Schedule) -> Int64:
    """Returns for each row the first dependency that ends when the row becomes ready, -1 for rows without dependencies."""
    ready = schedule.end_ns - schedule.cost_ns
    held = np.flatnonzero(schedule.end_ns[schedule.source] + schedule.lag_ns == ready[schedule.target])
    rows, first = np.unique(schedule.target[held], return_index=True)
    binding = np.full(len(ready), -1)
    binding[rows] = held[first]
    binding[schedule.place_of >= 0] = -1
    return binding


@dataclass(slots=True)
class Pieces:
    """The path in order of time: piece i is of the schedule row `row`, of `kind` (a place in KINDS), from `start` on,
    `time` ns long.
    """

    row: Int64
    kind: Int64
    start: Int64
    time: Int64


def pieces_of(replay: Replay) -> Pieces:
    """Returns the pieces that the path consists of; they fill the replayed makespan without a gap and without overlap.
    Linear.

    A node contributes the wait before it, by what was waited for, and its own time, by its class; what several ranks do
    together is a piece of its own.
    """
    work, path = replay.work, critical_path(replay)
    own = path.row < len(work)
    mine, waited = path.row[own], own & (path.dependency >= 0)
    alone = replay.schedule.finish_row[mine] == mine
    kind, time = np.zeros((2, len(path.row), 4), np.int64)
    kind[waited, 0] = _wait_kind(work.kind[path.dependency[waited]])
    time[waited, 0] = work.lag_ns[path.dependency[waited]]
    kind[:, 1], kind[:, 2] = KINDS.index(HOST_DELAY), KINDS.index(MEASURED_START)
    time[own, 1] = work.host_delay_ns[mine]
    time[own, 2] = np.where(path.dependency[own] < 0, work.wait_ns[mine] - work.host_delay_ns[mine], 0)
    kind[:, 3] = KINDS.index(NodeClass.COMMUNICATION.label)
    kind[own, 3] = work.node_class[mine]
    time[own, 3] = np.where(alone, work.duration_ns[mine], 0)
    time[~own, 3] = replay.schedule.cost_ns[path.row[~own]]
    kind, time = kind.reshape(-1), time.reshape(-1)
    start, kept = np.cumsum(time) - time, time != 0
    return Pieces(np.repeat(path.row, 4)[kept], kind[kept], start[kept], time[kept])


def _wait_kind(reasons: Int64) -> Int64:
    found = np.full(len(reasons), KINDS.index(GAP))
    for bit, label in reversed(WAITS):
        found[reasons & bit != 0] = KINDS.index(label)
    return found


def time_by_kind(pieces: Pieces) -> dict[str, int]:
    """Returns the path's ns by what they are spent on, longest first."""
    total = group_sums(pieces.kind, pieces.time, len(KINDS))
    order = np.argsort(-total, kind="stable").tolist()
    return {KINDS[kind]: int(total[kind]) for kind in order if total[kind]}
