"""How much device time each host op owns: itself, and with everything that it called. O(1) per look-up, O(n) in all."""

from dataclasses import dataclass

import numpy as np

from ...schema.columns import ABSENT, Int64
from ...schema.linked import LinkedTrace
from .rank import Column, Options, OpTree, RankTrace, Table, microseconds, op_tree, per_rank, rank_column, texts

NO_OPS = "no activity was launched by a recorded host op"


@dataclass(slots=True)
class OpDeviceTime:
    """Of each of the n ops: the summed ns of the activities it launched itself and of those of its subtree; how many the latter are."""

    tree: OpTree
    own: Int64
    subtree: Int64
    count: Int64


def device_time_of_ops(linked: LinkedTrace, tree: OpTree | None = None) -> OpDeviceTime:
    """The device time of every op, propagated once up the call tree."""
    ops, activities = linked.ops, linked.activities
    tree = tree or op_tree(ops)
    launched = np.flatnonzero(activities.op_row >= 0)
    own, count = np.zeros((2, len(ops)), np.int64)
    np.add.at(own, activities.op_row[launched], (activities.end - activities.start)[launched])
    np.add.at(count, activities.op_row[launched], 1)
    return OpDeviceTime(tree, own, tree.subtree_sums(own), tree.subtree_sums(count))


def _table(rank: RankTrace, _: Options) -> Table:
    ops, found = rank.linked.ops, device_time_of_ops(rank.linked)
    # threads and the process are nodes too, without times
    rows = np.flatnonzero((found.count > 0) & (ops.start != ABSENT))
    rows = rows[np.argsort(ops.start[rows], kind="stable")]
    note = "" if len(rows) else NO_OPS
    columns = [
        rank_column(rank.rank, len(rows)),
        Column("op", "", ops.id[rows]),
        texts("name", ops.name.take(rows)),
        Column("thread", "", ops.thread[rows]),
        microseconds("start", ops.start[rows]),
        microseconds("self", found.own[rows]),
        microseconds("subtree", found.subtree[rows]),
        Column("count", "", found.count[rows]),
    ]
    return Table(NAME, "Device time per op", columns, note, (_by_name(rank, found, rows, note),))


def _by_name(rank: RankTrace, found: OpDeviceTime, rows: Int64, note: str) -> Table:
    """Summed by name, the longest first; ops inside an op of the same name count for `self` only."""
    names = rank.linked.ops.name
    codes, number = np.unique(names.codes[rows], return_inverse=True)
    outer = found.tree.is_outermost(names)[rows]
    sums = np.zeros((4, len(codes)), np.int64)
    np.add.at(sums[0], number, 1)
    np.add.at(sums[1], number, found.own[rows])
    np.add.at(sums[2], number[outer], found.subtree[rows][outer])
    np.add.at(sums[3], number[outer], found.count[rows][outer])
    order = np.argsort(-sums[2], kind="stable")
    often, own, subtree, count = sums[:, order]
    columns = [
        rank_column(rank.rank, len(codes)),
        Column("name", "", [names.table[code] for code in codes[order].tolist()]),
        Column("ops", "", often),
        microseconds("self", own),
        microseconds("subtree", subtree),
        Column("count", "", count),
    ]
    return Table(f"{NAME}_by_name", "Device time per op name", columns, note)


NAME = "per_op_device_time"
per_op_device_time = per_rank(NAME, _table)
