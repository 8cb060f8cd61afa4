"""What a host thread does after it was called, or after the one it called has returned, follows the other thread's last node."""

import numpy as np

from ...schema.graph import DependencyKind
from ...schema.linked import guessed
from ..run import Edges, Run


def hand_over(run: Run) -> Edges:
    """The linked trace's hand-overs; those known from timing alone are marked inferred."""
    over, timeline = run.linked.hand_overs, run.timeline
    kind = DependencyKind.HAND_OVER | np.where(guessed(over.found), int(DependencyKind.INFERRED), 0)
    # a hand-over to the end of a thread releases nothing
    real = (timeline.released_by >= 0) & (timeline.resumed >= 0)
    return Edges(timeline.released_by[real], timeline.resumed[real], kind[real].astype(np.int64))
