"""Draws values over time: memory in use as a curve with its peak and the steps, and counters as lanes of one height."""

from typing import Any

import numpy as np
import orjson

from ...schema.columns import Floats, Int64
from ..analyses import Table
from .cells import Row
from .drawing import COLOUR, Chart, axis, chart, data, hover, marks, number

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
    """Returns a curve for each of the devices with the highest peaks, except those that would look flat."""
    ranks, device, allocated = (np.asarray(table[name]) for name in ("rank", "device", "allocated"))
    devices, curve = np.unique(np.stack([ranks, device], axis=1), axis=0, return_inverse=True)
    curve = curve.reshape(-1)
    peaks = np.zeros(len(devices), np.int64)
    np.maximum.at(peaks, curve, allocated)
    highest = np.argsort(-peaks, kind="stable")[:SHOWN_CURVES].tolist()
    return [
        _curve(table.take(curve == position), *devices[position].tolist())
        for position in highest
        if peaks[position] >= FLAT * peaks.max()
    ]


def _curve(table: Table, rank: int, device: int) -> Chart:
    """Draws the bytes of a device; a long curve is reduced to the highest value of each stretch, and the last value."""
    label, used = f"rank {rank} · {'host' if device == HOST else f'device {device}'}", np.asarray(table["allocated"])
    if len(used) > SHOWN_POINTS:
        highest = _highest_in(np.arange(len(used)) * SHOWN_POINTS // len(used), used)
        table = table.take(np.unique(np.append(highest, len(used) - 1)))
    unit = next((name for name, size in UNITS.items() if used.max() >= size), "KiB")
    size = UNITS[unit]
    points = [
        {
            "track": label,
            "ts": row["ts"],
            "allocated": row["allocated"] / size,
            "reserved": None if row["reserved"] is None else row["reserved"] / size,
            "step": row["step"],
        }
        for row in table.rows()
    ]
    tooltip = hover("track", "ts [µs]", f"allocated [{unit}]", f"reserved [{unit}]", "step")
    shared = {"x": axis("ts [µs]", "time", axis={"tickCount": 8, "grid": False}), "tooltip": tooltip}
    curve = {"interpolate": "step-after", "fillOpacity": 0.35, "color": COLOUR, "line": {"color": COLOUR}}
    y = axis(f"allocated [{unit}]", label, axis={"tickCount": 5})
    layers: list[dict[str, Any]] = [{"mark": {"type": "area", **curve}, "encoding": {**shared, "y": y}}]
    if any(row["reserved"] is not None for row in points):
        line = {"type": "line", "interpolate": "step-after", "color": "var(--muted)"}
        layers.append({"mark": line, "encoding": {**shared, "y": number("reserved")}})
    before = [{"step": ""}, *points]
    steps = [row for last, row in zip(before, points, strict=False) if row["step"] != last["step"]]
    if 1 < len(steps) <= SHOWN_STEPS:
        rule = {"type": "rule", "color": "var(--muted)", "strokeDash": [3, 3]}
        encoding = {"x": number("ts"), "tooltip": hover("step", "ts [µs]")}
        layers.append({"data": data(steps, "ts", "step", name="steps"), "mark": rule, "encoding": encoding})
    return chart(170, data=data(points), layer=[*layers, *_peak(points, unit, tooltip)])


def _peak(points: list[Row], unit: str, tooltip: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns a point at the highest value with its label, which lies on the side with more room."""
    highest = max(points, key=lambda row: row["allocated"])
    peak = data([{**highest, "label": f"peak {highest['allocated']:,.1f} {unit}"}], name="peak")
    is_late = 2 * highest["ts"] > points[0]["ts"] + points[-1]["ts"]
    side = {"align": "right", "dx": -8} if is_late else {"align": "left", "dx": 8}
    text = {"type": "text", **side, "dy": -6, "color": "var(--ink)"}
    point = {"type": "point", "color": "var(--ink)", "filled": True, "size": 60}
    encoding = {"x": number("ts"), "y": number("allocated"), "tooltip": tooltip}
    labelled = {**encoding, "text": {"field": "label", "type": "nominal"}}
    return [{"data": peak, "mark": point, "encoding": encoding}, {"data": peak, "mark": text, "encoding": labelled}]


def _highest_in(stretch: Int64, value: Int64 | Floats) -> Int64:
    """Returns the position of the first highest value in each stretch."""
    order = np.lexsort((-value, stretch))
    return np.sort(order[np.unique(stretch[order], return_index=True)[1]])


def value_lanes(lanes: dict[str, Steps], title: str, unit: str) -> Chart:
    """Returns a lane for each series of values, all on one scale, whose maximum is in the title.

    Of too many steps of a series only the highest in each interval of time is drawn.
    """
    labels, rows = list(lanes), list[Row]()
    highest = max(float(value.max()) for _, value in lanes.values()) or 1.0
    most_steps = max(MOST_STEPS // len(lanes), FEWEST_STEPS)
    for base, (name, (time, value)) in enumerate(lanes.items(), 1):
        kept = np.arange(len(time))
        if len(time) > most_steps:
            kept = _highest_in(np.searchsorted(np.linspace(time[0], time[-1], most_steps), time), value)
        ends = np.append(time[kept][1:], time[-1:])
        is_drawn = (value[kept] > 0) & (ends > time[kept])
        columns = (column[is_drawn].tolist() for column in (time[kept], ends, value[kept]))
        rows += [
            {"lane": name, "from": start, "to": end, "value": high, "base": base, "top": base - FILLED * high / highest}
            for start, end, high in zip(*columns, strict=True)
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
    box = {"type": "rect", "stroke": COLOUR, "strokeWidth": 1}
    return chart(height, **marks(box, rows, tooltip, **channels))
