"""How much of each device's communication was hidden behind computation, and how much was exposed."""

import numpy as np

from ...schema.columns import rows_by_number
from .rank import (
    ActivityClass,
    Column,
    Options,
    RankTrace,
    Table,
    activity_classes,
    intersection,
    intervals_of,
    microseconds,
    per_rank,
    percentage,
    rank_column,
    union,
)

NO_COMMUNICATION = "no communication on the device was recorded"


def _table(rank: RankTrace, _: Options) -> Table:
    activities = rank.linked.activities
    classes, intervals = activity_classes(activities), intervals_of(activities)
    talking, working = (
        rows_by_number(np.flatnonzero(classes == one), activities.device)
        for one in (ActivityClass.COMMUNICATION, ActivityClass.COMPUTATION)
    )
    devices, none = np.array([*talking], np.int64), np.empty(0, np.int64)
    whole, hidden = np.zeros((2, len(devices)), np.int64)
    for place, (device, rows) in enumerate(talking.items()):
        talk, work = union(intervals.take(rows)), union(intervals.take(working.get(device, none)))
        whole[place], hidden[place] = talk.length(), intersection(talk, work)
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
