"""An activity follows the previous one on its stream: intra-stream kernel chaining."""

import numpy as np

from ...schema.graph import DependencyKind
from ..context import Edges, Run


def stream_order(run: Run) -> Edges:
    """Each activity after the one before it on the same (device, stream), also where the two overlapped."""
    following = run.stream_next
    rows = np.arange(len(following), dtype=np.int64)
    return Edges.of(run.activity_node(rows), run.activity_node(following), DependencyKind.STREAM_ORDER)
