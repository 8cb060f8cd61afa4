"""The durations of each kernel name over all ranks and by rank: mean, standard deviation and quantiles."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...schema.columns import Categorical, Int64
from .classes import LABELS, Codes, activity_classes
from .kernel_statistics import Durations
from .rank_trace import Analysis, AnalysisOptions, RankTrace
from .table import Column, Table
from .temporal_breakdown import NO_ACTIVITIES


class ActivityDurations(NamedTuple):
    """The rank, name, class and duration (ns) of each activity."""

    rank: Int64
    name: Categorical
    activity_class: Codes
    duration: Int64


def _activity_durations(rank: RankTrace, _: AnalysisOptions) -> ActivityDurations:
    activities = rank.linked.activities
    ranks, duration = np.full(len(activities), rank.rank), activities.end - activities.start
    return ActivityDurations(ranks, activities.name, activity_classes(activities), duration)


def _over_ranks(parts: Sequence[ActivityDurations], options: AnalysisOptions) -> Table:
    rank, classes, duration = (
        np.concatenate([getattr(part, field) for part in parts]) for field in ("rank", "activity_class", "duration")
    )
    every = ActivityDurations(rank, Categorical.joined(part.name for part in parts), classes, duration)
    note = "" if len(duration) else NO_ACTIVITIES
    by_rank = Table(f"{NAME}_by_rank", f"{TITLE} by rank", _columns(every, options, by_rank=True), note)
    return Table(NAME, TITLE, _columns(every, options, by_rank=False), note, (by_rank,))


def _columns(every: ActivityDurations, options: AnalysisOptions, *, by_rank: bool) -> list[Column]:
    """Returns a row for each name and class, or each of every rank, the longest in total first."""
    keys: list[Int64] = [every.name.codes.astype(np.int64), every.activity_class.astype(np.int64)]
    keys += [every.rank] if by_rank else []
    group, number = np.unique(np.stack(keys, axis=1), axis=0, return_inverse=True)
    number = number.reshape(-1)
    order = np.argsort(-np.bincount(number, every.duration, len(group)), kind="stable")
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    group = group[order]
    return [
        *([Column("rank", "", group[:, 2])] if by_rank else []),
        Column("name", "", [every.name.table[code] for code in group[:, 0].tolist()]),
        Column("class", "", [LABELS[number] for number in group[:, 1].tolist()]),
        *Durations.of(every.duration, position[number], len(group)).columns(options.quantiles),
    ]


NAME, TITLE = "kernel_duration_distribution", "Kernel duration distribution"
kernel_duration_distribution = Analysis(NAME, _activity_durations, _over_ranks)
