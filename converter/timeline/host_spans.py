"""Which op or call a host thread's time belongs to: ops, and calls outside ops, nested.

Time belongs to the innermost span that encloses it. Step annotations have no time of their own.
"""

from dataclasses import dataclass

import numpy as np

from ...schema.columns import ABSENT, CallRows, Int64, OpRows, Table, ThreadIntervals, nest
from ...schema.linked import LinkedTrace, are_step_marks


@dataclass(slots=True, repr=False)
class HostSpans(Table):
    """Ops, then calls outside ops. One of `op_row` and `call_row` identifies each row; `parent` is a row of this table.

    `of_op` is the row of each op, and `of_call` that of each call or of the op that encloses it.
    """

    thread: Int64
    start: Int64
    end: Int64
    parent: Int64
    op_row: OpRows
    call_row: CallRows
    of_op: Int64
    of_call: Int64


def host_spans(linked: LinkedTrace) -> HostSpans:
    """Returns the timed ops, and the calls outside ops, of all threads, nested."""
    ops, calls = linked.ops, linked.calls
    op = np.flatnonzero((ops.start != ABSENT) & ~are_step_marks(ops.name))
    # of ops with the same start and end the caller has the smaller id
    op = op[np.argsort(ops.id[op], kind="stable")]
    call = np.flatnonzero(calls.op_row < 0)
    thread = np.concatenate((ops.thread[op], calls.thread[call]))
    start = np.concatenate((ops.start[op], calls.start[call]))
    end = np.concatenate((ops.end[op], calls.end[call]))
    nesting = nest(ThreadIntervals(thread, start, end))
    of_op, of_call = _none(len(ops)), _none(len(calls))
    of_op[op], of_call[call] = np.arange(len(op)), len(op) + np.arange(len(call))
    return HostSpans(
        thread=thread,
        start=start,
        # an op that ran when recording ended is cut there; a call in it may have been recorded to its end
        end=np.concatenate((nesting.end[: len(op)], end[len(op) :])),
        parent=nesting.parent,
        op_row=OpRows(np.concatenate((op, _none(len(call))))),
        call_row=CallRows(np.concatenate((_none(len(op)), call))),
        of_op=of_op,
        of_call=np.where(calls.op_row >= 0, np.append(of_op, -1)[calls.op_row], of_call),
    )


def _none(count: int) -> Int64:
    return np.full(count, -1, np.int64)
