"""Which op of the forward pass an op of the backward pass differentiates."""

from functools import cache

import numpy as np

from ...schema.columns import ABSENT, Int64, Rows, asof_backward, rows_by_number
from ...schema.linked import Ops


def forward_ops(ops: Ops) -> Rows:
    """Returns for each op of the backward pass the row of the forward op with its sequence number, -1 for none and for
    other ops.

    Several ops may show a number, as each shows the one that comes next: the last of them made the node that is
    differentiated, as Kineto has it for its own arrows. Numbers count by thread: that of the forward op is the one that
    the host trace numbers so, without one the thread with most of the numbers. O(n log n).
    """
    found = np.full(len(ops), -1, np.int64)
    numbered = np.flatnonzero((ops.start != ABSENT) & (ops.seq_id >= 0))
    backward, forward = (numbered[is_of] for is_of in ((ops.fw_tid[numbered] > 0), (ops.fw_tid[numbered] <= 0)))
    forward = forward[np.lexsort((ops.start[forward], ops.seq_id[forward], ops.thread[forward]))]
    thread, is_known = np.zeros((2, len(ops)), np.int64)
    threads = _ForwardThreads(ops, forward)
    for number, mine in rows_by_number(backward, ops.fw_tid).items():
        if (found_thread := threads.of(number, np.unique(ops.seq_id[mine]))) is not None:
            thread[mine], is_known[mine] = found_thread, 1
    backward = backward[is_known[backward] > 0]
    sequence = ops.seq_id[backward]
    row = np.append(forward, -1)[asof_backward(ops.thread[forward], ops.seq_id[forward], thread[backward], sequence)]
    known = (row >= 0) & (ops.seq_id[row] == sequence) & (ops.start[row] < ops.start[backward])
    found[backward[known]] = row[known]
    return found


class _ForwardThreads:
    """The threads of the forward pass, by what the host trace calls them and by the sequence numbers of their ops."""

    def __init__(self, ops: Ops, forward: Rows) -> None:
        self._ops, self._none = ops, np.empty(0, np.int64)
        self._of_number = rows_by_number(forward, ops.tid)
        self._of_sequence = rows_by_number(forward, ops.seq_id)
        # threads that number from 0 on share their numbers
        self._with_most = cache(self._with_most_of)

    def of(self, number: int, sequence: Int64) -> int | None:
        """Returns the thread of this number that has most of the sequence numbers, any thread if this one has none of
        them.
        """
        named = self._of_number.get(number, self._none)
        named = named[np.isin(self._ops.seq_id[named], sequence)]
        return self._most(named) if len(named) else self._with_most(tuple(sequence.tolist()))

    def _with_most_of(self, sequence: tuple[int, ...]) -> int | None:
        sharing = [self._of_sequence[number] for number in sequence if number in self._of_sequence]
        return self._most(np.concatenate(sharing)) if sharing else None

    def _most(self, rows: Rows) -> int:
        threads, often = np.unique(self._ops.thread[rows], return_counts=True)
        return int(threads[often.argmax()])
