"""What each device was busy with: classes of activities and their overlaps, and the kernels of each class by time."""

import numpy as np

from ...schema.columns import Int64, rows_of_each, time_by_set
from .classes import LABELS, ActivityClass, activity_classes, intervals_of
from .kernel_statistics import Durations
from .rank_trace import AnalysisOptions, RankTrace, per_rank
from .table import Column, Floats, Table, microseconds, percentage, rank_column
from .temporal_breakdown import NO_ACTIVITIES

OTHERS = "others"
NO_LENGTH = "no recorded activity lasts"


def set_label(classes: int) -> str:
    """Returns the labels of the classes whose bits are set, which ran at once."""
    return " + ".join(label for bit, label in enumerate(LABELS) if classes >> bit & 1)


def _table(rank: RankTrace, options: AnalysisOptions) -> Table:
    activities = rank.linked.activities
    classes, intervals = activity_classes(activities), intervals_of(activities)
    table_rows: list[tuple[int, int, int, int]] = []
    for number, rows in rows_of_each(activities.device).items():
        times = time_by_set(intervals.take(rows), classes[rows], len(LABELS))
        times[0] = 0
        table_rows += [
            (number, classes_at_once, time, int(times.sum()))
            for classes_at_once, time in enumerate(times.tolist())
            if time
        ]
    device, classes_at_once, time, busy = np.array(table_rows, np.int64).reshape(-1, 4).T
    columns = [
        rank_column(rank.rank, len(device)),
        Column("device", "", device),
        Column("class", "", [set_label(classes_) for classes_ in classes_at_once.tolist()]),
        microseconds("time", time),
        percentage("pct", time, busy),
    ]
    details = (_kernels(rank, options.top),)
    note = "" if len(device) else NO_LENGTH if len(activities) else NO_ACTIVITIES
    return Table(NAME, "Kernel breakdown", columns, note, details)


def _kernels(rank: RankTrace, top: int) -> Table:
    """Returns per class the `top` names by total time, and one row of statistics for all other names."""
    activities = rank.linked.activities
    classes, names = activity_classes(activities), activities.name
    duration = activities.end - activities.start
    pair = classes.astype(np.int64) * len(names.table) + names.codes
    pairs, number = np.unique(pair, return_inverse=True)
    group_class, group_name = np.divmod(pairs, max(len(names.table), 1))
    total = np.bincount(number, duration, len(pairs)).astype(np.float64)
    rank_in_class = _rank_in_group(group_class, total)
    # rows of the table by class, then by rank in it; rank `top` is for all other names
    cell = group_class * (top + 1) + np.minimum(rank_in_class, top)
    cells, cell_of = np.unique(cell, return_inverse=True)
    label = np.full(len(cells), -1, np.int64)
    label[cell_of[rank_in_class < top]] = group_name[rank_in_class < top]
    durations = Durations.of(duration, cell_of[number], len(cells))
    count, sums, *statistics = durations.columns()
    by_class = np.bincount(classes, duration, len(ActivityClass))
    columns = [
        rank_column(rank.rank, len(cells)),
        Column("class", "", [LABELS[code] for code in (cells // (top + 1)).tolist()]),
        Column("name", "", [names.table[code] if code >= 0 else OTHERS for code in label.tolist()]),
        sums,
        percentage("pct", durations.sums(), by_class[cells // (top + 1)]),
        *statistics,
        count,
    ]
    return Table(f"{NAME}_kernels", "Kernels by class", columns, "" if len(activities) else NO_ACTIVITIES)


def _rank_in_group(group: Int64, total: Floats) -> Int64:
    """Returns the rank of each total within its group, 0 for the largest."""
    order = np.lexsort((-total, group))
    first = np.searchsorted(group[order], group[order])
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order)) - first
    return position


NAME = "kernel_breakdown"
kernel_breakdown = per_rank(NAME, _table)
