"""Control dependencies of host slices: each follows a slice of the op that called its op."""

import numpy as np

from ...schema.columns import NodeNumbers
from ..context import ConversionContext, Edges


def calling_slices(context: ConversionContext) -> Edges:
    """Returns an edge to each host slice from the last earlier slice, on its thread, of the op that called its op.

    The caller of a wait is the op that encloses the blocking call. Program order always implies these edges.
    """
    timeline = context.timeline
    slices = np.flatnonzero((timeline.op_row >= 0) & ~timeline.is_wait)
    nodes = np.flatnonzero(timeline.op_row >= 0)
    op = timeline.op_row[nodes]
    caller = np.where(timeline.is_wait[nodes], op, context.op_parent[op])
    # rows follow program order, so (op, row) pairs sorted by op list each op's slices in time
    by_op = slices[np.lexsort((slices, timeline.op_row[slices]))]
    width = len(timeline)
    position = np.searchsorted(timeline.op_row[by_op] * width + by_op, caller * width + nodes) - 1
    # the position -1, before the first slice, takes the last value: none
    candidate = np.append(by_op, -1)[position]
    fits = (timeline.op_row[candidate] == caller) & (timeline.thread[candidate] == timeline.thread[nodes])
    return Edges.of(NodeNumbers(np.where(fits, candidate, -1)), NodeNumbers(nodes), 0)
