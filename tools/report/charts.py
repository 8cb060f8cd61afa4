"""Draws the table of an analysis as charts with values on hover; of long tables only a part."""

from collections.abc import Callable

import altair as alt
import numpy as np

from ..analyses import Table
from ..view import short_name
from .cells import largest, shortened
from .drawing import (
    LOGARITHMIC,
    POWERS,
    SHOWN_NAMES,
    Chart,
    by_label,
    by_series,
    data,
    fields_of,
    hover,
    largest_names,
    per_value,
    ranked_bars,
    sized,
    stacked_bars,
    track_label,
)
from .flame_graph import modules
from .lanes_of_values import Steps, series
from .matrices import collectives_over_ranks_all_to_all, collectives_over_ranks_waits
from .memory_chart import memory_timeline
from .roofline_chart import efficiency

Draw = Callable[[Table], list[Chart]]

SHOWN_POINTS = 1500
SHOWN_STEPS = 400
QUEUE_LENGTH = "queue length"
CATEGORIES = ("added", "slower", "same", "faster", "removed")
STEP = "ProfilerStep#"


def temporal_breakdown(table: Table) -> list[Chart]:
    """Returns a bar per device: time with computation, with other activities only, and idle."""
    labels = {"compute": "computation", "non_compute": "other activities", "idle": "idle"}
    rows = [
        {"track": track_label(row), "part": label, "time": row[name], "share": row[f"{name}_pct"]}
        for row in table.rows()
        for name, label in labels.items()
    ]
    return [stacked_bars(rows, labels.values(), "track", "time", "time [µs]", "time [µs]", "share [%]")]


def step_breakdown(table: Table) -> list[Chart]:
    """Returns a bar per step, of what ran in it; many steps stand close together."""
    parts = {"computation": "computation", "exposed_communication": "exposed communication", "rest": "idle and copies"}
    rows = [
        {**row, "track": track_label(row), "number": number, "part": label, "part_time": time}
        for number, row in enumerate(table.take(slice(SHOWN_STEPS)).rows())
        for name, label in parts.items()
        if (time := row.get(name, row["time"] - row["computation"] - row["exposed_communication"])) > 0
    ]
    tooltip = hover("step", "track", "part", "part_time [µs]", "time [µs]", "bound", "outlier")
    bars = (
        alt.Chart(data(rows, "number", *fields_of(tooltip)))
        .mark_bar()
        .encode(
            alt.X("number:O", title="steps in order", axis=alt.Axis(labels=False, ticks=False)),
            alt.Y("part_time:Q", title="time [µs]", stack="zero", axis=alt.Axis(tickCount=5)),
            by_label(parts.values()),
            tooltip=tooltip,
        )
    )
    return [sized(bars, 170)]


def idle_time_breakdown(table: Table) -> list[Chart]:
    """Returns a bar per stream: what it was idle for."""
    rows = [{**row, "track": track_label(row), "part": row["category"]} for row in table.rows()]
    labels = ("host wait", "kernel wait", "other")
    return [stacked_bars(rows, labels, "track", "idle", "idle [µs]", "cause", "idle [µs]", "share [%]", "gaps")]


def kernel_breakdown(table: Table) -> list[Chart]:
    """Returns a bar per device: how long each class of kernels, or several of them at once, ran."""
    rows = [{**row, "track": track_label(row), "part": row["class"]} for row in table.rows()]
    labels = sorted({row["part"] for row in rows}, key=lambda label: (label.count("+"), label))
    return [stacked_bars(rows, labels, "track", "time", "time [µs]", "time [µs]", "pct [%]")]


def kernel_breakdown_kernels(table: Table) -> list[Chart]:
    """Returns the kernels that took longest, by class."""
    rows = largest_names([{**row, "part": row["class"]} for row in table.rows() if row["name"] != "others"], "sum")
    labels = sorted({row["part"] for row in rows})
    return [ranked_bars(rows, "sum", "total time [µs]", "pct [%]", "count", labels=labels)]


def kernel_duration_distribution(table: Table) -> list[Chart]:
    """Returns a box from quartile to quartile, a line from the 5th to the 95th percentile, a tick at the median."""
    rows = largest_names(table.rows(), "sum")
    quantiles = ("min [µs]", "q05 [µs]", "q25 [µs]", "q50 [µs]", "q75 [µs]", "q95 [µs]", "max [µs]")
    order = alt.EncodingSortField("sum", order="descending")
    base = alt.Chart(data(rows)).encode(
        alt.Y("short:N", title=None, sort=order), tooltip=hover("name", "count", *quantiles)
    )
    axis = alt.X("q05:Q", scale=LOGARITHMIC, axis=POWERS, title="duration [µs], logarithmic")
    whisker = base.mark_rule(color="var(--muted)").encode(axis, x2="q95:Q")
    box = base.mark_bar(height=12, color="var(--computation)").encode(alt.X("q25:Q"), x2="q75:Q")
    median = base.mark_tick(color="var(--ink)", thickness=2, height=14).encode(alt.X("q50:Q"))
    return [sized(alt.layer(whisker, box, median), per_value(rows, "short", 22))]


def communication_computation_overlap(table: Table) -> list[Chart]:
    """Returns a bar per device: communication beside computation, and alone."""
    parts = {"overlap": "hidden communication", "exposed_communication": "exposed communication"}
    rows = [
        {"track": track_label(row), "part": label, "time": row[name], "overlap_pct": row["overlap_pct"]}
        for row in table.rows()
        for name, label in parts.items()
    ]
    return [stacked_bars(rows, parts.values(), "track", "time", "communication [µs]", "time [µs]", "overlap_pct [%]")]


def launch_statistics(table: Table) -> list[Chart]:
    """Returns the launches with the longest delays, each a point; both axes are logarithmic."""
    rows = [
        {**row, "flags": row["flags"] or "none", "name": short_name(row["name"])}
        for row in largest(table, "delay", SHOWN_POINTS).rows()
    ]
    tooltip = hover("name", "api", "rank", "stream", "host [µs]", "device [µs]", "delay [µs]", "flags")
    points = (
        alt.Chart(data(rows, *fields_of(tooltip)))
        .mark_circle(size=36, opacity=0.6)
        .encode(
            alt.X("device:Q", scale=LOGARITHMIC, axis=POWERS, title="duration on the device [µs], logarithmic"),
            alt.Y("delay:Q", scale=LOGARITHMIC, axis=POWERS, title="delay after the call [µs]"),
            by_series("flags"),
            tooltip=tooltip,
        )
    )
    return [sized(points, 240)]


def launch_statistics_by_api(table: Table) -> list[Chart]:
    """Returns the calls that took longest on the host."""
    rows = largest_names([{**row, "name": row["api"]} for row in table.rows()], "host")
    return [ranked_bars(rows, "host", "host time in calls [µs]", "launches", "delay_mean [µs]")]


def launch_statistics_short_kernels(table: Table) -> list[Chart]:
    """Returns a histogram of kernel durations over all ranks; short kernels are often not worth their launch."""
    first, last = (np.asarray(table[name]) for name in ("from", "to"))
    kernels, time = (np.asarray(table[name], np.float64) for name in ("kernels", "time"))
    rows = [
        {
            "duration": f"{begin:,.0f} to {end:,.0f}",
            "begin": begin,
            "kernels": kernels[in_bucket].sum(),
            "time": time[in_bucket].sum(),
        }
        for begin, end in sorted(set(zip(first.tolist(), last.tolist(), strict=True)))
        for in_bucket in [first == begin]
    ]
    bars = (
        alt.Chart(data(rows))
        .mark_bar(color="var(--computation)")
        .encode(
            alt.X("begin:O", title="duration [µs], up to the next", axis=alt.Axis(labelAngle=0, format=",.0f")),
            alt.Y("kernels:Q", title="kernels", axis=alt.Axis(tickCount=5)),
            tooltip=hover("duration", "kernels []", "time [µs]"),
        )
    )
    return [sized(bars, 150)]


def counters(table: Table) -> list[Chart]:
    """Returns queue lengths and bandwidths of copies, a lane for each series."""
    ranks, time, value = (np.asarray(table[name]) for name in ("rank", "ts", "value"))
    keys = list(zip(ranks.tolist(), table["device"], table["counter"], table["stream"], strict=True))
    first = [row for row in range(len(keys)) if row == 0 or keys[row] != keys[row - 1]]
    queues: dict[str, Steps] = {}
    copies: dict[str, Steps] = {}
    for begin, end in zip(first, [*first[1:], len(keys)], strict=True):
        rank, device, counter, stream = keys[begin]
        track = {"rank": rank, "device": device}
        steps = time[begin:end], value[begin:end]
        if counter == QUEUE_LENGTH:
            queues[track_label(track | {"stream": stream})] = steps
        else:
            copies[f"{track_label(track)} · {counter}"] = steps
    drawn = ((queues, "work in the queue", ""), (copies, "copies", "GB/s"))
    return [series(lanes, title, unit) for lanes, title, unit in drawn if lanes]


def frequent_kernel_patterns(table: Table) -> list[Chart]:
    """Returns the sequences of kernels that took longest on the device."""
    named = [{**row, "name": f"{row['operator']}: {row['pattern']}"} for row in table.rows()]
    rows = largest_names(named, "device_time")
    return [ranked_bars(rows, "device_time", "time on the device [µs]", "count", "host_time [µs]")]


def cupti_counters(table: Table) -> list[Chart]:
    """Returns the kernels with most floating-point operations; no chart where none were counted."""
    rows = largest_names([{**row, "name": row["kernel"]} for row in table.rows() if row["flops"] is not None], "flops")
    return [ranked_bars(rows, "flops", "floating-point operations []", "op_stack")] if rows else []


def critical_path(table: Table) -> list[Chart]:
    """Returns a bar per rank: what the critical path consists of."""
    rows = [{**row, "track": f"rank {row['rank']}", "part": row["kind"]} for row in table.rows()]
    labels = dict.fromkeys(row["part"] for row in sorted(rows, key=lambda row: -row["time"]))
    return [stacked_bars(rows, labels, "track", "time", "time [µs]", "time [µs]", "pct [%]")]


def collectives_over_ranks(table: Table) -> list[Chart]:
    """Returns the start skew of each collective in their order, and the bandwidth by size."""
    rows = [
        {**row, "number": number, "last": f"rank {row['straggler']}"}
        for number, row in enumerate(table.take(slice(SHOWN_POINTS)).rows())
    ]
    tooltip = hover("collective", "group", "sequence", "present", "last", "latency [µs]", "start_skew [µs]", "size [B]")
    base = alt.Chart(data(rows)).encode(tooltip=[*tooltip, *hover("bus_bandwidth [GB/s]")])
    skew = base.mark_bar(minBandSize=2).encode(
        alt.X("number:O", title="collectives in order", axis=alt.Axis(labels=False, ticks=False)),
        alt.Y("start_skew:Q", title="first to last arrival [µs]", axis=alt.Axis(tickCount=5)),
        by_series("last", "last to arrive"),
    )
    speed = base.mark_circle(size=60, opacity=0.7).encode(
        alt.X(
            "size:Q",
            scale=alt.Scale(type="log", base=2),
            title="size [B], logarithmic",
            axis=alt.Axis(tickCount=6),
        ),
        alt.Y("bus_bandwidth:Q", title="bus bandwidth [GB/s]", axis=alt.Axis(tickCount=5)),
        by_series("collective"),
    )
    drawn = ((skew, "start_skew"), (speed, "bus_bandwidth"))
    return [sized(chart, 170) for chart, field in drawn if any(row[field] is not None for row in rows)]


def per_op_device_time_by_name(table: Table) -> list[Chart]:
    """Returns the ops whose own activities took longest."""
    rows = largest_names(table.rows(), "self")
    return [ranked_bars(rows, "self", "time of the op's own activities [µs]", "subtree [µs]", "ops", "count")]


def host_time_per_op(table: Table) -> list[Chart]:
    """Returns the ops that by themselves kept the host longest."""
    rows = largest_names(table.rows(), "self")
    return [ranked_bars(rows, "self", "time of the op itself on the host [µs]", "thread", "total [µs]", "count")]


def what_if(table: Table) -> list[Chart]:
    """Returns how much shorter the run is with each change, as recorded and without a profiler."""
    rows = [{**row, "label": ", ".join(filter(None, (row["change"], row.get("run"))))} for row in table.rows()]
    bars = (
        alt.Chart(data(rows))
        .mark_bar(height={"band": 0.7}, color="var(--computation)")
        .encode(
            alt.X("saved_pct:Q", title="shorter run [%]", axis=alt.Axis(tickCount=6)),
            alt.Y("label:N", title=None, sort=None),
            tooltip=hover("label", "before [µs]", "after [µs]", "saved [µs]", "saved_pct [%]"),
        )
    )
    return [sized(bars, per_value(rows, "label", 26))]


def trace_diff(table: Table) -> list[Chart]:
    """Returns the names of work whose time differs most between the two runs; the marks of steps are none."""
    rows = [{**row, "part": row["category"]} for row in table.rows() if not row["name"].startswith(STEP)]
    rows = sorted(rows, key=lambda row: -abs(row["difference"] or 0))[:SHOWN_NAMES]
    for row in rows:
        row["label"] = f"{row['kind']} {shortened(short_name(row['name']), 48)} {shortened(row['shape'], 24)}".strip()
    present = {row["part"] for row in rows}
    fields = ("count_a", "count_b", "time_a [µs]", "time_b [µs]", "difference [µs]")
    bars = (
        alt.Chart(data(rows))
        .mark_bar(height={"band": 0.7})
        .encode(
            alt.X("difference:Q", title="B less A [µs]", axis=alt.Axis(tickCount=6)),
            alt.Y("label:N", title=None, sort=None),
            by_label(category for category in CATEGORIES if category in present),
            tooltip=hover("kind", "name", "shape", "category", *fields),
        )
    )
    return [sized(bars, per_value(rows, "label", 24))]


CHARTS: dict[str, Draw] = {
    draw.__name__: draw
    for draw in (
        temporal_breakdown, step_breakdown, idle_time_breakdown, kernel_breakdown, kernel_breakdown_kernels,
        kernel_duration_distribution, communication_computation_overlap, launch_statistics, launch_statistics_by_api,
        launch_statistics_short_kernels, counters, memory_timeline, frequent_kernel_patterns, what_if, trace_diff,
        cupti_counters, critical_path, collectives_over_ranks, collectives_over_ranks_waits,
        collectives_over_ranks_all_to_all, per_op_device_time_by_name, host_time_per_op, efficiency, modules,
    )
}  # fmt: skip
"""The function that draws each table, by the table's name."""
