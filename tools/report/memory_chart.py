"""Draws the memory in use over time as a curve, with what was reserved, the steps, and the peak."""

from typing import Any

import altair as alt
import numpy as np

from ...schema.columns import Int64
from ..analyses import Table
from .cells import Row
from .drawing import Chart, data, hover, sized

SHOWN_CURVES, SHOWN_POINTS, SHOWN_STEPS = 4, 1500, 40
FLAT = 0.01
UNITS = {"GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10}
HOST = -1
HEIGHT = 170


def memory_timeline(table: Table) -> list[Chart]:
    """Returns a curve for each of the devices with the highest peaks, except those that would look flat.

    A long curve is reduced to the highest value of each stretch.
    """
    ranks, device, allocated = (np.asarray(table[name]) for name in ("rank", "device", "allocated"))
    devices_, number = np.unique(np.stack([ranks, device], axis=1), axis=0, return_inverse=True)
    number = number.reshape(-1)
    peaks = np.zeros(len(devices_), np.int64)
    np.maximum.at(peaks, number, allocated)
    chosen = [
        curve
        for curve in np.argsort(-peaks, kind="stable")[:SHOWN_CURVES].tolist()
        if peaks[curve] >= FLAT * peaks.max()
    ]
    return [_curve(table, np.flatnonzero(number == curve), *devices_[curve].tolist()) for curve in chosen]


def _curve(table: Table, rows: Int64, rank: int, device: int) -> Chart:
    label = f"rank {rank} · {'host' if device == HOST else f'device {device}'}"
    value = np.asarray(table["allocated"])[rows]
    kept_rows = rows[_highest_positions(value)]
    unit = next((name for name, size in UNITS.items() if value.max() >= size), "KiB")
    points = _points(table, kept_rows, UNITS[unit])
    tooltip = hover("track", "ts [µs]", f"allocated [{unit}]", f"reserved [{unit}]", "step")
    base = alt.Chart(data([{"track": label, **row} for row in points])).encode(
        alt.X("ts:Q", title="time [µs]", axis=alt.Axis(tickCount=8, grid=False)), tooltip=tooltip
    )
    axis = alt.Y("allocated:Q", title=f"{label} [{unit}]", axis=alt.Axis(tickCount=5))
    area = base.mark_area(
        interpolate="step-after", line={"color": "var(--computation)"}, color="var(--computation)", fillOpacity=0.35
    ).encode(axis)
    layers: list[Any] = [area]
    if any(row["reserved"] is not None for row in points):
        layers.append(base.mark_line(interpolate="step-after", color="var(--muted)").encode(alt.Y("reserved:Q")))
    marks = [{"ts": row["ts"], "step": row["step"]} for row in _step_starts(points)]
    if 0 < len(marks) <= SHOWN_STEPS:
        rule = alt.Chart(data(marks, name="steps")).mark_rule(color="var(--muted)", strokeDash=[3, 3])
        layers.append(rule.encode(alt.X("ts:Q"), tooltip=hover("step", "ts [µs]")))
    highest = max(points, key=lambda row: row["allocated"])
    peak = alt.Chart(
        data([{"track": label, **highest, "label": f"peak {highest['allocated']:,.1f} {unit}"}], name="peak")
    ).encode(alt.X("ts:Q"), alt.Y("allocated:Q"), tooltip=tooltip)
    # the label lies on the side with more room
    is_late = 2 * highest["ts"] > points[0]["ts"] + points[-1]["ts"]
    layers += [
        peak.mark_point(color="var(--ink)", filled=True, size=60),
        peak.mark_text(align="right" if is_late else "left", dx=-8 if is_late else 8, dy=-6, color="var(--ink)").encode(
            text="label:N"
        ),
    ]
    return sized(alt.layer(*layers), HEIGHT)


def _points(table: Table, rows: Int64, unit: int) -> list[Row]:
    reserved = np.asarray(table["reserved"], np.float64)[rows] / unit
    return [
        {
            "ts": ts,
            "allocated": used / unit,
            "reserved": None if kept_bytes != kept_bytes else kept_bytes,
            "step": table["step"][row],
        }
        for row, ts, used, kept_bytes in zip(
            rows.tolist(),
            np.asarray(table["ts"])[rows].tolist(),
            np.asarray(table["allocated"])[rows].tolist(),
            reserved.tolist(),
            strict=True,
        )
    ]


def _highest_positions(value: Int64) -> Int64:
    """Returns the position of the highest value in each of SHOWN_POINTS stretches, and the last position."""
    if len(value) <= SHOWN_POINTS:
        return np.arange(len(value))
    stretch = np.arange(len(value)) * SHOWN_POINTS // len(value)
    order = np.lexsort((-value, stretch))
    return np.unique(np.append(order[np.unique(stretch[order], return_index=True)[1]], len(value) - 1))


def _step_starts(points: list[Row]) -> list[Row]:
    """Returns the first point of each step, if there are several steps."""
    begun = [row for before, row in zip([{"step": ""}, *points], points, strict=False) if row["step"] != before["step"]]
    return begun if len(begun) > 1 else []
