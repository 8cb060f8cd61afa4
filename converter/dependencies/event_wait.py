"""An activity follows what an event on another stream marked, when its stream was told to wait for that event."""

from ...schema.graph import DependencyKind
from ..context import ConversionContext, Edges
from .evidence import by_evidence


def event_wait(context: ConversionContext) -> Edges:
    """Returns the linked trace's device waits; those known from timing alone are marked inferred."""
    waits = context.linked.device_waits
    kind = by_evidence(DependencyKind.EVENT_WAIT, waits.found)
    return Edges.of(context.activity_node(waits.source_row), context.activity_node(waits.target_row), kind)
