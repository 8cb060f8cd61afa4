"""On which threads forward ops with a sequence number ran: such a thread is the caller of the autograd worker whose
backward ops have the same number.
"""

import numpy as np

from ..schema.columns import Bool, Int64, cumcount, is_group_start
from ..schema.linked import Ops

SHARED = 256
"""Threads that count of those whose forward ops share a sequence number; each thread counts its own, so a usual run has
few.
"""


class ForwardThreads:
    """The threads of forward ops, with a row per sequence number and thread: how many ops, and the first of them."""

    def __init__(self, ops: Ops, of_thread: dict[int, Int64], is_backward: Bool) -> None:
        work = np.concatenate((*of_thread.values(),))
        forward = work[~is_backward[work]]
        forward = forward[ops.seq_id[forward] >= 0]
        sequence, thread = ops.seq_id[forward], ops.thread[forward]
        order = np.lexsort((forward, thread, sequence))
        starts = np.flatnonzero(is_group_start(sequence[order], thread[order]))
        count, first = np.diff(np.append(starts, len(order))), order[starts]
        # within each number in the order of the threads' first ops
        order = np.lexsort((forward[first], sequence[first]))
        order = order[cumcount(sequence[first[order]]) < SHARED]
        self._count, first = count[order], first[order]
        self._sequence, self._thread, self._row = sequence[first], thread[first], forward[first]

    def of(self, sequences: Int64) -> int | None:
        """Returns the thread that ran most forward ops with any of the distinct numbers, None for no such op.

        Of several threads with equally many ops it is the one that ran the first of them.
        """
        begin, end = (np.searchsorted(self._sequence, sequences, side) for side in ("left", "right"))
        length = end - begin
        rows = np.repeat(begin - np.cumsum(length) + length, length) + np.arange(length.sum())
        if not len(rows):
            return None
        threads, number = np.unique(self._thread[rows], return_inverse=True)
        count, first = np.zeros(len(threads), np.int64), np.full(len(threads), self._row.max())
        np.add.at(count, number, self._count[rows])
        np.minimum.at(first, number, self._row[rows])
        return int(threads[np.lexsort((first, -count))[0]])
