"""What is shown of too many bars: some of them one by one, and of the others sums over equal stretches of time, of each
kind of work on each lane. For print the sums of all are a drawing of the whole run, without scripts.
"""

from collections.abc import Callable, Sequence
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


def selector(bars: Bars, window_ns: tuple[int, int], most: int) -> Callable[[int], Bool]:
    """Returns what selects a number of bars, at most `most`: each lane's longest, all of lanes with few bars.

    First come those in the window, unless they are more than half, and the longest of each name on each lane, up to an
    eighth.
    """
    always = (bars.end_ns >= window_ns[0]) & (bars.start_ns <= window_ns[1])
    always &= always.sum() <= most // 2
    by_length = np.lexsort((bars.start_ns - bars.end_ns, bars.lane))
    lane, name = bars.lane[by_length], bars.name.codes[by_length].astype(np.int64)
    longest = by_length[np.unique(lane * (len(bars.name.table) + 1) + name + 1, return_index=True)[1]]
    always[longest[: most // 8]] = True
    others = np.bincount(bars.lane[~always], minlength=len(bars.lanes))
    remaining = by_length[~always[by_length]]
    position = np.full(len(bars), -1)
    position[remaining] = np.arange(len(remaining)) - np.repeat(np.cumsum(others) - others, others)

    def select(count: int) -> Bool:
        share, capacity = np.zeros(len(others), np.int64), count - int(always.sum())
        # lanes share the capacity equally, as far as they need it
        for done, row in enumerate(np.argsort(others, kind="stable").tolist()):
            share[row] = max(min(int(others[row]), capacity // (len(others) - done)), 0)
            capacity -= int(share[row])
        return np.asarray(position < share[bars.lane])

    return select


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


def sum_bars(bars: Bars, chosen: Bool, length_ns: int, finest: int) -> BarSums:
    """Sums the chosen bars over stretches of the run's `length_ns`: as many as memory allows, at most `finest`.

    Both numbers are powers of 2. O(n + k · b): stretches that lie within a bar are counted by a running sum.
    """
    keys, key = np.unique(bars.lane[chosen] * KINDS + bars.kind[chosen], return_inverse=True)
    key = key.reshape(-1)
    count = min(finest, max(1 << (CELLS // max(len(keys), 1)).bit_length() >> 1, FEWEST))
    width = -(-max(length_ns, 1) // count)
    start, end = bars.alone_ns[chosen], bars.end_ns[chosen]
    first, last, began = (
        key * count + np.minimum(time // width, count - 1)
        for time in (start, np.maximum(end - 1, start), bars.start_ns[chosen])
    )
    size = len(keys) * count
    within = first == last
    # of a bar in one stretch all, of others what lies in their first and last
    head = np.where(within, end - start, (first % count + 1) * width - start)
    tail = np.where(within, 0, end - last % count * width)
    covered = np.cumsum(np.bincount(np.minimum(first + 1, size - 1), ~within, size) - np.bincount(last, ~within, size))
    time = np.bincount(first, head, size) + np.bincount(last, tail, size) + covered * width
    time, begun = (column.astype(np.int64).reshape(-1, count) for column in (time, np.bincount(began, minlength=size)))
    return BarSums(width, keys // KINDS, keys % KINDS, time, begun)


class Strip(NamedTuple):
    """A lane: the share of each kind of time in each stretch, kinds in the order of STACKING_ORDER."""

    lane: str
    share: npt.NDArray[np.float64]


def strips(bars: Bars, length_ns: int) -> list[Strip]:
    """Returns the lanes of a rank over a run of `length_ns`."""
    sums = sum_bars(bars, np.ones(len(bars), bool), length_ns, STRETCHES)
    share = np.zeros((len(bars.lanes), len(STACKING_ORDER), STRETCHES))
    layer: Int64 = np.array([STACKING_ORDER.index(look) for look in LOOKS])[sums.kind // 2]
    np.add.at(share, (sums.lane, layer), sums.time_ns / sums.width_ns)
    return [*map(Strip, bars.lanes, share)]


def picture(lane_strips: Sequence[Strip], length_ns: int) -> str:
    """Returns the lanes as SVG in the colours of the page."""
    drawn, width = lane_strips[:LANES], STRETCHES * STEP
    height = LANE * len(drawn) + FOOT
    box = f'viewBox="0 0 {width} {height}" role="img" aria-label="How each lane spent the whole run"'
    parts = [f'<svg class="whole-run" {box}>']
    for bottom, strip in zip(range(LANE - 2, height, LANE), drawn, strict=False):
        parts.append(f'<text x="0" y="{bottom - AREA - 3}">{escape(plain(strip.lane))}</text>')
        parts.append(f'<path class="ground" d="M0 {bottom}h{width}"/>')
        tops = np.round(AREA * np.minimum(np.cumsum(strip.share, axis=0), 1), 1)
        below = np.vstack([np.zeros(STRETCHES), tops[:-1]])
        for look, low, high in zip(STACKING_ORDER, below, tops, strict=True):
            # a rectangle for each run of equal stretches
            begin = np.flatnonzero(np.append(True, (np.diff(low) != 0) | (np.diff(high) != 0)))
            runs = zip(begin.tolist(), np.diff(begin, append=STRETCHES).tolist(), low[begin], high[begin], strict=True)
            area = "".join(
                f"M{STEP * first} {bottom - base:g}v{base - top:.3g}h{STEP * count}v{top - base:.3g}z"
                for first, count, base, top in runs
                if top > base
            )
            parts += [f'<path style="fill:var(--{look})" d="{area}"/>'] if area else []
    is_spent = np.any([strip.share.any(axis=1) for strip in drawn], axis=0)
    spent = (look for look, is_shown in zip(STACKING_ORDER, is_spent, strict=True) if is_shown)
    legend = " ".join(f'<tspan style="fill:var(--{look})">■</tspan> {look}' for look in spent)
    more = f", {len(lane_strips) - LANES} more lanes are not drawn" if len(lane_strips) > LANES else ""
    parts.append(f'<text x="0" y="{height - 5}">0 to {length_ns / 1000:,.0f} µs{more}: {legend}</text></svg>')
    return "".join(parts)
