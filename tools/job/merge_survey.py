"""Looks at every device trace before a merge, for processes and for clocks that agree; and what a merge reports.

Clocks are compared by the collectives that wait for all their members: they end on all at nearly the same time.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from ...converter.ranks import Calls, MatchedTimes, awaits_all, begin_of_ranks, match, recorded_calls
from ...linker.communication import from_device, is_communication_kernel, process_groups, with_members
from ...linker.readers import DeviceTrace, Role, read_device_trace
from ...schema.columns import Int64, Summary, SummaryRepr, group_ids, groupby
from ...schema.errors import DataError
from ...schema.linked import FOREVER, Args
from ...schema.progress import Progress
from ...schema.reasons import Reason, in_words
from ..trace_files import RankFile

NS_PER_YEAR = 31_556_952 * 10**9


class Ends(NamedTuple):
    """A rank's collectives that all members wait for, and when each started and ended, in ns since the epoch."""

    calls: Calls
    start: Int64
    end: Int64


def collective_ends(trace: DeviceTrace) -> tuple[Ends, int]:
    """Returns a rank's ends, and how many communications and groups have too many members to know them."""
    rows = trace.activities
    kernels = np.flatnonzero(is_communication_kernel(rows.name))
    kernels = kernels[np.argsort(rows.start[kernels], kind="stable")]
    args = (trace.communication[Role.ACTIVITY].get(row, Args()) for row in kernels.tolist())
    unlisted: list[int] = []
    groups = process_groups(trace.groups, unlisted)
    recorded = with_members([*map(from_device, args)], groups, trace.world_size or -1, unlisted)
    calls = recorded_calls(recorded, [rows.name[row] for row in kernels.tolist()], -1)
    calls = calls.take(np.flatnonzero(awaits_all(calls.kind)))
    compared, base = kernels[calls.row], trace.base_time_ns
    return Ends(calls, rows.start[compared] + base, rows.end[compared] + base), len(unlisted)


def clock_corrections(ends: Sequence[Ends]) -> list[int]:
    """Returns ns (0 or more) to add to the clock of each rank; a rank that shares no collective keeps its clock.

    Without recorded numbers only ranks with equally many collectives of a group and type share any.
    """
    matches = match([of_rank.calls for of_rank in ends])
    rank = np.repeat(np.arange(len(ends)), [len(of_rank.calls) for of_rank in ends])
    start, end, kind, group, matched = (
        np.concatenate(columns)
        for columns in zip(
            *(
                (of_rank.start, of_rank.end, of_rank.calls.kind, groups, matched)
                for of_rank, groups, matched in zip(ends, matches.group, matches.matched, strict=True)
            ),
            strict=True,
        )
    )
    is_numbered, alike = matches.sequence[matched] >= 0, groupby(rank, group, kind)
    shared = group_ids(matched, np.where(is_numbered, -1, alike.count()[alike.number]))
    times = MatchedTimes(rank, shared, start, end, np.zeros(len(rank), np.bool_), kind)
    corrections: list[int] = begin_of_ranks(len(ends), times).tolist()
    return corrections


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
    first, corrections = min(bases.values()), dict(zip(ends, clock_corrections([*ends.values()]), strict=True))
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
