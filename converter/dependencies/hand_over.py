"""What a host thread does after it was called, or after the one it called has returned, follows the other thread's last
node.
"""

from ...schema.graph import DependencyKind
from ..context import ConversionContext, Edges
from .evidence import by_evidence


def hand_over(context: ConversionContext) -> Edges:
    """Returns the linked trace's hand-offs; those known from timing alone are marked inferred."""
    # a hand-off to the end of a thread releases nothing: there -1 stands for the missing node
    kind = by_evidence(DependencyKind.HAND_OVER, context.linked.handoffs.found)
    return Edges.of(context.timeline.handoff_source_node, context.timeline.handoff_target_node, kind)
