"""Looks at every device trace before a merge, for processes and for clocks that agree; and what a merge reports."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import msgspec
import numpy as np

from ...converter.ranks import (
    Calls,
    awaits_all,
    begin_of_ranks,
    clock_contradictions,
    issued_at,
    match,
    recorded_calls,
    share_no_step,
)
from ...linker.link import link
from ...linker.readers import read_device_trace, select
from ...schema.columns import Categorical, Summary, SummaryRepr, group_ids, groupby
from ...schema.errors import DataError
from ...schema.linked import FOREVER, LinkedTrace, step_starts
from ...schema.progress import Progress
from ...schema.reasons import Reason, in_words
from ..trace_files import RankFile
from .cross_rank import compare_ranks
from .rank_comms import RankComms, issued_by, summarise_rank

NS_PER_YEAR = 31_556_952 * 10**9


def collective_times(linked: LinkedTrace) -> Calls:
    """Returns the collectives that all members wait for, in the order of issue, with times in ns since the epoch."""
    rows, ops, base = linked.activities, linked.ops, linked.info.base_time_ns
    pairs = (rows.start, ops.start), (rows.end, ops.end), (rows.communication_row, ops.communication_row)
    start, end, number = map(np.concatenate, pairs)
    row, rf_id = np.flatnonzero(number >= 0), np.concatenate((np.zeros(len(rows), np.int64), ops.rf_id))
    row = row[np.argsort(issued_at(start[row], rf_id[row]), kind="stable")]
    names, recorded = Categorical.joined((rows.name, ops.name)), linked.communications
    calls = recorded_calls([recorded[n] for n in number[row].tolist()], [names[n] for n in row.tolist()], -1)
    calls = replace(calls, start_ns=start[row] + base, end_ns=end[row] + base)
    return replace(calls.take(awaits_all(calls.kind)), steps=tuple(sorted(step_starts(ops.name, ops.start))))


def clock_corrections(calls_of: Mapping[int, Calls]) -> tuple[list[int], list[str]]:
    """Returns ns (0 or more) to add to the clock of each rank, and how calls were matched, if not by number and step,
    and which clocks contradict each other; a rank that shares no collective keeps its clock.

    Without recorded numbers only ranks with equally many collectives of a group and type share any, of common steps.
    """
    ranks = [*calls_of.values()]
    calls = match(ranks)
    alike = groupby(calls.rank, calls.group, calls.kind)
    unlike = calls.rank if share_no_step(ranks) else alike.count()[alike.number]
    shared = group_ids(calls.matched, np.where(calls.sequence >= 0, -1, unlike))
    calls = replace(calls, matched=shared)
    return begin_of_ranks(len(ranks), calls).tolist(), [*calls.decisions, *clock_contradictions(calls, [*calls_of])]


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
    """Reads each trace once. Raises DataError for one that is unusable or too far from the others for 64 bits."""
    bases, hosts, notes = dict[int, int](), dict[int, frozenset[int]](), list[str]()
    calls, comms = dict[int, Calls](), dict[int, RankComms]()
    for rank, path in progress(ranks, "comparing clocks", unit="rank"):
        trace = read_device_trace(str(path))
        bases[rank] = trace.base_time_ns
        try:
            linked = link(None, trace)
        except DataError as error:  # rows that a viewer shows need not make a graph
            notes.append(f"{error}; its clock and collectives are not compared with those of other ranks")
            nothing = np.empty(0, np.int64)
            without = select(trace, ops=nothing, calls=nothing, activities=nothing, syncs=nothing)
            linked = link(None, replace(without, merge_marks=[], labels=[], merged=[]))
        comms[rank] = summarise_rank(linked)
        calls[rank] = collective_times(linked)
        # some profilers show calls on devices too
        devices = np.setdiff1d(trace.activities.device, trace.ops.process)
        hosts[rank] = frozenset(trace.processes) - frozenset(devices.tolist())
        if unlisted := linked.report.oddities[Reason.MANY_MEMBERS]:
            notes.append(f"{path}: {unlisted} {in_words(Reason.MANY_MEMBERS)}")
    (corrections, decisions), first = clock_corrections(calls), min(bases.values())
    clocks = {
        rank: RankClock(base, round((base - first + correction) / 1000) * 1000, correction)
        for (rank, base), correction in zip(bases.items(), corrections, strict=True)
    }
    for rank, path in ranks:
        if abs(shift := clocks[rank].shift_ns) >= FOREVER:
            years = f"{abs(shift) / NS_PER_YEAR:.0f} years"
            raise DataError(f"{path}: its clock is {years} from that of other ranks; leave it out")
    disagreements, _ = compare_ranks(comms, -1, lambda rank: issued_by(link(None, str(dict(ranks)[rank]))))
    notes += [f"ranks disagree: {disagreement}" for disagreement in disagreements]
    return Survey(first, clocks, hosts, notes + decisions)


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
            "file": self.output, "rows": f"{sum(rank.rows for rank in self.ranks):,}",
            "activities": f"{sum(rank.activities for rank in self.ranks):,}",
            "notes": f"{len(self.notes)}, in notes" if self.notes else "0",
        }  # fmt: skip
        return Summary(f"MergeReport: {len(self.ranks)} ranks", lines)
