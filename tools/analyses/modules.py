"""The time of each module of the model, by itself and with the modules in it, and of each Python function."""

from collections.abc import Sequence

import numpy as np

from ...schema.errors import Remedy, Words
from .annotations import with_modules
from .module_shares import NO_SHARES, Shares, shares
from .module_tree import ModuleTree, module_tree
from .rank_trace import AnalysisOptions, RankTrace, per_rank
from .table import Column, Floats, Table, integers, microseconds, percentage, rank_column

NO_PYTHON = Words("no calls of Python were read (", Remedy.MODULES, ")")
BY_ANNOTATION = Words(*NO_PYTHON, ": the annotations of the user replace modules")
NO_ANNOTATION = Words(*BY_ANNOTATION, ", of which the run has none")
NOTHING = "nothing that ran has a module"


def _table(rank: RankTrace, _: AnalysisOptions) -> Table:
    linked = with_modules(rank.linked)
    uses_annotations = linked is not rank.linked
    sums = shares(rank, linked, "module", annotations=uses_annotations)
    has_modules = any(sums.label)
    note = str(BY_ANNOTATION if has_modules else NO_ANNOTATION) if uses_annotations else "" if has_modules else NOTHING
    tree, rows = module_tree(sums.label) if has_modules else module_tree([])
    self_sums = [_scatter(column, rows if has_modules else [], len(tree.path)) for column in sums[1:]]
    columns = [rank_column(rank.rank, len(tree.path)), *_columns(tree, Shares(tree.path, *self_sums))]
    return Table(NAME, "Time by module", columns, note, (_function_table(rank, uses_annotations),))


def _scatter(column: Floats, rows: Sequence[int], count: int) -> Floats:
    """Returns the column with its values at these rows of a tree and 0 elsewhere; all NaN if no value is known."""
    values = np.full(count, np.nan if np.isnan(column).all() else 0.0)
    values[rows] = column[: len(rows)]
    return values


def _columns(tree: ModuleTree, self_sums: Shares) -> list[Column]:
    device, operations, path, host = (
        tree.subtree(column) for column in (self_sums.device, self_sums.operations, self_sums.critical, self_sums.host)
    )
    return [
        integers("depth", tree.depth),
        Column("name", "", tree.names),
        microseconds("device_self", self_sums.device),
        microseconds("device_subtree", device),
        percentage("device_pct", device, self_sums.device.sum()),
        Column("operations_self", "", self_sums.operations),
        Column("operations_subtree", "", operations),
        microseconds("critical_self", self_sums.critical),
        microseconds("critical_subtree", path),
        percentage("critical_pct", path, self_sums.critical.sum()),
        microseconds("host_self", self_sums.host),
        microseconds("host_subtree", host),
        Column("ops", "", tree.subtree(self_sums.ops).astype(np.int64)),
        Column("activities", "", tree.subtree(self_sums.activities).astype(np.int64)),
        Column("path", "", tree.path),
    ]


def _function_table(rank: RankTrace, uses_annotations: bool) -> Table:
    """Returns the Python functions, the most device time first, or host time if nothing ran on a device."""
    sums = NO_SHARES if uses_annotations else shares(rank, rank.linked, "python_function", annotations=False)
    is_named = np.array([bool(text) for text in sums.label], np.bool_)
    times = sums.device if sums.device.any() else sums.host
    order = np.argsort(-np.nan_to_num(times), kind="stable")
    order = order[is_named[order]]
    columns = [
        rank_column(rank.rank, len(order)),
        Column("function", "", [sums.label[row] for row in order.tolist()]),
        microseconds("device", sums.device[order]),
        percentage("device_pct", sums.device[order], sums.device.sum()),
        Column("operations", "", sums.operations[order]),
        microseconds("critical", sums.critical[order]),
        percentage("critical_pct", sums.critical[order], sums.critical.sum()),
        microseconds("host", sums.host[order]),
        Column("ops", "", sums.ops[order].astype(np.int64)),
        Column("activities", "", sums.activities[order].astype(np.int64)),
    ]
    note = "" if len(order) else str(NO_PYTHON) if uses_annotations else NOTHING
    return Table(f"{NAME}_by_function", "Time by Python function", columns, note)


NAME = "modules"
modules = per_rank(NAME, _table)
