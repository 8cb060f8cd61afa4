"""Which op of the forward pass an op of the backward pass differentiates."""

import numpy as np

from ...schema.columns import ABSENT, Rows, last_up_to
from ...schema.linked import Ops


def forward_ops(ops: Ops) -> Rows:
    """For each op of the backward pass the row of the forward op with its sequence number, -1 for none and for other ops.

    Several ops may show a number, as each shows the one that comes next: the last of them made the node that is differentiated, as
    Kineto has it for its own arrows. Numbers count by thread: that of the forward op is the one that the host trace numbers so, without
    one the thread with most of the numbers. O(n log n) for a bounded number of threads.
    """
    found = np.full(len(ops), -1, np.int64)
    numbered = np.flatnonzero((ops.start != ABSENT) & (ops.seq_id >= 0))
    backward, forward = (numbered[is_of] for is_of in ((ops.fw_tid[numbered] > 0), (ops.fw_tid[numbered] <= 0)))
    forward = forward[np.lexsort((ops.start[forward], ops.seq_id[forward], ops.thread[forward]))]
    for number in np.unique(ops.fw_tid[backward]).tolist():
        mine = backward[ops.fw_tid[backward] == number]
        sharing = forward[np.isin(ops.seq_id[forward], ops.seq_id[mine])]
        named = sharing[ops.tid[sharing] == number]
        threads, often = np.unique(ops.thread[named if len(named) else sharing], return_counts=True)
        if not len(threads):
            continue
        thread = np.full(len(mine), threads[often.argmax()])
        last = last_up_to(ops.thread[forward], ops.seq_id[forward], thread, ops.seq_id[mine])
        row = np.append(forward, -1)[last]
        known = (row >= 0) & (ops.seq_id[row] == ops.seq_id[mine]) & (ops.start[row] < ops.start[mine])
        found[mine[known]] = row[known]
    return found
