"""For ops that another thread released, the op that did: as a linked file says it to readers that know no hand-overs."""

from typing import NamedTuple

import numpy as np

from ..columns import ABSENT, Int64
from .json_columns import SparseMember, integers
from .linked_trace import LinkedTrace, Ops


class _ThreadOps(NamedTuple):
    """A thread's ops by their start, of those that begin together the outermost first."""

    row: Int64
    start: Int64


def called_from(linked: LinkedTrace) -> SparseMember:
    """Returns for ops that another thread released, the id of that thread's last op before."""
    ops, over, threads = linked.ops, linked.handoffs, _ops_of_threads(linked.ops)
    found: dict[int, int] = {}
    columns = (over.source_thread, over.source_time, over.target_thread, over.target_time)
    for source, source_ns, target, target_ns in zip(*(column.tolist() for column in columns), strict=True):
        if not {source, target} <= threads.keys():
            continue  # a part of a run may hold a hand-over between threads whose ops are all outside it
        before, released = threads[source], threads[target]
        last = int(np.searchsorted(before.start, source_ns)) - 1
        first = int(np.searchsorted(released.start, target_ns))
        if last >= 0 and first < len(released.row):
            found[int(released.row[first])] = int(ops.id[before.row[last]])
    rows = np.array(sorted(found), np.int64)
    return SparseMember("inter_thread_dep", [integers(np.array([found[row] for row in rows.tolist()], np.int64))], rows)


def _ops_of_threads(ops: Ops) -> dict[int, _ThreadOps]:
    timed = np.flatnonzero(ops.start != ABSENT)
    row = timed[np.lexsort((ops.id[timed], -ops.end[timed], ops.start[timed], ops.thread[timed]))]
    numbers, first = np.unique(ops.thread[row], return_index=True)
    of_threads = np.split(row, first[1:])
    return {
        number: _ThreadOps(rows, ops.start[rows]) for number, rows in zip(numbers.tolist(), of_threads, strict=False)
    }
