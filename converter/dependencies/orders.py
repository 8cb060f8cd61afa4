"""Edges from the order of calls: along host threads, along streams, and from launches to activities."""

import numpy as np

from ...schema.columns import ActivityRows, NodeNumbers, RowMap, is_group_start
from ...schema.graph import DependencyKind
from ..context import ConversionContext, Edges


def program_order(context: ConversionContext) -> Edges:
    """Returns an edge to each host node from the previous one of its thread; `unrecorded host` nodes are one thread."""
    thread = context.timeline.thread
    rows = np.arange(len(thread), dtype=np.int64)
    same = ~is_group_start(thread)[1:]
    unrecorded = context.unrecorded_node
    source = np.concatenate((rows[:-1][same], unrecorded[:-1]))
    target = np.concatenate((rows[1:][same], unrecorded[1:]))
    return Edges.of(NodeNumbers(source), NodeNumbers(target), DependencyKind.PROGRAM_ORDER)


def stream_order(context: ConversionContext) -> Edges:
    """Returns an edge to each activity from the previous one on its (device, stream), even where the two overlap."""
    following = context.stream_next
    rows = ActivityRows(np.arange(len(following), dtype=np.int64))
    return Edges.of(context.activity_node(rows), context.activity_node(following), DependencyKind.STREAM_ORDER)


def launch(context: ConversionContext) -> Edges:
    """Returns an edge to each activity from its launching node; its `unrecorded host` node if no call is recorded."""
    rows = ActivityRows(np.arange(len(context.linked.activities), dtype=np.int64))
    return Edges.of(launching_node(context), context.activity_node(rows), DependencyKind.LAUNCH)


def launching_node(context: ConversionContext) -> NodeNumbers:
    """Returns the host node at whose end each activity was launched."""
    call = context.linked.activities.call_row
    node = RowMap(context.timeline.launch_node)[call]
    node[context.unrecorded] = context.unrecorded_node
    return node
