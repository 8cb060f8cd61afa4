"""An activity follows the event on another stream for which its stream was told to wait."""

from ...schema.graph import DependencyKind
from ..context import ConversionContext, Edges
from .evidence import by_evidence


def event_wait(context: ConversionContext) -> Edges:
    """Returns an edge for each device wait; those known from timing alone are marked inferred."""
    waits = context.linked.device_waits
    kind = by_evidence(DependencyKind.EVENT_WAIT, waits.found)
    return Edges.of(context.activity_node(waits.source_row), context.activity_node(waits.target_row), kind)
