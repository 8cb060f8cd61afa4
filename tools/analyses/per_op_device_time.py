"""The device time of each host op: of what it launched itself, and with everything that it called. O(n)."""

from dataclasses import dataclass

import numpy as np

from ...schema.columns import ABSENT, Int64, Tree, group_sums
from ...schema.linked import LinkedTrace, op_tree
from .first_start import first_start_ns
from .op_kinds import OpKinds, op_kinds
from .rank_trace import AnalysisOptions, RankTrace, per_rank
from .table import Column, Table, microseconds, rank_column, text_column

NO_OPS = "no activity was launched by a recorded host op"


@dataclass(slots=True)
class OpDeviceTime:
    """For each op the device time (ns) of its own activities and of those of its subtree, and the latter's number."""

    tree: Tree
    self_time: Int64
    subtree: Int64
    count: Int64


def device_time_of_ops(linked: LinkedTrace, tree: Tree | None = None) -> OpDeviceTime:
    """Returns the device time of every op, propagated once up the call tree."""
    ops, activities = linked.ops, linked.activities
    tree = tree or op_tree(ops)
    launched = np.flatnonzero(activities.op_row >= 0)
    op_row, duration = activities.op_row[launched], (activities.end - activities.start)[launched]
    self_time, count = group_sums(op_row, duration, len(ops)), group_sums(op_row, 1, len(ops))
    return OpDeviceTime(tree, self_time, tree.subtree_sums(self_time), tree.subtree_sums(count))


def _table(rank: RankTrace, _: AnalysisOptions) -> Table:
    ops, times = rank.linked.ops, device_time_of_ops(rank.linked)
    # threads and the process are nodes too, without times
    rows = np.flatnonzero((times.count > 0) & (ops.start != ABSENT))
    rows = rows[np.argsort(ops.start[rows], kind="stable")]
    note = "" if len(rows) else NO_OPS
    columns = [
        rank_column(rank.rank, len(rows)),
        Column("op", "", ops.id[rows]),
        text_column("name", ops.name.take(rows)),
        Column("thread", "", ops.thread[rows]),
        microseconds("start", np.maximum(ops.start[rows] - first_start_ns(rank.linked), 0)),
        microseconds("self", times.self_time[rows]),
        microseconds("subtree", times.subtree[rows]),
        Column("count", "", times.count[rows]),
    ]
    details = (_name_table(rank, times, rows, note), _shape_table(rank, times, rows, note))
    return Table(NAME, "Device time per op", columns, note, details)


def _name_table(rank: RankTrace, times: OpDeviceTime, rows: Int64, note: str) -> Table:
    names = rank.linked.ops.name
    kinds = op_kinds(times.tree, rows, names.codes)
    order, sums = _sums(times, kinds, rows)
    columns = [rank_column(rank.rank, len(order)), text_column("name", names.take(kinds.row[order])), *sums]
    return Table(f"{NAME}_by_name", "Device time per op name", columns, note)


def _shape_table(rank: RankTrace, times: OpDeviceTime, rows: Int64, note: str) -> Table:
    names, shapes = rank.linked.ops.name, rank.shapes()
    kinds = op_kinds(times.tree, rows, names.codes, shapes.codes)
    order, sums = _sums(times, kinds, rows)
    first = kinds.row[order]
    columns = [
        rank_column(rank.rank, len(order)),
        text_column("name", names.take(first)),
        text_column("shape", shapes.take(first)),
        *sums,
    ]
    return Table(f"{NAME}_by_shape", "Device time per op name and input shapes", columns, note)


def _sums(times: OpDeviceTime, kinds: OpKinds, rows: Int64) -> tuple[Int64, list[Column]]:
    """Returns the order of the kinds, the longest subtree first, and their sums in that order.

    Ops within an op of the same kind count for `self` only.
    """
    subtree = kinds.total_once(times.subtree[rows])
    order = np.argsort(-subtree, kind="stable")
    return order, [
        Column("ops", "", kinds.count()[order]),
        microseconds("self", kinds.total(times.self_time[rows])[order]),
        microseconds("subtree", subtree[order]),
        Column("count", "", kinds.total_once(times.count[rows])[order]),
    ]


NAME = "per_op_device_time"
per_op_device_time = per_rank(NAME, _table)
