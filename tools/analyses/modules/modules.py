"""What each module of the model takes: itself, and with the modules in it, whose calls count once; and each Python
function.
"""

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

BY_ANNOTATION = "no calls of Python were read (--modules): the annotations of the user stand in for modules"
NO_ANNOTATION = f"{BY_ANNOTATION}, of which the run has none"
NOTHING = "nothing that ran tells its module"


def _table(rank: RankTrace, _: Options) -> Table:
    linked = with_modules(rank.linked)
    stands_in = linked is not rank.linked
    found = shares(rank, linked, "module", annotations=stands_in)
    told = any(found.text)
    note = (BY_ANNOTATION if told else NO_ANNOTATION) if stands_in else "" if told else NOTHING
    tree, rows = module_tree(found.text) if told else module_tree([])
    own = [_at(column, rows if told else [], len(tree.path)) for column in found[1:]]
    columns = [rank_column(rank.rank, len(tree.path)), *_columns(tree, Shares(tree.path, *own))]
    return Table(NAME, "Time by module", columns, note, (_by_function(rank, stands_in),))


def _at(column: Floats, rows: Sequence[int], count: int) -> Floats:
    """Returns the values of texts in the rows of a tree, of which others have nothing of their own; NaN where nothing
    is known.
    """
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
    """Returns those with the most time on the device first, of a run of the host alone on the host."""
    found = NO_SHARES if stands_in else shares(rank, rank.linked, "python_function", annotations=False)
    known = np.array([bool(text) for text in found.text], np.bool_)
    most = found.device if found.device.any() else found.host
    order = np.argsort(-np.nan_to_num(most), kind="stable")
    order = order[known[order]]
    columns = [
        rank_column(rank.rank, len(order)),
        Column("function", "", [found.text[row] for row in order.tolist()]),
        microseconds("device", found.device[order]),
        percentage("device_pct", found.device[order], found.device.sum()),
        Column("operations", "", found.operations[order]),
        microseconds("critical", found.path[order]),
        percentage("critical_pct", found.path[order], found.path.sum()),
        microseconds("host", found.host[order]),
        Column("ops", "", found.ops[order].astype(np.int64)),
        Column("activities", "", found.activities[order].astype(np.int64)),
    ]
    note = "" if len(order) else "no calls of Python were read (--modules)" if stands_in else NOTHING
    return Table(f"{NAME}_by_function", "Time by Python function", columns, note)


NAME = "modules"
modules = per_rank(NAME, _table)
