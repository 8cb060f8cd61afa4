"""The time of each module of the model, by itself and with the modules in it, and of each Python function.

If Python's calls were not read, the annotations of the user (record_function) that enclose ops stand for modules.
"""

from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple, TypeVar

import numpy as np

from ...converter.timeline import IDLE
from ...linker.modules import SEPARATOR, Paths, Stack, forward_ops
from ...schema import columns
from ...schema.columns import ABSENT, Categorical, Floats, Int64, Tree
from ...schema.errors import Remedy, Words
from ...schema.graph import ExecutionGraph
from ...schema.linked import USER_SCOPE, Activities, Calls, LinkedTrace, Ops, are_step_marks, op_tree
from ..replay import pieces_of
from .rank import AnalysisOptions, RankTrace, are_annotations, per_rank
from .table import Columns, Table, ints, named, pct, tabulate, us

NO_PYTHON = Words("no calls of Python were read (", Remedy.MODULES, ")")
BY_ANNOTATION = Words(*NO_PYTHON, ": the annotations of the user replace modules")
NO_ANNOTATION = Words(*BY_ANNOTATION, ", of which the run has none")
NOTHING = "nothing that ran has a module"
OUTSIDE = "outside of modules"
"""The name of the row for everything outside of modules; its path is empty."""
TableT = TypeVar("TableT", Ops, Calls, Activities)


class Shares(NamedTuple):
    """Modules or functions in the order of first starts, "" for none, with their own sums (ns), NaN if unknown."""

    label: list[str]
    device: Floats
    operations: Floats
    critical: Floats
    host: Floats
    ops: Floats
    activities: Floats


def module_tree(paths: list[str]) -> tuple[list[str], Tree]:
    """Returns these paths and those of all modules around them, each after its parent, OUTSIDE last, and their tree."""
    order: dict[str, int] = {}
    for prefix in (prefix for path in paths for prefix in _prefixes(path) or [""]):
        order.setdefault(prefix, len(order))
    rows = sorted(order, key=lambda path: [order[prefix] for prefix in _prefixes(path)] or [len(order)])
    row = {path: number for number, path in enumerate(rows)}
    around = (_prefixes(path)[:-1] for path in rows)
    parent = ints(row[prefixes[-1]] if prefixes else -1 for prefixes in around)
    return rows, Tree.of(parent, np.arange(len(rows)))


def names_of_modules(paths: list[str]) -> Columns:
    """Returns the depths and the last parts of the paths."""
    return {
        "depth": ints(max(len(_prefixes(path)) - 1, 0) for path in paths),
        "name": [path.rpartition(SEPARATOR)[2] or OUTSIDE for path in paths],
    }


def _prefixes(path: str) -> list[str]:
    """Returns the paths of the modules that contain one, outermost first, and its own; none of the empty path."""
    return [*filter(None, accumulate(path.split(SEPARATOR), lambda above, name: f"{above}{SEPARATOR}{name}"))]


NO_SHARES = Shares([], *np.empty((6, 0)))


@per_rank
def modules(rank: RankTrace, _: AnalysisOptions) -> Table:
    """Returns a row for each module, depth first."""
    linked = with_modules(rank.linked)
    uses_annotations = linked is not rank.linked
    sums = shares(linked, "module", rank, annotations=uses_annotations)
    has_modules = any(sums.label)
    note = str(BY_ANNOTATION if has_modules else NO_ANNOTATION) if uses_annotations else "" if has_modules else NOTHING
    paths, tree = module_tree(sums.label if has_modules else [])
    row_of, columns_of_tree = {path: row for row, path in enumerate(paths)}, np.zeros((6, len(paths)))
    rows = [row_of[label] for label in sums.label] if has_modules else []
    for values, column in zip(columns_of_tree, sums[1:], strict=True):
        values[rows] = column[: len(rows)]
        values[:] = np.nan if np.isnan(column).all() else values
    self_sums = Shares(paths, *columns_of_tree)
    device, operations, critical, host, ops, activities = (tree.subtrees(np.add, sums) for sums in columns_of_tree)
    cells: Columns = {
        **names_of_modules(paths), "device_self": us(self_sums.device), "device_subtree": us(device),
        "device_pct": pct(device, self_sums.device.sum()), "operations_self": self_sums.operations,
        "operations_subtree": operations, "critical_self": us(self_sums.critical), "critical_subtree": us(critical),
        "critical_pct": pct(critical, self_sums.critical.sum()), "host_self": us(self_sums.host),
        "host_subtree": us(host), "ops": ops.astype(np.int64), "activities": activities.astype(np.int64), "path": paths,
    }  # fmt: skip
    return tabulate("modules", "Time by module", cells, note, _functions(rank, uses_annotations))


def _functions(rank: RankTrace, uses_annotations: bool) -> Table:
    """Returns the Python functions, the most device time first, or host time if nothing ran on a device."""
    sums = NO_SHARES if uses_annotations else shares(rank.linked, "python_function", rank, annotations=False)
    times = np.nan_to_num(sums.device if np.nan_to_num(sums.device).any() else sums.host)
    named_rows = np.array([row for row, label in enumerate(sums.label) if label], np.int64)
    order = named_rows[np.argsort(-times[named_rows], kind="stable")]
    cells: Columns = {
        "function": [sums.label[row] for row in order.tolist()], "device": us(sums.device[order]),
        "device_pct": pct(sums.device[order], sums.device.sum()), "operations": sums.operations[order],
        "critical": us(sums.critical[order]), "critical_pct": pct(sums.critical[order], sums.critical.sum()),
        "host": us(sums.host[order]), "ops": sums.ops[order].astype(np.int64),
        "activities": sums.activities[order].astype(np.int64),
    }  # fmt: skip
    empty = str(NO_PYTHON) if uses_annotations else NOTHING
    return tabulate("modules_by_function", "Time by Python function", cells, empty=empty)


def shares(linked: LinkedTrace, field: str, rank: RankTrace | None = None, *, annotations: bool) -> Shares:
    """Returns the sums by `field`, `module` or `python_function`; some need the `rank`.

    The host time of a module is that of its ops without the ops that they call, and of calls outside of ops. On the
    critical path idle time belongs to the innermost module that contains the ops before and after it on the thread.
    """
    ops, calls, activities, graph = linked.ops, linked.calls, linked.activities, rank.graph if rank else None
    nodes = _node_labels(graph, field) if graph is not None else None
    tables, sizes = (ops, calls, activities), [len(ops), len(calls), len(activities), len(graph or ())]
    cells = zip([*(getattr(table, field) for table in tables), nodes], sizes, strict=True)
    joined = Categorical.joined(Categorical.nulls(size) if labels is None else labels for labels, size in cells)
    labels = [*joined.table, ""]
    # of each row the position of its label, the last for none
    codes = np.where(joined.codes < 0, len(joined.table), joined.codes).astype(np.int64)
    op_code, call_code, activity_code, node_code = np.split(codes, np.cumsum(sizes)[:-1])
    if len(labels) == 1:
        return NO_SHARES

    def sums(code: Int64, values: Int64 | Floats | None = None) -> Floats:
        return np.bincount(code, values, len(labels)).astype(np.float64)

    unknown = np.full(len(labels), np.nan)
    counted = (ops.start != ABSENT) & ~are_step_marks(ops.name)
    op = np.flatnonzero(counted if annotations else counted & ~are_annotations(ops))
    call = np.flatnonzero(calls.op_row < 0)
    in_calls = columns.nest(columns.ThreadIntervals(calls.thread[call], calls.start[call], calls.end[call])).exclusive
    host = sums(op_code[op], ops.exclusive[op]) + sums(call_code[call], in_calls) if len(ops) else unknown
    work_code, work = activity_code[:0], activity_code[:0]
    if rank is not None and rank.graph is not None and nodes is not None:
        work_code, work = node_code, rank.graph.integers("num_ops")
    elif rank is not None:  # takes long to compute
        work_code, work = activity_code, rank.work.operations
    operations = sums(work_code, np.where(work != ABSENT, work, 0)) if (work != ABSENT).any() else unknown
    critical = unknown
    if rank is not None and nodes is not None and rank.replay is not None:
        pieces = pieces_of(rank.replay)
        critical = sums(node_code[pieces.node], pieces.time)
    first_start = np.full(len(labels), np.inf)
    for code, start in ((op_code[op], ops.start[op]), (call_code, calls.start), (activity_code, activities.start)):
        np.minimum.at(first_start, code, start)
    order = np.argsort(first_start, kind="stable")
    order = order[np.isfinite(first_start[order]) | (critical[order] > 0)]
    device = sums(activity_code, activities.end - activities.start) if len(activities) else unknown
    all_sums = device, operations, critical, host, sums(op_code[op]), sums(activity_code)
    return Shares([labels[row] for row in order.tolist()], *(column[order] for column in all_sums))


def _node_labels(graph: ExecutionGraph, field: str) -> Categorical | None:
    """Returns the text of each node, or None; idle time and annotations get what the nodes before and after share."""
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
    rows, around = order[gap[on_thread]], around[on_thread]
    pairs, pair = np.unique(labels.codes[around], axis=0, return_inverse=True)
    paths = [common_path(labels.table[a], labels.table[b]) if min(a, b) >= 0 else "" for a, b in pairs.tolist()]
    table = [*labels.table, *(path for path in dict.fromkeys(paths) if path and path not in labels.table)]
    code_of = {"": -1} | {text: code for code, text in enumerate(table) if text}
    common, codes = np.array([code_of[path] for path in paths], np.int32)[pair.reshape(-1)], labels.codes.copy()
    codes[rows] = np.where(common >= 0, common, codes[rows])
    return Categorical(codes, table)


def common_path(first: str, second: str) -> str:
    """Returns the path of the innermost module that contains both, "" for none."""
    common = [a for a, b in zip(_prefixes(first), _prefixes(second), strict=False) if a == b]
    return common[-1] if common else ""


def with_modules(linked: LinkedTrace) -> LinkedTrace:
    """Returns the trace itself if it has modules, else with the annotations that enclose each op as its module path.

    A backward op that no annotation encloses has those of the call of its thread, else of its forward op.
    """
    if linked.activities.module is not None or not len(linked.ops):
        return linked
    ops, tree, paths = linked.ops, op_tree(linked.ops), Paths()
    annotates, code = are_annotations(ops), np.full(len(ops), -1, np.int64)
    for rows in tree.levels:
        code[rows] = columns.RowMap(code)[tree.parent[rows]]
        annotations = rows[annotates[rows]]
        code[annotations] = paths.below(code[annotations], ops.name.codes[annotations].astype(np.int64), ops.name.table)
    if paths:
        _add_backward(linked, tree, code, np.flatnonzero(annotates))
    of_ops = Categorical(code.astype(np.int32), [*paths])

    def labelled(table: TableT, rows: columns.OpRows) -> TableT:
        return replace(table, module=named(of_ops, rows), python_function=Categorical.nulls(len(rows)))

    calls = labelled(linked.calls, linked.calls.op_row)
    activities = labelled(linked.activities, linked.activities.op_row)
    ops = labelled(ops, columns.OpRows(np.arange(len(ops))))
    return replace(linked, ops=ops, calls=calls, activities=activities)


def _add_backward(linked: LinkedTrace, tree: Tree, code: Int64, annotations: Int64) -> None:
    """Fills in the codes of ops of the backward pass that have none."""
    ops, handoffs = linked.ops, linked.handoffs
    forward = forward_ops(ops)
    apart = (forward >= 0) & (ops.thread[forward] != ops.thread)
    rows = np.flatnonzero((code < 0) & np.isin(ops.thread, ops.thread[apart]) & (ops.start != ABSENT))
    order = np.lexsort((handoffs.target_time, handoffs.target_thread))
    targets = columns.Keys(handoffs.target_thread[order], handoffs.target_time[order])
    last = columns.asof_backward(targets, columns.Keys(ops.thread[rows], ops.start[rows]))
    rows, called = rows[last >= 0], order[last[last >= 0]]
    intervals = columns.ThreadIntervals(*(column[annotations] for column in (ops.thread, ops.start, ops.end)))
    nesting = columns.nest(intervals)
    stack = Stack(intervals._replace(end=nesting.end), nesting.parent, code[annotations], [])
    given = columns.ThreadIntervals.at(handoffs.source_thread[called], handoffs.source_time[called])
    enclosing = stack.enclosing(given)
    code[rows] = columns.RowMap(stack.code)[enclosing]
    nearest_forward = columns.nearest(forward >= 0, tree.parent)
    remaining = np.flatnonzero((code < 0) & (nearest_forward >= 0))
    code[remaining] = code[forward[nearest_forward[remaining]]]
