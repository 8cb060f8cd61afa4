"""What the rules need of a rank besides its graph, taken from its traces while they are in memory."""

from dataclasses import dataclass, field

import numpy as np

from ...schema.columns import ABSENT, Bool, Categorical, Int64, NestedIntervals, Ns, OpRows, Rows, ThreadIntervals
from ...schema.graph import ExecutionGraph
from ...schema.linked import LinkedTrace, op_tree
from ...schema.reasons import Counts
from ..phase_names import LOADER
from ..sync_records_advice import lacks_sync_records
from .graph_alone import activity_rows
from .host_phases import step_starts
from .rank_trace import RankTrace

ATEN = "aten::"
NO_OP = -1


@dataclass(slots=True)
class RankFacts:
    """Of each node of a rank's graph: whether it runs while the loop gets the next batch, its op (of a host node the
    outermost one of PyTorch, of a kernel the one whose work it does), the shapes of that op's inputs, and the Python
    function that called it, null where they are not known.

    `step_starts` are the marks of steps, on the clock of the graph's host nodes, `dropped` what is missing in the graph
    by reason, `recorded_ops` how many ops the host trace holds.
    """

    rank: int
    graph: ExecutionGraph
    in_loader: Bool
    op: Categorical
    shape: Categorical
    function: Categorical
    step_starts: Ns
    dropped: Counts = field(default_factory=Counts)
    lacks_sync_records: bool = False
    recorded_ops: int = 0


def facts_of(rank: RankTrace) -> RankFacts | None:
    """Returns the facts of a rank, None without a graph of any node. O(n log n)."""
    graph, linked = rank.graph, rank.linked
    if graph is None or not len(graph):
        return None
    inner, outer, in_loader = _ops_of_host_nodes(graph, linked)
    op_row = np.where(outer >= 0, outer, inner)
    activities = _activity_nodes(graph, linked)
    if len(activities) and len(linked.ops):
        work = rank.work().op_row
        op_row[activities] = np.where(work >= 0, work, linked.activities.op_row)
        inner[activities] = linked.activities.op_row
    shapes = rank.shapes() if len(linked.ops) else Categorical.nulls(0)
    return RankFacts(
        rank.rank,
        graph,
        in_loader,
        _of_ops(linked.ops.name, op_row),
        _of_ops(shapes, op_row),
        _functions(graph, linked, inner),
        step_starts(linked),
        linked.report.dropped,
        lacks_sync_records(linked),
        linked.report.host_ops,
    )


def _ops_of_host_nodes(graph: ExecutionGraph, linked: LinkedTrace) -> tuple[OpRows, OpRows, Bool]:
    """Returns for each node the innermost op around it and the outermost one of PyTorch, -1 for none, and whether an op
    that gets the next batch is around it. Activities have none.
    """
    ops, tree = linked.ops, op_tree(linked.ops)
    node = np.flatnonzero(~graph.is_activity & ~graph.is_delay & (graph.integers("start_time_ns") != ABSENT))
    timed = np.flatnonzero(ops.start != ABSENT)
    inner, outer, in_loader = np.full(len(graph), NO_OP), np.full(len(graph), NO_OP), np.zeros(len(graph), np.bool_)
    if not len(timed) or not len(node):
        return OpRows(inner), OpRows(outer), in_loader
    position = np.full(len(ops) + 1, NO_OP)
    position[timed] = np.arange(len(timed))
    intervals = ThreadIntervals(*(column[timed] for column in (ops.thread, ops.start, ops.end)))
    middle = graph.start_ns[node] + graph.duration_ns[node] // 2
    innermost = NestedIntervals(intervals, position[tree.parent[timed]]).innermost(
        ThreadIntervals.at(graph.integers("tid")[node], middle)
    )
    inner[node] = np.append(timed, NO_OP)[innermost]
    is_aten = ops.name.where(lambda name: name.startswith(ATEN))
    loads = ops.name.where(lambda name: LOADER.search(name) is not None)
    outermost, loading = np.full(len(ops) + 1, NO_OP), np.append(loads, False)
    for rows in tree.levels:
        above = tree.parent[rows]
        outermost[rows] = np.where((outermost[above] < 0) & is_aten[rows], rows, outermost[above])
        loading[rows] |= loading[above]
    outer[node], in_loader[node] = outermost[inner[node]], loading[inner[node]]
    return OpRows(inner), OpRows(outer), in_loader


def _activity_nodes(graph: ExecutionGraph, linked: LinkedTrace) -> Rows:
    """Returns the node of each activity of the trace; none if the graph has others."""
    nodes, activities = activity_rows(graph), linked.activities
    if len(nodes) != len(activities):
        return nodes[:0]
    by_time = np.lexsort((graph.integers("stream")[nodes], graph.integers("device")[nodes], graph.start_ns[nodes]))
    order = np.lexsort((activities.stream, activities.device, activities.start))
    node = np.empty(len(nodes), np.int64)
    node[order] = nodes[by_time]
    return node


def _of_ops(column: Categorical, op_row: Int64) -> Categorical:
    """Returns the values of a column of ops by node, null for nodes without an op."""
    return Categorical(np.append(column.codes, -1)[op_row].astype(np.int32), column.table)


def _functions(graph: ExecutionGraph, linked: LinkedTrace, op_row: Int64) -> Categorical:
    if "python_function" in graph.attributes:
        return graph.texts("python_function")
    if linked.ops.python_function is None:
        return Categorical.nulls(len(graph))
    return _of_ops(linked.ops.python_function, op_row)
