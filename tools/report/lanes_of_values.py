"""Draws values over time, a lane for each series, whose height is the value."""

import altair as alt
import numpy as np
import orjson

from ...schema.columns import Int64
from ..analyses import Floats
from .drawing import Chart, data, hover, sized

Steps = tuple[Floats, Floats]
"""Times (µs) in order, and the value from each to the next."""
SHOWN_STEPS, FEWEST_STEPS = 3000, 100
"""The most steps of all lanes together, of which each lane has at least the latter."""
HIGHEST_LANE, LOWEST_LANE, ALL_LANES = 90, 26, 300
FILLED, COLOUR = 0.86, "var(--computation)"


def series(lanes: dict[str, Steps], title: str, unit: str) -> Chart:
    """Returns a chart of all lanes on one scale, whose maximum is in the title."""
    names = list(lanes)
    highest = max(float(value.max()) for _, value in lanes.values()) or 1.0
    most_steps = max(SHOWN_STEPS // len(lanes), FEWEST_STEPS)
    field = f"value [{unit}]"
    rows = [
        {
            "lane": name,
            "from": start,
            "to": end,
            "value": height,
            "base": position,
            "top": position - FILLED * height / highest,
        }
        for position, name in enumerate(names, 1)
        for start, end, height in _nonzero_intervals(*lanes[name], most_steps)
    ]
    axis = alt.Axis(
        values=list(range(1, len(names) + 1)), labelExpr=f"{orjson.dumps(names).decode()}[datum.value - 1]", grid=True
    )
    bars = (
        alt.Chart(data(rows))
        .mark_rect(fill=COLOUR, stroke=COLOUR, strokeWidth=1)
        .encode(
            alt.X("from:Q", title="time [µs]", axis=alt.Axis(tickCount=8, grid=False)),
            alt.Y(
                "base:Q",
                title=f"{title}, up to {highest:,.3g} {unit}".strip(),
                scale=alt.Scale(domain=[len(names), 0], nice=False),
                axis=axis,
            ),
            alt.X2("to:Q"),
            alt.Y2("top:Q"),
            tooltip=hover("lane", field, "from [µs]", "to [µs]"),
        )
    )
    lane = min(max(ALL_LANES // len(names), LOWEST_LANE), HIGHEST_LANE)
    return sized(bars, lane * len(names))


def _nonzero_intervals(time: Floats, value: Floats, most_steps: int) -> list[tuple[float, float, float]]:
    """(from, to, value) where the value is not 0; of too many steps the highest in each interval of time."""
    step_rows = _steps(time, value, most_steps)
    ends = np.append(time[step_rows][1:], time[-1:])
    is_drawn = (value[step_rows] > 0) & (ends > time[step_rows])
    return list(
        zip(
            time[step_rows][is_drawn].tolist(),
            ends[is_drawn].tolist(),
            value[step_rows][is_drawn].tolist(),
            strict=True,
        )
    )


def _steps(time: Floats, value: Floats, most_steps: int) -> Int64:
    if len(time) <= most_steps:
        return np.arange(len(time))
    interval = np.searchsorted(np.linspace(time[0], time[-1], most_steps), time)
    order = np.lexsort((-value, interval))
    return np.sort(order[np.unique(interval[order], return_index=True)[1]])
