"""The charts at the top of the page: where the time went, and what limits the run."""

import numpy as np

from ..analyses import Table
from ..rank_rows import ranges
from .cells import Row
from .charts import what_if
from .drawing import Chart, largest_names, ranked_bars, stacked_bars, track_label
from .report import Report

EXPOSED, HIDDEN, MEMORY = "exposed communication", "hidden communication", "memory"
SPENT = ("computation", HIDDEN, EXPOSED, MEMORY, "idle")
LANE_KINDS = ("computation", "communication", "memory", "host", "waiting", "idle", "unrecorded")


def spent(report: Report) -> list[Chart]:
    """Returns how each device, or without devices each host thread, spent its time."""
    kernels, devices = report.page_table("kernel_breakdown"), report.page_table("temporal_breakdown")
    if kernels and devices and len(kernels) and len(devices):
        return [_device_chart(kernels, devices, report.tables.get("critical_path_replay"))]
    return [_lane_chart(report.timeline.lane_times)] if report.timeline else []


def _device_chart(kernels: Table, devices: Table, replay: Table | None) -> Chart:
    """Draws what each device did in the measured run, as the figures at the top; else from first to last activity."""
    run = float(np.asarray(replay["measured"])[0]) if replay is not None and len(replay) else 0.0
    span = {track_label(row): max(run, row["span"]) for row in devices.rows()}
    rows = [
        {"track": track_label(row), "part": _part_label(row["class"]), "time": row["time"]} for row in kernels.rows()
    ]
    rows += [
        {"track": track, "part": "idle", "time": span[track] - row["busy"]}
        for row in devices.rows()
        for track in [track_label(row)]
    ]
    total: dict[tuple[str, str], float] = {}
    for row in rows:
        total[row["track"], row["part"]] = total.get((row["track"], row["part"]), 0) + row["time"]
    summed: list[Row] = [
        {"track": device, "part": part, "time": time, "share": 100 * time / (span[device] or 1)}
        for (device, part), time in total.items()
    ]
    return stacked_bars(summed, SPENT, "track", "time", "time [µs]", "time [µs]", "share [%]")


def _part_label(classes: str) -> str:
    """Returns the label of a set of classes that ran at once."""
    parts = classes.split(" + ")
    if "communication" in parts:
        return HIDDEN if "computation" in parts else EXPOSED
    return "computation" if "computation" in parts else MEMORY


def _lane_chart(lane_times: list[Row]) -> Chart:
    rows = [{**row, "part": row["kind"]} for row in lane_times if row["kind"] in LANE_KINDS]
    present = [kind for kind in LANE_KINDS if any(row["part"] == kind for row in rows)]
    return stacked_bars(rows, present, "lane", "time", "time [µs]", "time [µs]")


def limits(report: Report) -> list[Chart]:
    """Returns the names with the most time on the critical path."""
    nodes = report.page_table("critical_path_nodes")
    return [_path_chart(nodes)] if nodes and len(nodes) else []


def gains(report: Report) -> list[Chart]:
    """Returns how much shorter the run is with each class of work twice as fast."""
    classes = report.twice_as_fast
    return what_if(classes) if classes and len(classes) else []


def _path_chart(nodes: Table) -> Chart:
    total: dict[tuple[str, str], float] = {}
    ranks: dict[tuple[str, str], set[int]] = {}
    for row in nodes.rows():
        name = row["name"] if row["kind"] in ("host", "computation", "communication", "memory") else row["kind"]
        key = name, row["kind"]
        total[key] = total.get(key, 0) + row["time"]
        ranks.setdefault(key, set()).add(row["rank"])
    rows = [
        {"name": name, "part": kind, "time": time, "ranks": ranges(sorted(ranks[name, kind]))}
        for (name, kind), time in total.items()
    ]
    largest = largest_names(rows, "time")
    labels = dict.fromkeys(row["part"] for row in largest)
    return ranked_bars(largest, "time", "time on the critical path [µs]", "ranks", labels=labels)
