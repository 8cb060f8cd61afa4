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
    """Of one run by path of a module: how many ops and activities are its own, ns of the device, ns of the host."""

    def __init__(self) -> None:
        self.of: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
        self.stands_in = False

    def add(self, rank: RankTrace) -> None:
        """Adds a rank."""
        linked = with_modules(rank.linked)
        stands_in = linked is not rank.linked
        self.stands_in |= stands_in
        alone = RankTrace(rank.rank, linked)
        found = shares(alone, linked, "module", annotations=stands_in)
        columns = (found.ops + found.activities, found.device, np.nan_to_num(found.host))
        for text, *values in zip(found.text, *(column.tolist() for column in columns), strict=True):
            self.of[text] = [sum(pair) for pair in zip(self.of[text], values, strict=True)]


def module_difference(before: ModuleTimes, after: ModuleTimes) -> Table:
    """Returns a row for each module of either run, with all that is in it, depth first; of runs of the host alone the
    difference is the host's.
    """
    texts = list(dict.fromkeys([*before.of, *after.of]))
    texts = texts if any(texts) else []
    tree, rows = module_tree(texts)
    one, other = (_totals(tree, run, texts, rows) for run in (before, after))
    on_device = bool(one[DEVICE].any() or other[DEVICE].any())
    place = DEVICE if on_device else HOST
    columns = [
        integers("depth", tree.depth),
        Column("name", "", tree.names),
        microseconds("difference", other[place] - one[place]),
        Column("count_a", "", one[COUNT].astype(np.int64)),
        Column("count_b", "", other[COUNT].astype(np.int64)),
        microseconds("device_time_a", one[DEVICE]),
        microseconds("device_time_b", other[DEVICE]),
        microseconds("host_time_a", one[HOST]),
        microseconds("host_time_b", other[HOST]),
        Column("path", "", tree.path),
    ]
    note = "" if texts else NOTHING
    if texts and (before.stands_in or after.stands_in):
        note = BY_ANNOTATION
    what = "device" if on_device else "host"
    return Table(NAME, f"Trace diff by module (difference of {what} time)", columns, note)


def _totals(tree: ModuleTree, run: ModuleTimes, texts: list[str], rows: list[int]) -> list[Floats]:
    own = np.zeros((3, len(tree.path)))
    for text, row in zip(texts, rows, strict=True):
        own[:, row] = run.of.get(text, (0, 0, 0))
    return [tree.subtree(column) for column in own]
