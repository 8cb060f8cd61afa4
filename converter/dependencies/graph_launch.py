"""A launched graph (CUDA or HIP) is one piece of work of its stream, whose branches run on several.

Its first activities follow what the stream did before, and what the stream does next follows the end of every branch.
The order between the branches is in no trace: an activity that starts right after another branch's has ended is taken
to follow it, marked inferred.
"""

from collections.abc import Iterator

import numpy as np

from ...schema.columns import split_groups
from ...schema.graph import DependencyKind
from ...schema.machine import of_name
from ..context import ConversionContext, Edges

Edge = tuple[int, int, int]


def graph_launch(context: ConversionContext) -> Edges:
    """Returns the order around and inside launches whose activities run on several streams."""
    edges = [
        edge for members in _launches(context) for edge in (*_inside(context, members), *_around(context, members))
    ]
    columns = np.array(edges, np.int64).reshape(-1, 3)
    return Edges.of(context.activity_node(columns[:, 0]), context.activity_node(columns[:, 1]), columns[:, 2])


def _launches(context: ConversionContext) -> Iterator[list[int]]:
    """Yields the activities of each launch over several streams, each stream in its order."""
    activities = context.linked.activities
    order = np.lexsort((activities.end, activities.start, activities.call_row))
    order = order[activities.call_row[order] >= 0]
    for members in split_groups(order, activities.call_row):
        if len(members) > 1 and len(np.unique(activities.stream[members])) > 1:
            yield members.tolist()


def _inside(context: ConversionContext, members: list[int]) -> Iterator[Edge]:
    """Forks and joins between branches, by timing."""
    start, end, stream = context.linked.activities.start, context.activity_end, context.linked.activities.stream
    prompt = of_name(context.linked.info.machine.gap, "").upper
    kind = int(DependencyKind.EVENT_WAIT | DependencyKind.INFERRED)
    by_end = sorted(members, key=lambda row: (int(end[row]), int(start[row])))
    latest: dict[int, int] = {}
    place = 0
    for row in members:
        # up to the row itself at the latest; of two without length that stand at one time neither is behind the other
        while (end[by_end[place]], start[by_end[place]]) < (start[row], start[row]):
            latest[int(stream[by_end[place]])] = by_end[place]
            place += 1
        # what its own stream did before, in the graph or not, explains a start right after that
        branch, before = int(stream[row]), context.stream_previous[row]
        others = [other for key, other in latest.items() if key != branch and start[row] - end[other] <= prompt]
        if others and (before < 0 or start[row] - end[before] > prompt):
            yield max(others, key=lambda other: int(end[other])), row, kind


def _around(context: ConversionContext, members: list[int]) -> Iterator[Edge]:
    """Yields from the stream's work before the graph to its branches, and from all branches to the stream's work after;
    -1 where there is none.
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
        for other in last.values():
            if other != tail and end[other] <= activities.start[after]:
                yield other, after, kind
