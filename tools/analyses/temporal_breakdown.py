"""How each device spent the time from its first to its last activity: computing, busy with other work, or idle."""

from typing import NamedTuple

import numpy as np

from ...schema.columns import Int64, rows_of_each, union
from .classes import ActivityClass, activity_classes, intervals_of
from .first_start import first_start_ns, last_end_ns
from .rank_trace import AnalysisOptions, RankTrace, per_rank
from .table import Column, Table, microseconds, percentage, rank_column

NEARLY_ALL = 0.99
SHORTER_SPAN = "a device's span is from its first to its last activity, shorter than the run"
NO_ACTIVITIES = "no device activity was recorded"


class DeviceUsage(NamedTuple):
    """Times (ns) of one device: `busy` is the union of its activities, `compute` that of its computation."""

    device: int
    activities: int
    span: int
    busy: int
    compute: int


def device_times(rank: RankTrace) -> list[DeviceUsage]:
    """Returns the times of each device with activities."""
    activities = rank.linked.activities
    computes, intervals = activity_classes(activities) == ActivityClass.COMPUTATION, intervals_of(activities)
    times = []
    for device, rows in rows_of_each(activities.device).items():
        of_device = intervals.take(rows)
        busy, compute = union(of_device).length(), union(of_device.take(computes[rows])).length()
        times.append(
            DeviceUsage(device, len(of_device.start), int(of_device.end.max() - of_device.start.min()), busy, compute)
        )
    return times


def _table(rank: RankTrace, _: AnalysisOptions) -> Table:
    rows = np.array(device_times(rank), np.int64).reshape(-1, len(DeviceUsage._fields)).T
    device, activities, span, busy, compute = rows
    parts = {"idle": span - busy, "compute": compute, "non_compute": busy - compute}
    columns = [
        rank_column(rank.rank, len(device)),
        Column("device", "", device),
        microseconds("span", span),
        microseconds("busy", busy),
        *(microseconds(name, time) for name, time in parts.items()),
        *(percentage(f"{name}_pct", time, span) for name, time in parts.items()),
        Column("activities", "", activities),
    ]
    return Table(
        "temporal_breakdown", "Temporal breakdown", columns, _of_run(rank, span) if len(device) else NO_ACTIVITIES
    )


def _of_run(rank: RankTrace, span: Int64) -> str:
    """Returns that a device's span is notably shorter than the run, if so: the same for all ranks, to be said once."""
    run = last_end_ns(rank.linked) - first_start_ns(rank.linked)
    return SHORTER_SPAN if span.min() < NEARLY_ALL * run else ""


temporal_breakdown = per_rank("temporal_breakdown", _table)
