"""How much of a span of time no other span covers."""

import numpy as np

from ...schema.columns import Bool, Int64


def alone(start: Int64, end: Int64, other_start: Int64, other_end: Int64) -> Int64:
    """Returns how much of each span is covered by none of the others, nor by a span of its own kind that ended sooner.
    O(n log n).

    Spans 0–10 and 6–12, and 2–5 as another one: 7 are left of the first and 2 of the second.
    """
    # on a clock that stands still while others are there, what is left are the spans among themselves
    begin = start - covered_until(start, other_start, other_end)
    stop = end - covered_until(end, other_start, other_end)
    order = np.lexsort((-start, end))
    free, taken = np.empty(len(start), np.int64), list[tuple[int, int]]()
    for row, since, until in zip(order.tolist(), begin[order].tolist(), stop[order].tolist(), strict=True):
        left, opens = until - since, since
        # the latest spans that this one overlaps become one with it
        while taken and taken[-1][1] > since:
            first, last = taken.pop()
            left -= last - max(first, since)
            opens = min(opens, first)
        taken.append((opens, until))
        free[row] = left
    return free


def covered_until(time: Int64, start: Int64, end: Int64) -> Int64:
    """Returns for how long before each time at least one of the spans was there.

    >>> covered_until(np.array([3, 9]), np.array([2, 4, 8]), np.array([5, 6, 9])).tolist()
    [1, 5]
    """
    if not len(start):
        return np.zeros(len(time), np.int64)
    order = np.argsort(start, kind="stable")
    reach = np.maximum.accumulate(end[order])
    opens: Bool = np.append(True, start[order][1:] > reach[:-1])
    first, last = start[order][opens], reach[np.append(opens[1:], True)]
    length = last - first
    before = np.cumsum(length) - length
    place = np.searchsorted(first, time, side="right") - 1
    inside = np.minimum(time, last[place]) - first[place]
    return np.where(place >= 0, before[place] + inside, 0)
