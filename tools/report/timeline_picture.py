"""Draws the whole run as SVG without scripts, for print: how each lane spent its time."""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...schema.columns import Bool, Int64
from ..terminal import plain
from ..view import LOOKS
from .bars import Bars
from .timeline_summary import sum_bars

STRETCHES, LANES = 128, 40
"""The stretches of time of each lane, and the most lanes; further lanes are only counted."""
STEP, LANE, AREA, FOOT = 8, 32, 16, 20
"""Sizes in px: the width of a stretch, the heights of a lane, of the area below its name, and of the axis."""
STACKING_ORDER = (
    "computation",
    "communication",
    "memory",
    "host",
    "unrecorded",
    "metadata",
    "delay",
    "waiting",
    "idle",
)
"""The kinds of time from the bottom up."""


class Strip(NamedTuple):
    """A lane of a rank: the share of each kind of time in each stretch, kinds in the order of STACKED."""

    rank: int
    lane: str
    share: npt.NDArray[np.float64]


def strips(bars: Bars, length_ns: int) -> list[Strip]:
    """Returns the lanes of a rank over a run of `length_ns`."""
    everything: Bool = np.ones(len(bars), bool)
    sums = sum_bars(bars, everything, length_ns, STRETCHES)
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
