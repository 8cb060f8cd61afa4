"""The times of two runs by module, side by side."""

from collections import defaultdict

import numpy as np

from .annotations import with_modules
from .module_shares import shares
from .module_tree import ModuleTree, module_tree
from .modules import BY_ANNOTATION, NOTHING
from .rank_trace import RankTrace
from .table import Column, Floats, Table, integers, microseconds

NAME = "trace_diff_modules"
COUNT, DEVICE, HOST = range(3)


class ModuleTimes:
    """The sums of one run by module path: number of ops and activities, device time (ns), host time (ns)."""

    def __init__(self) -> None:
        self.of: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
        self.uses_annotations = False

    def add(self, rank: RankTrace) -> None:
        """Adds a rank."""
        linked = with_modules(rank.linked)
        uses_annotations = linked is not rank.linked
        self.uses_annotations |= uses_annotations
        rank_without_graph = RankTrace(rank.rank, linked)
        sums = shares(rank_without_graph, linked, "module", annotations=uses_annotations)
        columns = (sums.ops + sums.activities, sums.device, np.nan_to_num(sums.host))
        for path, *values in zip(sums.label, *(column.tolist() for column in columns), strict=True):
            self.of[path] = [sum(pair) for pair in zip(self.of[path], values, strict=True)]


def module_difference(before: ModuleTimes, after: ModuleTimes) -> Table:
    """Returns a row for each module of either run, including the modules in it, depth first.

    The difference is of device time, or of host time if nothing ran on a device.
    """
    paths = list(dict.fromkeys([*before.of, *after.of]))
    paths = paths if any(paths) else []
    tree, rows = module_tree(paths)
    a, b = (_totals(tree, run, paths, rows) for run in (before, after))
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
    note = "" if paths else NOTHING
    if paths and (before.uses_annotations or after.uses_annotations):
        note = str(BY_ANNOTATION)
    where = "device" if on_device else "host"
    return Table(NAME, f"Trace diff by module (difference of {where} time)", columns, note)


def _totals(tree: ModuleTree, run: ModuleTimes, paths: list[str], rows: list[int]) -> list[Floats]:
    self_sums = np.zeros((3, len(tree.path)))
    for path, row in zip(paths, rows, strict=True):
        self_sums[:, row] = run.of.get(path, (0, 0, 0))
    return [tree.subtree(column) for column in self_sums]
