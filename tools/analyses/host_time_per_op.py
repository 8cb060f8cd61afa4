"""The host time of ops by name and thread, and by name and input shapes, with and without the ops that they call.

It does not need a device, so it is the main table of a run on the CPU.
"""

import numpy as np

from ...schema.columns import ABSENT, Int64
from ...schema.linked import Ops, op_tree
from .op_kinds import OpKinds, op_kinds
from .rank_trace import AnalysisOptions, RankTrace, per_rank
from .table import Column, Table, microseconds, rank_column, text_column

NO_OPS = "no host op with a time was recorded"


def _table(rank: RankTrace, _: AnalysisOptions) -> Table:
    ops, tree = rank.linked.ops, op_tree(rank.linked.ops)
    rows = np.flatnonzero(ops.start != ABSENT)
    note = "" if len(rows) else NO_OPS
    shapes = rank.shapes()
    on_threads = op_kinds(tree, rows, ops.name.codes, ops.thread)
    of_shapes = op_kinds(tree, rows, ops.name.codes, shapes.codes)
    order, times = _times(ops, on_threads, rows)
    by_thread = [
        rank_column(rank.rank, len(order)),
        text_column("name", ops.name.take(on_threads.row[order])),
        Column("thread", "", ops.thread[on_threads.row[order]]),
        *times,
    ]
    order, times = _times(ops, of_shapes, rows)
    by_shape = [
        rank_column(rank.rank, len(order)),
        text_column("name", ops.name.take(of_shapes.row[order])),
        text_column("shape", shapes.take(of_shapes.row[order])),
        *times,
    ]
    detail = Table(f"{NAME}_by_shape", "Host time per op name and input shapes", by_shape, note)
    return Table(NAME, "Host time per op name and thread", by_thread, note, (detail,))


def _times(ops: Ops, kinds: OpKinds, rows: Int64) -> tuple[Int64, list[Column]]:
    """Returns the order of the kinds, the most self time first, and their times in that order.

    Ops within an op of the same kind do not add to `total`.
    """
    length, count, self_time = (ops.end - ops.start)[rows], kinds.count(), kinds.total(ops.exclusive[rows])
    order = np.argsort(-self_time, kind="stable")
    return order, [
        Column("count", "", count[order]),
        microseconds("total", kinds.total_once(length)[order]),
        microseconds("self", self_time[order]),
        microseconds("mean", (kinds.total(length) / count)[order]),
    ]


NAME = "host_time_per_op"
host_time_per_op = per_rank(NAME, _table)
