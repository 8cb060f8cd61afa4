"""Device time, operations, critical path and host time of each module or Python function."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ....converter.host_timeline import IDLE
from ....linker.modules import SEPARATOR
from ....schema.columns import ABSENT, Bool, Categorical, Int64, Rows, ThreadIntervals, nest
from ....schema.graph import ExecutionGraph
from ....schema.linked import LinkedTrace
from ....schema.traces import are_step_marks
from ...replay import pieces_of
from ..rank import USER_SCOPE, Floats, RankTrace, are_annotations


class Shares(NamedTuple):
    """Modules or functions in the order of their first starts, "" for none, with sums of their own: device time (ns),
    operations, critical path (ns), host time (ns), ops and activities. Unknown sums are NaN.
    """

    label: list[str]
    device: Floats
    operations: Floats
    critical: Floats
    host: Floats
    ops: Floats
    activities: Floats


NO_SHARES = Shares([], *np.empty((6, 0)))


def shares(rank: RankTrace, linked: LinkedTrace, field: str, annotations: bool) -> Shares:
    """Returns the sums by `field`, which is `module` or `python_function`.

    `annotations` count as ops only where they stand for modules. The host time of a module is that of its ops without
    the ops that they call, and of calls outside of ops. Host idle time on the critical path belongs to the innermost
    module that contains both the op before and the op after it on the thread.
    """
    ops, calls, activities, graph = linked.ops, linked.calls, linked.activities, rank.graph
    columns = [getattr(table, field) for table in (ops, calls, activities)]
    columns.append(_of_nodes(graph, field) if graph is not None else None)
    sizes = (len(ops), len(calls), len(activities), len(graph) if graph is not None else 0)
    labels = Categorical.joined(
        Categorical.nulls(size) if column is None else column for column, size in zip(columns, sizes, strict=True)
    )
    if not labels.table:
        return NO_SHARES
    codes = np.where(labels.codes < 0, len(labels.table), labels.codes).astype(np.int64)
    of_op, of_call, of_activity, of_node = np.split(codes, np.cumsum(sizes)[:-1])
    op, call = np.flatnonzero(_counted_ops(linked, annotations)), np.flatnonzero(calls.op_row < 0)
    count = len(labels.table) + 1

    def summed(code: Int64, values: Int64 | Floats | None = None) -> Floats:
        return np.bincount(code, values, count).astype(np.float64)

    host = summed(of_op[op], ops.exclusive[op])
    host += summed(
        of_call[call], nest(ThreadIntervals(calls.thread[call], calls.start[call], calls.end[call])).exclusive
    )
    # the nodes of a graph record their work, which takes long to compute
    if graph is not None and columns[-1] is not None:
        of_worker, work = of_node, graph.integers("num_ops")
    else:
        of_worker, work = of_activity, rank.work().operations
    unknown = np.full(count, np.nan)
    sums = Shares(
        [*labels.table, ""],
        device=summed(of_activity, activities.end - activities.start),
        operations=summed(of_worker, np.where(work == ABSENT, 0, work)) if (work != ABSENT).any() else unknown,
        critical=_critical_time(rank, of_node, count) if columns[-1] is not None else unknown,
        host=host if len(ops) else unknown,
        ops=summed(of_op[op]),
        activities=summed(of_activity),
    )
    starts = (of_op[op], ops.start[op]), (of_call, calls.start), (of_activity, activities.start)
    return _in_order(sums, starts)


def _in_order(sums: Shares, starts: Iterable[tuple[Int64, Int64]]) -> Shares:
    """Sorts the sums by first start and drops those of nothing; `starts` are pairs of codes and times."""
    first_start = np.full(len(sums.label), np.inf)
    for code, start in starts:
        np.minimum.at(first_start, code, start)
    order = np.argsort(first_start, kind="stable")
    order = order[np.isfinite(first_start[order]) | (sums.critical[order] > 0)]
    return Shares([sums.label[row] for row in order.tolist()], *(column[order] for column in sums[1:]))


def _counted_ops(linked: LinkedTrace, annotations: bool) -> Bool:
    ops = linked.ops
    is_counted: Bool = (ops.start != ABSENT) & ~are_step_marks(ops.name)
    return is_counted if annotations else is_counted & ~are_annotations(ops)


def _critical_time(rank: RankTrace, of_node: Int64, count: int) -> Floats:
    """Returns the critical path's time by the code of its nodes."""
    replay = rank.replayed()
    if replay is None:
        return np.full(count, np.nan)
    pieces = pieces_of(replay)
    return np.bincount(of_node[pieces.row], pieces.time, count).astype(np.float64)


def _of_nodes(graph: ExecutionGraph, field: str) -> Categorical | None:
    """Returns the text of each node of the graph, None if it has none.

    Idle time and annotations get the common path of the nodes before and after them.
    """
    if field not in graph.attributes:
        return None
    labels, thread = graph.texts(field), graph.integers("tid")
    order = np.lexsort((np.arange(len(graph)), thread))
    order = order[thread[order] != ABSENT]
    between = (graph.name.equal(IDLE) | (graph.integers("scope") == USER_SCOPE))[order]
    position = np.arange(len(order))
    before = np.maximum.accumulate(np.where(between, -1, position))
    after = np.minimum.accumulate(np.where(between, len(order), position)[::-1])[::-1]
    gap = position[between & (before >= 0) & (after < len(order))]
    before, gap, after = (order[rows] for rows in (before[gap], gap, after[gap]))
    on_thread = (thread[before] == thread[gap]) & (thread[gap] == thread[after])
    return _with_common(labels, before[on_thread], gap[on_thread], after[on_thread])


def _with_common(labels: Categorical, before: Rows, gap: Rows, after: Rows) -> Categorical:
    """Returns the texts with the common path of the rows before and after each gap in the gap, if there is one."""
    code_of = {text: code for code, text in enumerate(labels.table)}
    table, codes = [*labels.table], labels.codes.copy()
    pairs, pair = np.unique(np.stack((codes[before], codes[after]), axis=1), axis=0, return_inverse=True)
    new_codes = []
    for a, b in pairs.tolist():
        text = common_path(labels.table[a], labels.table[b]) if min(a, b) >= 0 else ""
        if text and text not in code_of:
            code_of[text] = len(table)
            table.append(text)
        new_codes.append(code_of[text] if text else -1)
    common = np.array(new_codes, np.int32)[pair.reshape(-1)]
    codes[gap] = np.where(common >= 0, common, codes[gap])
    return Categorical(codes, table)


def common_path(first: str, second: str) -> str:
    """Returns the path of the innermost module that contains both, "" for none.

    >>> common_path("Net_0/Block_1/Linear_2", "Net_0/Block_1/GELU_0")
    'Net_0/Block_1'
    """
    parts = zip(first.split(SEPARATOR), second.split(SEPARATOR), strict=False)
    kept = []
    for a, b in parts:
        if a != b:
            break
        kept.append(a)
    return SEPARATOR.join(kept)
