"""Compares two runs, by name and shape and by call path, so that a moved or fused kernel shows where.

Runs may have any number of ranks, which are summed; they are read rank by rank. Times are host time of ops and
of calls of the runtime, and device time of kernels.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...schema.columns import ABSENT, Bool, Categorical, Int64, Tree, group_sums
from ...schema.linked import op_tree
from .modules import ModuleTimes, module_difference
from .ops import device_time_of_ops
from .rank import (
    Column,
    RankTrace,
    Table,
    integers,
    microseconds,
)

OP, CALL, KERNEL = "op", "call", "kernel"
STEP = re.compile(r"^(ProfilerStep#)\d+$")
PATH = " > "
ROOT = -1


class Item(NamedTuple):
    """What is compared over both runs: ops, runtime calls or kernels of one name and shape; calls have none."""

    kind: str
    name: str
    shape: str


class CallTreeNode(NamedTuple):
    """A node of the merged call tree: what it is called below which other place."""

    above: int
    kind: str
    name: str


class Summary:
    """What one run consists of; each value is a list of sums: count and time of items, count, device and host time of
    places.

    `places` is shared between the runs that are compared.
    """

    def __init__(self, places: dict[CallTreeNode, int]) -> None:
        self.places = places
        self.items: dict[Item, list[int]] = defaultdict(lambda: [0, 0])
        self.tree: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
        self.modules = ModuleTimes()

    def add(self, rank: RankTrace) -> None:
        """Adds a rank: its ops that have times, and all its calls and activities."""
        self.modules.add(rank)
        linked, tree = rank.linked, op_tree(rank.linked.ops)
        ops, calls, activities = linked.ops, linked.calls, linked.activities
        names = Categorical(ops.name.codes, [STEP.sub(r"\1", name) for name in ops.name.table])
        shapes = rank.shapes()
        host, called, device = (rows.end - rows.start for rows in (ops, calls, activities))
        timed = np.flatnonzero(ops.start != ABSENT)
        self._add_items(OP, names.take(timed), shapes.take(timed), host[timed])
        self._add_items(CALL, calls.name, Categorical.nulls(len(calls)), called)
        # one more than there are ops, for the row -1 of activities without one
        shape = Categorical(np.append(shapes.codes, -1)[activities.op_row].astype(np.int32), shapes.table)
        self._add_items(KERNEL, activities.name, shape, device)
        place = self._op_places(tree, names, ops.start != ABSENT)
        subtree = device_time_of_ops(linked, tree).subtree
        self._add_places(place[timed], subtree[timed], host[timed])
        below = np.append(place, ROOT)
        at_call = self._places_below(CALL, below[calls.op_row], calls.name)
        self._add_places(at_call, np.zeros(len(calls), np.int64), called)
        leaf = self._places_below(KERNEL, below[activities.op_row], activities.name)
        self._add_places(leaf, device, np.zeros(len(leaf), np.int64))

    def _add_items(self, kind: str, name: Categorical, shape: Categorical, time: Int64) -> None:
        for (code, which), count, total in _grouped(np.stack((name.codes, shape.codes), axis=1), time):
            item = Item(kind, name.table[code], shape.table[which] if which >= 0 else "")
            self.items[item][0] += count
            self.items[item][1] += total[0]

    def _op_places(self, tree: Tree, names: Categorical, timed: Bool) -> Int64:
        """Returns the place of each op; nodes without times, as threads are, are left out of the paths."""
        place = np.full(len(timed), ROOT, np.int64)
        for rows in tree.levels:
            above = np.where(tree.parent[rows] >= 0, place[tree.parent[rows]], ROOT)
            here = timed[rows]
            place[rows] = above
            place[rows[here]] = self._places_below(OP, above[here], names.take(rows[here]))
        return place

    def _places_below(self, kind: str, above: Int64, name: Categorical) -> Int64:
        pairs, number = np.unique(np.stack((above, name.codes.astype(np.int64)), axis=1), axis=0, return_inverse=True)
        keys = (CallTreeNode(upper, kind, name.table[code]) for upper, code in pairs.tolist())
        known = [self.places.setdefault(key, len(self.places)) for key in keys]
        return np.array(known, np.int64)[number.reshape(-1)]

    def _add_places(self, place: Int64, device: Int64, host: Int64) -> None:
        for (which,), count, (on_device, on_host) in _grouped(place[:, None], device, host):
            sums = self.tree[which]
            sums[0], sums[1], sums[2] = sums[0] + count, sums[1] + on_device, sums[2] + on_host


def _grouped(keys: npt.NDArray[np.integer], *columns: Int64) -> Iterator[tuple[list[int], int, tuple[int, ...]]]:
    """Returns each distinct row of `keys`, how often it occurs, and the sums of the columns over its occurrences."""
    distinct, number = np.unique(keys, axis=0, return_inverse=True)
    counts, *sums = (group_sums(number.reshape(-1), column, len(distinct)).tolist() for column in (1, *columns))
    return zip(distinct.tolist(), counts, zip(*sums, strict=True), strict=True)


def trace_diff(before: Iterable[RankTrace], after: Iterable[RankTrace]) -> Table:
    """Ops, runtime calls and kernels of two runs (a: `before`, b: `after`) by name and shape, the largest difference
    first.

    The detail `trace_diff_tree` has one row for each call path of either run, depth first, `trace_diff_modules` one for
    each module.
    """
    places: dict[CallTreeNode, int] = {}
    a, b = Summary(places), Summary(places)
    for summary, ranks in ((a, before), (b, after)):
        for rank in ranks:
            summary.add(rank)
    items = sorted(a.items.keys() | b.items.keys())
    counts, times = (
        np.array([[run.items[item][field] for run in (a, b)] for item in items], np.int64).reshape(-1, 2)
        for field in range(2)
    )
    order = np.argsort(-np.abs(times[:, 1] - times[:, 0]), kind="stable")
    counts, times, items = counts[order], times[order], [items[field] for field in order.tolist()]
    columns = [
        Column("kind", "", [item.kind for item in items]),
        Column("name", "", [item.name for item in items]),
        Column("shape", "", [item.shape for item in items]),
        Column("category", "", _categories(counts)),
        microseconds("difference", times[:, 1] - times[:, 0]),
        *_counts(counts),
        microseconds("time_a", times[:, 0]),
        microseconds("time_b", times[:, 1]),
    ]
    note = "" if items else "neither run has an op, a call or an activity"
    details = _tree(places, a, b, note), module_difference(a.modules, b.modules)
    return Table(NAME, "Trace diff", columns, note, details)


def _tree(places: dict[CallTreeNode, int], a: Summary, b: Summary, note: str) -> Table:
    rows = list(_depth_first(places))
    sums = np.array([[run.tree.get(place, (0, 0, 0)) for run in (a, b)] for _, place, _ in rows], np.int64)
    counts, device, host = np.moveaxis(sums.reshape(-1, 2, 3), 2, 0)
    keys = list(places)
    columns = [
        integers("depth", [depth for depth, _, _ in rows]),
        Column("kind", "", [keys[place].kind for _, place, _ in rows]),
        Column("name", "", [keys[place].name for _, place, _ in rows]),
        Column("category", "", _categories(counts)),
        microseconds("difference", device[:, 1] - device[:, 0]),
        *_counts(counts),
        microseconds("device_time_a", device[:, 0]),
        microseconds("device_time_b", device[:, 1]),
        microseconds("host_time_a", host[:, 0]),
        microseconds("host_time_b", host[:, 1]),
        Column("path", "", [path for _, _, path in rows]),
    ]
    return Table(f"{NAME}_tree", "Trace diff by call path (difference of device time)", columns, note)


def _depth_first(places: dict[CallTreeNode, int]) -> Iterator[tuple[int, int, str]]:
    """(depth, place, path) of every place, each after the one above it."""
    below: dict[int, list[int]] = defaultdict(list)
    for key, place in places.items():
        below[key.above].append(place)
    names = [key.name for key in places]
    pending = [(0, place, names[place]) for place in reversed(below[ROOT])]
    while pending:
        depth, place, path = pending.pop()
        yield depth, place, path
        pending += [(depth + 1, child, f"{path}{PATH}{names[child]}") for child in reversed(below[place])]


def _counts(counts: Int64) -> list[Column]:
    return [Column("count_a", "", counts[:, 0]), Column("count_b", "", counts[:, 1])]


def _categories(counts: Int64) -> list[str]:
    return [
        "added" if not a else "removed" if not b else "more" if b > a else "fewer" if b < a else "same"
        for a, b in counts.tolist()
    ]


NAME = "trace_diff"
