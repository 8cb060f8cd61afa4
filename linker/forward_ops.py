"""Finds the op of the forward pass that an op of the backward pass differentiates."""

from functools import cache

import numpy as np

from ..schema.columns import ABSENT, Int64, Keys, OpRows, RowMap, Rows, asof_backward, rows_by_number
from ..schema.linked import Ops


def forward_ops(ops: Ops) -> OpRows:
    """Returns for each op of the backward pass the row of the forward op with its sequence number.

    It is -1 for none and for all other ops. Several forward ops may record a number, as each records the one that comes
    next: the last of them made the node that is differentiated, as in Kineto's own arrows. Each thread counts numbers
    by itself: the forward thread is the one that the host trace names, else the one with most of the numbers.
    O(n log n).
    """
    forward_row = OpRows(np.full(len(ops), -1, np.int64))
    with_number = (ops.start != ABSENT) & (ops.seq_id >= 0)
    backward, forward = (np.flatnonzero(with_number & of_pass) for of_pass in (ops.fw_tid > 0, ops.fw_tid <= 0))
    forward = forward[np.lexsort((ops.start[forward], ops.seq_id[forward], ops.thread[forward]))]
    # a backward op without a forward thread has a number that no forward op has
    forward_thread = np.zeros(len(ops), np.int64)
    threads = _ForwardThreads(ops, forward)
    for number, rows in rows_by_number(backward, ops.fw_tid).items():
        if (thread := threads.find(number, np.unique(ops.seq_id[rows]))) is not None:
            forward_thread[rows] = thread
    sequence = ops.seq_id[backward]
    last = asof_backward(Keys(ops.thread[forward], ops.seq_id[forward]), Keys(forward_thread[backward], sequence))
    row = RowMap(forward)[last]
    is_earlier = (ops.seq_id[row] == sequence) & (ops.start[row] < ops.start[backward])
    forward_row[backward[is_earlier]] = row[is_earlier]
    return forward_row


class _ForwardThreads:
    """The threads of the forward pass, by the host trace's numbers and by the sequence numbers of their ops."""

    def __init__(self, ops: Ops, forward: Rows) -> None:
        self._ops, self._none = ops, np.empty(0, np.int64)
        self._of_number = rows_by_number(forward, ops.tid)
        self._of_sequence = rows_by_number(forward, ops.seq_id)
        # threads that number from 0 on share their numbers
        self._any_thread = cache(self._find_any_thread)

    def find(self, number: int, sequence: Int64) -> int | None:
        """Returns the thread with most of the sequence numbers among those that the host trace numbers so.

        Where none of these has any it is any thread; None for none.
        """
        rows = self._of_number.get(number, self._none)
        rows = rows[np.isin(self._ops.seq_id[rows], sequence)]
        return self._most_frequent(rows) if len(rows) else self._any_thread(tuple(sequence.tolist()))

    def _find_any_thread(self, sequence: tuple[int, ...]) -> int | None:
        rows = [self._of_sequence[number] for number in sequence if number in self._of_sequence]
        return self._most_frequent(np.concatenate(rows)) if rows else None

    def _most_frequent(self, rows: Rows) -> int:
        threads, count = np.unique(self._ops.thread[rows], return_counts=True)
        return int(threads[count.argmax()])
