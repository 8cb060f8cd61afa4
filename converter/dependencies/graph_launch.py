"""A launched graph (CUDA or HIP) is one piece of work of its stream, with branches that run on several streams.

Its first activities follow the earlier work of the stream, and the stream's later work follows the end of every branch.
No trace records the order between branches: an activity that starts just after one of another branch has ended is taken
to follow it, marked inferred.
"""

from collections.abc import Iterator

import numpy as np

from ...schema.columns import ActivityRows, split_groups
from ...schema.graph import DependencyKind
from ...schema.machine import of_name
from ..context import ConversionContext, Edges

Edge = tuple[int, int, int]


def graph_launch(context: ConversionContext) -> Edges:
    """Returns the edges into, inside and out of launches whose activities run on several streams."""
    edges = [
        edge for members in _launches(context) for edge in (*_inside(context, members), *_outside(context, members))
    ]
    columns = np.array(edges, np.int64).reshape(-1, 3)
    source, target = (context.activity_node(ActivityRows(columns[:, end])) for end in (0, 1))
    return Edges.of(source, target, columns[:, 2])


def _launches(context: ConversionContext) -> Iterator[list[int]]:
    """Yields the activities of each launch over several streams, in the order of their streams."""
    activities = context.linked.activities
    order = np.lexsort((activities.end, activities.start, activities.call_row))
    order = order[activities.call_row[order] >= 0]
    launched = np.bincount(activities.call_row[order])
    # nearly all calls launch one
    order = order[launched[activities.call_row[order]] > 1]
    for members in split_groups(order, activities.call_row):
        if len(np.unique(activities.stream[members])) > 1:
            yield members.tolist()


def _inside(context: ConversionContext, members: list[int]) -> Iterator[Edge]:
    """Yields edges between branches, by timing."""
    start, end, stream = context.linked.activities.start, context.activity_end, context.linked.activities.stream
    prompt = of_name(context.linked.info.machine.gap, "").upper
    kind = int(DependencyKind.EVENT_WAIT | DependencyKind.INFERRED)
    by_end = sorted(members, key=lambda row: (int(end[row]), int(start[row])))
    latest: dict[int, int] = {}
    next_end = 0
    for row in members:
        # ends before the row starts; of two activities of no length at the same time neither follows the other
        while (end[by_end[next_end]], start[by_end[next_end]]) < (start[row], start[row]):
            latest[int(stream[by_end[next_end]])] = by_end[next_end]
            next_end += 1
        # a start just after the previous activity of its own stream needs no other explanation
        branch, before = int(stream[row]), context.stream_previous[row]
        candidates = [source for key, source in latest.items() if key != branch and start[row] - end[source] <= prompt]
        if candidates and (before < 0 or start[row] - end[before] > prompt):
            yield max(candidates, key=lambda source: int(end[source])), row, kind


def _outside(context: ConversionContext, members: list[int]) -> Iterator[Edge]:
    """Yields edges from the stream's work before the graph to its branches, and from all branches to the stream's work
    after; -1 where there is none.
    """
    activities, end = context.linked.activities, context.activity_end
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for row in members:
        first.setdefault(int(activities.stream[row]), row)
        last[int(activities.stream[row])] = row
    before = context.stream_previous[members[0]]
    kind = int(DependencyKind.EVENT_WAIT)
    for row in first.values():
        if row != members[0]:
            yield int(before), row, kind
    for tail in last.values():
        after = int(context.stream_next[tail])
        for source in last.values():
            if source != tail and end[source] <= activities.start[after]:
                yield source, after, kind
