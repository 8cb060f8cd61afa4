"""Hands over what a detail trace knows of the ops of a trace that was recorded in other steps. An op that the host
trace holds has one id in both; times in between, such as of allocations, lie between the same ops.
"""

import numpy as np

from ..schema import columns
from ..schema.columns import ABSENT, CallRows, Categorical, Int64, Keys, Lookup, OpRows, RowMap
from ..schema.linked import LinkedTrace, are_step_marks, op_parents
from .modules import Labels, labelled

FAR = 10**15
"""Up to so many ns before the first op and after the last one, times are moved as these are."""


def same_ops(trace: LinkedTrace, details: LinkedTrace) -> tuple[OpRows, OpRows]:
    """Returns the rows of the ops that both have a time of, in the trace and in the details."""
    ops = trace.ops, details.ops
    rows, known = (np.flatnonzero(one.recorded_by_host & (one.start != ABSENT)) for one in ops)
    same = Lookup(details.ops.id[known], known).of(trace.ops.id[rows])
    return OpRows(rows[same >= 0]), OpRows(same[same >= 0])


def with_details(trace: LinkedTrace, details: LinkedTrace) -> tuple[LinkedTrace, int, int]:
    """Returns the trace with modules and functions of the same ops or those around, and how many have them, of all."""
    pairs, known = same_ops(trace, details), OpRows(np.full(len(trace.ops), -1, np.int64))
    known[pairs[0]] = pairs[1]
    op_row = RowMap(known)[columns.nearest(known >= 0, op_parents(trace.ops))]
    call_row = _same_calls(trace, details, pairs)

    def labels(of_ops: Categorical, of_calls: Categorical) -> Labels:
        codes, of_call = (
            RowMap(of.codes.astype(np.int64))[row] for of, row in ((of_ops, op_row), (of_calls, call_row))
        )
        return codes, np.where(call_row >= 0, of_call, RowMap(codes)[trace.calls.op_row]), of_ops.table

    tables, names = (details.ops, details.calls), ("module", "python_function")
    trace = labelled(trace, **{name: labels(*(getattr(table, name) for table in tables)) for name in names})
    is_op = (trace.ops.start != ABSENT) & ~are_step_marks(trace.ops.name)
    return trace, int((known[is_op] >= 0).sum()), int(is_op.sum())


def _same_calls(trace: LinkedTrace, details: LinkedTrace, pairs: tuple[OpRows, OpRows]) -> CallRows:
    """Returns the row in the details of each call: the one of its name, in order, after the same op of its thread."""
    names = Categorical.joined((trace.calls.name, details.calls.name)).codes.astype(np.int64)
    keys = []
    for one, rows, name in zip((trace, details), pairs, np.split(names, [len(trace.calls)]), strict=True):
        start, by_time = one.calls.start, np.argsort(one.calls.start, kind="stable")
        order = np.lexsort((one.ops.start[rows], one.ops.thread[rows]))  # of equal times both have the same one last
        begun = Keys(one.ops.thread[rows][order], one.ops.start[rows][order])
        after, occurrence = RowMap(order)[columns.asof_backward(begun, Keys(one.calls.thread, start))], start.copy()
        occurrence[by_time] = columns.cumcount(after[by_time], name[by_time])
        keys.append((after, name, occurrence))
    here, there = np.split(columns.group_ids(*map(np.concatenate, zip(*keys, strict=True))), [len(trace.calls)])
    return CallRows(np.where(keys[0][0] >= 0, Lookup(there, np.arange(len(there))).of(here), -1))


def moved_times(trace: LinkedTrace, details: LinkedTrace, thread: Int64, time: Int64) -> tuple[Int64, Int64]:
    """Returns threads and times (ns) of the details as those of the trace, as far between the same ops."""
    pairs, threads, times = same_ops(trace, details), thread.copy(), time.copy()
    for number in np.unique(thread).tolist() if len(pairs[0]) else ():
        of_thread, chosen = thread == number, details.ops.thread[pairs[1]] == number
        if chosen.any():
            threads[of_thread] = trace.ops.thread[pairs[0][chosen][0]]
        sides = zip((trace.ops, details.ops), (rows[chosen | ~chosen.any()] for rows in pairs), strict=True)
        to, at = (np.concatenate((ops.start[rows], ops.end[rows])) for ops, rows in sides)
        order = np.argsort(at, kind="stable")
        at, to = at[order], np.maximum.accumulate(to[order])
        x, y = (np.concatenate(([-FAR], side - side[0], side[-1:] - side[0] + FAR)) for side in (at, to))
        times[of_thread] = np.rint(np.interp(time[of_thread] - at[0], x, y)).astype(np.int64) + to[0]
    return threads, times
