"""A wait of the host follows the activities it awaited."""

import numpy as np

from ...schema.graph import DependencyKind
from ...schema.linked import Found
from ..run import Edges, Run


def host_sync(run: Run) -> Edges:
    """Each blocking call's wait node after its sources; those known from timing alone are marked inferred."""
    waits = run.linked.host_waits
    real = waits.source_row >= 0
    source = run.activity_node(waits.source_row[real])
    edges = Edges.of(source, run.timeline.waiter[waits.call_row[real]], DependencyKind.HOST_SYNC)
    guessed = np.array([text == Found.TIMING.value for text in waits.found.table] + [False])[waits.found.codes[real]]
    return edges._replace(kind=edges.kind | np.where(guessed, int(DependencyKind.INFERRED), 0))
