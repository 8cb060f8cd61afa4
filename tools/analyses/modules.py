"""The time of each module of the model, by itself and with the modules in it, and of each Python function.

If Python's calls were not read, the annotations of the user (record_function) that enclose ops stand for modules.
"""

from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple, TypeVar

import numpy as np

from ...converter.timeline import IDLE
from ...linker.modules import SEPARATOR, Paths, Stack, forward_ops
from ...schema.columns import (
    ABSENT,
    Categorical,
    Floats,
    Int64,
    Keys,
    ThreadIntervals,
    Tree,
    asof_backward,
    nearest,
    nest,
)
from ...schema.errors import Remedy, Words
from ...schema.graph import ExecutionGraph
from ...schema.linked import Activities, Calls, LinkedTrace, Ops, are_step_marks, op_tree
from ..replay import pieces_of
from .rank import USER_SCOPE, AnalysisOptions, RankTrace, are_annotations, per_rank
from .table import Columns, Table, ints, pct, us

NO_PYTHON = Words("no calls of Python were read (", Remedy.MODULES, ")")
BY_ANNOTATION = Words(*NO_PYTHON, ": the annotations of the user replace modules")
NO_ANNOTATION = Words(*BY_ANNOTATION, ", of which the run has none")
NOTHING = "nothing that ran has a module"
OUTSIDE = "outside of modules"
"""The name of the row for everything outside of modules; its path is empty."""
TableT = TypeVar("TableT", Ops, Calls, Activities)


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


class ModuleTree(NamedTuple):
    """Modules, each after its parent, siblings as they were given, what is outside of them last: their paths, the rows
    of their parents (-1 for none) and their depths.
    """

    path: list[str]
    parent: list[int]
    depth: list[int]

    @staticmethod
    def from_paths(paths: list[str]) -> "ModuleTree":
        """Returns the tree of these paths and of all their parents."""
        order: dict[str, int] = {}
        for prefix in (prefix for path in paths for prefix in _prefixes(path) or [""]):
            order.setdefault(prefix, len(order))
        tree = sorted(order, key=lambda path: [order[prefix] for prefix in _prefixes(path)] or [len(order)])
        row, above = {path: row for row, path in enumerate(tree)}, [_prefixes(path)[:-1] for path in tree]
        return ModuleTree(tree, [row[prefixes[-1]] if prefixes else -1 for prefixes in above], [*map(len, above)])

    @property
    def names(self) -> list[str]:
        """The last parts of the paths."""
        return [path.rpartition(SEPARATOR)[2] or OUTSIDE for path in self.path]

    def rows(self, paths: list[str]) -> list[int]:
        """Returns the row of each path."""
        row = {path: row for row, path in enumerate(self.path)}
        return [row[path] for path in paths]

    def subtree(self, self_values: Floats) -> Floats:
        """Returns for each module the sum over itself and all modules in it."""
        total = self_values.copy()
        for row in reversed(range(len(total))):
            if self.parent[row] >= 0:
                total[self.parent[row]] += total[row]
        return total


def _prefixes(path: str) -> list[str]:
    """Returns the paths of the modules that contain one, outermost first, and its own; none of the empty path."""
    return [*filter(None, accumulate(path.split(SEPARATOR), lambda above, name: f"{above}{SEPARATOR}{name}"))]


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


@per_rank
def modules(rank: RankTrace, _: AnalysisOptions) -> Table:
    """Returns a row for each module, depth first."""
    linked = with_modules(rank.linked)
    uses_annotations = linked is not rank.linked
    sums = shares(linked, "module", rank, annotations=uses_annotations)
    has_modules = any(sums.label)
    note = str(BY_ANNOTATION if has_modules else NO_ANNOTATION) if uses_annotations else "" if has_modules else NOTHING
    tree = ModuleTree.from_paths(sums.label if has_modules else [])
    rows = tree.rows(sums.label) if has_modules else []
    self_sums = Shares(tree.path, *(_scatter(column, rows, len(tree.path)) for column in sums[1:]))
    device, operations, critical, host, ops, activities = map(tree.subtree, self_sums[1:])
    columns: Columns = {
        "depth": ints(tree.depth),
        "name": tree.names,
        "device_self": us(self_sums.device),
        "device_subtree": us(device),
        "device_pct": pct(device, self_sums.device.sum()),
        "operations_self": self_sums.operations,
        "operations_subtree": operations,
        "critical_self": us(self_sums.critical),
        "critical_subtree": us(critical),
        "critical_pct": pct(critical, self_sums.critical.sum()),
        "host_self": us(self_sums.host),
        "host_subtree": us(host),
        "ops": ops.astype(np.int64),
        "activities": activities.astype(np.int64),
        "path": tree.path,
    }
    return Table.from_columns(
        "modules", "Time by module", columns, note=note, details=(_functions(rank, uses_annotations),)
    )


def _scatter(column: Floats, rows: list[int], count: int) -> Floats:
    """Returns the column with its values at these rows of a tree and 0 elsewhere; all NaN if no value is known."""
    values = np.full(count, np.nan if np.isnan(column).all() else 0.0)
    values[rows] = column[: len(rows)]
    return values


def _functions(rank: RankTrace, uses_annotations: bool) -> Table:
    """Returns the Python functions, the most device time first, or host time if nothing ran on a device."""
    sums = NO_SHARES if uses_annotations else shares(rank.linked, "python_function", rank, annotations=False)
    is_named = np.array([bool(text) for text in sums.label], np.bool_)
    times = sums.device if sums.device.any() else sums.host
    order = np.argsort(-np.nan_to_num(times), kind="stable")
    order = order[is_named[order]]
    columns: Columns = {
        "function": [sums.label[row] for row in order.tolist()],
        "device": us(sums.device[order]),
        "device_pct": pct(sums.device[order], sums.device.sum()),
        "operations": sums.operations[order],
        "critical": us(sums.critical[order]),
        "critical_pct": pct(sums.critical[order], sums.critical.sum()),
        "host": us(sums.host[order]),
        "ops": sums.ops[order].astype(np.int64),
        "activities": sums.activities[order].astype(np.int64),
    }
    empty = str(NO_PYTHON) if uses_annotations else NOTHING
    return Table.from_columns("modules_by_function", "Time by Python function", columns, empty=empty)


def shares(linked: LinkedTrace, field: str, rank: RankTrace | None = None, *, annotations: bool) -> Shares:
    """Returns the sums by `field`, which is `module` or `python_function`; without `rank` operations and the critical
    path are unknown.

    `annotations` count as ops only where they stand for modules. The host time of a module is that of its ops without
    the ops that they call, and of calls outside of ops. Host idle time on the critical path belongs to the innermost
    module that contains both the op before and the op after it on the thread.
    """
    ops, calls, activities = linked.ops, linked.calls, linked.activities
    codes = _codes(linked, field, rank.graph if rank else None)
    if not codes.labels:
        return NO_SHARES
    counted = (ops.start != ABSENT) & ~are_step_marks(ops.name)
    op = np.flatnonzero(counted if annotations else counted & ~are_annotations(ops))
    call = np.flatnonzero(calls.op_row < 0)
    in_calls = nest(ThreadIntervals(calls.thread[call], calls.start[call], calls.end[call])).exclusive
    host = codes.sums(codes.op[op], ops.exclusive[op]) + codes.sums(codes.call[call], in_calls)
    sums = (
        codes.sums(codes.activity, activities.end - activities.start),
        _operations(rank, codes) if rank else codes.unknown(),
        critical := _critical_time(rank, codes) if rank else codes.unknown(),
        host if len(ops) else codes.unknown(),
        codes.sums(codes.op[op]),
        codes.sums(codes.activity),
    )
    first_start = np.full(len(codes.labels) + 1, np.inf)
    for code, start in ((codes.op[op], ops.start[op]), (codes.call, calls.start), (codes.activity, activities.start)):
        np.minimum.at(first_start, code, start)
    order = np.argsort(first_start, kind="stable")
    order = order[np.isfinite(first_start[order]) | (critical[order] > 0)]
    labels = [*codes.labels, ""]
    return Shares([labels[row] for row in order.tolist()], *(column[order] for column in sums))


def _codes(linked: LinkedTrace, field: str, graph: ExecutionGraph | None) -> _Codes:
    """Numbers the labels of ops, calls, activities and nodes together."""
    tables = (linked.ops, linked.calls, linked.activities)
    columns: list[Categorical | None] = [getattr(table, field) for table in tables]
    columns.append(_node_labels(graph, field) if graph is not None else None)
    sizes = [*(len(table) for table in tables), len(graph) if graph is not None else 0]
    labels = Categorical.joined(
        Categorical.nulls(size) if column is None else column for column, size in zip(columns, sizes, strict=True)
    )
    codes = np.where(labels.codes < 0, len(labels.table), labels.codes).astype(np.int64)
    op, call, activity, node = np.split(codes, np.cumsum(sizes)[:-1])
    return _Codes([*labels.table], op, call, activity, None if columns[-1] is None else node)


def _operations(rank: RankTrace, codes: _Codes) -> Floats:
    # the nodes of a graph record their work, which takes long to compute
    if rank.graph is not None and codes.node is not None:
        code, work = codes.node, rank.graph.integers("num_ops")
    else:
        code, work = codes.activity, rank.work.operations
    is_known = work != ABSENT
    return codes.sums(code, np.where(is_known, work, 0)) if is_known.any() else codes.unknown()


def _critical_time(rank: RankTrace, codes: _Codes) -> Floats:
    """Returns the critical path's time by the label of its nodes."""
    if codes.node is None or (replay := rank.replayed()) is None:
        return codes.unknown()
    pieces = pieces_of(replay)
    return codes.sums(codes.node[pieces.row], pieces.time)


def _node_labels(graph: ExecutionGraph, field: str) -> Categorical | None:
    """Returns the text of each node of the graph, None if it has none.

    Idle time and annotations get the common path of the nodes before and after them on their thread.
    """
    if field not in graph.attributes:
        return None
    labels, thread = graph.texts(field), graph.integers("tid")
    order = np.lexsort((np.arange(len(graph)), thread))
    order = order[thread[order] != ABSENT]
    is_gap = (graph.name.equal(IDLE) | (graph.integers("scope") == USER_SCOPE))[order]
    position = np.arange(len(order))
    before = np.maximum.accumulate(np.where(is_gap, -1, position))
    after = np.minimum.accumulate(np.where(is_gap, len(order), position)[::-1])[::-1]
    gap = position[is_gap & (before >= 0) & (after < len(order))]
    around = order[np.stack((before[gap], after[gap]), axis=1)]
    on_thread = (thread[around] == thread[order[gap]][:, None]).all(axis=1)
    return _with_common_paths(labels, order[gap[on_thread]], around[on_thread])


def _with_common_paths(labels: Categorical, rows: Int64, around: Int64) -> Categorical:
    """Gives each row the common path of the two rows around it, if there is one."""
    pairs, pair = np.unique(labels.codes[around], axis=0, return_inverse=True)
    paths = [common_path(labels.table[a], labels.table[b]) if min(a, b) >= 0 else "" for a, b in pairs.tolist()]
    table = [*labels.table, *(path for path in dict.fromkeys(paths) if path and path not in labels.table)]
    code_of = {"": -1} | {text: code for code, text in enumerate(table) if text}
    common, codes = np.array([code_of[path] for path in paths], np.int32)[pair.reshape(-1)], labels.codes.copy()
    codes[rows] = np.where(common >= 0, common, codes[rows])
    return Categorical(codes, table)


def common_path(first: str, second: str) -> str:
    """Returns the path of the innermost module that contains both, "" for none.

    >>> common_path("Net_0/Block_1/Linear_2", "Net_0/Block_1/GELU_0")
    'Net_0/Block_1'
    """
    common = [a for a, b in zip(_prefixes(first), _prefixes(second), strict=False) if a == b]
    return common[-1] if common else ""


def with_modules(linked: LinkedTrace) -> LinkedTrace:
    """Returns the trace itself if it has modules, else with the annotations that enclose each op as its module path.

    An op of the backward pass that no annotation encloses has the annotations that are open on the thread that called
    its worker thread, else those of the forward op that it differentiates.
    """
    if linked.activities.module is not None or not len(linked.ops):
        return linked
    ops, calls, activities = linked.ops, linked.calls, linked.activities
    code, paths = _annotations(linked)
    of_ops = Categorical(np.append(code, -1).astype(np.int32), paths)
    return replace(
        linked,
        ops=_add_module_column(ops, of_ops.take(np.arange(len(ops)))),
        calls=_add_module_column(calls, of_ops.take(calls.op_row)),
        activities=_add_module_column(activities, of_ops.take(activities.op_row)),
    )


def _add_module_column(table: TableT, module: Categorical) -> TableT:
    return replace(table, module=module, python_function=Categorical.nulls(len(module)))


def _annotations(linked: LinkedTrace) -> tuple[Int64, list[str]]:
    """Returns for each op the position of the path of its enclosing annotations, -1 for none, and the paths."""
    ops, tree, paths = linked.ops, op_tree(linked.ops), Paths()
    annotates = are_annotations(ops)
    code = np.full(len(ops), -1, np.int64)
    for rows in tree.levels:
        code[rows] = np.append(code, -1)[tree.parent[rows]]
        annotations = rows[annotates[rows]]
        code[annotations] = paths.below(code[annotations], ops.name.codes[annotations].astype(np.int64), ops.name.table)
    if paths:
        _add_backward(linked, tree, code, np.flatnonzero(annotates))
    return code, [*paths]


def _add_backward(linked: LinkedTrace, tree: Tree, code: Int64, annotations: Int64) -> None:
    """Fills in the codes of ops of the backward pass that have none."""
    ops, handoffs = linked.ops, linked.handoffs
    forward = forward_ops(ops)
    apart = (forward >= 0) & (ops.thread[forward] != ops.thread)
    rows = np.flatnonzero((code < 0) & np.isin(ops.thread, ops.thread[apart]) & (ops.start != ABSENT))
    order = np.lexsort((handoffs.target_time, handoffs.target_thread))
    targets = Keys(handoffs.target_thread[order], handoffs.target_time[order])
    last = asof_backward(targets, Keys(ops.thread[rows], ops.start[rows]))
    rows, called = rows[last >= 0], order[last[last >= 0]]
    intervals = ThreadIntervals(*(column[annotations] for column in (ops.thread, ops.start, ops.end)))
    nesting = nest(intervals)
    stack = Stack(intervals._replace(end=nesting.end), nesting.parent, code[annotations], [])
    enclosing = stack.enclosing(ThreadIntervals.at(handoffs.source_thread[called], handoffs.source_time[called]))
    code[rows] = np.append(stack.code, -1)[enclosing]
    nearest_forward = nearest(forward >= 0, tree.parent)
    remaining = np.flatnonzero((code < 0) & (nearest_forward >= 0))
    code[remaining] = code[forward[nearest_forward[remaining]]]
