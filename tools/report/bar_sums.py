"""What is shown of too many bars: some of them one by one, and of the others sums over equal stretches of time, of each
kind of work on each lane. For print the sums of all are a drawing of the whole run, without scripts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...schema.columns import Bool, Int64, Ns
from ..terminal import plain
from ..view import LOOKS
from .bars import Bars

KINDS = 2 * len(LOOKS)
"""A kind is twice the look, plus one on the critical path."""
CELLS, FEWEST = 1 << 22, 128
"""The most cells of a summary in memory, and the least number of stretches."""
STRETCHES, LANES = 128, 40
"""The stretches of time of each lane, and the most lanes; further lanes are only counted."""
STEP, LANE, AREA, FOOT = 8, 32, 16, 20
"""Sizes in px: the width of a stretch, the heights of a lane, of the area below its name, and of the axis."""
STACKING_ORDER = (
    "computation", "communication", "memory", "host", "unrecorded", "metadata", "delay", "waiting", "idle",
)  # fmt: skip
"""The kinds of time from the bottom up."""


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


@dataclass(slots=True)
class BarSums:
    """Of k lanes and kinds (`lane`, `kind`) in b stretches of `width_ns` from the run's start on, k × b: their time, a
    lane never busy twice, and how many bars began.
    """

    width_ns: int
    lane: Int64
    kind: Int64
    time_ns: Ns
    begun: Int64

    def coarser(self) -> "BarSums":
        """Returns the summary with half as many stretches, which must be an even number."""
        time, begun = (column.reshape(len(self.lane), -1, 2).sum(axis=2) for column in (self.time_ns, self.begun))
        return BarSums(2 * self.width_ns, self.lane, self.kind, time, begun)

    @property
    def filled(self) -> Bool:
        """Which cells have time or a start, k × b."""
        return np.asarray((self.time_ns > 0) | (self.begun > 0))


def kinds(bars: Bars) -> Int64:
    """Returns the kind of each bar."""
    return np.asarray(2 * bars.look + bars.critical)


def sum_bars(bars: Bars, chosen: Bool, length_ns: int, finest: int) -> BarSums:
    """Sums the chosen bars over stretches of the run's `length_ns`: as many as memory allows, at most `finest`.

    Both numbers are powers of 2. O(n + k · b): stretches that lie within a bar are counted by a running sum.
    """
    keys, key = np.unique(bars.lane[chosen] * KINDS + kinds(bars)[chosen], return_inverse=True)
    key = key.reshape(-1)
    count = min(finest, max(1 << (CELLS // max(len(keys), 1)).bit_length() >> 1, FEWEST))
    width = -(-max(length_ns, 1) // count)
    start, end = bars.alone_ns[chosen], bars.end_ns[chosen]
    first, last = (key * count + np.minimum(time // width, count - 1) for time in (start, np.maximum(end - 1, start)))
    size = len(keys) * count
    within = first == last
    # of a bar in one stretch all, of others what lies in their first and last
    head = np.where(within, end - start, (first % count + 1) * width - start)
    tail = np.where(within, 0, end - last % count * width)
    covered = np.cumsum(np.bincount(np.minimum(first + 1, size - 1), ~within, size) - np.bincount(last, ~within, size))
    time = np.bincount(first, head, size) + np.bincount(last, tail, size) + covered * width
    began = key * count + np.minimum(bars.start_ns[chosen] // width, count - 1)
    time, begun = (column.astype(np.int64).reshape(-1, count) for column in (time, np.bincount(began, minlength=size)))
    return BarSums(width, keys // KINDS, keys % KINDS, time, begun)


class Strip(NamedTuple):
    """A lane of a rank: the share of each kind of time in each stretch, kinds in the order of STACKED."""

    rank: int
    lane: str
    share: npt.NDArray[np.float64]


def strips(bars: Bars, length_ns: int) -> list[Strip]:
    """Returns the lanes of a rank over a run of `length_ns`."""
    sums = sum_bars(bars, np.ones(len(bars), bool), length_ns, STRETCHES)
    share = np.zeros((len(bars.lanes), len(STACKING_ORDER), STRETCHES))
    layer: Int64 = np.array([STACKING_ORDER.index(look) for look in LOOKS])[sums.kind // 2]
    np.add.at(share, (sums.lane, layer), sums.time_ns / sums.width_ns)
    return [Strip(bars.rank, lane, share[number]) for number, lane in enumerate(bars.lanes)]


def picture(lane_strips: Sequence[Strip], length_ns: int) -> str:
    """Returns the lanes as SVG in the colours of the page."""
    drawn_strips, width = lane_strips[:LANES], STRETCHES * STEP
    height = LANE * len(drawn_strips) + FOOT
    parts = [
        f'<svg class="whole-run" viewBox="0 0 {width} {height}" role="img" aria-label="How each lane spent the whole run">'
    ]
    for row, strip in enumerate(drawn_strips):
        bottom = LANE * (row + 1) - 2
        parts.append(f'<text x="0" y="{bottom - AREA - 3}">{escape(plain(strip.lane))}</text>')
        parts.append(f'<path class="ground" d="M0 {bottom}h{width}"/>')
        tops = np.round(AREA * np.minimum(np.cumsum(strip.share, axis=0), 1), 1)
        below = np.vstack([np.zeros(STRETCHES), tops[:-1]])
        for look, low, high in zip(STACKING_ORDER, below, tops, strict=True):
            if (high > low).any():
                parts.append(f'<path style="fill:var(--{look})" d="{_area(bottom, low.tolist(), high.tolist())}"/>')
    spent = [
        look for layer, look in enumerate(STACKING_ORDER) if any(strip.share[layer].any() for strip in drawn_strips)
    ]
    legend = " ".join(f'<tspan style="fill:var(--{look})">■</tspan> {look}' for look in spent)
    more = f", {len(lane_strips) - LANES} more lanes are not drawn" if len(lane_strips) > LANES else ""
    parts.append(f'<text x="0" y="{height - 5}">0 to {length_ns / 1000:,.0f} µs{more}: {legend}</text></svg>')
    return "".join(parts)


def _area(bottom: float, low: list[float], high: list[float]) -> str:
    """Returns a path with a rectangle for each run of equal stretches."""
    drawn, begin = list[str](), 0
    for stretch in range(1, STRETCHES + 1):
        if stretch == STRETCHES or (low[stretch], high[stretch]) != (low[begin], high[begin]):
            if high[begin] > low[begin]:
                tall, wide = high[begin] - low[begin], STEP * (stretch - begin)
                drawn.append(f"M{STEP * begin} {bottom - low[begin]:g}v{-tall:.3g}h{wide}v{tall:.3g}z")
            begin = stretch
    return "".join(drawn)
