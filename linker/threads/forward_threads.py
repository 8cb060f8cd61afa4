"""On which threads forward ops with a sequence number ran: the caller of an autograd worker, whose backward ops share
the numbers.
"""

import numpy as np

from ...schema.columns import Bool, Int64, cumcount, is_group_start
from ...schema.linked import Ops

SHARED = 256
"""Threads that count of those whose forward ops share a sequence number; each thread counts its own, so a usual run has
few.
"""


class ForwardThreads:
    """The threads of forward ops by sequence number, with how many ops and the first of them: a row for each number and
    thread.
    """

    def __init__(self, ops: Ops, of_thread: dict[int, Int64], is_backward: Bool) -> None:
        work = np.concatenate((*of_thread.values(),))
        forward = work[~is_backward[work]]
        forward = forward[ops.seq_id[forward] >= 0]
        sequence, thread = ops.seq_id[forward], ops.thread[forward]
        order = np.lexsort((forward, thread, sequence))
        first = np.flatnonzero(is_group_start(sequence[order], thread[order]))
        count, place = np.diff(np.append(first, len(order))), order[first]
        # of each number in the order in which the threads came to it
        order = np.lexsort((forward[place], sequence[place]))
        order = order[cumcount(sequence[place[order]]) < SHARED]
        self._count, place = count[order], place[order]
        self._sequence, self._thread, self._row = sequence[place], thread[place], forward[place]

    def of(self, sequences: Int64) -> int | None:
        """Returns the thread that ran most forward ops with any of the (distinct) numbers, of several the earliest;
        None for no such op.
        """
        begin, end = (np.searchsorted(self._sequence, sequences, side) for side in ("left", "right"))
        length = end - begin
        rows = np.repeat(begin - np.cumsum(length) + length, length) + np.arange(length.sum())
        if not len(rows):
            return None
        threads, place = np.unique(self._thread[rows], return_inverse=True)
        count, first = np.zeros(len(threads), np.int64), np.full(len(threads), self._row.max())
        np.add.at(count, place, self._count[rows])
        np.minimum.at(first, place, self._row[rows])
        return int(threads[np.lexsort((first, -count))[0]])
