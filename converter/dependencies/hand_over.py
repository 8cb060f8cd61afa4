"""What a host thread does after it was called, or after the one it called has returned, follows the other thread's last node."""

from ...schema.graph import DependencyKind
from ..context import Edges, Run
from .evidence import by_evidence


def hand_over(run: Run) -> Edges:
    """The linked trace's hand-overs; those known from timing alone are marked inferred."""
    # a hand-over to the end of a thread releases nothing: there -1 stands for the missing node
    kind = by_evidence(DependencyKind.HAND_OVER, run.linked.hand_overs.found)
    return Edges.of(run.timeline.released_by, run.timeline.resumed, kind)
