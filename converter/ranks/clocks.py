"""When each rank began, on one clock, by the calls that ranks share; and what these cannot be if ranks are of one run.
A collective ends at the same time on all its ranks, so the offset of two clocks is the median of the differences of
ends, within the possible range. Ranks that share nothing, or whose times no offset explains, begin together.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from ...schema.columns import Int64, bytes_text, groupby, time_text
from ...schema.graph import CollectiveType
from .calls import EVER, SAME_SIZE, Calls, awaits_all

FEWEST = 3
"""Of fewer matches, half of which end apart, nothing tells whether an offset explains them."""
MOST_DRIFT = 2e-4
"""Quartz clocks are within 100 ppm."""
LEAST_APART_NS, LEAST_SHARE = 10_000, 0.25
"""Members of a kernel that communicates end at most 4.5 µs apart in shared/data/dlrm_8gpu, below 1 % of its length."""


def begin_of_ranks(ranks: int, calls: Calls) -> Int64:
    """Returns when each rank began (ns), by matched calls; the earliest of the ranks that share any is at 0."""
    begin, component = np.zeros(ranks, np.int64), np.arange(ranks)
    for rank, peer, later, apart, _ in _offsets(calls):
        if component[rank] != component[peer] and not apart:
            # joining two components moves one of them
            moved = component == component[peer]
            begin[moved] += begin[rank] + later - begin[peer]
            component[moved] = component[rank]
    earliest = np.zeros(ranks, np.int64)
    np.minimum.at(earliest, component, begin)
    return begin - earliest[component]


def contradictions(calls: Calls, ranks: Sequence[int]) -> list[str]:
    """Returns in what matched calls of these ranks cannot be of one run: types, sizes and ends."""
    lines = clock_contradictions(calls, ranks)
    calls = calls.take((calls.group >= 0) & (calls.kind >= 0))
    number = groupby(calls.group, calls.sequence, np.where(calls.sequence >= 0, 0, calls.matched))
    of_rank = groupby(number.number, calls.rank)
    # one rank may have several collectives of a number
    is_one = number.count() == np.bincount(number.number[of_rank.first], minlength=len(number))
    is_of_size = number.smallest(np.isin(calls.kind, SAME_SIZE).astype(np.int64)) > 0
    types, sizes = (number.smallest(column) != number.largest(column) for column in (calls.kind, calls.size))
    differs = is_one & (types | (sizes & is_of_size))
    for group in np.unique(calls.group[number.first[differs]]).tolist():
        chosen = np.flatnonzero(differs & (calls.group[number.first] == group))
        row = np.flatnonzero(number.number == chosen[0])
        differing = calls.take(row[groupby(calls.kind[row], calls.size[row]).first[:2]]).rows()
        facts = ((CollectiveType(call.kind).name.lower(), bytes_text(call.size), call.rank) for call in differing)
        first = ", ".join(f"{name} of {size} on rank {ranks[rank]}" for name, size, rank in facts)
        count = f"{len(chosen)} of {int((calls.group[number.first] == group).sum())} collectives"
        lines.append(f"{calls.groups[group].text}: {count} differ in type or size (the first: {first})")
    return lines


def clock_contradictions(calls: Calls, ranks: Sequence[int]) -> list[str]:
    """Returns which ranks end their collectives at times that no offset of their clocks explains."""
    apart = sorted((offset for offset in _offsets(calls) if offset[3]), key=lambda offset: -offset[3])
    if not apart:
        return []
    rank, peer, _, apart_ns, speed = apart[0]
    more = f", and so do {len(apart) - 1} more pairs" if len(apart) > 1 else ""
    clock = f", as if the clock of rank {ranks[peer]} ran {speed:.4g} times as fast as the other" * (speed != 1)
    what = f"ranks {ranks[rank]} and {ranks[peer]} end their collectives up to {time_text(apart_ns / 1000)} apart"
    meaning = "they are not put on one clock, and start offsets and who waited for whom mean nothing"
    return [f"{what}, whatever the offset of their clocks{clock}{more}: {meaning}"]


def _offsets(calls: Calls) -> Iterator[tuple[int, int, int, int, float]]:
    """Yields `_offset` of each first member of a match and each other one; collectives first, as they end together."""
    calls = calls.take(np.argsort(calls.matched, kind="stable"))
    first = np.searchsorted(calls.matched, calls.matched)
    rows = np.flatnonzero(calls.rank != calls.rank[first])
    pairs = groupby(calls.is_message[rows], calls.rank[first[rows]], calls.rank[rows])
    return (_offset(calls.take(first[rows[chosen]]), calls.take(rows[chosen])) for chosen in pairs.rows())


def _offset(calls: Calls, peers: Calls) -> tuple[int, int, int, int, float]:
    """Returns both ranks, how much later (ns) the second began, how far ends disagree, and the speed that fits."""
    mutual = awaits_all(peers.kind) & ~peers.is_message
    low = np.where(mutual, calls.start_ns - peers.end_ns, -EVER)
    high = np.where(mutual, calls.end_ns - peers.start_ns, EVER)
    earlier, least, most = calls.end_ns - peers.end_ns, int(low.max()), int(high.min())
    later, ranks = int(np.median(earlier)), (int(calls.rank[0]), int(peers.rank[0]))
    if least <= most:
        later = min(max(later, least), most)
    if mutual.sum() < FEWEST:
        return *ranks, later, 0, 1.0
    time = peers.end_ns[mutual] - peers.end_ns[mutual].mean()
    low, high, earlier = low[mutual], high[mutual], earlier[mutual]
    slope = float(time @ earlier / max(time @ time, 1.0))
    drift = np.clip(slope, -MOST_DRIFT, MOST_DRIFT) * time
    shortest = np.minimum(calls.end_ns - calls.start_ns, peers.end_ns - peers.start_ns)[mutual]
    tolerated = max(LEAST_APART_NS, LEAST_SHARE * float(np.median(shortest)))
    bound = float((low - drift).max() - (high - drift).min())
    # those who got all of their parts leave an all-to-all, and host threads end each by itself
    is_together = ~(calls.on_host | peers.on_host)[mutual] & (peers.kind[mutual] != CollectiveType.ALL_TO_ALL)
    typical = of_line = farthest = 0.0
    if is_together.sum() >= FEWEST:
        rest = (earlier - np.stack((drift, slope * time)))[:, is_together]
        apart = np.abs(rest - np.median(rest, axis=1, keepdims=True))
        (typical, of_line), farthest = np.median(apart, axis=1).tolist(), float(apart[0].max())
    if max(bound, typical) <= tolerated:
        return *ranks, later, 0, 1.0
    is_line = 10 * of_line < typical
    return *ranks, later, round(max(bound, farthest)), 1 / (1 + slope) if is_line else 1.0
