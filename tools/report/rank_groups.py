"""Groups many ranks by how they spent their time, so that one rank of each group can be shown for all of it.

The first representative is the rank nearest to the median, each next one the rank farthest from all before (Gonzalez,
Clustering to minimize the maximum intercluster distance, 1985). So unusual ranks become groups of their own. Linear in
the number of ranks.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ...schema.columns import Floats, Int64
from ..analyses import Column, Table
from ..terminal import ranges

MANY, MOST, ALIKE = 16, 8, 0.02
"""More ranks than MANY are grouped, into at most MOST groups; features that differ by less than ALIKE of the median are
alike.
"""
FEATURES = {
    "ranks": ("host_ops", "calls", "activities"),
    "temporal_breakdown": ("span", "busy", "compute"),
    "communication_computation_overlap": ("exposed_communication",),
}
"""The columns by which ranks are compared, summed over devices."""
LENGTH = "span"
"""The feature whose median is the unit of all times; the unit of a count is its own median."""


class RankGroup(NamedTuple):
    """A rank and the ranks that it represents, itself included, ascending."""

    rank: int
    ranks: list[int]


def rank_groups(tables: Mapping[str, Table]) -> list[RankGroup]:
    """Returns the groups, the largest first; none if there are so few ranks that each can be shown."""
    ranks = np.unique(np.asarray(tables["ranks"]["rank"], np.int64))
    if len(ranks) <= MANY:
        return []
    features = _features(ranks, tables)
    distance = np.abs(features - np.median(features, axis=0)).max(axis=1)
    chosen = [int(distance.argmin())]
    nearest, group_of = np.full(len(ranks), np.inf), np.zeros(len(ranks), np.int64)
    while True:
        distance = np.abs(features - features[chosen[-1]]).max(axis=1)
        group_of = np.where(distance < nearest, len(chosen) - 1, group_of)
        nearest = np.minimum(nearest, distance)
        if nearest.max() <= ALIKE or len(chosen) == MOST:
            break
        chosen.append(int(nearest.argmax()))
    groups = [
        RankGroup(int(ranks[chosen_rank]), ranks[group_of == number].tolist())
        for number, chosen_rank in enumerate(chosen)
    ]
    return sorted(groups, key=lambda group: -len(group.ranks))


def _features(ranks: Int64, tables: Mapping[str, Table]) -> Floats:
    """Returns the features relative to their medians, a row per rank."""
    columns = []
    for name, features in FEATURES.items():
        table = tables.get(name)
        if table is None or not len(table):
            continue
        row = np.searchsorted(ranks, np.asarray(table["rank"], np.int64))
        for feature in features:
            values = np.nan_to_num(np.asarray(table[feature], np.float64))
            columns.append((feature, np.bincount(row, values, len(ranks))))
    length = next((np.median(values) for feature, values in columns if feature == LENGTH), 0.0)
    timed = {feature for name, features in FEATURES.items() if name != "ranks" for feature in features}
    wholes = [length if feature in timed else np.median(values) for feature, values in columns]
    return np.stack([values / (whole or 1.0) for (_, values), whole in zip(columns, wholes, strict=True)], axis=1)


def of_ranks(table: Table, ranks: Collection[int]) -> Table:
    """Returns the rows of these ranks, or all rows of a table without a column `rank`."""
    if all(column.name != "rank" for column in table.columns):
        return table
    return table.take(np.isin(np.asarray(table["rank"], np.int64), list(ranks)))


def groups_table(groups: Sequence[RankGroup], ranks: Table) -> Table:
    """Returns the rows of the representative ranks in the table of ranks, with the ranks that each represents."""
    representatives = of_ranks(ranks, [group.rank for group in groups])
    by_rank = {group.rank: group.ranks for group in groups}
    members = [by_rank[rank] for rank in np.asarray(representatives["rank"]).tolist()]
    added = [
        Column("stands_for", "", np.array([len(group_ranks) for group_ranks in members], np.int64)),
        Column("ranks", "", [ranges(group_ranks) for group_ranks in members]),
    ]
    columns = [representatives.columns[0], *added, *representatives.columns[1:]]
    return Table(ranks.name, "Ranks that stand for those like them", columns, ranks.note)


def in_words(groups: Sequence[RankGroup]) -> str:
    """Returns a sentence about the groups for the page."""
    count = sum(len(group.ranks) for group in groups)
    if len(groups) == 1:
        return f"All {count:,} ranks spend their time alike; rank {groups[0].rank} is shown for them."
    parts = ", ".join(f"rank {group.rank} for {len(group.ranks):,}" for group in groups)
    return f"Of {count:,} ranks some are shown for those that spend their time like them: {parts}."
