"""Aligns the clocks of a job's device traces, so that collectives that several ranks share end together.

A collective that waits for all its members ends on all of them at nearly the same time; the median over many is the
difference of clocks.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Hashable, Mapping
from statistics import median_low
from typing import NamedTuple

import numpy as np

from ...converter.ranks import Calls, awaits_all, match, recorded_calls
from ...linker.communication import from_device, is_communication_kernel, process_groups, with_members
from ...linker.readers import DeviceTrace, Role
from ...schema.columns import Int64
from ...schema.linked import Args

Shared = dict[Hashable, dict[int, int]]
"""For each group the end of a rank's collectives (ns since the epoch) by the number of their match."""


class Ends(NamedTuple):
    """A rank's collectives that all members wait for, and when each ended, in ns since the epoch."""

    calls: Calls
    end: Int64
    unlisted: int
    """Communications and groups whose members are too many to know."""


def collective_ends(trace: DeviceTrace) -> Ends:
    """Returns the ends by which a rank's clock is compared."""
    rows = trace.activities
    kernels = np.flatnonzero(is_communication_kernel(rows.name))
    kernels = kernels[np.argsort(rows.start[kernels], kind="stable")]
    args = (trace.communication[Role.ACTIVITY].get(row, Args()) for row in kernels.tolist())
    unlisted: list[int] = []
    recorded = with_members(
        [*map(from_device, args)], process_groups(trace.groups, unlisted), trace.world_size or -1, unlisted
    )
    calls = recorded_calls(recorded, [rows.name[row] for row in kernels.tolist()], -1)
    calls = calls.take(np.flatnonzero(awaits_all(calls.kind)))
    return Ends(calls, rows.end[kernels[calls.row]] + trace.base_time_ns, len(unlisted))


def shared_ends(ranks: Mapping[int, Ends]) -> dict[int, Shared]:
    """Returns the ends that ranks may share; without recorded numbers only ranks with equally many share any."""
    matches = match([issued.calls for issued in ranks.values()])
    shared_by_rank: dict[int, Shared] = {}
    for (rank, issued), groups, matched in zip(ranks.items(), matches.group, matches.matched, strict=True):
        numbered = matches.sequence[matched] >= 0
        alike = [*zip(groups.tolist(), np.where(numbered, -1, issued.calls.kind).tolist(), strict=True)]
        count = Counter(alike)
        shared: Shared = defaultdict(dict)
        for kind, number, end in zip(alike, matched.tolist(), issued.end.tolist(), strict=True):
            shared[(*kind, count[kind] if kind[1] >= 0 else -1)][number] = end
        shared_by_rank[rank] = shared
    return shared_by_rank


def clock_corrections(ranks: Mapping[int, Shared]) -> dict[int, int]:
    """Returns ns (0 or more) to add to each rank's clock; a rank that shares no collective keeps its clock."""
    members: dict[Hashable, list[int]] = defaultdict(list)
    for rank, groups in sorted(ranks.items()):
        for group in groups:
            members[group].append(rank)
    correction: dict[int, int] = {}
    for first in sorted(ranks):
        if first in correction:
            continue
        correction[first], waiting = 0, deque([first])
        while waiting:
            corrected = waiting.popleft()
            for group in ranks[corrected]:
                for neighbour in members.pop(group, ()):
                    difference = _difference(ranks[corrected][group], ranks[neighbour][group])
                    if neighbour not in correction and difference is not None:
                        correction[neighbour] = correction[corrected] + difference
                        waiting.append(neighbour)
    earliest = min(correction.values(), default=0)
    return {rank: value - earliest for rank, value in correction.items()}


def _difference(first: Mapping[int, int], second: Mapping[int, int]) -> int | None:
    shared = first.keys() & second.keys()
    return median_low(first[number] - second[number] for number in shared) if shared else None
