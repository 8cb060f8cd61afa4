"""Each collective over all its ranks: latency, start skew, straggler, bandwidth, and ranks that did not record it.

Starts are compared on the traces' own clocks, which agree only within one machine.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from ...converter.ranks import Group, ranks_of
from ...schema.graph import CollectiveType
from .arrivals import Arrival, RankCollectives, collectives_of
from .matched import MatchedCollective, group_label, match_collectives
from .rank_trace import Analysis, AnalysisOptions
from .table import Column, Floats, Table, integers, microseconds, percentage
from .waits import NAME, all_to_all, by_group, last_of, waits, waits_by_rank

NO_COLLECTIVES = "no communication with a known group was recorded"
ONE_RANK = "of one rank alone: latencies include its waiting for the others, bandwidths are at least these"
PARTS_OF_ALL = (
    CollectiveType.ALL_GATHER, CollectiveType.REDUCE_SCATTER, CollectiveType.REDUCE_SCATTER_BLOCK,
    CollectiveType.ALL_TO_ALL, CollectiveType.GATHER, CollectiveType.SCATTER,
)  # fmt: skip
"""Collectives of which each member keeps its own part, without sending it."""


def _over_ranks(parts: Sequence[RankCollectives], _: AnalysisOptions) -> Table:
    collectives = match_collectives(parts)
    unmatched = sum(part.unmatched for part in parts)
    note = NO_COLLECTIVES if not collectives else ""
    if unmatched:
        note = f"{note or 'not in it'}: {unmatched} communications whose group is not known"
    present = [collective.arrivals for collective in collectives]
    note = "; ".join(filter(None, (note, _clocks(present))))
    missing = _missing(collectives, parts)
    first = [arrivals[0] for arrivals in present]
    columns = [
        Column("group", "", [group_label(collective.group) for collective in collectives]),
        integers("sequence", [collective.sequence for collective in collectives]),
        integers("repetition", [collective.occurrence for collective in collectives]),
        Column("collective", "", [arrival.name for arrival in first]),
        Column("dtype", "", [arrival.dtype for arrival in first]),
        integers("members", [arrival.members for arrival in first]),
        integers("present", [len(arrivals) for arrivals in present]),
        Column("missing", "", [", ".join(map(str, ranks)) for ranks in missing]),
        *_bandwidth_columns(present),
    ]
    details = (
        _size_table(columns, len(parts)),
        by_group(collectives, note),
        waits_by_rank(collectives, note),
        waits(collectives, note),
        all_to_all(collectives),
        _missing_by_group(collectives, missing),
    )
    return Table(NAME, "Collectives over ranks", columns, note, details)


def _size_table(columns: Sequence[Column], ranks: int) -> Table:
    """Returns the bandwidth of each collective by group and size, and the best bandwidth of any size."""
    values = {column.name: np.asarray(column.values) for column in columns}
    keys = list(zip(*(values[name].tolist() for name in ("group", "collective", "size")), strict=True))
    rows: defaultdict[tuple[str, str, float], list[int]] = defaultdict(list)
    for row, key in enumerate(keys):
        rows[key].append(row)
    groups = sorted(rows)
    bus = [values["bus_bandwidth"][rows[key]] for key in groups]
    typical = np.array([_median(bandwidths) for bandwidths in bus], np.float64)
    best: defaultdict[tuple[str, str], float] = defaultdict(lambda: np.nan)
    for (group, collective, _), bandwidths in zip(groups, bus, strict=True):
        best[group, collective] = float(np.fmax(best[group, collective], np.fmax.reduce(bandwidths)))
    best_bandwidth = np.array([best[key[:2]] for key in groups], np.float64)
    by_size = [
        Column("group", "", [group for group, _, _ in groups]),
        Column("collective", "", [collective for _, collective, _ in groups]),
        Column("size", "B", np.array([size for _, _, size in groups], np.float64)),
        integers("count", [len(rows[key]) for key in groups]),
        Column("latency", "µs", np.array([_median(values["latency"][rows[key]]) for key in groups], np.float64)),
        Column("bus_bandwidth", "GB/s", typical),
        Column("best_bandwidth", "GB/s", best_bandwidth),
        percentage("of_best", typical, best_bandwidth),
    ]
    note = NO_COLLECTIVES if not groups else ONE_RANK if ranks == 1 else ""
    return Table(f"{NAME}_by_size", "Bandwidth of collectives by size", by_size, note)


def _median(values: Floats) -> float:
    recorded = values[~np.isnan(values)]
    return float(np.median(recorded)) if len(recorded) else np.nan


def _clocks(present: list[list[Arrival]]) -> str:
    """Returns a note if the members' ends are so far apart that their clocks must disagree, else ""."""
    with_others = [arrivals for arrivals in present if len(arrivals) > 1]
    if not with_others:
        return ""
    ends = [[arrival.start + arrival.duration for arrival in arrivals] for arrivals in with_others]
    apart = float(np.median([max(of_one) - min(of_one) for of_one in ends]))
    if apart <= np.median([min(arrival.duration for arrival in arrivals) for arrivals in with_others]):
        return ""
    return (
        f"members end {apart / 1000:,.0f} µs apart (median): the ranks' clocks disagree, do not trust skews and "
        "stragglers"
    )


def _bandwidth_columns(present: list[list[Arrival]]) -> list[Column]:
    """Returns columns of size, times and bandwidths. A single arrival has no skew, and its straggler is -1."""
    latency = np.array([min(arrival.duration for arrival in arrivals) for arrivals in present], np.float64)
    starts = [[arrival.start for arrival in arrivals] for arrivals in present]
    skew = np.array([max(of_one) - min(of_one) if len(of_one) > 1 else np.nan for of_one in starts], np.float64)
    last = [last_of(arrivals).rank if len(arrivals) > 1 else -1 for arrivals in present]
    size = np.array([max(arrival.size for arrival in arrivals) for arrivals in present], np.float64)
    bandwidth = np.divide(size, latency, out=np.full(len(size), np.nan), where=(latency > 0) & (size > 0))
    share = np.array([bus_share(arrivals[0].kind, arrivals[0].members) for arrivals in present], np.float64)
    return [
        Column("size", "B", size),
        microseconds("latency", latency),
        microseconds("start_skew", skew),
        integers("straggler", last),
        Column("algorithm_bandwidth", "GB/s", bandwidth),
        Column("bus_bandwidth", "GB/s", bandwidth * share),
        Column("imbalance", "", _imbalance(present)),
    ]


def bus_share(kind: CollectiveType | None, members: int) -> float:
    """Returns the bus bandwidth as a multiple of the algorithm bandwidth, as nccl-tests define it.

    >>> bus_share(CollectiveType.ALL_REDUCE, 4), bus_share(CollectiveType.ALL_GATHER, 4), bus_share(None, 4)
    (1.5, 0.75, 1.0)
    """
    others = (members - 1) / members
    return 2 * others if kind is CollectiveType.ALL_REDUCE else others if kind in PARTS_OF_ALL else 1.0


def _imbalance(present: list[list[Arrival]]) -> Floats:
    """Returns the ratio of the largest split of any member to the mean one; NaN if none were recorded."""
    splits = [[split for arrival in arrivals for split in arrival.splits] for arrivals in present]
    return np.array([max(sizes) * len(sizes) / sum(sizes) if sum(sizes) else np.nan for sizes in splits], np.float64)


def _missing(collectives: Sequence[MatchedCollective], parts: Sequence[RankCollectives]) -> list[list[int]]:
    """Returns for each collective the given ranks that belong to its group but did not record it."""
    members: dict[Group, set[int]] = defaultdict(set)
    for collective in collectives:
        members[collective.group].update(
            ranks_of(collective.group.ranks) or (arrival.rank for arrival in collective.arrivals)
        )
    ranks_read = {part.rank for part in parts}
    return [
        sorted((members[collective.group] & ranks_read) - {arrival.rank for arrival in collective.arrivals})
        for collective in collectives
    ]


def _missing_by_group(collectives: Sequence[MatchedCollective], missing: list[list[int]]) -> Table:
    lacking = Counter(
        (collective.group, rank) for collective, ranks in zip(collectives, missing, strict=True) for rank in ranks
    )
    rows = sorted(lacking.items(), key=lambda item: (ranks_of(item[0][0].ranks), *item[0]))
    columns = [
        integers("rank", [rank for (_, rank), _ in rows]),
        Column("group", "", [group_label(group) for (group, _), _ in rows]),
        integers("missing", [count for _, count in rows]),
    ]
    note = "" if rows else "every rank recorded all collectives of its groups" if collectives else NO_COLLECTIVES
    return Table(f"{NAME}_missing", "Collectives that a member did not record", columns, note)


collectives_over_ranks = Analysis(NAME, lambda rank, _: collectives_of(rank), _over_ranks)
