"""Edges from waits: of a stream for an event of another stream, and of the host for the device."""

import numpy as np

from ...schema.columns import Bool, Categorical, Int64, NodeNumbers
from ...schema.graph import DependencyKind
from ...schema.linked import Provenance, SyncCall, guessed, sync_calls
from ..context import ConversionContext, Edges


def event_wait(context: ConversionContext) -> Edges:
    """Returns an edge for each wait of a stream; those known from timing or the order of calls alone are marked."""
    waits = context.linked.device_waits
    by_order = waits.known_by.equal(Provenance.CALL_ORDER.value)
    kind = by_evidence(DependencyKind.EVENT_WAIT, waits.known_by)
    return _marked(context.activity_node(waits.source_row), context.activity_node(waits.target_row), kind, by_order)


def host_sync(context: ConversionContext) -> Edges:
    """Returns edges to the wait node of each blocking call from its sources; those known from timing or the order of
    calls alone are marked.

    A call that waits for the whole of the only device needs no record: what it is for is in its name.
    """
    waits, activities = context.linked.host_waits, context.linked.activities
    wait_node = NodeNumbers(context.timeline.sync_node[waits.call_row])
    by_order = waits.known_by.equal(Provenance.CALL_ORDER.value)
    if by_order.any() and len(np.unique(activities.device)) == 1:
        by_order &= (sync_calls(context.linked.calls.name) != SyncCall.DEVICE_SYNC)[waits.call_row]
    kind = by_evidence(DependencyKind.HOST_SYNC, waits.known_by)
    return _marked(context.activity_node(waits.source_row), wait_node, kind, by_order)


def by_evidence(kind: DependencyKind, evidence: Categorical) -> Int64:
    """Returns the kind of each edge, with INFERRED where the evidence is timing."""
    return np.where(guessed(evidence), int(kind | DependencyKind.INFERRED), int(kind))


def _marked(source: NodeNumbers, target: NodeNumbers, kind: Int64, by_order: Bool) -> Edges:
    """Returns the edges, with CALL_ORDER where the order of calls is the only evidence of a wait between the two."""
    edges = Edges.of(source, target, np.where(by_order, kind | DependencyKind.CALL_ORDER, kind))
    is_marked = edges.kind & DependencyKind.CALL_ORDER != 0
    if not is_marked.any() or is_marked.all():
        return edges
    pair = edges.target * (int(edges.source.max()) + 1) + edges.source
    is_certain = edges.kind & (DependencyKind.CALL_ORDER | DependencyKind.INFERRED) == 0
    also_recorded = np.isin(pair, pair[is_certain])
    return edges._replace(kind=np.where(also_recorded, edges.kind & ~int(DependencyKind.CALL_ORDER), edges.kind))
