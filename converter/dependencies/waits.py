"""Edges from waits: of a stream for an event of another stream, and of the host for the device."""

import numpy as np

from ...schema.columns import Categorical, Int64, NodeNumbers
from ...schema.graph import DependencyKind
from ...schema.linked import guessed
from ..context import ConversionContext, Edges


def event_wait(context: ConversionContext) -> Edges:
    """Returns an edge for each wait of a stream; those known from timing alone are marked inferred."""
    waits = context.linked.device_waits
    kind = by_evidence(DependencyKind.EVENT_WAIT, waits.known_by)
    return Edges.of(context.activity_node(waits.source_row), context.activity_node(waits.target_row), kind)


def host_sync(context: ConversionContext) -> Edges:
    """Returns edges to the wait node of each blocking call from its sources; those known from timing alone are marked
    inferred.
    """
    waits = context.linked.host_waits
    wait_node = NodeNumbers(context.timeline.sync_node[waits.call_row])
    kind = by_evidence(DependencyKind.HOST_SYNC, waits.known_by)
    return Edges.of(context.activity_node(waits.source_row), wait_node, kind)


def by_evidence(kind: DependencyKind, evidence: Categorical) -> Int64:
    """Returns the kind of each edge, with INFERRED where the evidence is timing."""
    return np.where(guessed(evidence), int(kind | DependencyKind.INFERRED), int(kind))
