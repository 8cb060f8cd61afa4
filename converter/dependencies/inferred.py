"""Edges from timing alone: an activity that started late, right after one on another stream had ended, probably waited for it.

Only for traces without synchronisation records, and only for delays that no known dependency explains.
"""

import numpy as np

from ...schema.columns import Int64
from ...schema.graph import DependencyKind
from ..run import Edges, Run

LOOKED_BACK = 8


def inferred(run: Run, late: Int64, tolerance_ns: int) -> Edges:
    """For each activity row in `late` the activity of another stream that ended last in the `tolerance_ns` before its start.

    The source must have been launched before the target was, as a stream can only wait for what was submitted.
    """
    activities = run.linked.activities
    launched = _launched(run)
    by_end = np.argsort(run.activity_end, kind="stable")
    ends = run.activity_end[by_end]
    place = np.searchsorted(ends, activities.start[late], side="right") - 1
    source = np.full(len(late), -1, np.int64)
    for _ in range(LOOKED_BACK):
        candidate = by_end[np.maximum(place, 0)] if len(by_end) else place
        fits = (source < 0) & (place >= 0)
        fits &= activities.start[late] - run.activity_end[candidate] <= tolerance_ns
        fits &= (activities.stream[candidate] != activities.stream[late]) | (
            activities.device[candidate] != activities.device[late]
        )
        fits &= launched[candidate] < launched[late]
        source[fits] = candidate[fits]
        place = place - 1
    kind = DependencyKind.EVENT_WAIT | DependencyKind.INFERRED
    return Edges.of(run.activity_node(source), run.activity_node(late), kind)


def _launched(run: Run) -> Int64:
    """When each activity was launched; at its start where that was not recorded."""
    activities, calls = run.linked.activities, run.linked.calls
    time = activities.start.copy()
    called = activities.call_row >= 0
    time[called] = calls.start[activities.call_row[called]]
    return time
