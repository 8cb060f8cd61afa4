"""Draws the roofline: ops by operations per byte and speed, below the peaks of their devices."""

import altair as alt

from ..analyses import Table
from .cells import Row, largest
from .drawing import Chart, by_series, data, fields_of, hover, sized

SHOWN_OPS = 1500


def efficiency(table: Table) -> list[Chart]:
    """Returns a roofline of the ops that took longest; no chart if the intensity and speed of no op is known."""
    named = [{**row, "limit": row["bound"] or "device not known"} for row in largest(table, "time", SHOWN_OPS).rows()]
    rows = [row for row in named if row["intensity"] and row["speed"]]
    if not rows:
        return []
    tooltip = hover(
        "op", "shape", "rank", "kernels", "time [µs]", "intensity [FLOP/B]", "speed [TFLOP/s]", "speed_pct [%]",
        "bandwidth [GB/s]", "bandwidth_pct [%]", "limit",
    )  # fmt: skip
    scale = alt.Scale(type="log")
    axes = (
        alt.X(
            "intensity:Q",
            scale=scale,
            title="operations per byte, logarithmic",
            axis=alt.Axis(format="~g", tickCount=6),
        ),
        alt.Y("speed:Q", scale=scale, title="TFLOP/s, logarithmic", axis=alt.Axis(format="~g", tickCount=6)),
    )
    points = (
        alt.Chart(data(rows, *fields_of(tooltip)))
        .mark_circle(opacity=0.6)
        .encode(
            *axes,
            alt.Size("time:Q", legend=None, scale=alt.Scale(range=[20, 500])),
            by_series("limit", "limited by"),
            tooltip=tooltip,
        )
    )
    roofs = _roofs(rows)
    if not roofs:
        return [sized(points, 320)]
    roof = alt.Chart(data(roofs, name="roofs")).mark_line(color="var(--muted)", strokeDash=[4, 3])
    lines = roof.encode(*axes, alt.Detail("roof:N"), tooltip=hover("roof"))
    return [sized(alt.layer(lines, points), 320)]


def _roofs(rows: list[Row]) -> list[Row]:
    """Returns the corners of each roof, from the least to the largest intensity: up with the bandwidth, then flat."""
    peaks = {(row["peak_speed"], row["peak_bandwidth"]) for row in rows if row["peak_speed"] and row["peak_bandwidth"]}
    intensities = [row["intensity"] for row in rows] + [1000 * speed / bandwidth for speed, bandwidth in peaks]
    return [
        {
            "roof": f"{speed:g} TFLOP/s, {bandwidth:g} GB/s",
            "intensity": intensity,
            "speed": min(speed, intensity * bandwidth / 1000),
        }
        for speed, bandwidth in sorted(peaks)
        for intensity in sorted({min(intensities), 1000 * speed / bandwidth, max(intensities)})
    ]
