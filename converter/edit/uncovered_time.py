"""How much of a time span no other span covers."""

import numpy as np

from ...schema.columns import Bool, Int64


def uncovered(start: Int64, end: Int64, other_start: Int64, other_end: Int64) -> Int64:
    """Returns how many ns of each span neither the other spans cover, nor spans of its own kind that ended sooner.
    O(n log n).

    For spans 0–10 and 6–12 and the other span 2–5, 7 are left of the first and 2 of the second.
    """
    # on a clock that stops during other spans, only the spans themselves overlap
    begin = start - covered_until(start, other_start, other_end)
    stop = end - covered_until(end, other_start, other_end)
    order = np.lexsort((-start, end))
    free, covered = np.empty(len(start), np.int64), list[tuple[int, int]]()
    for row, since, until in zip(order.tolist(), begin[order].tolist(), stop[order].tolist(), strict=True):
        left, opens = until - since, since
        # merge with the latest spans that this one overlaps
        while covered and covered[-1][1] > since:
            first, last = covered.pop()
            left -= last - max(first, since)
            opens = min(opens, first)
        covered.append((opens, until))
        free[row] = left
    return free


def covered_until(time: Int64, start: Int64, end: Int64) -> Int64:
    """Returns for how many ns before each time at least one of the spans was running.

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
    span = np.searchsorted(first, time, side="right") - 1
    inside = np.minimum(time, last[span]) - first[span]
    return np.where(span >= 0, before[span] + inside, 0)
