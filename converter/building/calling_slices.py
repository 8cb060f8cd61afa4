"""Control dependencies of host slices: the slice of the calling op that precedes them."""

import numpy as np

from ..context import ConversionContext, Edges


def calling_slices(context: ConversionContext) -> Edges:
    """Returns each host slice after the last earlier slice, on its thread, of the op that called its op; none where
    there is no such slice.

    A wait was called by the op around the blocking call. Always implied by program order.
    """
    timeline = context.timeline
    slices = np.flatnonzero((timeline.op_row >= 0) & ~timeline.is_wait)
    called = np.flatnonzero(timeline.op_row >= 0)
    op = timeline.op_row[called]
    caller = np.where(timeline.is_wait[called], op, context.op_parent[op])
    # rows follow program order, so (op, row) pairs sorted by op list each op's slices in time
    by_op = slices[np.lexsort((slices, timeline.op_row[slices]))]
    width = len(timeline) + 1
    place = np.searchsorted(timeline.op_row[by_op] * width + by_op, caller * width + called) - 1
    # before the first slice (-1) stands the row at the end: none
    candidate = np.append(by_op, -1)[place]
    fits = (timeline.op_row[candidate] == caller) & (timeline.thread[candidate] == timeline.thread[called])
    return Edges.of(np.where(fits, candidate, -1), called, 0)
