"""The chart of each table, as a kind of chart with the fields of the table; of long tables only a part is drawn."""

import numpy as np

from ...schema.columns import shortened
from ...schema.linked import STEP_MARK
from ..analyses import Table
from ..terminal import ranges
from ..view import short_name
from . import drawing as vl
from .cells import Row, largest
from .drawing import Chart, Draw, Encoding
from .report import Report

SHOWN_POINTS, SHOWN_STEPS = 1500, 400
CATEGORIES = ("added", "more", "slower", "same", "faster", "fewer", "removed")
EXPOSED, HIDDEN, MEMORY = "exposed communication", "hidden communication", "memory"
SPENT = ("computation", HIDDEN, EXPOSED, MEMORY, "idle")
LANE_KINDS = ("computation", "communication", "memory", "host", "waiting", "idle", "unrecorded")


def _step_breakdown(table: Table) -> list[Chart]:
    """Returns a bar per step, of what ran in it; many steps stand close together."""
    parts = {"computation": "computation", "exposed_communication": EXPOSED, "rest": "idle and copies"}
    tooltip = vl.hover("step", "track", "part", "part_time [µs]", "time [µs]", "bound", "outlier")
    rows = [
        {**row, "track": vl.track_label(row), "number": position, "part": label, "part_time": time}
        for position, row in enumerate(table.take(slice(SHOWN_STEPS)).rows())
        for name, label in parts.items()
        if (time := row.get(name, row["time"] - row["computation"] - row["exposed_communication"])) > 0
    ]
    x = vl.axis("number", "steps in order", "ordinal", axis=vl.UNLABELLED)
    y = vl.axis("part_time [µs]", "time", stack="zero", axis={"tickCount": 5})
    bars = vl.marks({"type": "bar"}, tooltip, x=x, y=y, color=vl.by_label(parts.values()))
    return [vl.chart(170, rows, bars)]


def _durations(table: Table) -> list[Chart]:
    """Returns a box from quartile to quartile, a line from the 5th to the 95th percentile, a tick at the median."""
    rows = vl.largest_names(table.rows(), "sum")
    quantiles = ("min [µs]", "q05 [µs]", "q25 [µs]", "q50 [µs]", "q75 [µs]", "q95 [µs]", "max [µs]")
    y, tooltip = vl.names("short", sort={"field": "sum", "order": "descending"}), vl.hover("name", "count", *quantiles)
    x = vl.axis("q05 [µs]", "duration, logarithmic", **vl.LOGARITHMIC)
    layers = (
        vl.marks({"type": "rule", "color": "var(--muted)"}, tooltip, x=x, x2={"field": "q95"}, y=y),
        vl.marks({"type": "bar", "height": 12}, tooltip, x=vl.number("q25"), x2={"field": "q75"}, y=y),
        vl.marks(vl.TICK | {"height": 14}, tooltip, x=vl.number("q50"), y=y),
    )
    return [vl.chart(22, rows, *layers, per="short", also=["sum"])]


def _collectives(table: Table) -> list[Chart]:
    """Returns the start skew of each collective in their order, and the bandwidth by size."""
    rows = table.take(slice(SHOWN_POINTS)).rows()
    for position, row in enumerate(rows):
        row |= {"number": position, "last": f"rank {row['straggler']}"}
    tooltip = vl.hover(
        "collective", "group", "sequence", "present", "last", "latency [µs]", "start_skew [µs]", "size [B]",
        "bus_bandwidth [GB/s]",
    )  # fmt: skip
    x = vl.axis("number", "collectives in order", "ordinal", axis=vl.UNLABELLED)
    y = vl.axis("start_skew [µs]", "first to last arrival", axis={"tickCount": 5})
    bar, last = {"type": "bar", "minBandSize": 2}, vl.by_series("last", "last to arrive")
    skew = vl.marks(bar, tooltip, x=x, y=y, color=last)
    x = vl.axis("size [B]", "size, logarithmic", scale={"type": "log", "base": 2}, axis={"tickCount": 6})
    y = vl.axis("bus_bandwidth [GB/s]", "bus bandwidth", axis={"tickCount": 5})
    circle = {"type": "circle", "size": 60, "opacity": 0.7}
    speed = vl.marks(circle, tooltip, x=x, y=y, color=vl.by_series("collective"))
    charts = {"start_skew": skew, "bus_bandwidth": speed}
    return [vl.chart(170, rows, chart) for y, chart in charts.items() if any(row[y] is not None for row in rows)]


def _efficiency(table: Table) -> list[Chart]:
    """Returns a roofline of the ops that took longest below their devices' peaks; nothing if none's speed is known."""
    rows = [
        {**row, "limit": row["bound"] or "device not known"}
        for row in largest(table, "time", SHOWN_POINTS).rows()
        if row["intensity"] and row["speed"]
    ]
    if not rows:
        return []
    tooltip = vl.hover(
        "op", "shape", "rank", "kernels", "time [µs]", "intensity [FLOP/B]", "speed [TFLOP/s]", "speed_pct [%]",
        "bandwidth [GB/s]", "bandwidth_pct [%]", "limit",
    )  # fmt: skip
    # the corners of each roof, from the least to the largest intensity: up with the bandwidth, then flat
    peaks = {(row["peak_speed"], row["peak_bandwidth"]) for row in rows if row["peak_speed"] and row["peak_bandwidth"]}
    intensities = [row["intensity"] for row in rows] + [1000 * speed / bandwidth for speed, bandwidth in peaks]
    corners = [
        {"roof": f"{speed:g} TFLOP/s, {bandwidth:g} GB/s", "intensity": at, "speed": min(speed, at * bandwidth / 1000)}
        for speed, bandwidth in sorted(peaks)
        for at in sorted({min(intensities), 1000 * speed / bandwidth, max(intensities)})
    ]
    shared: Encoding = {"scale": {"type": "log"}, "axis": {"format": "~g", "tickCount": 6}}
    x = vl.axis("intensity", "operations per byte, logarithmic", **shared)
    y = vl.axis("speed", "TFLOP/s, logarithmic", **shared)
    size, circle = vl.number("time", legend=None, scale={"range": [20, 500]}), {"type": "circle", "opacity": 0.6}
    ops = vl.marks(circle, tooltip, x=x, y=y, color=vl.by_series("limit", "limited by"), size=size)
    dashed = {"type": "line", "color": "var(--muted)", "strokeDash": [4, 3]}
    roofs = vl.marks(dashed, vl.hover("roof"), x=x, y=y, detail={"field": "roof", "type": "nominal"})
    return [vl.chart(320, rows, vl.drawn(corners, roofs), ops)]


def _trace_diff(table: Table) -> list[Chart]:
    """Returns the names of work whose time differs most between the two runs; the marks of steps are none."""
    work = [{**row, "part": row["category"]} for row in table.rows() if not row["name"].startswith(STEP_MARK)]
    rows = sorted(work, key=lambda row: -abs(row["difference"] or 0))[: vl.SHOWN_NAMES]
    for row in rows:
        row["label"] = f"{row['kind']} {shortened(short_name(row['name']), 48)} {shortened(row['shape'], 24)}".strip()
    tooltip = vl.hover(
        "kind", "name", "shape", "category", "count_a", "count_b", "time_a [µs]", "time_b [µs]", "difference [µs]",
    )  # fmt: skip
    x = vl.axis("difference [µs]", "B less A", axis={"tickCount": 6})
    colour = vl.by_label(category for category in CATEGORIES if any(row["part"] == category for row in rows))
    return [vl.chart(24, rows, vl.marks(vl.BAR, tooltip, x=x, y=vl.names("label"), color=colour), per="label")]


CHARTS: dict[str, Draw] = {
    "trace_diff": _trace_diff,
    "temporal_breakdown": vl.bars_of_tracks("time [µs]", "time [µs]", "share [%]", parts={"compute": "computation",
        "non_compute": "other activities", "idle": "idle"}),
    "step_breakdown": _step_breakdown,
    "idle_time_breakdown": vl.bars_of_tracks("idle [µs]", "cause", "idle [µs]", "share [%]", "gaps", part="category",
        title="idle", order=lambda row: ("host wait", "kernel wait", "other").index(row["part"])),
    "kernel_breakdown": vl.bars_of_tracks("time [µs]", "time [µs]", "pct [%]", part="class",
        order=lambda row: (row["part"].count("+"), row["part"])),
    "kernel_breakdown_kernels": vl.bars_of_names("{name}", "sum [µs]", "total time", "pct [%]", "count", part="class",
        skip="others"),
    "critical_path": vl.bars_of_tracks("time [µs]", "time [µs]", "pct [%]", part="kind",
        order=lambda row: -row["time"]),
    "per_op_device_time_by_name": vl.bars_of_names("{name}", "self [µs]", "time of the op's own activities",
        "subtree [µs]", "ops", "count"),
    "host_time_per_op": vl.bars_of_names("{name}", "self [µs]", "time of the op itself on the host", "thread",
        "total [µs]", "count"),
    "communication_computation_overlap": vl.bars_of_tracks("time [µs]", "time [µs]", "overlap_pct [%]",
        title="communication", parts={"overlap": HIDDEN, "exposed_communication": EXPOSED}),
    "collectives_over_ranks": _collectives,
    "memory_timeline": vl.memory_timeline,
    "kernel_duration_distribution": _durations,
    "launch_statistics_by_api": vl.bars_of_names("{api}", "host [µs]", "host time in calls", "launches",
        "delay_mean [µs]"),
    "frequent_kernel_patterns": vl.bars_of_names("{operator}: {pattern}", "device_time [µs]", "time on the device",
        "count", "host_time [µs]"),
    "cupti_counters": vl.bars_of_names("{kernel}", "flops []", "floating-point operations", "op_stack"),
    "efficiency": _efficiency,
}  # fmt: skip
"""What draws a table, by its name; other tables have no chart."""


def spent(report: Report) -> list[Chart]:
    """Returns how each device spent the measured run, as the figures at the top, or else each host thread."""
    kernels, devices = report.page_table("kernel_breakdown"), report.page_table("temporal_breakdown")
    if not kernels or not devices:
        times = report.timeline.lane_times if report.timeline else []
        rows = [{**row, "part": row["kind"]} for row in times if row["kind"] in LANE_KINDS]
        return [vl.stacked_bars(rows, LANE_KINDS, "lane", "time [µs]", "time [µs]")] if report.timeline else []
    replay = report.tables.get("critical_path_replay")
    run = float(np.asarray(replay["measured"])[0]) if replay else 0.0
    time_of: dict[str, dict[str, float]] = {}
    for row in kernels.rows():
        ran = row["class"].split(" + ")
        part = "computation" if "computation" in ran else MEMORY
        if "communication" in ran:
            part = HIDDEN if "computation" in ran else EXPOSED
        parts = time_of.setdefault(vl.track_label(row), {})
        parts[part] = parts.get(part, 0) + row["time"]
    span = {vl.track_label(row): max(run, row["span"]) for row in devices.rows()}
    for row in devices.rows():
        time_of.setdefault(vl.track_label(row), {})["idle"] = span[vl.track_label(row)] - row["busy"]
    rows = [
        {"track": device, "part": part, "time": time, "share": 100 * time / (span[device] or 1)}
        for device, parts in time_of.items()
        for part, time in parts.items()
    ]
    return [vl.stacked_bars(rows, SPENT, "track", "time [µs]", "time [µs]", "share [%]")]


def limits(report: Report) -> list[Chart]:
    """Returns the names with the most time on the critical path."""
    nodes = report.page_table("critical_path_nodes")
    if nodes is None or not len(nodes):
        return []
    by_name: dict[tuple[str, str], Row] = {}
    for row in nodes.rows():
        name = row["name"] if row["kind"] in ("host", "computation", "communication", "memory") else row["kind"]
        total = by_name.setdefault((name, row["kind"]), {"name": name, "part": row["kind"], "time": 0, "ranks": set()})
        total["time"] += row["time"]
        total["ranks"].add(row["rank"])
    rows = vl.largest_names([{**row, "ranks": ranges(sorted(row["ranks"]))} for row in by_name.values()], "time")
    labels = dict.fromkeys(row["part"] for row in rows)
    return [vl.ranked_bars(rows, "time [µs]", "time on the critical path", "ranks", labels=labels)]


def gains(report: Report) -> list[Chart]:
    """Returns how much shorter the run is with each class of work twice as fast."""
    if not (classes := report.twice_as_fast):
        return []
    tooltip = vl.hover("change", "before [µs]", "after [µs]", "saved [µs]", "saved_pct [%]")
    x = vl.axis("saved_pct [%]", "shorter run", axis={"tickCount": 6})
    return [vl.chart(26, classes.rows(), vl.marks(vl.BAR, tooltip, x=x, y=vl.names("change")), per="change")]
