"""A host thread goes on after the node of another thread that called it, or that returned to it."""

from ...schema.graph import DependencyKind
from ..context import ConversionContext, Edges
from .waits import by_evidence


def handoff(context: ConversionContext) -> Edges:
    """Returns an edge for each hand-off between threads; those known from timing alone are marked inferred."""
    # a hand-off at the end of a thread releases nothing: its node is -1
    kind = by_evidence(DependencyKind.HANDOFF, context.linked.handoffs.known_by)
    return Edges.of(context.timeline.handoff_source_node, context.timeline.handoff_target_node, kind)
