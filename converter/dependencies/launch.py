"""An activity follows the host slice that launched it."""

import numpy as np

from ...schema.columns import Int64
from ...schema.graph import DependencyKind
from ..context import ConversionContext, Edges


def launch(context: ConversionContext) -> Edges:
    """Returns an edge to each activity from its launching node; its `unrecorded host` node if no call is recorded."""
    rows = np.arange(len(context.linked.activities), dtype=np.int64)
    return Edges.of(launching_node(context), context.activity_node(rows), DependencyKind.LAUNCH)


def launching_node(context: ConversionContext) -> Int64:
    """Returns the host node at whose end each activity was launched."""
    call = context.linked.activities.call_row
    node = np.full(len(call), -1, np.int64)
    has_call = call >= 0
    node[has_call] = context.timeline.launch_node[call[has_call]]
    node[context.unrecorded] = context.unrecorded_from + np.arange(len(context.unrecorded))
    return node
