"""Edges from timing alone: an activity that started late, right after one on another stream had ended, probably waited
for it.

Only for traces without synchronisation records, and only for delays that no known dependency explains.
"""

import numpy as np

from ...schema.columns import Int64
from ...schema.graph import DependencyKind
from ...schema.machine import ENOUGH, latency_stats
from ..context import ConversionContext, Edges

LOOKED_BACK = 8
"""Activities that are looked at, so that the search stays constant."""
CUT_OFF = f"late activities that may have waited for one before the {LOOKED_BACK} that ended last"


def inferred(context: ConversionContext, late: Int64, tolerance_ns: int) -> tuple[Edges, int]:
    """Returns for each activity row in `late` the activity of another stream that had ended last before its start, if
    not long before; and for how many the search was cut off.

    Long is more than `tolerance_ns`, and more than is usual between the two: a stream may take longer to go on than to
    start. The source must have been launched before the target was, as a stream can only wait for what was submitted.
    """
    source, cut_off = _last_ended(context, late)
    found = source >= 0
    since = context.linked.activities.start[late[found]] - context.activity_end[source[found]]
    between = latency_stats(since, context.linked.info.machine.resolution_ns)
    longest = max(tolerance_ns, between.upper if between.count >= ENOUGH else 0)
    soon = np.flatnonzero(found)[since <= longest]
    kind = DependencyKind.EVENT_WAIT | DependencyKind.INFERRED
    return Edges.of(context.activity_node(source[soon]), context.activity_node(late[soon]), kind), cut_off


def _last_ended(context: ConversionContext, late: Int64) -> tuple[Int64, int]:
    """Returns for each of the rows the activity of another stream, launched before, that had ended last when it
    started, -1 for none.
    """
    activities, launched = context.linked.activities, context.launched
    by_end = np.argsort(context.activity_end, kind="stable")
    place = np.searchsorted(context.activity_end[by_end], activities.start[late], side="right") - 1
    source = np.full(len(late), -1, np.int64)
    for _ in range(LOOKED_BACK):
        candidate = by_end[np.maximum(place, 0)]
        fits = (source < 0) & (place >= 0)
        fits &= (activities.stream[candidate] != activities.stream[late]) | (
            activities.device[candidate] != activities.device[late]
        )
        fits &= launched[candidate] < launched[late]
        source[fits] = candidate[fits]
        place = place - 1
    return source, int(((source < 0) & (place >= 0)).sum())
