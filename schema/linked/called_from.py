"""Finds the op that released an op on another thread, for readers of linked files that do not know hand-offs."""

from typing import NamedTuple

import numpy as np

from ..columns import ABSENT, Int64
from .json_columns import SparseMember, integers
from .linked_trace import LinkedTrace, Ops


class _ThreadOps(NamedTuple):
    """A thread's ops by start, outer ops before inner ones that start together."""

    row: Int64
    start: Int64


def called_from(linked: LinkedTrace) -> SparseMember:
    """Returns for ops that another thread released the id of that thread's last op before."""
    ops, handoffs, threads = linked.ops, linked.handoffs, _ops_of_threads(linked.ops)
    caller_id: dict[int, int] = {}
    columns = (handoffs.source_thread, handoffs.source_time, handoffs.target_thread, handoffs.target_time)
    for source, source_ns, target, target_ns in zip(*(column.tolist() for column in columns), strict=True):
        if not {source, target} <= threads.keys():
            continue  # in a part of a run all ops of a thread may be outside
        before, released = threads[source], threads[target]
        last = int(np.searchsorted(before.start, source_ns)) - 1
        first = int(np.searchsorted(released.start, target_ns))
        if last >= 0 and first < len(released.row):
            caller_id[int(released.row[first])] = int(ops.id[before.row[last]])
    rows = np.array(sorted(caller_id), np.int64)
    ids = np.array([caller_id[row] for row in rows.tolist()], np.int64)
    return SparseMember("inter_thread_dep", [integers(ids)], rows)


def _ops_of_threads(ops: Ops) -> dict[int, _ThreadOps]:
    timed = np.flatnonzero(ops.start != ABSENT)
    row = timed[np.lexsort((ops.id[timed], -ops.end[timed], ops.start[timed], ops.thread[timed]))]
    numbers, first = np.unique(ops.thread[row], return_index=True)
    of_threads = np.split(row, first[1:])
    return {
        number: _ThreadOps(rows, ops.start[rows]) for number, rows in zip(numbers.tolist(), of_threads, strict=False)
    }
