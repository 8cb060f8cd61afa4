"""Who waits for whom in collectives, how much of their time is exposed, and what ranks send each other in all-to-alls.

Members of a collective without a root all end at the same time. So the last one to arrive has the shortest duration,
and each other member waits for the difference of durations, whatever the ranks' clocks show.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from ...converter.ranks import awaits_all, ranks_of
from ...schema.graph import CollectiveType
from .arrivals import Arrival
from .matched import MatchedCollective, group_label
from .table import Column, Table, integers, microseconds, percentage

NAME = "collectives_over_ranks"
AWAITED = {kind for kind in CollectiveType if awaits_all(np.array([kind]))[0]}
NOBODY = "no collective was recorded by several of its members"
NO_SPLITS = "no all-to-all was recorded with what goes to each member"


def waits(collectives: Sequence[MatchedCollective], note: str) -> Table:
    """Returns for each pair of ranks how long one waited for the other, which arrived last; the longest first."""
    time, count = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
    for last, earlier in _last_and_early(collectives):
        for arrival in earlier:
            time[arrival.rank, last.rank] += arrival.duration - last.duration
            count[arrival.rank, last.rank] += 1
    pairs = sorted(time, key=lambda pair: (-time[pair], pair))
    columns = [
        integers("rank", [rank for rank, _ in pairs]),
        integers("waits_for", [last for _, last in pairs]),
        integers("collectives", [count[pair] for pair in pairs]),
        microseconds("time", [time[pair] for pair in pairs]),
    ]
    return Table(f"{NAME}_waits", "Who waits for whom", columns, note or ("" if pairs else NOBODY))


def waits_by_rank(collectives: Sequence[MatchedCollective], note: str) -> Table:
    """Returns for each rank how long it waited, how long others waited for it, and how often it arrived last."""
    collective_count, last_at, waited, caused = Counter[int](), Counter[int](), Counter[int](), Counter[int]()
    for last, earlier in _last_and_early(collectives):
        collective_count.update([last.rank, *(arrival.rank for arrival in earlier)])
        last_at[last.rank] += 1
        for arrival in earlier:
            waited[arrival.rank] += arrival.duration - last.duration
            caused[last.rank] += arrival.duration - last.duration
    ranks = sorted(collective_count)
    shared = np.array([collective_count[rank] for rank in ranks], np.int64)
    columns = [
        integers("rank", ranks),
        Column("collectives", "", shared),
        integers("last", [last_at[rank] for rank in ranks]),
        percentage("last_pct", [last_at[rank] for rank in ranks], shared),
        microseconds("waited", [waited[rank] for rank in ranks]),
        microseconds("awaited", [caused[rank] for rank in ranks]),
    ]
    return Table(f"{NAME}_waits_by_rank", "Waiting in collectives by rank", columns, note or ("" if ranks else NOBODY))


def by_group(collectives: Sequence[MatchedCollective], note: str) -> Table:
    """Returns the communication time of each rank and group, and the part of it without computation beside it."""
    count, time, exposed = Counter[tuple[int, str]](), Counter[tuple[int, str]](), Counter[tuple[int, str]]()
    for collective in collectives:
        label = group_label(collective.group)
        for arrival in collective.arrivals:
            count[arrival.rank, label] += 1
            time[arrival.rank, label] += arrival.duration
            exposed[arrival.rank, label] += arrival.exposed
    keys = sorted(count)
    columns = [
        integers("rank", [rank for rank, _ in keys]),
        Column("group", "", [group for _, group in keys]),
        integers("collectives", [count[key] for key in keys]),
        microseconds("time", [time[key] for key in keys]),
        microseconds("exposed", [exposed[key] for key in keys]),
        percentage("exposed_pct", [exposed[key] for key in keys], [time[key] for key in keys]),
    ]
    return Table(f"{NAME}_by_group", "Exposed communication by group", columns, "" if keys else note)


def all_to_all(collectives: Sequence[MatchedCollective]) -> Table:
    """Returns the bytes that each rank sends to each other in all-to-alls with recorded splits, summed by group."""
    bytes_ = defaultdict[tuple[str, int, int], int](int)
    for collective in collectives:
        ranks = ranks_of(collective.group.ranks)
        for arrival in collective.arrivals:
            if arrival.kind is CollectiveType.ALL_TO_ALL and len(arrival.splits) == len(ranks):
                label, total = group_label(collective.group), max(sum(arrival.splits), 1)
                for target, split in zip(ranks, arrival.splits, strict=True):
                    bytes_[label, arrival.rank, target] += arrival.size * split // total
    keys = sorted(bytes_)
    columns = [
        Column("group", "", [group for group, _, _ in keys]),
        integers("source", [source for _, source, _ in keys]),
        integers("destination", [target for _, _, target in keys]),
        Column("size", "B", np.array([bytes_[key] for key in keys], np.float64)),
    ]
    return Table(f"{NAME}_all_to_all", "What goes from rank to rank in all-to-alls", columns, "" if keys else NO_SPLITS)


def _last_and_early(collectives: Sequence[MatchedCollective]) -> Iterator[tuple[Arrival, list[Arrival]]]:
    """Yields for each collective that ends only after all have arrived the last arrival and the earlier ones."""
    for collective in collectives:
        if _ends_together(collective.arrivals) and len({arrival.rank for arrival in collective.arrivals}) > 1:
            last = last_of(collective.arrivals)
            yield last, [arrival for arrival in collective.arrivals if arrival.rank != last.rank]


def last_of(arrivals: Sequence[Arrival]) -> Arrival:
    """Returns which member came last: the one of the shortest duration where all end together, else of the last start.

    Durations decide first, as the clocks of two machines may differ by more than their ranks' arrivals.
    """
    if _ends_together(arrivals):
        return min(arrivals, key=lambda arrival: (arrival.duration, -arrival.start))
    return max(arrivals, key=lambda arrival: arrival.start)


def _ends_together(arrivals: Sequence[Arrival]) -> bool:
    return all(arrival.kind in AWAITED for arrival in arrivals)
