"""The critical path of a replay: the chain of nodes and waits that determines its makespan, whose times add up to it.

It goes back from the node that ends last, through the dependency that each node waited for longest, and from rank to
rank through a collective or a message of both.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ...converter.rewiring import recorded_edges
from ...schema.columns import Int64, Rows, group_sums
from ...schema.graph import CollectiveType, DependencyKind, ExecutionGraph
from .changes import Scale
from .data_loading import waits_of
from .execution import Replay
from .workload import NodeClass, gather, node_classes

WAITS = (
    (DependencyKind.LAUNCH, "launch"), (DependencyKind.HOST_SYNC, "host sync"),
    (DependencyKind.EVENT_WAIT, "event wait"), (DependencyKind.LAUNCHED_GRAPH, "launched graph"),
    (DependencyKind.HANDOFF, "hand-off"),
    (DependencyKind.COLLECTIVE, "collective"), (DependencyKind.TENSOR_FLOW, "tensor flow"),
    (DependencyKind.STREAM_ORDER, "stream order"), (DependencyKind.PROGRAM_ORDER, "program order"),
)  # fmt: skip
"""The label of the wait after a dependency, by its reason. Of several the first here, the most specific, counts."""

OTHERS = GAP, HOST_DELAY, START_OFFSET, UNKNOWN_START, DATA_WAIT = (
    "gap", "host delay", "start offset", "unknown start", "wait for data",
)  # fmt: skip
KINDS = (*(node_class.label for node_class in NodeClass), *(label for _, label in WAITS), *OTHERS)
"""What time on the path is spent on: the classes of nodes, in the order of NodeClass, waits by reason, then OTHERS."""
CALLED = {
    NodeClass.HOST.label: "the host", NodeClass.COMPUTATION.label: "the computation",
    NodeClass.COMMUNICATION.label: "communication", NodeClass.MEMORY.label: "the memory copies",
    NodeClass.UNRECORDED.label: "host work that was not recorded",
    NodeClass.DELAY.label: "delays that no dependency explains", "launch": "launch latency",
    "stream order": "the gaps between kernels", HOST_DELAY: "the host", START_OFFSET: "the start offsets of ranks",
    DATA_WAIT: "waiting for data", UNKNOWN_START: "starts that no dependency explains",
}  # fmt: skip
NAMES = (
    *(CALLED.get(kind, f"gaps ({kind})") for kind in KINDS),
    *(f"the {collective_type.name.lower().replace('_', '-')}" for collective_type in CollectiveType),
)
"""What the time of a critical path is spent on: in the order of KINDS, then by the type of collective."""
LEAST_SHARE_PCT = 5
"""A smaller part of the critical path than this is not worth a sentence."""
UNEXPLAINED = (NodeClass.DELAY.label, START_OFFSET, UNKNOWN_START)
"""Kinds of time that no dependency explains."""
PIECES_OF_A_ROW = 5
"""Its time after its dependency, the offset and the start of a row without one, its host delay, and its own time."""


def critical_path(replay: Replay) -> tuple[Rows, Int64]:
    """Returns the chain that ends last, in O(n + e): rows of the schedule, and the dependency that each waited for.

    That is -1 for the first row, and for rows that waited for a slot of their device.
    """
    schedule = replay.schedule
    begin_ns = schedule.end_ns - schedule.cost_ns
    is_binding = schedule.end_ns[schedule.source] + schedule.lag_ns == begin_ns[schedule.target]
    targets, first = np.unique(schedule.target[is_binding], return_index=True)
    binding, rows = np.full(len(schedule.end_ns), -1), list[int]()
    binding[targets] = np.flatnonzero(is_binding)[first]
    binding[schedule.slot_after >= 0] = -1
    row = int(schedule.end_ns.argmax()) if len(binding) else -1
    while row >= 0:
        rows.append(row)
        row = int(schedule.source[binding[row]] if binding[row] >= 0 else schedule.slot_after[row])
    path = np.array(rows[::-1], np.int64)
    return path, binding[path]


class Pieces(NamedTuple):
    """The path in order of time: rows of the schedule, kinds as positions in KINDS, starts, lengths (ns), and nodes."""

    row: Int64
    kind: Int64
    start: Int64
    time: Int64
    node: Rows


def pieces_of(replay: Replay) -> Pieces:
    """Returns the pieces of the critical path, which fill the makespan without gap or overlap. O(n + e)."""
    work, (path, dependency) = replay.work, critical_path(replay)
    is_node = path < len(work)
    nodes, waited = path[is_node], is_node & (dependency >= 0)
    ends_itself = replay.schedule.finish_row[nodes] == nodes
    kind, time = np.zeros((2, len(path), PIECES_OF_A_ROW), np.int64)
    reasons, label_of = work.kind[dependency[waited]], [KINDS.index(label) for _, label in WAITS]
    kind[waited, 0] = np.select([reasons & bit != 0 for bit, _ in WAITS], label_of, KINDS.index(GAP))
    time[waited, 0] = work.lag_ns[dependency[waited]]
    kind[:, 1:4] = [KINDS.index(label) for label in (START_OFFSET, HOST_DELAY, UNKNOWN_START)]
    rooted = work.is_rooted[nodes]
    offset = np.where(rooted, work.start_offset_ns[work.ranks_of(nodes)], 0)
    time[is_node, 1], time[is_node, 2] = offset, work.host_delay_ns[nodes]
    time[is_node, 3] = np.where(rooted, work.wait_ns[nodes] - work.host_delay_ns[nodes] - offset, 0)
    kind[:, 4] = KINDS.index(NodeClass.COMMUNICATION.label)
    call, *_, is_waiting = waits_of(work)
    kind[is_node, 4] = np.where(np.isin(nodes, call[is_waiting]), KINDS.index(DATA_WAIT), work.node_class[nodes])
    time[is_node, 4] = np.where(ends_itself, work.duration_ns[nodes], 0)
    time[~is_node, 4] = replay.schedule.cost_ns[path[~is_node]]
    kind, time = kind.reshape(-1), time.reshape(-1)
    start, kept = np.cumsum(time) - time, time != 0
    row, node = (np.repeat(column, PIECES_OF_A_ROW)[kept] for column in (path, _nodes_of(replay, path)))
    return Pieces(row, kind[kept], start[kept], time[kept], node)


def edge_weights(graph: ExecutionGraph) -> Iterator[tuple[int, int, int]]:
    """Yields the source, the target and the weight (ns) of each dependency, whose longest path is the critical path."""
    work, edges = gather([graph]), recorded_edges(graph)
    source, target, _ = edges
    cost = np.where(graph.is_start_offset, 0, work.wait_ns + work.duration_ns)
    is_first = np.bincount(target, minlength=len(graph)) == 0
    weight = cost[target] + np.where((source >= 0) & is_first[source], cost[source], 0)
    weight[(source >= 0) & ~graph.is_start_offset[source]] += work.lag_ns
    yield from zip(graph.data_deps.values.tolist(), graph.id[target].tolist(), weight.tolist(), strict=True)


def time_by_kind(replay: Replay) -> dict[str, int]:
    """Returns the time (ns) of the critical path by kind, the longest first."""
    pieces = pieces_of(replay)
    total = group_sums(pieces.kind, pieces.time, len(KINDS))
    order = np.argsort(-total, kind="stable").tolist()
    return {KINDS[kind]: int(total[kind]) for kind in order if total[kind]}


def largest_part_left(replay: Replay, scale: Sequence[Scale]) -> str:
    """Returns a sentence on what the unchanged part of the critical path is mostly spent on; "" if that is small."""
    work, pieces, finish_row = replay.work, pieces_of(replay), replay.schedule.finish_row
    # the rows of the schedule with a changed duration; a collective has one if a member has
    unchanged = replay.unchanged.duration_ns if replay.unchanged else work.duration_ns
    chosen = [[change.matches(graph, node_classes(graph)) for change in scale] for graph in work.graphs]
    is_asked = np.concatenate([np.logical_or.reduce(of_graph) for of_graph in chosen])
    calls, changed = waits_of(work)[0], np.zeros(len(replay.schedule.end_ns), bool)
    nodes = np.setdiff1d(np.flatnonzero(work.duration_ns != unchanged), calls[~is_asked[calls]])
    changed[nodes] = changed[finish_row[nodes]] = True
    # communication goes by the type of collective
    types = np.concatenate([graph.collective_types() for graph in work.graphs])
    collectives = np.flatnonzero(np.isin(types, list(CollectiveType)))
    names = np.full(len(changed), int(NodeClass.COMMUNICATION))
    for rows in (collectives, finish_row[collectives]):
        names[rows] = len(KINDS) + types[collectives]
    kind = np.where(pieces.kind == NodeClass.COMMUNICATION, names[pieces.row], pieces.kind)
    is_changed = changed[pieces.row] & (pieces.kind < len(NodeClass))
    waits = pieces.node[(pieces.kind == KINDS.index(DATA_WAIT)) & ~is_asked[pieces.node]]
    is_changed |= (pieces.kind == KINDS.index(DATA_WAIT)) & is_asked[pieces.node]
    if NodeClass.HOST in {change.target for change in scale}:
        is_changed |= pieces.kind == KINDS.index(HOST_DELAY)
    total = np.bincount(kind[~is_changed], pieces.time[~is_changed], len(NAMES))
    # a loop that is faster waits longer for its loader
    least_ns = replay.makespan_ns * LEAST_SHARE_PCT / 100
    is_waiting = (work.duration_ns - unchanged)[waits].sum() > max(replay.measured_ns - replay.makespan_ns, least_ns)
    largest = KINDS.index(DATA_WAIT) if is_waiting else int(total.argmax())
    share = 100 * float(total[largest]) / max(replay.makespan_ns, 1)
    if share < LEAST_SHARE_PCT or not changed.any():
        return ""
    changed_kinds = {*kind[is_changed].tolist(), *work.node_class[changed[: len(work)]].tolist()}
    part = "the rest of " if largest in changed_kinds else ""
    # that hardly anything but the host is left says nothing where the host was changed
    if part and largest == NodeClass.HOST and share > 100 - LEAST_SHARE_PCT:
        return ""
    if is_waiting:
        return f"The loop then waits longer for its data, for {share:.0f} % of the critical path."
    return f"The largest part left as it was is {part}{NAMES[largest]}, {share:.0f} % of the critical path."


def _nodes_of(replay: Replay, path: Rows) -> Rows:
    """Returns the node of each row of the schedule on the critical path."""
    schedule, count = replay.schedule, len(replay.work)
    node_of = np.full(len(schedule.end_ns), -1)
    shared = np.bincount(schedule.finish_row, minlength=len(node_of)) > 1
    node_of[schedule.finish_row] = np.arange(count)
    node_of[shared] = -1
    node_of[:count] = np.arange(count)
    last_known = np.maximum.accumulate(np.where(node_of[path] >= 0, np.arange(len(path)), 0))
    return np.asarray(node_of[path[last_known]])


def crossings(replay: Replay) -> tuple[Rows, Int64, Int64]:
    """Returns where the path goes from rank to rank: communicating nodes, and the ranks before and after. O(n + e)."""
    work, path = replay.work, critical_path(replay)[0]
    node = _nodes_of(replay, path)
    rank = work.ranks_of(node)
    before = np.flatnonzero(np.diff(rank))
    # on devices a rank goes on after the transfer; on hosts each member takes its own time after the last arrival
    ends_itself = (path[before + 1] >= len(work)) & (replay.schedule.cost_ns[path[before + 1]] > 0)
    return np.where(ends_itself, node[before + 1], node[before]), rank[before], rank[before + 1]
