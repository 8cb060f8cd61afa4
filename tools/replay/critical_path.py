"""The critical path of a replay: the chain of nodes and waits that its makespan consists of.

Walked back from the node that ends last, through the dependency that each node waited for longest; the pieces sum up to
the makespan exactly.
"""

from dataclasses import dataclass

import numpy as np

from ...schema.columns import Int64
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


@dataclass(slots=True)
class CriticalPath:
    """Schedule rows in order of time, and for each the dependency (its index) that it waited for, -1 for the first and for those that
    waited for room on their device."""

    row: Int64
    dependency: Int64


def critical_path(replay: Replay) -> CriticalPath:
    """The chain that ends last; O(n + e). Where several dependencies end at once, the first listed counts."""
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
    """For each row the first dependency that ends when the row becomes ready, -1 for rows without dependencies."""
    ready = schedule.end_ns - schedule.cost_ns
    held = np.flatnonzero(schedule.end_ns[schedule.source] + schedule.lag_ns == ready[schedule.target])
    rows, first = np.unique(schedule.target[held], return_index=True)
    binding = np.full(len(ready), -1)
    binding[rows] = held[first]
    binding[schedule.place_of >= 0] = -1
    return binding


def time_by_kind(replay: Replay, path: CriticalPath) -> dict[str, int]:
    """The path's ns by what they are spent on, longest first: classes of nodes, and gaps by what was waited for."""
    work, nodes = replay.work, len(replay.work)
    total: dict[str, int] = {}

    def add(label: str, time: Int64) -> None:
        if spent := int(time.sum()):
            total[label] = total.get(label, 0) + spent

    own = path.row[path.row < nodes]
    transfers = path.row[path.row >= nodes]
    alone = own[replay.schedule.finish_row[own] == own]
    for node_class in NodeClass:
        add(node_class.label, work.duration_ns[alone[work.node_class[alone] == node_class]])
    add(NodeClass.COMMUNICATION.label, replay.schedule.cost_ns[transfers])

    dependency = path.dependency[path.row < nodes]
    add(MEASURED_START, (work.wait_ns - work.host_delay_ns)[own[dependency < 0]])
    add(HOST_DELAY, work.host_delay_ns[own])
    waited = dependency >= 0
    gap = work.lag_ns[dependency[waited]]
    kind = work.kind[dependency[waited]]
    for bit, label in WAITS:
        chosen = kind & bit != 0
        add(label, gap[chosen])
        gap, kind = gap[~chosen], kind[~chosen]
    add(GAP, gap)
    return dict(sorted(total.items(), key=lambda item: -item[1]))
