"""Compares two runs by name and shape and by call path, which shows where a kernel was moved or fused.

Runs may have any number of ranks, which are read one by one and summed. Times are host time for ops and runtime calls,
device time for kernels.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...schema.columns import ABSENT, Bool, Categorical, Int64, Tree, group_sums
from ...schema.linked import op_tree
from .module_difference import ModuleTimes, module_difference
from .per_op_device_time import device_time_of_ops
from .rank_trace import RankTrace
from .run_difference import RunLengths, run_difference
from .table import Column, Table, integers, microseconds

OP, CALL, KERNEL = "op", "call", "kernel"
STEP = re.compile(r"^(ProfilerStep#)\d+$")
PATH = " > "
ROOT = -1


class Item(NamedTuple):
    """The ops, runtime calls or kernels of one name and shape; calls have no shape."""

    kind: str
    name: str
    shape: str


class CallTreeNode(NamedTuple):
    """A node of the merged call tree: its kind and name below the node number `above`."""

    above: int
    kind: str
    name: str


class NodeTimes(NamedTuple):
    """Device and host time (ns) of ops, calls or activities, and the node of the call tree of each."""

    node: Int64
    device: Int64
    host: Int64


class RunTotals:
    """The sums of one run: count and time by item; count, device time and host time by node of the call tree.

    The numbers of the tree's nodes, `nodes`, are shared by the runs that are compared.
    """

    def __init__(self, nodes: dict[CallTreeNode, int]) -> None:
        self.nodes = nodes
        self.items: dict[Item, list[int]] = defaultdict(lambda: [0, 0])
        self.tree: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
        self.modules = ModuleTimes()
        self.length = RunLengths()

    def add(self, rank: RankTrace) -> None:
        """Adds a rank: its ops that have times, and all its calls and activities."""
        self.modules.add(rank)
        self.length.add(rank)
        linked, tree = rank.linked, op_tree(rank.linked.ops)
        ops, calls, activities = linked.ops, linked.calls, linked.activities
        names = Categorical(ops.name.codes, [STEP.sub(r"\1", name) for name in ops.name.table])
        shapes = rank.shapes()
        host, called, device = (rows.end - rows.start for rows in (ops, calls, activities))
        timed = np.flatnonzero(ops.start != ABSENT)
        self._add_items(OP, names.take(timed), shapes.take(timed), host[timed])
        self._add_items(CALL, calls.name, Categorical.nulls(len(calls)), called)
        # one more than there are ops, for op_row -1 of activities without an op
        shape = Categorical(np.append(shapes.codes, -1)[activities.op_row].astype(np.int32), shapes.table)
        self._add_items(KERNEL, activities.name, shape, device)
        node = self._op_nodes(tree, names, ops.start != ABSENT)
        subtree = device_time_of_ops(linked, tree).subtree
        self._add_nodes(NodeTimes(node[timed], subtree[timed], host[timed]))
        op_node = np.append(node, ROOT)
        at_call = self._nodes_below(CALL, op_node[calls.op_row], calls.name)
        self._add_nodes(NodeTimes(at_call, np.zeros_like(at_call), called))
        leaf = self._nodes_below(KERNEL, op_node[activities.op_row], activities.name)
        self._add_nodes(NodeTimes(leaf, device, np.zeros_like(leaf)))

    def _add_items(self, kind: str, name: Categorical, shape: Categorical, time: Int64) -> None:
        for (name_code, code), count, total in _sums_by_key(np.stack((name.codes, shape.codes), axis=1), time):
            item = Item(kind, name.table[name_code], shape.table[code] if code >= 0 else "")
            self.items[item][0] += count
            self.items[item][1] += total[0]

    def _op_nodes(self, tree: Tree, names: Categorical, timed: Bool) -> Int64:
        """Returns the tree node of each op; ops without times, such as threads, are not in the paths."""
        node = np.full(len(timed), ROOT, np.int64)
        for rows in tree.levels:
            parents = np.where(tree.parent[rows] >= 0, node[tree.parent[rows]], ROOT)
            is_timed = timed[rows]
            node[rows] = parents
            node[rows[is_timed]] = self._nodes_below(OP, parents[is_timed], names.take(rows[is_timed]))
        return node

    def _nodes_below(self, kind: str, parents: Int64, name: Categorical) -> Int64:
        pairs, number = np.unique(np.stack((parents, name.codes.astype(np.int64)), axis=1), axis=0, return_inverse=True)
        keys = (CallTreeNode(above, kind, name.table[code]) for above, code in pairs.tolist())
        numbers = [self.nodes.setdefault(key, len(self.nodes)) for key in keys]
        return np.array(numbers, np.int64)[number.reshape(-1)]

    def _add_nodes(self, times: NodeTimes) -> None:
        for (number,), count, (on_device, on_host) in _sums_by_key(times.node[:, None], times.device, times.host):
            sums = self.tree[number]
            sums[0], sums[1], sums[2] = sums[0] + count, sums[1] + on_device, sums[2] + on_host


def _sums_by_key(keys: npt.NDArray[np.integer], *columns: Int64) -> Iterator[tuple[list[int], int, tuple[int, ...]]]:
    """Returns each distinct row of `keys`, its number of occurrences, and the sums of the columns over these."""
    unique_keys, number = np.unique(keys, axis=0, return_inverse=True)
    number = number.reshape(-1)
    counts = group_sums(number, 1, len(unique_keys)).tolist()
    sums = (group_sums(number, column, len(unique_keys)).tolist() for column in columns)
    return zip(unique_keys.tolist(), counts, zip(*sums, strict=True), strict=True)


def trace_diff(before: Iterable[RankTrace], after: Iterable[RankTrace]) -> Table:
    """Compares ops, runtime calls and kernels of two runs (a: `before`, b: `after`), the largest difference first.

    The detail `trace_diff_runs` compares the runs and their steps as a whole, `trace_diff_tree` has a row for each call
    path of either run, depth first, `trace_diff_modules` a row for each module.
    """
    nodes: dict[CallTreeNode, int] = {}
    a, b = RunTotals(nodes), RunTotals(nodes)
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
        Column("category", "", _categories(counts, times)),
        microseconds("difference", times[:, 1] - times[:, 0]),
        *_counts(counts),
        microseconds("time_a", times[:, 0]),
        microseconds("time_b", times[:, 1]),
    ]
    note = "" if items else "neither run has an op, a call or an activity"
    details = _tree(nodes, a, b, note), module_difference(a.modules, b.modules), run_difference(a.length, b.length)
    return Table(NAME, "Trace diff", columns, note, details)


def _tree(nodes: dict[CallTreeNode, int], a: RunTotals, b: RunTotals, note: str) -> Table:
    rows = list(_depth_first(nodes))
    sums = np.array([[run.tree.get(node, (0, 0, 0)) for run in (a, b)] for _, node, _ in rows], np.int64)
    counts, device, host = np.moveaxis(sums.reshape(-1, 2, 3), 2, 0)
    keys = list(nodes)
    columns = [
        integers("depth", [depth for depth, _, _ in rows]),
        Column("kind", "", [keys[node].kind for _, node, _ in rows]),
        Column("name", "", [keys[node].name for _, node, _ in rows]),
        Column("category", "", _categories(counts, device)),
        microseconds("difference", device[:, 1] - device[:, 0]),
        *_counts(counts),
        microseconds("device_time_a", device[:, 0]),
        microseconds("device_time_b", device[:, 1]),
        microseconds("host_time_a", host[:, 0]),
        microseconds("host_time_b", host[:, 1]),
        Column("path", "", [path for _, _, path in rows]),
    ]
    return Table(f"{NAME}_tree", "Trace diff by call path (difference of device time)", columns, note)


def _depth_first(nodes: dict[CallTreeNode, int]) -> Iterator[tuple[int, int, str]]:
    """Yields (depth, node, path) of every node of the call tree, each after its parent."""
    children: dict[int, list[int]] = defaultdict(list)
    for key, node in nodes.items():
        children[key.above].append(node)
    names = [key.name for key in nodes]
    pending = [(0, node, names[node]) for node in reversed(children[ROOT])]
    while pending:
        depth, node, path = pending.pop()
        yield depth, node, path
        pending += [(depth + 1, child, f"{path}{PATH}{names[child]}") for child in reversed(children[node])]


def _counts(counts: Int64) -> list[Column]:
    return [Column("count_a", "", counts[:, 0]), Column("count_b", "", counts[:, 1])]


def _categories(counts: Int64, times: Int64) -> list[str]:
    """Returns what is only in one run, else how its time changed: as the sign of the difference says."""
    return [
        "added"
        if not a
        else "removed"
        if not b
        else "slower"
        if after > before
        else "faster"
        if after < before
        else "same"
        for (a, b), (before, after) in zip(counts.tolist(), times.tolist(), strict=True)
    ]


NAME = "trace_diff"
