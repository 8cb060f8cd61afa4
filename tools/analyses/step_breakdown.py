"""How long each step took and what limited it: busy time, exposed communication, host or device, and outliers."""

import numpy as np

from ...schema.columns import Int64, Intervals
from ..replay import KINDS, NodeClass, pieces_of
from .classes import ActivityClass, activity_classes, covered_time
from .rank_trace import AnalysisOptions, RankTrace, per_rank
from .steps import Steps, steps_of
from .table import BytesColumn, Column, Floats, Table, microseconds, percentage, rank_column

NO_STEPS = "no activity ran in a step"
WORK = (NodeClass.COMPUTATION, NodeClass.COMMUNICATION, NodeClass.MEMORY)
OF_DEVICE = (*(node_class.label for node_class in WORK), "stream order", "event wait", "collective")
"""The kinds of time on the critical path for which the device is the limit: its work, and its waits for other work."""
OUTLIERS_NAMED = 6
FAR, LEAST = 5.0, 0.05
"""A step is an outlier if it is more than FAR median absolute deviations, and more than LEAST of the median, away from
the median.
"""


def _table(rank: RankTrace, _: AnalysisOptions) -> Table:
    steps, activities = steps_of(rank.linked), rank.linked.activities
    inside = steps.of_activity >= 0
    step, device = np.unique(np.stack((steps.of_activity[inside], activities.device[inside])), axis=1)
    length = steps.end - steps.start
    busy, computing, communicating = _covered(rank, steps, step, device)
    by_device = _device_share(rank, steps)
    columns = [
        rank_column(rank.rank, len(step)),
        Column("device", "", device),
        Column("step", "", [steps.name[number] for number in step.tolist()]),
        microseconds("time", length[step]),
        microseconds("busy", busy),
        microseconds("computation", computing),
        microseconds("exposed_communication", communicating),
        percentage("idle_pct", length[step] - busy, length[step]),
        Column("by_device", "%", by_device[step]),
        Column("bound", "", _bounds(by_device)[step].tolist()),
        Column("outlier", "", _outliers(length)[step].tolist()),
    ]
    return Table(NAME, "Steps", columns, _note(steps, length) if len(step) else NO_STEPS)


def _covered(rank: RankTrace, steps: Steps, step: Int64, device: Int64) -> tuple[Int64, Int64, Int64]:
    """Returns for each step and device the time (ns) in which anything ran, computation, and communication alone."""
    activities, spans = rank.linked.activities, Intervals(steps.start[step], steps.end[step])
    classes = activity_classes(activities)
    computes, communicates = classes == ActivityClass.COMPUTATION, classes == ActivityClass.COMMUNICATION
    busy, computing, either = (
        covered_time(activities, chosen, spans, device)
        for chosen in (np.ones(len(activities), np.bool_), computes, computes | communicates)
    )
    return busy, computing, either - computing


def _device_share(rank: RankTrace, steps: Steps) -> Floats:
    """Returns the share (percent) of the critical path in each step that is the device's; NaN without a replay."""
    replay = rank.replayed()
    if replay is None or rank.graph is None or not replay.work.is_timed.any():
        return np.full(len(steps.name), np.nan)
    pieces, timed = pieces_of(replay), replay.work.is_timed
    begin = int(rank.graph.start_ns[timed].min() - replay.work.measured_start_ns[timed].min())
    of_device = np.isin(np.array(KINDS)[pieces.kind], OF_DEVICE)
    ended = np.concatenate(([0], pieces.start + pieces.time))
    spent = np.concatenate(([0], np.cumsum(np.where(of_device, pieces.time, 0))))
    part, whole = np.interp(steps.end - begin, ended, spent), steps.end - steps.start
    part -= np.interp(steps.start - begin, ended, spent)
    return np.asarray(np.divide(100 * part, whole, out=np.full(len(whole), np.nan), where=whole > 0))


def _bounds(by_device: Floats) -> BytesColumn:
    return np.where(np.isnan(by_device), "", np.where(by_device > 50, "device", "host"))


def _outliers(length: Int64) -> BytesColumn:
    if not len(length):
        return np.empty(0, np.str_)
    deviation = length - np.median(length)
    is_outlier = np.abs(deviation) > max(FAR * float(np.median(np.abs(deviation))), LEAST * float(np.median(length)))
    return np.where(is_outlier, np.where(deviation > 0, "slow", "fast"), "")


def _note(steps: Steps, length: Int64) -> str:
    outliers = _outliers(length)
    outlying = [f"{steps.name[row]} ({length[row] / 1000:,.0f} µs)" for row in np.flatnonzero(outliers != "").tolist()]
    more = f" and {len(outlying) - OUTLIERS_NAMED} more" if len(outlying) > OUTLIERS_NAMED else ""
    return (
        f"unlike the median of {np.median(length) / 1000:,.0f} µs: {', '.join(outlying[:OUTLIERS_NAMED])}{more}"
        if outlying
        else ""
    )


NAME = "step_breakdown"
step_breakdown = per_rank(NAME, _table)
