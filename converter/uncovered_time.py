"""How much of a time span no other span covers."""

import numpy as np

from ..schema.columns import Int64, Intervals, covered_until


def uncovered(spans: Intervals, others: Intervals) -> Int64:
    """Returns how many ns of each span neither the other spans cover, nor spans of its own kind that ended sooner.
    O(n log n).

    For spans 0–10 and 6–12 and the other span 2–5, 7 are left of the first and 2 of the second.
    """
    # on a clock that stops during other spans, only the spans themselves overlap
    begin = spans.start - covered_until(spans.start, others)
    stop = spans.end - covered_until(spans.end, others)
    order = np.lexsort((-spans.start, spans.end))
    free, covered = np.empty(len(order), np.int64), list[tuple[int, int]]()
    for row, since, until in zip(order.tolist(), begin[order].tolist(), stop[order].tolist(), strict=True):
        remaining, opens = until - since, since
        # merge with the latest spans that this one overlaps
        while covered and covered[-1][1] > since:
            first, last = covered.pop()
            remaining -= last - max(first, since)
            opens = min(opens, first)
        covered.append((opens, until))
        free[row] = remaining
    return free
