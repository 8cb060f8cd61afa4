"""How much of each device's communication was hidden behind computation, and how much was exposed."""

import numpy as np

from ...schema.columns import intersection, rows_by_number, union
from .classes import ActivityClass, activity_classes, intervals_of
from .rank_trace import AnalysisOptions, RankTrace, per_rank
from .table import Column, Table, microseconds, percentage, rank_column

NO_COMMUNICATION = "no communication on the device was recorded"


def _table(rank: RankTrace, _: AnalysisOptions) -> Table:
    activities = rank.linked.activities
    classes, intervals = activity_classes(activities), intervals_of(activities)
    communicating, working = (
        rows_by_number(np.flatnonzero(classes == activity_class), activities.device)
        for activity_class in (ActivityClass.COMMUNICATION, ActivityClass.COMPUTATION)
    )
    devices, no_rows = np.array([*communicating], np.int64), np.empty(0, np.int64)
    whole, hidden = np.zeros((2, len(devices)), np.int64)
    for position, (device, rows) in enumerate(communicating.items()):
        communication, computation = union(intervals.take(rows)), union(intervals.take(working.get(device, no_rows)))
        whole[position], hidden[position] = communication.length(), intersection(communication, computation)
    columns = [
        rank_column(rank.rank, len(devices)),
        Column("device", "", devices),
        microseconds("communication", whole),
        microseconds("overlap", hidden),
        microseconds("exposed_communication", whole - hidden),
        percentage("overlap_pct", hidden, whole),
    ]
    title = "Communication/computation overlap"
    return Table(NAME, title, columns, "" if len(devices) else NO_COMMUNICATION)


NAME = "communication_computation_overlap"
communication_computation_overlap = per_rank(NAME, _table)
