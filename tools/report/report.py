"""Analyses a run in one pass over its ranks, of which only the graphs are kept, to replay them together."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from ...linker.windows import EVERYTHING, Window
from ...schema.columns import time_text
from ...schema.errors import DataError, Spelled
from ...schema.graph import ExecutionGraph
from ...schema.progress import Progress, Stages, unwatched
from ..analyses import (
    ANALYSES,
    READ_STAGES,
    AnalysisOptions,
    Finding,
    Gain,
    RankFacts,
    RankTrace,
    Table,
    analyse,
    facts_of,
    faster_step_us,
    find,
    job_of,
    together,
    trace_diff,
    verdict,
)
from ..replay import Recording, Replay, Scale, recording
from ..sync_records_advice import lacks_sync_records, sync_records_advice
from ..terminal import ranges
from ..view import DataFlow
from .bars import Slices, host_ops
from .files import FINDINGS, findings_table, lay_over, overlay_path
from .flow_section import step_flow
from .inputs import ReadOptions, Sources, ranks_table, read_ranks, recorded_counts
from .rank_groups import MANY, RankGroup, of_ranks, rank_groups
from .statements import diff_verdict
from .timeline import Timeline, timeline
from .what_if import classes_twice_as_fast, what_if

RANKS_DRAWN, SHOWN_FIRST = 8, 3000
OF_GRAPHS = {"critical_path", "step_breakdown", "modules"}
"""The analyses that need the execution graph."""
OF_JOB = "critical_path"
"""The analysis whose rows are of the job, so that they are shown of all ranks."""
OF_MEMORY = "memory_timeline"
"""The analysis that needs the recorded allocations."""
NO_DIFF = replace(trace_diff((), ()), details=())
HOW_TO_COMPARE = Spelled("compares two runs, with --diff A B", "compares two runs, with execgraph.compare")


DEFAULT = AnalysisOptions()


@dataclass(slots=True)
class Report:
    """The tables by name, a table of the ranks, and notes about the inputs; it `is_of_some` analyses or of all.

    The `verdict` is said first, which ends with `recording_cost`, what recording did to the run. Then come the
    `findings`, and what they bring `together` if their gains overlap. `advice` is what the recording cannot tell, and
    how to record it. `faster_step_us` is how long a step takes without a profiler, where recorded ones take longer,
    else 0: all tables are as recorded.

    For the page there are also timelines of some ranks, the data flow of a step of the first one, and the effect of
    making each class of work twice as fast, without a profiler where the `recording` tells how long a step takes then.
    Of many ranks the page shows those that represent a group.

    >>> import execgraph as eg
    >>> report = eg.report("tests/data/training")
    >>> report.verdict.split(":")[0], report.findings[0].gain.pct > 10, len(report.tables) > 20
    ('Computation limits the run', True, True)
    """

    title: str
    tables: dict[str, Table]
    ranks: Table
    notes: list[str]
    verdict: str = ""
    recording_cost: str = ""
    findings: list[Finding] = field(default_factory=list)
    together: Gain | None = None
    timeline: Timeline | None = None
    data_flow: DataFlow | None = None
    twice_as_fast: Table | None = None
    recording: Recording | None = None
    groups: list[RankGroup] = field(default_factory=list)
    options: AnalysisOptions = DEFAULT
    advice: list[str] = field(default_factory=list)
    faster_step_us: float = 0.0
    is_of_some: bool = False

    @property
    def as_recorded(self) -> str:
        """Says how long a step takes without a profiler, where that differs from the recording; else ""."""
        time = time_text(self.faster_step_us)
        return f"as recorded; without a profiler a step takes {time}" if self.faster_step_us else ""

    @property
    def clock_of_tables(self) -> str:
        """Says that the times in the tables are as recorded, where they differ without a profiler; else ""."""
        return f"Times in the tables are {self.as_recorded}." if self.as_recorded else ""

    @property
    def is_of_recording(self) -> bool:
        """Whether the findings are of the recording, and not of a run without a profiler."""
        return self.recording is None or not self.recording.is_known

    @property
    def on_device(self) -> bool:
        """Whether anything ran on a device."""
        return bool(np.any(np.asarray(self.ranks["activities"])))

    def page_table(self, name: str) -> Table | None:
        """Returns a table as the page shows it, of many ranks those that represent a group; None without a table."""
        table = self.tables.get(name)
        if table is None or not self.groups or name.startswith(OF_JOB):
            return table
        return of_ranks(table, [group.rank for group in self.groups])


class ReportRequest(NamedTuple):
    """What to make of a run: the analyses named in `only`, or all; its replay with `scales`; what a page draws; and, if
    `perfetto` names a file, the device trace with what the analyses add to it.

    `options` are those of the analyses, `window` is the part of each rank to read; with `modules` Python's calls are
    read, too.
    """

    only: Sequence[str] | None = None
    scales: Sequence[Scale] = ()
    page: bool = True
    perfetto: str = ""
    options: AnalysisOptions = DEFAULT
    window: Window = EVERYTHING
    modules: bool = False

    @property
    def memory(self) -> bool:
        """Whether allocations are needed, of which files may hold millions."""
        return bool(self.perfetto) or self.only is None or OF_MEMORY in self.only

    @property
    def judged(self) -> bool:
        """Whether to say what limits the run, and what to do about it."""
        return self.page or self.only is None

    @property
    def to_read(self) -> ReadOptions:
        """What to read of each rank; graphs, which take longest to make, only if they are needed."""
        of_graphs = self.only is None or OF_GRAPHS & set(self.only)
        graphs = self.page or bool(self.scales or self.perfetto or of_graphs)
        return ReadOptions(graphs, self.window, self.memory, self.modules)


FULL_REPORT = ReportRequest()
COMPARED = ReportRequest(only=(), page=False)
"""Each of two runs that are compared."""


def report_on(sources: Sources, request: ReportRequest = FULL_REPORT, progress: Progress = unwatched) -> Report:
    """Analyses the sources. Raises DataError if a file cannot be used, ValueError for an unknown analysis."""
    collector = _RankCollector(request, len(sources.ranks))
    analyses = len(ANALYSES if request.only is None else request.only)
    stages = Stages(progress, "reading and analysing", (READ_STAGES + analyses) * len(sources.ranks))
    read = read_ranks(sources.ranks, request.to_read, stages.on_progress)
    tables = analyse(collector.collect(read), request.only, request.options, stages.on_progress)
    if request.only is None:
        tables[NO_DIFF.name] = replace(NO_DIFF, note=str(HOW_TO_COMPARE))
    notes = sources.notes + collector.notes()
    report = Report(
        sources.title,
        tables,
        ranks_table(collector.facts),
        notes,
        is_of_some=request.only is not None,
        options=request.options,
        advice=collector.advice(),
        faster_step_us=collector.faster_step_us,
    )
    if request.judged:
        _judge(report, collector.job_facts)
        collector.job_facts.clear()
    if request.scales:
        recording_of_run = recording(collector.graphs) if collector.graphs and not request.judged else report.recording
        report.tables["what_if"] = what_if(collector.graphs, request.scales, recording_of_run)
    if request.page:
        _add_pictures(report, sources, collector, progress)
    return report


def _judge(report: Report, ranks: Sequence[RankFacts | None]) -> None:
    """Adds the findings, also as a table, and the verdict."""
    try:
        job = job_of(ranks, report.tables)
    except DataError as error:
        report.notes.append(f"what limits the run is not known: {error}")
        return
    if job is None:
        return
    report.findings, report.recording = find(job), job.recording
    if job.recording and not report.is_of_recording:
        report.faster_step_us = job.recording.step_without_profiler_us
    report.together = together(job, report.findings)
    report.verdict, _, report.recording_cost = verdict(job, report.findings)
    report.tables = {FINDINGS: findings_table(report.findings, report.verdict), **report.tables}


def _add_pictures(report: Report, sources: Sources, collector: "_RankCollector", progress: Progress) -> None:
    """Adds timelines and what-if results. Of many ranks those that are shown are read again: all take too much memory,
    and which ones represent groups is known only after all were analysed.
    """
    graphs = collector.graphs
    report.groups = rank_groups(report.tables | {"ranks": report.ranks})
    if report.groups:
        order = np.asarray(report.ranks["rank"]).tolist()
        chosen = [sources.ranks[order.index(group.rank)]._replace(rank=group.rank) for group in report.groups]
        window, collector = collector.request.window, _RankCollector(ReportRequest(), len(chosen))
        stages = Stages(progress, "reading what is drawn", READ_STAGES * len(chosen))
        for _ in collector.collect(read_ranks(chosen, ReadOptions(window=window), stages.on_progress)):
            pass
    report.data_flow = collector.data_flow
    report.timeline = timeline(collector.replays, SHOWN_FIRST, ops=collector.ops)
    collector.replays.clear()
    report.twice_as_fast = classes_twice_as_fast(graphs, report.recording)


def report_on_diff(
    before: Sources, after: Sources, progress: Progress = unwatched, window: Window = EVERYTHING, modules: bool = False
) -> Report:
    """Compares two runs, or that part of both; with `modules` Python's calls are read, too.

    Raises DataError if a file cannot be used.
    """
    stages = Stages(progress, "reading both runs", READ_STAGES * (len(before.ranks) + len(after.ranks)))
    options = ReadOptions(False, window, modules=modules)
    runs = [
        (run, sources, _RankCollector(COMPARED, len(sources.ranks))) for run, sources in (("A", before), ("B", after))
    ]
    diff = trace_diff(
        *(collector.collect(read_ranks(sources.ranks, options, stages.on_progress)) for _, sources, collector in runs)
    )
    tables = {table.name: table for table in diff.with_details()}
    notes = [f"{run}: {note}" for run, sources, collector in runs for note in sources.notes + collector.notes()]
    facts = [fact for *_, collector in runs for fact in collector.facts]
    ranks = ranks_table(facts, [run for run, _, collector in runs for _ in collector.facts])
    return Report(f"{before.title} → {after.title}", tables, ranks, notes, diff_verdict(tables | {"ranks": ranks}))


class _RankCollector:
    """Collects graphs, replays and facts of ranks on their way to the analyses."""

    def __init__(self, request: ReportRequest, ranks: int) -> None:
        self.request, self.ranks = request, ranks
        self.drawn = min(ranks, RANKS_DRAWN) if request.page and ranks <= MANY else 0
        self.graphs: list[ExecutionGraph] = []
        self.replays: dict[int, Replay] = {}
        self.ops: dict[int, Slices] = {}
        self.data_flow: DataFlow | None = None
        self.facts: list[tuple[int | str, ...]] = []
        self.job_facts: list[RankFacts | None] = []
        self.linker_notes: list[tuple[int, str]] = []
        self.without_sync_records: list[int] = []
        self.faster_step_us = 0.0

    def collect(self, ranks: Iterable[RankTrace]) -> Iterator[RankTrace]:
        for rank in ranks:
            self.facts.append(recorded_counts(rank))
            self.faster_step_us = max(self.faster_step_us, faster_step_us(rank.linked))
            self.linker_notes += [(rank.rank, note) for note in rank.linked.report.notes]
            if lacks_sync_records(rank.linked):
                self.without_sync_records.append(rank.rank)
            if rank.graph is not None and len(rank.graph) and (self.request.page or self.request.scales):
                self.graphs.append(rank.graph)
            if self.request.judged:
                self.job_facts.append(facts_of(rank))
            if self.request.perfetto:
                lay_over(rank, overlay_path(self.request.perfetto, rank.rank, self.ranks > 1), self.request.options)
            if len(self.replays) < self.drawn and (replay := rank.replayed()):
                self.data_flow = self.data_flow or step_flow(rank)
                self.replays[rank.rank] = replay
                self.ops[rank.rank] = host_ops(rank.linked.ops)
            yield rank

    def advice(self) -> list[str]:
        """Returns how to record what waits were for, if a rank did not."""
        ranks = sorted(self.without_sync_records)
        return sync_records_advice(f"rank{'s' if len(ranks) > 1 else ''} {ranges(ranks)}") if ranks else []

    def notes(self) -> list[str]:
        """Returns each note of the linker once, with the ranks that have it."""
        ranks: dict[str, list[int]] = {}
        for rank, note in self.linker_notes:
            ranks.setdefault(note, []).append(rank)
        return [f"rank {ranges(sorted(of_ranks_))}: {note}" for note, of_ranks_ in ranks.items()]
