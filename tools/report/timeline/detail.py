"""Which bars are told one by one, where there is no room for all."""

from typing import NamedTuple

import numpy as np

from ....schema.columns import Bool, Int64
from .bars import Bars


def around_the_path(bars: Bars, most: int) -> tuple[int, int]:
    """Returns a stretch of time (ns) of at most about `most` bars around the longest piece of the critical path, or all
    of the time.
    """
    whole = int(bars.start_ns.min()), int(bars.end_ns.max())
    if len(bars) <= most or not bars.critical.any():
        return whole
    path = np.flatnonzero(bars.critical)
    longest = path[np.argmax((bars.end_ns - bars.start_ns)[path])]
    start, end = int(bars.start_ns[longest]), int(bars.end_ns[longest])
    distance = np.maximum(np.maximum(start - bars.end_ns, bars.start_ns - end), 0)
    reach = int(np.partition(distance, most)[most])
    return max(start - reach, whole[0]), min(end + reach, whole[1])


class Order(NamedTuple):
    """In what order bars are told: those that always are, then each lane's by `place`, the longest first; `others` are
    so many per lane.
    """

    always: Bool
    place: Int64
    others: Int64


def order_of_detail(bars: Bars, window_ns: tuple[int, int], most: int) -> Order:
    """Returns of `most` bars half may be those in the window, if they are not more, and an eighth the longest of each
    name on each lane.
    """
    always = (bars.end_ns >= window_ns[0]) & (bars.start_ns <= window_ns[1])
    always &= always.sum() <= most // 2
    by_length = np.lexsort((bars.start_ns - bars.end_ns, bars.lane))
    lane, name = bars.lane[by_length], bars.name.codes[by_length].astype(np.int64)
    longest = by_length[np.unique(lane * (len(bars.name.table) + 1) + name + 1, return_index=True)[1]]
    always[longest[: most // 8]] = True
    others = np.bincount(bars.lane[~always], minlength=len(bars.lanes))
    left = by_length[~always[by_length]]
    place = np.full(len(bars), -1)
    place[left] = np.arange(len(left)) - np.repeat(np.cumsum(others) - others, others)
    return Order(always, place, others)


def detailed(bars: Bars, order: Order, most: int) -> Bool:
    """Returns which bars are told, about `most`: lanes of few bars have all of theirs, the others share equally what
    these leave.
    """
    share = _shares(order.others, most - int(order.always.sum()))
    return np.asarray(order.place < share[bars.lane])


def _shares(wanted: Int64, room: int) -> Int64:
    """Returns how many each gets of what there is room for.

    >>> _shares(np.array([10, 2, 30]), 20).tolist()
    [9, 2, 9]
    """
    share, left = np.zeros(len(wanted), np.int64), len(wanted)
    for one in np.argsort(wanted, kind="stable").tolist():
        share[one] = max(min(int(wanted[one]), room // left), 0)
        room, left = room - int(share[one]), left - 1
    return share
