"""A wait of the host follows the activities it awaited."""

import numpy as np

from ...schema.graph import DependencyKind
from ...schema.linked import guessed
from ..run import Edges, Run


def host_sync(run: Run) -> Edges:
    """Each blocking call's wait node after its sources; those known from timing alone are marked inferred."""
    waits = run.linked.host_waits
    real = waits.source_row >= 0
    source = run.activity_node(waits.source_row[real])
    edges = Edges.of(source, run.timeline.waiter[waits.call_row[real]], DependencyKind.HOST_SYNC)
    return edges._replace(kind=edges.kind | np.where(guessed(waits.found.take(real)), int(DependencyKind.INFERRED), 0))
