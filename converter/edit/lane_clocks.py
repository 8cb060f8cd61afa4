"""Vector clocks over lanes: of each node, how far every lane is known to have come once the node has ended.

A lane's nodes follow each other in the order of their rows, so its latest known row stands for all before it.
"""

from ...schema.columns import Int64
from ..context import Edges

Clock = tuple[int, ...]
"""Per lane the last row known to have ended, -1 for none."""


def known_after(edges: Edges, lane: Int64, lanes: int) -> list[Clock]:
    """Returns a clock for each of n rows; nodes without a lane (-1) only pass on what they know. Edges sorted by
    target, pointing forward.

    O((n + e) · lanes) at worst; nodes that learn nothing share their predecessor's clock, so mostly O(n + e).
    """
    nothing: Clock = (-1,) * lanes
    clocks: list[Clock] = []
    sources, targets = edges.source.tolist(), edges.target.tolist()
    sources.append(-1)
    targets.append(len(lane))
    at = 0
    for row, own in enumerate(lane.tolist()):
        clock = nothing
        while targets[at] == row:
            clock = joined(clock, clocks[sources[at]])
            at += 1
        clocks.append(clock if own < 0 else (*clock[:own], row, *clock[own + 1 :]))
    return clocks


def joined(first: Clock, second: Clock) -> Clock:
    """Returns what is known to whoever knows both; the same object where one of them adds nothing."""
    if first is second:
        return first
    both = tuple(map(max, first, second))
    return first if both == first else second if both == second else both
