"""The times of two runs by module, side by side."""

from collections import defaultdict

import numpy as np

from ..rank import (
    Column,
    Floats,
    RankTrace,
    Table,
    integers,
    microseconds,
    with_modules,
)
from .modules import BY_ANNOTATION, NOTHING
from .shares import shares
from .tree import ModuleTree, module_tree

NAME = "trace_diff_modules"
COUNT, DEVICE, HOST = range(3)


class ModuleTimes:
    """The sums of one run by module path: number of ops and activities, device time (ns), host time (ns)."""

    def __init__(self) -> None:
        self.of: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
        self.stands_in = False

    def add(self, rank: RankTrace) -> None:
        """Adds a rank."""
        linked = with_modules(rank.linked)
        stands_in = linked is not rank.linked
        self.stands_in |= stands_in
        rank_without_graph = RankTrace(rank.rank, linked)
        sums = shares(rank_without_graph, linked, "module", annotations=stands_in)
        columns = (sums.ops + sums.activities, sums.device, np.nan_to_num(sums.host))
        for text, *values in zip(sums.text, *(column.tolist() for column in columns), strict=True):
            self.of[text] = [sum(pair) for pair in zip(self.of[text], values, strict=True)]


def module_difference(before: ModuleTimes, after: ModuleTimes) -> Table:
    """Returns a row for each module of either run, including the modules in it, depth first.

    The difference is of device time, or of host time if nothing ran on a device.
    """
    texts = list(dict.fromkeys([*before.of, *after.of]))
    texts = texts if any(texts) else []
    tree, rows = module_tree(texts)
    a, b = (_totals(tree, run, texts, rows) for run in (before, after))
    on_device = bool(a[DEVICE].any() or b[DEVICE].any())
    kind = DEVICE if on_device else HOST
    columns = [
        integers("depth", tree.depth),
        Column("name", "", tree.names),
        microseconds("difference", b[kind] - a[kind]),
        Column("count_a", "", a[COUNT].astype(np.int64)),
        Column("count_b", "", b[COUNT].astype(np.int64)),
        microseconds("device_time_a", a[DEVICE]),
        microseconds("device_time_b", b[DEVICE]),
        microseconds("host_time_a", a[HOST]),
        microseconds("host_time_b", b[HOST]),
        Column("path", "", tree.path),
    ]
    note = "" if texts else NOTHING
    if texts and (before.stands_in or after.stands_in):
        note = BY_ANNOTATION
    where = "device" if on_device else "host"
    return Table(NAME, f"Trace diff by module (difference of {where} time)", columns, note)


def _totals(tree: ModuleTree, run: ModuleTimes, texts: list[str], rows: list[int]) -> list[Floats]:
    own = np.zeros((3, len(tree.path)))
    for text, row in zip(texts, rows, strict=True):
        own[:, row] = run.of.get(text, (0, 0, 0))
    return [tree.subtree(column) for column in own]
