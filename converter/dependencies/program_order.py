"""A host thread's nodes follow each other in time."""

import numpy as np

from ...schema.columns import is_group_start
from ...schema.graph import DependencyKind
from ..context import ConversionContext, Edges


def program_order(context: ConversionContext) -> Edges:
    """Returns an edge to each host node from the previous one of its thread; `unrecorded host` nodes are one thread."""
    thread = context.timeline.thread
    rows = np.arange(len(thread), dtype=np.int64)
    same = ~is_group_start(thread)[1:]
    unrecorded = context.unrecorded_from + np.arange(len(context.unrecorded), dtype=np.int64)
    source = np.concatenate((rows[:-1][same], unrecorded[:-1]))
    target = np.concatenate((rows[1:][same], unrecorded[1:]))
    return Edges.of(source, target, DependencyKind.PROGRAM_ORDER)
