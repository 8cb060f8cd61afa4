"""Looks at every device trace before a merge, for processes and for clocks that agree; and what a merge reports.

A collective that waits for all its members ends on all of them at nearly the same time; the median over many is the
difference of clocks.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Hashable, Mapping, Sequence
from statistics import median_low
from typing import NamedTuple

import msgspec
import numpy as np

from ...converter.ranks import Calls, awaits_all, match, recorded_calls
from ...linker.communication import from_device, is_communication_kernel, process_groups, with_members
from ...linker.readers import DeviceTrace, Role, read_device_trace
from ...schema.columns import Int64, Summary, SummaryRepr
from ...schema.errors import DataError
from ...schema.linked import FOREVER, Args
from ...schema.progress import Progress
from ...schema.reasons import Reason, in_words
from ..trace_files import RankFile

Shared = dict[Hashable, dict[int, int]]
"""For each group the end of a rank's collectives (ns since the epoch) by the number of their match."""
NS_PER_YEAR = 31_556_952 * 10**9


class Ends(NamedTuple):
    """A rank's collectives that all members wait for, and when each ended, in ns since the epoch."""

    calls: Calls
    end: Int64


def collective_ends(trace: DeviceTrace) -> tuple[Ends, int]:
    """Returns the ends by which a rank's clock is compared, and how many communications and groups have too many
    members to know them.
    """
    rows = trace.activities
    kernels = np.flatnonzero(is_communication_kernel(rows.name))
    kernels = kernels[np.argsort(rows.start[kernels], kind="stable")]
    args = (trace.communication[Role.ACTIVITY].get(row, Args()) for row in kernels.tolist())
    unlisted: list[int] = []
    groups = process_groups(trace.groups, unlisted)
    recorded = with_members([*map(from_device, args)], groups, trace.world_size or -1, unlisted)
    calls = recorded_calls(recorded, [rows.name[row] for row in kernels.tolist()], -1)
    calls = calls.take(np.flatnonzero(awaits_all(calls.kind)))
    return Ends(calls, rows.end[kernels[calls.row]] + trace.base_time_ns), len(unlisted)


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
            for group, ends in ranks[corrected].items():
                for neighbour in members.pop(group, ()):
                    shared = ends.keys() & ranks[neighbour][group].keys()
                    if shared and neighbour not in correction:
                        difference = median_low(ends[number] - ranks[neighbour][group][number] for number in shared)
                        correction[neighbour] = correction[corrected] + difference
                        waiting.append(neighbour)
    earliest = min(correction.values(), default=0)
    return {rank: value - earliest for rank, value in correction.items()}


class RankClock(NamedTuple):
    """The epoch of a rank's times (ns), and what to add to them on the common clock: whole µs, at least 0."""

    base_time_ns: int
    shift_ns: int
    correction_ns: int


class Survey(NamedTuple):
    """The epoch of the common clock, each rank's clock and host processes, and notes on them."""

    base_time_ns: int
    clocks: dict[int, RankClock]
    hosts: dict[int, frozenset[int]]
    notes: list[str]


def survey(ranks: Sequence[RankFile], progress: Progress) -> Survey:
    """Reads each trace once and keeps a few numbers of each collective.

    Raises DataError for a trace that cannot be read, or whose clock is too far from the others' for 64 bits.
    """
    bases, hosts, ends = dict[int, int](), dict[int, frozenset[int]](), dict[int, Ends]()
    notes: list[str] = []
    for rank, path in progress(ranks, "comparing clocks", unit="rank"):
        trace = read_device_trace(str(path))
        bases[rank], (ends[rank], unlisted) = trace.base_time_ns, collective_ends(trace)
        # some profilers show calls on devices too
        devices = np.setdiff1d(trace.activities.device, trace.ops.process)
        hosts[rank] = frozenset(trace.processes) - frozenset(devices.tolist())
        if unlisted:
            notes.append(f"{path}: {unlisted} {in_words(Reason.MANY_MEMBERS)}")
    first, corrections = min(bases.values()), clock_corrections(shared_ends(ends))
    clocks = {
        rank: RankClock(base, round((base - first + corrections[rank]) / 1000) * 1000, corrections[rank])
        for rank, base in bases.items()
    }
    for rank, path in ranks:
        if abs(shift := clocks[rank].shift_ns) >= FOREVER:
            raise DataError(
                f"{path}: its clock is {abs(shift) / NS_PER_YEAR:.0f} years from that of other ranks; leave it out"
            )
    return Survey(first, clocks, hosts, notes)


class RankReport(msgspec.Struct):
    """A rank of a merged trace. `clock_correction_ns`: how far the rank's clock is behind by shared collectives;
    `activities` are per device.
    """

    rank: int
    file: str
    rows: int
    activities: int
    clock_correction_ns: int = 0


class MergeReport(SummaryRepr, msgspec.Struct):
    """Ranks in order, files that were left out by kind, and notes.

    >>> import execgraph as eg, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     merged = eg.merge("tests/data/training", f"{folder}/merged.json")
    >>> [rank.activities for rank in merged.ranks], merged.notes
    ([63, 63], [])
    """

    output: str
    ranks: list[RankReport] = []
    skipped: dict[str, int] = {}
    notes: list[str] = []

    def summary(self) -> Summary:
        """Returns how many ranks were merged into which file, and how many rows and notes there are."""
        lines = {
            "file": self.output,
            "rows": f"{sum(rank.rows for rank in self.ranks):,}",
            "activities": f"{sum(rank.activities for rank in self.ranks):,}",
            "notes": f"{len(self.notes)}, in notes" if self.notes else "0",
        }
        return Summary(f"MergeReport: {len(self.ranks)} ranks", lines)
