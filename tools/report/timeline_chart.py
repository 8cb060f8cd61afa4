"""Draws excerpts of timelines as one chart: lanes over time, the critical path marked; Ctrl and wheel zoom, drag moves it.

The page steers it by three signals: `chosen` (the name or node that is not dimmed) and the window of `view_start`.
"""

from typing import Any

import altair as alt

from .charts import Chart, by_label, data, hover, sized
from .excerpt import Excerpt

KINDS = ("host", "waiting", "idle", "unrecorded", "computation", "communication", "memory")
ZOOM = "wheel![event.ctrlKey || event.metaKey]"
"""The wheel alone scrolls the page."""
LANE, THICKNESS, RAIL = 28, 15, 3


def timeline(excerpts: list[Excerpt]) -> Chart:
    """The lanes of all excerpts below each other, rank after rank."""
    bars = [{**bar, "part": bar["kind"]} for one in excerpts for bar in one.bars]
    steps = [step for one in excerpts for step in one.steps]
    lanes = [lane for one in excerpts for lane in one.lanes]
    present = [kind for kind in KINDS if any(bar["kind"] == kind for bar in bars)]
    chosen = alt.param(name="chosen", value="")
    window = alt.selection_interval(name="view", bind="scales", encodings=["x"], clear="dblclick", zoom=ZOOM)
    x = alt.X(
        "start:Q", title="µs from the run's first start", scale=alt.Scale(domain=list(excerpts[0].window), nice=False),
        axis=alt.Axis(grid=False, tickCount=8),
    )  # fmt: skip
    y = alt.Y("lane:N", title=None, scale=alt.Scale(domain=lanes), axis=alt.Axis(grid=True))
    base = alt.Chart().encode(x, y, x2="end")
    is_chosen = "chosen == '' || datum.name == chosen || datum.node == chosen"
    drawn = base.mark_bar(height=THICKNESS, cursor="pointer", clip=True).encode(
        by_label(present),
        opacity=alt.condition(is_chosen, alt.value(1), alt.value(0.15)),
        tooltip=hover("short", "lane", "kind", "start [µs]", "time [µs]", "critical", "node"),
    )
    rail: dict[str, Any] = {"color": "var(--mark)", "yOffset": THICKNESS / 2 + 3, "clip": True}
    critical = base.mark_bar(height=RAIL, **rail).transform_filter("datum.critical")
    layers: list[alt.Chart] = [drawn.add_params(chosen, window), critical]
    if steps:
        across = alt.Chart(data(steps, name="steps")).mark_rule(strokeWidth=RAIL / 2, **rail)
        layers.append(across.encode(alt.X("from:Q"), alt.Y("lane:N"), x2="to:Q", y2="to_lane:N"))
    return sized(alt.layer(*layers, data=data(bars, name="bars")), LANE * len(lanes))
