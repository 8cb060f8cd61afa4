"""Draws values over time: memory in use as a curve with its peak and the steps, and counters as lanes of one height."""

from typing import Any

import numpy as np
import orjson

from ...schema.columns import Floats, Int64
from ..analyses import Table
from .cells import Row
from .drawing import COLOUR, Chart, axis, chart, data, hover, mark, marks

SHOWN_CURVES, SHOWN_POINTS, SHOWN_STEPS = 4, 1500, 40
FLAT = 0.01
UNITS = {"GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10}
HOST = -1
Steps = tuple[Floats, Floats]
"""Times (µs) in order, and the value from each to the next."""
MOST_STEPS, FEWEST_STEPS = 3000, 100
"""The most steps of all lanes together, of which each lane has at least the latter."""
HIGHEST_LANE, LOWEST_LANE, ALL_LANES, FILLED = 90, 26, 300, 0.86
"""Heights in px, and which part of its lane the highest value fills."""


def memory_timeline(table: Table) -> list[Chart]:
    """Returns a curve for each of the devices with the highest peaks, except those that would look flat.

    A long curve is reduced to the highest value of each stretch.
    """
    ranks, device, allocated = (np.asarray(table[name]) for name in ("rank", "device", "allocated"))
    devices, number = np.unique(np.stack([ranks, device], axis=1), axis=0, return_inverse=True)
    number = number.reshape(-1)
    peaks = np.zeros(len(devices), np.int64)
    np.maximum.at(peaks, number, allocated)
    highest = np.argsort(-peaks, kind="stable")[:SHOWN_CURVES].tolist()
    return [
        _curve(table, np.flatnonzero(number == curve), *devices[curve].tolist())
        for curve in highest
        if peaks[curve] >= FLAT * peaks.max()
    ]


def _curve(table: Table, rows: Int64, rank: int, device: int) -> Chart:
    label = f"rank {rank} · {'host' if device == HOST else f'device {device}'}"
    value = np.asarray(table["allocated"])[rows]
    unit = next((name for name, size in UNITS.items() if value.max() >= size), "KiB")
    points = _points(table, rows[_highest_positions(value)], UNITS[unit], label)
    tooltip = hover("track", "ts [µs]", f"allocated [{unit}]", f"reserved [{unit}]", "step")
    time = axis("ts [µs]", "time", axis={"tickCount": 8, "grid": False})
    shared = {"x": time, "tooltip": tooltip}
    axis_of_value = axis(f"allocated [{unit}]", label, axis={"tickCount": 5})
    area = mark("area", interpolate="step-after", line={"color": COLOUR}, color=COLOUR, fillOpacity=0.35)
    layers: list[dict[str, Any]] = [{"mark": area, "encoding": shared | {"y": axis_of_value}}]
    if any(row["reserved"] is not None for row in points):
        line = mark("line", interpolate="step-after", color="var(--muted)")
        layers.append({"mark": line, "encoding": shared | {"y": {"field": "reserved", "type": "quantitative"}}})
    steps = [{"ts": row["ts"], "step": row["step"]} for row in _step_starts(points)]
    ts = {"field": "ts", "type": "quantitative"}
    if 0 < len(steps) <= SHOWN_STEPS:
        rule = mark("rule", color="var(--muted)", strokeDash=[3, 3])
        encoding = {"x": ts, "tooltip": hover("step", "ts [µs]")}
        layers.append({"data": data(steps, name="steps"), "mark": rule, "encoding": encoding})
    highest = max(points, key=lambda row: row["allocated"])
    peak = data([{**highest, "label": f"peak {highest['allocated']:,.1f} {unit}"}], name="peak")
    # the label lies on the side with more room
    is_late = 2 * highest["ts"] > points[0]["ts"] + points[-1]["ts"]
    text = mark("text", align="right" if is_late else "left", dx=-8 if is_late else 8, dy=-6, color="var(--ink)")
    encoding = {"x": ts, "y": {"field": "allocated", "type": "quantitative"}, "tooltip": tooltip}
    layers += [
        {"data": peak, "mark": mark("point", color="var(--ink)", filled=True, size=60), "encoding": encoding},
        {"data": peak, "mark": text, "encoding": encoding | {"text": {"field": "label", "type": "nominal"}}},
    ]
    return chart(170, data=data(points), layer=layers)


def _points(table: Table, rows: Int64, unit: int, label: str) -> list[Row]:
    ts, used, reserved = (np.asarray(table[name])[rows] for name in ("ts", "allocated", "reserved"))
    kept = (np.asarray(reserved, np.float64) / unit).tolist()
    columns = zip(rows.tolist(), ts.tolist(), (used / unit).tolist(), kept, strict=True)
    return [
        {
            "track": label,
            "ts": time,
            "allocated": allocated,
            "reserved": None if kept_bytes != kept_bytes else kept_bytes,
            "step": table["step"][row],
        }
        for row, time, allocated, kept_bytes in columns
    ]


def _highest_positions(value: Int64) -> Int64:
    """Returns the position of the highest value in each of SHOWN_POINTS stretches, and the last position."""
    if len(value) <= SHOWN_POINTS:
        return np.arange(len(value))
    highest = _highest_in(np.arange(len(value)) * SHOWN_POINTS // len(value), value)
    return np.unique(np.append(highest, len(value) - 1))


def _highest_in(stretch: Int64, value: Int64 | Floats) -> Int64:
    """Returns the position of the first highest value in each stretch."""
    order = np.lexsort((-value, stretch))
    return np.sort(order[np.unique(stretch[order], return_index=True)[1]])


def _step_starts(points: list[Row]) -> list[Row]:
    """Returns the first point of each step, if there are several steps."""
    begun = [row for before, row in zip([{"step": ""}, *points], points, strict=False) if row["step"] != before["step"]]
    return begun if len(begun) > 1 else []


def value_lanes(lanes: dict[str, Steps], title: str, unit: str) -> Chart:
    """Returns a lane for each series of values, all on one scale, whose maximum is in the title."""
    labels = list(lanes)
    highest = max(float(value.max()) for _, value in lanes.values()) or 1.0
    most_steps = max(MOST_STEPS // len(lanes), FEWEST_STEPS)
    rows = [
        {
            "lane": name,
            "from": start,
            "to": end,
            "value": value,
            "base": number,
            "top": number - FILLED * value / highest,
        }
        for number, name in enumerate(labels, 1)
        for start, end, value in _nonzero_intervals(*lanes[name], most_steps)
    ]
    names_of_lanes = {
        "values": list(range(1, len(labels) + 1)),
        "labelExpr": f"{orjson.dumps(labels).decode()}[datum.value - 1]",
        "grid": True,
    }
    scale = {"domain": [len(labels), 0], "nice": False}
    channels = {
        "x": axis("from [µs]", "time", axis={"tickCount": 8, "grid": False}),
        "y": axis("base", f"{title}, up to {highest:,.3g} {unit}".strip(), scale=scale, axis=names_of_lanes),
        "x2": {"field": "to"},
        "y2": {"field": "top"},
    }
    tooltip = hover("lane", f"value [{unit}]", "from [µs]", "to [µs]")
    height = min(max(ALL_LANES // len(labels), LOWEST_LANE), HIGHEST_LANE) * len(labels)
    return chart(height, **marks(mark("rect", stroke=COLOUR, strokeWidth=1), rows, tooltip, **channels))


def _nonzero_intervals(time: Floats, value: Floats, most_steps: int) -> list[tuple[float, float, float]]:
    """(from, to, value) where the value is not 0; of too many steps the highest in each interval of time."""
    kept = np.arange(len(time))
    if len(time) > most_steps:
        kept = _highest_in(np.searchsorted(np.linspace(time[0], time[-1], most_steps), time), value)
    ends = np.append(time[kept][1:], time[-1:])
    is_drawn = (value[kept] > 0) & (ends > time[kept])
    columns = (column[is_drawn].tolist() for column in (time[kept], ends, value[kept]))
    return list(zip(*columns, strict=True))
