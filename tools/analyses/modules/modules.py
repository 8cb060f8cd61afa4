"""The time of each module of the model, by itself and with the modules in it, and of each Python function."""

from collections.abc import Sequence

import numpy as np

from ..rank import (
    Column,
    Floats,
    Options,
    RankTrace,
    Table,
    integers,
    microseconds,
    per_rank,
    percentage,
    rank_column,
    with_modules,
)
from .shares import NO_SHARES, Shares, shares
from .tree import ModuleTree, module_tree

BY_ANNOTATION = "no calls of Python were read (--modules): the annotations of the user replace modules"
NO_ANNOTATION = f"{BY_ANNOTATION}, of which the run has none"
NOTHING = "nothing that ran tells its module"


def _table(rank: RankTrace, _: Options) -> Table:
    linked = with_modules(rank.linked)
    stands_in = linked is not rank.linked
    sums = shares(rank, linked, "module", annotations=stands_in)
    has_modules = any(sums.text)
    note = (BY_ANNOTATION if has_modules else NO_ANNOTATION) if stands_in else "" if has_modules else NOTHING
    tree, rows = module_tree(sums.text) if has_modules else module_tree([])
    own = [_at(column, rows if has_modules else [], len(tree.path)) for column in sums[1:]]
    columns = [rank_column(rank.rank, len(tree.path)), *_columns(tree, Shares(tree.path, *own))]
    return Table(NAME, "Time by module", columns, note, (_by_function(rank, stands_in),))


def _at(column: Floats, rows: Sequence[int], count: int) -> Floats:
    """Returns the column with its values at these rows of a tree and 0 elsewhere; NaN everywhere if no value is known."""
    values = np.full(count, np.nan if np.isnan(column).all() else 0.0)
    values[rows] = column[: len(rows)]
    return values


def _columns(tree: ModuleTree, own: Shares) -> list[Column]:
    device, operations, path, host = (
        tree.subtree(column) for column in (own.device, own.operations, own.path, own.host)
    )
    return [
        integers("depth", tree.depth),
        Column("name", "", tree.names),
        microseconds("device_self", own.device),
        microseconds("device_subtree", device),
        percentage("device_pct", device, own.device.sum()),
        Column("operations_self", "", own.operations),
        Column("operations_subtree", "", operations),
        microseconds("critical_self", own.path),
        microseconds("critical_subtree", path),
        percentage("critical_pct", path, own.path.sum()),
        microseconds("host_self", own.host),
        microseconds("host_subtree", host),
        Column("ops", "", tree.subtree(own.ops).astype(np.int64)),
        Column("activities", "", tree.subtree(own.activities).astype(np.int64)),
        Column("path", "", tree.path),
    ]


def _by_function(rank: RankTrace, stands_in: bool) -> Table:
    """Returns the Python functions, the most device time first, or host time if nothing ran on a device."""
    sums = NO_SHARES if stands_in else shares(rank, rank.linked, "python_function", annotations=False)
    is_named = np.array([bool(text) for text in sums.text], np.bool_)
    times = sums.device if sums.device.any() else sums.host
    order = np.argsort(-np.nan_to_num(times), kind="stable")
    order = order[is_named[order]]
    columns = [
        rank_column(rank.rank, len(order)),
        Column("function", "", [sums.text[row] for row in order.tolist()]),
        microseconds("device", sums.device[order]),
        percentage("device_pct", sums.device[order], sums.device.sum()),
        Column("operations", "", sums.operations[order]),
        microseconds("critical", sums.path[order]),
        percentage("critical_pct", sums.path[order], sums.path.sum()),
        microseconds("host", sums.host[order]),
        Column("ops", "", sums.ops[order].astype(np.int64)),
        Column("activities", "", sums.activities[order].astype(np.int64)),
    ]
    note = "" if len(order) else "no calls of Python were read (--modules)" if stands_in else NOTHING
    return Table(f"{NAME}_by_function", "Time by Python function", columns, note)


NAME = "modules"
modules = per_rank(NAME, _table)
