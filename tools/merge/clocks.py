"""Device traces of a job in, what to add to each rank's clock out, so that collectives that several ranks share end together.

A collective that waits for all its members ends on all of them at nearly the same time; the median over many is the difference of clocks.
"""

import re
from collections import defaultdict, deque
from collections.abc import Mapping
from statistics import median_low

import numpy as np

from ...linker.categories import Role
from ...linker.communication import is_communication_kernel
from ...linker.device_rows import DeviceTrace
from ...linker.process_groups import process_groups, with_members
from ...linker.recorded_arguments import from_device
from ...schema.kineto import Args

SYNCHRONISING = re.compile(r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|barrier", re.IGNORECASE)
ENDS_KEPT = 256
"""Per group; clocks drift little in the time that a trace covers."""

Ends = dict[str, dict[int, int]]
"""For each group the end of its collectives (ns since the epoch of the trace's base) by their number in the group."""


def collective_ends(trace: DeviceTrace) -> Ends:
    """The ends by which a rank's clock is compared. Collectives are numbered as recorded, else as they follow each other."""
    rows = trace.activities
    kernels = np.flatnonzero(is_communication_kernel(rows.name))
    kernels = kernels[np.argsort(rows.start[kernels], kind="stable")]
    args = (trace.communication.get((Role.ACTIVITY, row), Args()) for row in kernels.tolist())
    recorded = with_members([*map(from_device, args)], process_groups(None, trace), trace.world_size or -1)
    numbered: Ends = defaultdict(dict)
    unnumbered: dict[str, list[int]] = defaultdict(list)
    for row, found in zip(kernels.tolist(), recorded, strict=True):
        kind = found.name or rows.name[row]
        group, end = f"{found.ranks or found.group}", int(rows.end[row]) + trace.base_time_ns
        if SYNCHRONISING.search(kind) and found.sequence >= 0:
            numbered[group][found.sequence] = end
        elif SYNCHRONISING.search(kind):
            unnumbered[f"{group} {kind}"].append(end)
    # without recorded numbers only ranks that saw equally many saw the same ones
    counted = {f"{len(ends)} {group}": dict(enumerate(ends)) for group, ends in unnumbered.items()}
    return {group: dict(sorted(ends.items())[:ENDS_KEPT]) for group, ends in (numbered | counted).items()}


def clock_corrections(ranks: Mapping[int, Ends]) -> dict[int, int]:
    """ns to add to each rank's clock, at least 0. A rank that shares no collective with others keeps its clock as it is to theirs."""
    members: dict[str, list[int]] = defaultdict(list)
    for rank, groups in sorted(ranks.items()):
        for group in groups:
            members[group].append(rank)
    correction: dict[int, int] = {}
    for first in sorted(ranks):
        if first in correction:
            continue
        correction[first], waiting = 0, deque([first])
        while waiting:
            known = waiting.popleft()
            for group in ranks[known]:
                for other in members.pop(group, ()):
                    difference = _difference(ranks[known][group], ranks[other][group])
                    if other not in correction and difference is not None:
                        correction[other] = correction[known] + difference
                        waiting.append(other)
    earliest = min(correction.values(), default=0)
    return {rank: value - earliest for rank, value in correction.items()}


def _difference(known: Mapping[int, int], other: Mapping[int, int]) -> int | None:
    shared = known.keys() & other.keys()
    return median_low(known[number] - other[number] for number in shared) if shared else None
