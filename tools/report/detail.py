"""Selects the bars that are on the page one by one, if there is no room for all."""

from typing import NamedTuple

import numpy as np

from ...schema.columns import Bool, Int64
from .bars import Bars


def window_around_path(bars: Bars, bar_count: int) -> tuple[int, int]:
    """Returns the time (ns) of about `bar_count` bars at the longest node of the critical path, or the whole time."""
    whole = int(bars.start_ns.min()), int(bars.end_ns.max())
    if len(bars) <= bar_count or not bars.critical.any():
        return whole
    path = np.flatnonzero(bars.critical)
    longest = path[np.argmax((bars.end_ns - bars.start_ns)[path])]
    start, end = int(bars.start_ns[longest]), int(bars.end_ns[longest])
    distance = np.maximum(np.maximum(start - bars.end_ns, bars.start_ns - end), 0)
    margin = int(np.partition(distance, bar_count)[bar_count])
    return max(start - margin, whole[0]), min(end + margin, whole[1])


class Order(NamedTuple):
    """The order in which bars are selected: first those of `always`, then each lane's by `position`, the longest first.

    `others` is the number of the latter by lane.
    """

    always: Bool
    position: Int64
    others: Int64


def order_of_detail(bars: Bars, window_ns: tuple[int, int], bar_count: int) -> Order:
    """Returns the order in which to select `bar_count` bars.

    First come those in the window, unless they are more than half, and the longest of each name on each lane, up to an
    eighth.
    """
    always = (bars.end_ns >= window_ns[0]) & (bars.start_ns <= window_ns[1])
    always &= always.sum() <= bar_count // 2
    by_length = np.lexsort((bars.start_ns - bars.end_ns, bars.lane))
    lane, name = bars.lane[by_length], bars.name.codes[by_length].astype(np.int64)
    longest = by_length[np.unique(lane * (len(bars.name.table) + 1) + name + 1, return_index=True)[1]]
    always[longest[: bar_count // 8]] = True
    others = np.bincount(bars.lane[~always], minlength=len(bars.lanes))
    remaining = by_length[~always[by_length]]
    position = np.full(len(bars), -1)
    position[remaining] = np.arange(len(remaining)) - np.repeat(np.cumsum(others) - others, others)
    return Order(always, position, others)


def select_detail(bars: Bars, order: Order, bar_count: int) -> Bool:
    """Selects about `bar_count` bars: all of lanes with few bars; the other lanes share the rest equally."""
    share = _shares(order.others, bar_count - int(order.always.sum()))
    return np.asarray(order.position < share[bars.lane])


def _shares(demands: Int64, capacity: int) -> Int64:
    """Returns how many each gets if `capacity` is shared equally, as far as it is needed.

    >>> _shares(np.array([10, 2, 30]), 20).tolist()
    [9, 2, 9]
    """
    share, remaining = np.zeros(len(demands), np.int64), len(demands)
    for row in np.argsort(demands, kind="stable").tolist():
        share[row] = max(min(int(demands[row]), capacity // remaining), 0)
        capacity, remaining = capacity - int(share[row]), remaining - 1
    return share
