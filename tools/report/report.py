"""Analyses a run in one pass over its ranks, of which only the graphs are kept, to replay them together.

Many ranks are grouped by how they spent their time. The first representative is the rank nearest to the median, each
next one the rank farthest from all before, so that unusual ranks become groups of their own (Gonzalez, Clustering to
minimize the maximum intercluster distance, 1985). Linear in the number of ranks.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from ...linker.windows import EVERYTHING, Window
from ...schema.columns import Floats, Int64, time_text
from ...schema.errors import DataError, Remedy, Spelled
from ...schema.progress import Progress, Stages, unwatched
from ...schema.reasons import Counts
from .. import analyses
from ..analyses import AnalysisOptions, Column, Finding, Gain, RankFacts, RankTrace, Table
from ..job import RankComms, compare_ranks, issued_by, ranks_in_words, summarise_rank, why_no_job
from ..options import path_of_rank
from ..replay import Recording, Replay
from ..sync_records_advice import lacks_sync_records, sync_records_advice
from ..terminal import ranges
from ..view import DataFlow
from .bars import Slices, host_ops, step_flow
from .inputs import ReadOptions, Sources, ranks_table, read_ranks, recorded_counts
from .statements import diff_verdict
from .timeline import Timeline, timeline

MANY, MOST_GROUPS, ALIKE = 16, 8, 0.02
"""More ranks than MANY make at most MOST_GROUPS groups; features within ALIKE of the median count as alike."""
FEATURES = {
    "ranks": ("host_ops", "calls", "activities"),
    "temporal_breakdown": ("span", "busy", "compute"),
    "communication_computation_overlap": ("exposed_communication",),
}
"""The columns by which ranks are compared, summed over devices."""
LENGTH = "span"
"""The feature whose median is the unit of it and of all times after it; the unit of a count is its own median."""
RANKS_DRAWN = 8
FINDINGS = "findings"
OF_GRAPHS = {"critical_path", "step_breakdown", "modules"}
"""The analyses that need the execution graph."""
OF_JOB = "critical_path"
"""The analysis whose rows are of the job, so that they are shown of all ranks."""
DISAGREEING = (
    "ranks disagree on what they communicate, or when: rows, sizes, peers, durations or clocks of a rank are wrong, "
    "or the traces are not of one run and the same steps"
)
NO_DIFF = replace(analyses.trace_diff((), ()), details=())
HOW_TO_COMPARE = Spelled("compares two runs, with --diff A B", "compares two runs, with execgraph.compare")
DEFAULT = AnalysisOptions()


class RankGroup(NamedTuple):
    """A rank and the ranks that it represents, itself included, ascending."""

    rank: int
    ranks: list[int]


def rank_groups(tables: Mapping[str, Table]) -> list[RankGroup]:
    """Returns the groups, the largest first; none if there are so few ranks that each can be shown."""
    ranks = np.unique(np.asarray(tables["ranks"]["rank"], np.int64))
    if len(ranks) <= MANY:
        return []
    features = _features(ranks, tables)
    distance = np.abs(features - np.median(features, axis=0)).max(axis=1)
    chosen = [int(distance.argmin())]
    nearest, group_of = np.full(len(ranks), np.inf), np.zeros(len(ranks), np.int64)
    while True:
        distance = np.abs(features - features[chosen[-1]]).max(axis=1)
        group_of = np.where(distance < nearest, len(chosen) - 1, group_of)
        nearest = np.minimum(nearest, distance)
        if nearest.max() <= ALIKE or len(chosen) == MOST_GROUPS:
            break
        chosen.append(int(nearest.argmax()))
    groups = [RankGroup(int(ranks[row]), ranks[group_of == group].tolist()) for group, row in enumerate(chosen)]
    return sorted(groups, key=lambda group: -len(group.ranks))


def _features(ranks: Int64, tables: Mapping[str, Table]) -> Floats:
    """Returns the features relative to their medians, a row per rank."""
    columns, length = list[Floats](), 1.0
    for name, features in FEATURES.items():
        if table := tables.get(name):
            row = np.searchsorted(ranks, np.asarray(table["rank"], np.int64))
            for feature in features:
                values = np.bincount(row, np.nan_to_num(np.asarray(table[feature], np.float64)), len(ranks))
                length = float(np.median(values)) if feature == LENGTH else length
                columns.append(values / ((np.median(values) if name == "ranks" else length) or 1.0))
    return np.stack(columns, axis=1)


def of_ranks(table: Table, ranks: Collection[int]) -> Table:
    """Returns the rows of these ranks, or all rows of a table without a column `rank`."""
    rank = next((column.values for column in table.columns if column.name == "rank"), None)
    return table if rank is None else table.take(np.isin(rank, [*ranks]))


def groups_table(groups: Sequence[RankGroup], ranks: Table) -> Table:
    """Returns the rows of the representative ranks in the table of ranks, with the ranks that each represents."""
    by_rank = dict(groups)
    first, *others = of_ranks(ranks, by_rank).columns
    members = [by_rank[rank] for rank in np.asarray(first.values).tolist()]
    counts = Column("stands_for", "", np.array([*map(len, members)], np.int64))
    columns = [first, counts, Column("ranks", "", [*map(ranges, members)]), *others]
    return Table(ranks.name, "Ranks that stand for those like them", columns, ranks.note)


def in_words(groups: Sequence[RankGroup]) -> str:
    """Returns a sentence about the groups for the page."""
    count = sum(len(group.ranks) for group in groups)
    if len(groups) == 1:
        return f"All {count:,} ranks spend their time alike; rank {groups[0].rank} is shown for them."
    parts = ", ".join(f"rank {group.rank} for {len(group.ranks):,}" for group in groups)
    return f"Of {count:,} ranks some are shown for those that spend their time like them: {parts}."


@dataclass(slots=True)
class Report:
    """The tables by name, a table of the ranks, and notes about the inputs; it `is_of_some` analyses or of all.

    The `verdict` is said first, which ends with `recording_cost`, what recording did to the run. Then come the
    `findings`, and what they bring `together` if their gains overlap. `advice` is what the recording cannot tell, and
    how to record it. `faster_step_us` is how long a step takes without a profiler, where recorded ones take longer,
    else 0: all tables are as recorded. `lost_work` is what a trace lacks of the work of devices, if that matters.

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
    lost_work: str = ""

    @property
    def as_recorded(self) -> str:
        """Says how long a step takes without a profiler, where that differs from the recording; else ""."""
        time = time_text(self.faster_step_us)
        return f"of the recorded run; an unprofiled step takes {time}" if self.faster_step_us else ""

    @property
    def clock_of_tables(self) -> str:
        """Says that the times in the tables are of the recorded run, where the unprofiled one differs; else ""."""
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
    """What to make of a run: the analyses named in `only`, or all; what a page draws.

    `perfetto` names a file for the device trace with what the analyses add to it. With `modules` Python's calls are
    read, too. The run is the one without a profiler where that is known, unless it is taken `as_recorded`.
    """

    only: Sequence[str] | None = None
    page: bool = True
    perfetto: str = ""
    options: AnalysisOptions = DEFAULT
    window: Window = EVERYTHING
    modules: bool = False
    as_recorded: bool = False

    @property
    def judged(self) -> bool:
        """Whether to say what limits the run, and what to do about it."""
        return self.page or self.only is None

    @property
    def to_read(self) -> ReadOptions:
        """Returns what to read of each rank: graphs and allocations, which take longest, only if they are needed."""
        only, everything = {*(self.only or ())}, self.only is None or bool(self.perfetto)
        graph = everything or self.page or bool(OF_GRAPHS & only)
        return ReadOptions(graph, self.window, everything or "memory_timeline" in only, self.modules)


FULL_REPORT = ReportRequest()
COMPARED = ReportRequest(only=(), page=False)
"""Each of two runs that are compared."""


def report_on(sources: Sources, request: ReportRequest = FULL_REPORT, progress: Progress = unwatched) -> Report:
    """Analyses the sources. Raises DataError if a file cannot be used, ValueError for an unknown analysis."""
    collector = _RankCollector(request, len(sources.ranks))
    count = len(analyses.ANALYSES if request.only is None else request.only)
    stages = Stages(progress, "reading and analysing", (analyses.READ_STAGES + count) * len(sources.ranks))
    read = read_ranks(sources.ranks, request.to_read, stages.on_progress)
    tables = analyses.analyse(collector.collect(read), request.only, request.options, stages.on_progress)
    if request.only is None:
        tables[NO_DIFF.name] = replace(NO_DIFF, note=str(HOW_TO_COMPARE))
    silent = sorted(collector.without_sync_records)
    report = Report(
        sources.title, tables, ranks_table(collector.facts), sources.notes + collector.notes(),
        is_of_some=request.only is not None, options=request.options,
        advice=sync_records_advice(ranks_in_words(silent)) if silent else [],
        faster_step_us=collector.faster_step_us, lost_work=collector.lost_work.text,
    )  # fmt: skip
    source_of = dict(zip(collector.comms, sources.ranks, strict=False))
    reread = ReadOptions(False, request.window)
    disagreements, _ = compare_ranks(
        collector.comms, -1, lambda rank: issued_by(next(read_ranks([source_of[rank]], reread)).linked)
    )
    if request.judged:
        _judge(report, collector.job_facts, disagreements, as_recorded=request.as_recorded)
        collector.job_facts.clear()
    report.notes += [*why_no_job(collector.comms), *(f"ranks disagree: {line}" for line in disagreements)]
    if request.page:
        _add_pictures(report, sources, collector, progress)
    return report


def _judge(report: Report, ranks: Sequence[RankFacts | None], disagreements: list[str], *, as_recorded: bool) -> None:
    """Adds the verdict, the findings, also as a table, and `disagreements` that calls show, if there are none yet."""
    try:
        job = analyses.job_of(ranks, report.tables, as_recorded=as_recorded)
    except DataError as error:
        report.notes.append(f"what limits the run is not known: {error}")
        return
    if job is None:
        return
    disagreements += [] if disagreements else job.work.members.disagreements
    job.lost_work = job.lost_work or DISAGREEING * bool(disagreements)
    report.notes += job.work.members.decisions
    report.findings, report.recording = analyses.find(job), job.recording
    if job.recording and not report.is_of_recording:
        report.faster_step_us = job.recording.step_without_profiler_us
    report.verdict, doubts, report.recording_cost, report.twice_as_fast = analyses.verdict(job, report.findings)
    if doubts:
        report.findings = [finding._replace(gain=None) for finding in report.findings]
    report.together = analyses.together(job, report.findings)
    gains = [finding.gain or Gain(np.nan, np.nan) for finding in report.findings]
    columns = [
        Column("finding", "", [finding.title for finding in report.findings]),
        Column("gain", "µs", np.array([gain.us for gain in gains])),
        Column("gain_pct", "%", np.array([gain.pct for gain in gains])),
        *(
            Column(of, "", [getattr(one, of) for one in report.findings])
            for of in ("evidence", "advice", "question", "table")
        ),
    ]
    report.tables = {FINDINGS: Table(FINDINGS, "Findings", columns, report.verdict), **report.tables}


def _add_pictures(report: Report, sources: Sources, collector: "_RankCollector", progress: Progress) -> None:
    """Adds timelines and the data flow. Representatives of groups are read again: all ranks take too much memory."""
    report.groups = rank_groups(report.tables | {"ranks": report.ranks})
    if report.groups:
        order = np.asarray(report.ranks["rank"]).tolist()
        chosen = [sources.ranks[order.index(group.rank)]._replace(rank=group.rank) for group in report.groups]
        window, collector = collector.request.window, _RankCollector(ReportRequest(), len(chosen))
        stages = Stages(progress, "reading what is drawn", analyses.READ_STAGES * len(chosen))
        for _ in collector.collect(read_ranks(chosen, ReadOptions(window=window), stages.on_progress)):
            pass
    report.data_flow = collector.data_flow
    report.timeline = timeline(collector.replays, ops=collector.ops)
    collector.replays.clear()


def report_on_diff(
    before: Sources, after: Sources, progress: Progress = unwatched, window: Window = EVERYTHING, modules: bool = False
) -> Report:
    """Compares two runs, or that part of both; with `modules` Python's calls are read, too."""
    stages = Stages(progress, "reading both runs", analyses.READ_STAGES * (len(before.ranks) + len(after.ranks)))
    options = ReadOptions(False, window, modules=modules)
    runs = {run: (of, _RankCollector(COMPARED, len(of.ranks))) for run, of in (("A", before), ("B", after))}
    read = (of.collect(read_ranks(sources.ranks, options, stages.on_progress)) for sources, of in runs.values())
    tables = {table.name: table for table in analyses.trace_diff(*read).with_details()}
    if all(of.facts for _, of in runs.values()) and not any(map(len, tables.values())):
        what = "hold no times of ops or activities, which a comparison needs; pass the traces, or replay each with "
        raise DataError(f"{before.title}, {after.title}: {what}", Remedy.REPLAY)
    notes = [f"{run}: {note}" for run, (sources, of) in runs.items() for note in sources.notes + of.notes()]
    ranks = ranks_table([{"run": run, **fact} for run, (_, of) in runs.items() for fact in of.facts])
    lost = next((f"of {run}, {of.lost_work.text}" for run, (_, of) in runs.items() if of.lost_work), "")
    verdict = f"What differs cannot be told: {lost}." if lost else diff_verdict(tables | {"ranks": ranks})
    return Report(f"{before.title} → {after.title}", tables, ranks, notes, verdict, lost_work=lost)


class _RankCollector:
    """Collects graphs, replays and facts of ranks on their way to the analyses."""

    def __init__(self, request: ReportRequest, ranks: int) -> None:
        self.request, self.ranks = request, ranks
        self.drawn = min(ranks, RANKS_DRAWN) if request.page and ranks <= MANY else 0
        self.replays: dict[int, Replay] = {}
        self.ops: dict[int, Slices] = {}
        self.data_flow: DataFlow | None = None
        self.facts: list[dict[str, int | str]] = []
        self.comms: dict[int, RankComms] = {}
        self.job_facts: list[RankFacts | None] = []
        self.linker_notes: list[tuple[int, str]] = []
        self.without_sync_records: list[int] = []
        self.faster_step_us, self.lost_work = 0.0, Counts()

    def collect(self, ranks: Iterable[RankTrace]) -> Iterator[RankTrace]:
        for rank in ranks:
            self.facts.append(recorded_counts(rank))
            self.comms |= {rank.rank: summarise_rank(rank.linked)} if rank.path else {}
            self.faster_step_us = max(self.faster_step_us, analyses.faster_step_us(rank.linked))
            self.lost_work.add(analyses.lost_work(rank.linked))
            self.linker_notes += [(rank.rank, note) for note in rank.linked.report.notes]
            if lacks_sync_records(rank.linked):
                self.without_sync_records.append(rank.rank)
            if self.request.judged:
                self.job_facts.append(analyses.facts_of(rank))
            if self.request.perfetto:
                if not rank.path:
                    missing = "has no device trace to lay anything over; give it in place of what was made from it"
                    raise DataError(f"rank {rank.rank}: {missing}")
                path = path_of_rank(self.request.perfetto, rank.rank, self.ranks > 1)
                analyses.write_overlay(rank.path, path, analyses.overlay_events(rank, self.request.options))
            if len(self.replays) < self.drawn and (replay := rank.replay):
                self.data_flow = self.data_flow or step_flow(rank)
                self.replays[rank.rank] = replay
                self.ops[rank.rank] = host_ops(rank.linked.ops)
            yield rank

    def notes(self) -> list[str]:
        """Returns each note of the linker once, with the ranks that have it."""
        ranks: dict[str, list[int]] = {}
        for rank, note in self.linker_notes:
            ranks.setdefault(note, []).append(rank)
        return [f"{ranks_in_words(sorted(of_ranks_))}: {note}" for note, of_ranks_ in ranks.items()]
