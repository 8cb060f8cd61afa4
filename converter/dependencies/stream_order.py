"""An activity follows the previous one on its stream: intra-stream kernel chaining."""

import numpy as np

from ...schema.graph import DependencyKind
from ..context import ConversionContext, Edges


def stream_order(context: ConversionContext) -> Edges:
    """Returns an edge to each activity from the previous one on its (device, stream), even where the two overlap."""
    following = context.stream_next
    rows = np.arange(len(following), dtype=np.int64)
    return Edges.of(context.activity_node(rows), context.activity_node(following), DependencyKind.STREAM_ORDER)
