"""A wait of the host follows the activities it awaited."""

from ...schema.graph import DependencyKind
from ..context import Edges, Run
from .evidence import by_evidence


def host_sync(run: Run) -> Edges:
    """Each blocking call's wait node after its sources; those known from timing alone are marked inferred."""
    waits = run.linked.host_waits
    waiter = run.timeline.waiter[waits.call_row]
    return Edges.of(run.activity_node(waits.source_row), waiter, by_evidence(DependencyKind.HOST_SYNC, waits.found))
