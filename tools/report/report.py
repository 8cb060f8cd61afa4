"""Collects all that is shown of a run in one pass over its ranks; of these only the graphs are kept, to replay them
together.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...linker.windows import EVERYTHING, Window
from ...schema.graph import ExecutionGraph
from ...schema.progress import Progress, Stages, unwatched
from ..analyses import ANALYSES, READ_STAGES, Column, Options, RankTrace, Table, analyse, trace_diff
from ..rank_rows import ranges
from ..replay import Replay, Scale
from .files import lay_over, overlay_path
from .inputs import Sources, read_ranks
from .rank_groups import MANY, RankGroup, of_ranks, rank_groups
from .timeline import Timeline, timeline
from .what_if import classes_twice_as_fast, unchanged, what_if

RANKS_DRAWN, SHOWN_FIRST = 8, 3000
OF_GRAPHS = {"critical_path", "step_breakdown", "modules"}
"""The analyses that need the execution graph."""
OF_MEMORY = "memory_timeline"
"""The one that needs the recorded allocations."""
NO_DIFF = replace(trace_diff((), ()), note="compares two runs, with --diff A B", details=())


DEFAULT = Options()


@dataclass(slots=True)
class Report:
    """The tables by name, the ranks as a table, and what a reader should know about the inputs.

    A page shows besides: timelines of some ranks, and what the run would take if one class of work were twice as fast.
    Of many ranks it shows those that stand for a group.
    """

    title: str
    tables: dict[str, Table]
    ranks: Table
    notes: list[str]
    timeline: Timeline | None = None
    twice_as_fast: Table | None = None
    groups: list[RankGroup] = field(default_factory=list)
    options: Options = DEFAULT

    @property
    def on_device(self) -> bool:
        """Whether anything ran on a device."""
        return bool(np.any(np.asarray(self.ranks["activities"])))

    def shown(self, name: str) -> Table | None:
        """Returns a table as a page shows it, None where it was not asked for: of many ranks only those that stand for
        others.
        """
        table = self.tables.get(name)
        return of_ranks(table, [group.rank for group in self.groups]) if table and self.groups else table


class Wanted(NamedTuple):
    """What to make of a run: the analyses named in `only`, or all; its replay with `scales`; what a page draws; and,
    where `perfetto` names a file, the device trace with what the analyses add to it. `options` are those of the
    analyses, `window` the part of each rank, and with `modules` Python's calls are read, too.
    """

    only: Sequence[str] | None = None
    scales: Sequence[Scale] = ()
    page: bool = True
    perfetto: str = ""
    options: Options = DEFAULT
    window: Window = EVERYTHING
    modules: bool = False

    @property
    def graphs(self) -> bool:
        """Graphs take longest to make."""
        return self.page or bool(self.scales or self.perfetto) or self.only is None or bool(OF_GRAPHS & set(self.only))

    @property
    def memory(self) -> bool:
        """Files may hold millions of allocations."""
        return bool(self.perfetto) or self.only is None or OF_MEMORY in self.only


ALL_OF_IT = Wanted()


def report_on(sources: Sources, wanted: Wanted = ALL_OF_IT, progress: Progress = unwatched) -> Report:
    """Analyses the sources. Raises DataError where a file cannot be used, ValueError for a name that no analysis has."""
    seen = _Seen(wanted, len(sources.ranks))
    analyses = len(ANALYSES if wanted.only is None else wanted.only)
    stages = Stages(progress, "reading and analysing", (READ_STAGES + analyses) * len(sources.ranks))
    read = read_ranks(sources.ranks, wanted.graphs, stages.advanced, wanted.window, wanted.memory, wanted.modules)
    tables = analyse(seen.passing(read), wanted.only, wanted.options, stages.advanced)
    if wanted.only is None:
        tables[NO_DIFF.name] = NO_DIFF
    if wanted.scales:
        tables["what_if"] = what_if(seen.graphs, wanted.scales)
    notes = sources.notes + seen.notes()
    report = Report(sources.title, tables, _ranks_table(seen.facts), notes, options=wanted.options)
    if wanted.page:
        _add_pictures(report, sources, seen, progress)
    return report


def _add_pictures(report: Report, sources: Sources, seen: "_Seen", progress: Progress) -> None:
    """Of many ranks those that are shown are read once more: which ones was not known while they passed, and all take
    too much memory.
    """
    report.groups = rank_groups(report.tables | {"ranks": report.ranks})
    if report.groups:
        order = np.asarray(report.ranks["rank"]).tolist()
        chosen = [sources.ranks[order.index(group.rank)]._replace(rank=group.rank) for group in report.groups]
        window, seen = seen.wanted.window, _Seen(Wanted(), len(chosen))
        stages = Stages(progress, "reading what is drawn", READ_STAGES * len(chosen))
        for _ in seen.passing(read_ranks(chosen, True, stages.advanced, window)):
            pass
    report.timeline = timeline(seen.replays, SHOWN_FIRST)
    before = unchanged(seen.graphs, [*seen.replays.values()])
    seen.replays.clear()
    report.twice_as_fast = classes_twice_as_fast(seen.graphs, before)


def report_on_diff(
    before: Sources,
    after: Sources,
    progress: Progress = unwatched,
    window: Window = EVERYTHING,
    modules: bool = False,
) -> Report:
    """Returns what differs between two runs, or that part of both; with `modules` Python's calls are read, too.

    Raises DataError where a file cannot be used.
    """
    seen = tuple(_Seen(Wanted(page=False), len(sources.ranks)) for sources in (before, after))
    pairs = zip(seen, (before, after), strict=True)
    stages = Stages(progress, "reading both runs", READ_STAGES * (len(before.ranks) + len(after.ranks)))
    ranks = [
        one.passing(read_ranks(sources.ranks, False, stages.advanced, window, modules=modules))
        for one, sources in pairs
    ]
    tables = {table.name: table for table in trace_diff(*ranks).with_details()}
    notes = [
        f"{run}: {note}"
        for run, one, sources in zip("AB", seen, (before, after), strict=True)
        for note in sources.notes + one.notes()
    ]
    facts = [fact for one in seen for fact in one.facts]
    runs = [run for run, one in zip("AB", seen, strict=True) for _ in one.facts]
    return Report(f"{before.title} → {after.title}", tables, _ranks_table(facts, runs), notes)


class _Seen:
    """What is taken from ranks while they pass by on their way to the analyses."""

    def __init__(self, wanted: Wanted, ranks: int) -> None:
        self.wanted, self.ranks = wanted, ranks
        self.drawn = min(ranks, RANKS_DRAWN) if wanted.page and ranks <= MANY else 0
        self.graphs: list[ExecutionGraph] = []
        self.replays: dict[int, Replay] = {}
        self.facts: list[tuple[int | str, ...]] = []
        self.remarks: list[tuple[int, str]] = []

    def passing(self, ranks: Iterable[RankTrace]) -> Iterator[RankTrace]:
        for rank in ranks:
            self.facts.append(_facts(rank))
            self.remarks += [(rank.rank, remark) for remark in rank.linked.report.remarks]
            if rank.graph is not None and len(rank.graph) and (self.drawn or self.wanted.scales):
                self.graphs.append(rank.graph)
            if self.wanted.perfetto:
                lay_over(rank, overlay_path(self.wanted.perfetto, rank.rank, self.ranks > 1), self.wanted.options)
            if len(self.replays) < self.drawn and (replay := rank.replayed()):
                self.replays[rank.rank] = replay
            yield rank

    def notes(self) -> list[str]:
        """Returns the remarks of the linker, each once, with the ranks that it is about."""
        ranks: dict[str, list[int]] = {}
        for rank, remark in self.remarks:
            ranks.setdefault(remark, []).append(rank)
        return [f"rank {ranges(sorted(of))}: {remark}" for remark, of in ranks.items()]


FACTS = (
    "rank", "process", "device_trace", "host_trace", "host_ops", "matched", "calls", "activities", "linked", "dropped", "nodes",
)  # fmt: skip

FILES = ("device_trace", "host_trace")


def _facts(rank: RankTrace) -> tuple[int | str, ...]:
    linked, report = rank.linked, rank.linked.report
    nodes = len(rank.graph) if rank.graph is not None else 0
    files = Path(linked.info.source_device).name, Path(linked.info.source_host).name
    ops = report.host_ops or report.device_ops
    counts = ops, report.matched, len(linked.calls), len(linked.activities), report.linked
    return rank.rank, linked.info.pid, *files, *counts, sum(report.dropped.values()), nodes


def _ranks_table(facts: list[tuple[int | str, ...]], runs: list[str] | None = None) -> Table:
    """Returns a row per rank; of two runs with a column that tells which."""
    columns = zip(FACTS, zip(*facts, strict=True), strict=True)
    made = [Column(name, "", list(map(str, of)) if name in FILES else np.array(of, np.int64)) for name, of in columns]
    return Table("ranks", "What was recorded", [*([Column("run", "", runs)] if runs else []), *made])
