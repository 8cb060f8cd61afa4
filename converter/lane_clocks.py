"""Vector clocks over lanes: for each node, how far every lane is known to have come when the node has ended.

The nodes of a lane follow each other in the order of their rows, so the last known row of a lane implies all before it.
"""

from ..schema.columns import Int64
from .context import Edges

Clock = tuple[int, ...]
"""The last row of each lane that is known to have ended, -1 for none."""


def known_after(edges: Edges, lane: Int64, lanes: int) -> list[Clock]:
    """Returns a clock for each row; nodes without a lane (-1) only pass on what they know.

    The edges must be sorted by target and point forward. O((n + e) · lanes) at worst; mostly O(n + e), as nodes that
    learn nothing share the clock of their predecessor.
    """
    nothing: Clock = (-1,) * lanes
    clocks: list[Clock] = []
    sources, targets = edges.source.tolist(), edges.target.tolist()
    sources.append(-1)
    targets.append(len(lane))
    index = 0
    for row, own_lane in enumerate(lane.tolist()):
        clock = nothing
        while targets[index] == row:
            clock = joined(clock, clocks[sources[index]])
            index += 1
        clocks.append(clock if own_lane < 0 else (*clock[:own_lane], row, *clock[own_lane + 1 :]))
    return clocks


def joined(first: Clock, second: Clock) -> Clock:
    """Returns the elementwise maximum of two clocks; one of the two objects where it equals that."""
    if first is second:
        return first
    merged = tuple(map(max, first, second))
    return first if merged == first else second if merged == second else merged
