"""An activity follows the host slice that launched it."""

import numpy as np

from ...schema.columns import Int64
from ...schema.graph import DependencyKind
from ..context import Edges, Run


def launch(run: Run) -> Edges:
    """Each activity after its launching node; those without a recorded call after their `unrecorded host` node."""
    rows = np.arange(len(run.linked.activities), dtype=np.int64)
    return Edges.of(launching_node(run), run.activity_node(rows), DependencyKind.LAUNCH)


def launching_node(run: Run) -> Int64:
    """The host node at whose end each activity was launched."""
    call = run.linked.activities.call_row
    node = np.full(len(call), -1, np.int64)
    called = call >= 0
    node[called] = run.timeline.launcher[call[called]]
    node[run.unrecorded] = run.unrecorded_from + np.arange(len(run.unrecorded))
    return node
