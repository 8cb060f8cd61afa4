"""Device time, operations, critical path and host time of each module or Python function."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ...converter.timeline import IDLE
from ...linker.modules import SEPARATOR
from ...schema.columns import ABSENT, Bool, Categorical, Int64, Rows, ThreadIntervals, nest
from ...schema.graph import ExecutionGraph
from ...schema.linked import LinkedTrace, are_step_marks
from ..replay import pieces_of
from .annotations import USER_SCOPE, are_annotations
from .rank_trace import RankTrace
from .table import Floats


class _Gaps(NamedTuple):
    """Nodes between two others of their thread, and the nodes before and after them."""

    row: Rows
    before: Rows
    after: Rows


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


class _Codes(NamedTuple):
    """The labels of modules or functions, and the position of each row's label among them, their count for rows without
    a label; `node` is None if the graph records no labels.
    """

    labels: list[str]
    op: Int64
    call: Int64
    activity: Int64
    node: Int64 | None

    def sums(self, code: Int64, values: Int64 | Floats | None = None) -> Floats:
        """Returns the sum of the values, or the number of rows, for each label."""
        return np.bincount(code, values, len(self.labels) + 1).astype(np.float64)

    def unknown(self) -> Floats:
        """Returns NaN for each label."""
        return np.full(len(self.labels) + 1, np.nan)


NO_SHARES = Shares([], *np.empty((6, 0)))


def shares(rank: RankTrace, linked: LinkedTrace, field: str, annotations: bool) -> Shares:
    """Returns the sums by `field`, which is `module` or `python_function`.

    `annotations` count as ops only where they stand for modules. The host time of a module is that of its ops without
    the ops that they call, and of calls outside of ops. Host idle time on the critical path belongs to the innermost
    module that contains both the op before and the op after it on the thread.
    """
    codes = _codes(rank, linked, field)
    if not codes.labels:
        return NO_SHARES
    ops, activities = linked.ops, linked.activities
    op = np.flatnonzero(_counted_ops(linked, annotations))
    sums = Shares(
        [*codes.labels, ""],
        device=codes.sums(codes.activity, activities.end - activities.start),
        operations=_operations(rank, codes),
        critical=_critical_time(rank, codes),
        host=_host_time(linked, codes, op) if len(ops) else codes.unknown(),
        ops=codes.sums(codes.op[op]),
        activities=codes.sums(codes.activity),
    )
    starts = (codes.op[op], ops.start[op]), (codes.call, linked.calls.start), (codes.activity, activities.start)
    return _sorted_by_start(sums, starts)


def _codes(rank: RankTrace, linked: LinkedTrace, field: str) -> _Codes:
    """Numbers the labels of ops, calls, activities and nodes together."""
    tables, graph = (linked.ops, linked.calls, linked.activities), rank.graph
    columns: list[Categorical | None] = [getattr(table, field) for table in tables]
    columns.append(_node_labels(graph, field) if graph is not None else None)
    sizes = [*(len(table) for table in tables), len(graph) if graph is not None else 0]
    labels = Categorical.joined(
        Categorical.nulls(size) if column is None else column for column, size in zip(columns, sizes, strict=True)
    )
    codes = np.where(labels.codes < 0, len(labels.table), labels.codes).astype(np.int64)
    op, call, activity, node = np.split(codes, np.cumsum(sizes)[:-1])
    return _Codes([*labels.table], op, call, activity, None if columns[-1] is None else node)


def _host_time(linked: LinkedTrace, codes: _Codes, op: Int64) -> Floats:
    """Returns the time of these ops without the ops that they call, and of calls outside of ops."""
    calls = linked.calls
    call = np.flatnonzero(calls.op_row < 0)
    nested = nest(ThreadIntervals(calls.thread[call], calls.start[call], calls.end[call]))
    return codes.sums(codes.op[op], linked.ops.exclusive[op]) + codes.sums(codes.call[call], nested.exclusive)


def _operations(rank: RankTrace, codes: _Codes) -> Floats:
    # the nodes of a graph record their work, which takes long to compute
    if rank.graph is not None and codes.node is not None:
        code, work = codes.node, rank.graph.integers("num_ops")
    else:
        code, work = codes.activity, rank.work().operations
    is_known = work != ABSENT
    return codes.sums(code, np.where(is_known, work, 0)) if is_known.any() else codes.unknown()


def _sorted_by_start(sums: Shares, starts: Iterable[tuple[Int64, Int64]]) -> Shares:
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


def _critical_time(rank: RankTrace, codes: _Codes) -> Floats:
    """Returns the critical path's time by the label of its nodes."""
    if codes.node is None or (replay := rank.replayed()) is None:
        return codes.unknown()
    pieces = pieces_of(replay)
    return codes.sums(codes.node[pieces.row], pieces.time)


def _node_labels(graph: ExecutionGraph, field: str) -> Categorical | None:
    """Returns the text of each node of the graph, None if it has none.

    Idle time and annotations get the common path of the nodes before and after them.
    """
    if field not in graph.attributes:
        return None
    labels, thread = graph.texts(field), graph.integers("tid")
    order = np.lexsort((np.arange(len(graph)), thread))
    order = order[thread[order] != ABSENT]
    is_gap = (graph.name.equal(IDLE) | (graph.integers("scope") == USER_SCOPE))[order]
    return _fill_gaps(labels, _gaps_on_threads(order, is_gap, thread))


def _gaps_on_threads(order: Int64, is_gap: Bool, thread: Int64) -> _Gaps:
    """Returns the gaps that have other nodes before and after them on their thread; `order` goes thread by thread."""
    position = np.arange(len(order))
    before = np.maximum.accumulate(np.where(is_gap, -1, position))
    after = np.minimum.accumulate(np.where(is_gap, len(order), position)[::-1])[::-1]
    gap = position[is_gap & (before >= 0) & (after < len(order))]
    row, before, after = (order[positions] for positions in (gap, before[gap], after[gap]))
    on_thread = (thread[before] == thread[row]) & (thread[row] == thread[after])
    return _Gaps(row[on_thread], before[on_thread], after[on_thread])


def _fill_gaps(labels: Categorical, gaps: _Gaps) -> Categorical:
    """Gives each gap the common path of the rows before and after it, if there is one."""
    code_of = {text: code for code, text in enumerate(labels.table)}
    table, codes = [*labels.table], labels.codes.copy()
    pairs, pair = np.unique(np.stack((codes[gaps.before], codes[gaps.after]), axis=1), axis=0, return_inverse=True)
    new_codes = []
    for a, b in pairs.tolist():
        text = common_path(labels.table[a], labels.table[b]) if min(a, b) >= 0 else ""
        if text and text not in code_of:
            code_of[text] = len(table)
            table.append(text)
        new_codes.append(code_of[text] if text else -1)
    common = np.array(new_codes, np.int32)[pair.reshape(-1)]
    codes[gaps.row] = np.where(common >= 0, common, codes[gaps.row])
    return Categorical(codes, table)


def common_path(first: str, second: str) -> str:
    """Returns the path of the innermost module that contains both, "" for none.

    >>> common_path("Net_0/Block_1/Linear_2", "Net_0/Block_1/GELU_0")
    'Net_0/Block_1'
    """
    parts = zip(first.split(SEPARATOR), second.split(SEPARATOR), strict=False)
    common = []
    for a, b in parts:
        if a != b:
            break
        common.append(a)
    return SEPARATOR.join(common)
