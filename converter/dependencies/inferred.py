"""Edges from timing alone: an activity that started late, just after one of another stream ended, probably waited for
it.

Only for traces without synchronisation records, and only for lateness that no known dependency explains.
"""

import numpy as np

from ...schema.columns import ActivityRows
from ...schema.graph import DependencyKind
from ...schema.machine import ENOUGH, latency_stats
from ..context import ConversionContext, Edges

LOOKED_BACK = 8
"""The number of candidates per activity, which bounds the search."""
CUT_OFF = f"late activities whose cause may lie before the {LOOKED_BACK} activities that were looked at"


def inferred(context: ConversionContext, late: ActivityRows, tolerance_ns: int) -> tuple[Edges, int]:
    """Returns edges to late activities from the activity of another stream that ended last before, if that was not long
    ago; and the number of activities whose search was cut off.

    Not long ago is within `tolerance_ns`, or within the usual time between such pairs if that is longer, as a stream
    may take longer to resume than to start. The source must have been launched before the target, as a stream can only
    wait for submitted work.

    Args:
        context: the context of the conversion.
        late: rows of late activities.
        tolerance_ns: the longest time between the end of the source and the start of the target.
    """
    source, cut_off = _last_ended_elsewhere(context, late)
    has_source = source >= 0
    since = context.linked.activities.start[late[has_source]] - context.activity_end[source[has_source]]
    between = latency_stats(since, context.linked.info.machine.resolution_ns)
    longest = max(tolerance_ns, between.upper if between.count >= ENOUGH else 0)
    soon = np.flatnonzero(has_source)[since <= longest]
    kind = DependencyKind.EVENT_WAIT | DependencyKind.INFERRED
    source_node, late_node = (context.activity_node(ActivityRows(rows[soon])) for rows in (source, late))
    return Edges.of(source_node, late_node, kind), cut_off


def _last_ended_elsewhere(context: ConversionContext, late: ActivityRows) -> tuple[ActivityRows, int]:
    """Returns, for each of the rows, the activity of another stream, launched before, that ended last before it
    started, -1 for none; and the number of rows whose search was cut off.
    """
    activities, launched = context.linked.activities, context.launched
    by_end = np.argsort(context.activity_end, kind="stable")
    position = np.searchsorted(context.activity_end[by_end], activities.start[late], side="right") - 1
    source = np.full(len(late), -1, np.int64)
    for _ in range(LOOKED_BACK):
        candidate = by_end[np.maximum(position, 0)]
        fits = (source < 0) & (position >= 0)
        fits &= (activities.stream[candidate] != activities.stream[late]) | (
            activities.device[candidate] != activities.device[late]
        )
        fits &= launched[candidate] < launched[late]
        source[fits] = candidate[fits]
        position = position - 1
    return ActivityRows(source), int(((source < 0) & (position >= 0)).sum())
