"""A wait of the host follows the activities it awaited."""

from ...schema.graph import DependencyKind
from ..context import ConversionContext, Edges
from .evidence import by_evidence


def host_sync(context: ConversionContext) -> Edges:
    """Returns each blocking call's wait node after its sources; those known from timing alone are marked inferred."""
    waits = context.linked.host_waits
    waiter = context.timeline.sync_node[waits.call_row]
    return Edges.of(context.activity_node(waits.source_row), waiter, by_evidence(DependencyKind.HOST_SYNC, waits.found))
