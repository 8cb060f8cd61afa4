"""How long each kernel takes, over all ranks and by rank: mean, spread and quantiles of the durations of one name."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...schema.columns import Categorical, Int64
from .kernel_statistics import Durations
from .rank import LABELS, Analysis, Codes, Column, Options, RankTrace, Table, activity_classes
from .temporal_breakdown import NO_ACTIVITIES


class RankDurations(NamedTuple):
    """The durations (ns) of one rank's activities, with their names and classes."""

    rank: int
    name: Categorical
    activity_class: Codes
    duration: Int64


def _of_rank(rank: RankTrace, _: Options) -> RankDurations:
    activities = rank.linked.activities
    return RankDurations(rank.rank, activities.name, activity_classes(activities), activities.end - activities.start)


def _over_ranks(parts: Sequence[RankDurations], options: Options) -> Table:
    names = Categorical.joined(part.name for part in parts)
    duration = np.concatenate([part.duration for part in parts])
    classes = np.concatenate([part.activity_class for part in parts]).astype(np.int64)
    rank = np.repeat([part.rank for part in parts], [len(part.duration) for part in parts])
    keys = np.stack((names.codes, classes, rank), axis=1)
    note = "" if len(duration) else NO_ACTIVITIES
    by_rank = _table(f"{NAME}_by_rank", keys, 3, names.table, duration, options, note)
    table = _table(NAME, keys, 2, names.table, duration, options, note)
    table.details = (by_rank,)
    return table


def _table(name: str, keys: Int64, depth: int, names: list[str], duration: Int64, options: Options, note: str) -> Table:
    """Returns one row for each distinct (name, class) or (name, class, rank), the first `depth` keys; the longest in
    total first.
    """
    group, number = np.unique(keys[:, :depth], axis=0, return_inverse=True)
    number = number.reshape(-1)
    order = np.argsort(-np.bincount(number, duration, len(group)), kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    group = group[order]
    columns = [
        *([Column("rank", "", group[:, 2])] if depth == 3 else []),
        Column("name", "", [names[code] for code in group[:, 0].tolist()]),
        Column("class", "", [LABELS[one] for one in group[:, 1].tolist()]),
        *Durations.of(duration, place[number], len(group)).columns(options.quantiles),
    ]
    return Table(name, TITLE + (" by rank" if depth == 3 else ""), columns, note)


NAME, TITLE = "kernel_duration_distribution", "Kernel duration distribution"
kernel_duration_distribution = Analysis(NAME, _of_rank, _over_ranks)
