"""An activity follows what an event on another stream marked, when its stream was told to wait for that event."""

import numpy as np

from ...schema.graph import DependencyKind
from ...schema.linked import guessed
from ..run import Edges, Run


def event_wait(run: Run) -> Edges:
    """The linked trace's device waits; those known from timing alone are marked inferred."""
    waits = run.linked.device_waits
    held = waits.source_row >= 0
    source, target, found = waits.source_row[held], waits.target_row[held], waits.found.take(held)
    edges = Edges.of(run.activity_node(source), run.activity_node(target), DependencyKind.EVENT_WAIT)
    return edges._replace(kind=edges.kind | np.where(guessed(found), int(DependencyKind.INFERRED), 0))
