"""What rules look at and return: the record of a job with its replay, the gain by a change, and a finding."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ...schema import columns
from ...schema.columns import ABSENT, Bool, Categorical, Floats, Int64, Ns, Rows, Summary, summary_text, time_text
from ...schema.graph import DEVICE_NAME, DependencyKind, ExecutionGraph
from ...schema.linked import are_step_marks
from ...schema.reasons import Counts, Reason
from .. import replay as replays
from ..replay import Recording, Replay, Workload
from ..sync_records_advice import lacks_sync_records
from .finding_words import FOUND_WORDS, Found, Said, Sentence, in_template
from .rank import RankTrace, activity_rows, lost_launches, lost_work
from .table import Table, named

ATEN, GPU_CALLS = "aten::", ("cuda", "cu", "hip")
NO_TABLE = Table("", "", [])
LEAST_PCT = 2.0
"""A smaller gain is not worth a reader's time."""
LEAST_OF_GAIN = 0.2
"""What bounds a gain is said from this share of it on; in healthy recordings an idle thread bounds it by 14 %."""


class Gain(NamedTuple):
    """By how much sooner the run would end with a change, by a replay of all ranks; `pct` of the run. The change
    multiplies each node's duration by a `factor`, then it takes away the dependencies that are `removed`.

    How fast the host of a run without a profiler is is not known exactly. Then the gain is between `least_us` and
    `most_us`. `steps` is how many there are in the run, 0 where that is not known. What starts at a fixed time, as
    nothing shows what for, bounds a gain; `freed_pct` is the gain if it waits for the host, None if that is as much.
    """

    us: float
    pct: float
    factor: Floats | None = None
    removed: Bool | None = None
    least_us: float | None = None
    most_us: float | None = None
    steps: int = 0
    freed_pct: float | None = None

    def __repr__(self) -> str:
        return f"Gain: {self.text}"

    @property
    def text(self) -> str:
        """Its share of the run, and the time."""
        return f"{self.share}, {self.time}"

    @property
    def is_worth_it(self) -> bool:
        """Whether it is worth a finding."""
        return max(self.pct, self.freed_pct or 0.0) >= LEAST_PCT

    @property
    def has_no_least(self) -> bool:
        """Whether the trace gives no lower end, so that the share and the time are the upper one."""
        return self.freed_pct is None and self.least_us is None

    @property
    def share(self) -> str:
        """Says what share of the run it is.

        >>> Gain(800.0, 40.0).share, Gain(800.0, 40.0, least_us=400.0, most_us=800).share
        ('up to 40 %', '40 % (20 to 40 %)')
        """
        least, most = self.limits_pct
        if self.has_no_least:
            return f"up to {most:.0f} %"
        between = f" ({max(least, 0):.0f} to {most:.0f} %)" if most - least >= 1 else ""
        return f"{self.pct:.0f} %{between}"

    @property
    def time(self) -> str:
        """Says how long it is, of a step where it is known how many there are: `400.0 µs a step`."""
        least = "at least " if (self.freed_pct or 0.0) > self.pct else ""
        return least + self.in_its_unit(self.us)

    def in_its_unit(self, us: float) -> str:
        """Says a time of the run as `time` does."""
        return f"{time_text(us / max(self.steps, 1))}{' a step' if self.steps else ''}"

    @property
    def limits_pct(self) -> tuple[float, float]:
        """Between what shares of the run it is."""
        limits = [self._pct(limit) for limit in (self.least_us, self.most_us)]
        limits += [self.freed_pct] if self.freed_pct is not None else []
        return min(limits), min(max(limits), 100.0)

    def _pct(self, us: float | None) -> float:
        return self.pct if us is None or not self.us else self.pct * us / self.us


class Finding(NamedTuple):
    """What was found, what the run would gain without it, and the table with the details. `values` and `more` facts are
    in its words: a `title`, `facts` or all of them as `evidence`, `advice`, in short the `remedy`, and a `question`.

    `gain` is None where no change of durations shows what the run would gain.
    """

    what: Found
    gain: Gain | None
    table: str
    values: Mapping[str, object] = {}
    more: Sequence[Sentence | Said] = ()

    @property
    def title(self) -> str:
        """What was found."""
        return in_template(FOUND_WORDS[self.what].title, self.values)

    @property
    def facts(self) -> list[str]:
        """What shows it."""
        facts = (in_template(fact, self.values) for fact in FOUND_WORDS[self.what].facts.splitlines())
        return [*filter(None, facts), *map(str, self.more)]

    @property
    def advice(self) -> str:
        """What to try."""
        return in_template(FOUND_WORDS[self.what].advice, self.values)

    @property
    def remedy(self) -> str:
        """What brings the gain, in short; "" without a gain."""
        return FOUND_WORDS[self.what].remedy

    @property
    def question(self) -> str:
        """The command that asks how long the run takes with the repair; "" without a gain."""
        change = self.gain and in_template(FOUND_WORDS[self.what].question, self.values)
        return f"trace-replay GRAPHS --scale {change}" if change else ""

    @property
    def evidence(self) -> str:
        """The facts as one text."""
        return "; ".join(self.facts)

    def __repr__(self) -> str:
        lines = {"gain": self.gain.text if self.gain else "", "evidence": self.evidence, "advice": self.advice}
        lines |= {"question": self.question, "table": self.table}
        said = {name: text for name, text in lines.items() if text}
        return summary_text(Summary(f"Finding: {self.title}", said))


@dataclass(slots=True)
class RankFacts:
    """What is known of each node of a rank's graph, null where it is not.

    `op` is for a host node the outermost op of PyTorch, for a kernel the one whose work it does.
    `step_starts` are on the clock of the graph's host nodes, `recorded_ops` counts those of the host trace.
    """

    rank: int
    graph: ExecutionGraph
    in_loader: Bool
    op: Categorical
    shape: Categorical
    function: Categorical
    step_starts: Ns
    dropped: Counts = field(default_factory=Counts)
    lacks_sync_records: bool = False
    recorded_ops: int = 0
    lost_work: Counts = field(default_factory=Counts)


def facts_of(rank: RankTrace) -> RankFacts | None:
    """Returns the facts of a rank, None without a graph of any node. O(n log n)."""
    graph, linked, ops = rank.graph, rank.linked, rank.linked.ops
    uneven = linked.report.oddities[Reason.UNEVEN_STEPS]
    if graph is None or not len(graph):
        return None
    has_time = graph.integers("start_time_ns") != ABSENT
    tree, node = rank.tree, np.flatnonzero(~graph.is_activity & ~graph.is_delay & has_time)
    inner = np.full(len(graph), -1)
    inner[node] = rank.innermost_ops(graph.integers("tid")[node], (graph.start_ns + graph.duration_ns // 2)[node])
    is_aten = ops.name.where(lambda name: name.startswith(ATEN))
    outermost = np.full(len(ops) + 1, -1)
    for rows in tree.levels:
        above = tree.parent[rows]
        outermost[rows] = np.where((outermost[above] < 0) & is_aten[rows], rows, outermost[above])
    in_loader, op_row = np.zeros(len(graph), np.bool_), np.where(outermost[inner] >= 0, outermost[inner], inner)
    in_loader[node] = replays.within(graph, replays.LOADER)[node] >= 0
    # the node of each activity, unless the graph has others
    activities, nodes = linked.activities, activity_rows(graph)
    if len(nodes) == len(activities) and len(ops):
        by_time = np.lexsort((graph.integers("stream")[nodes], graph.integers("device")[nodes], graph.start_ns[nodes]))
        activity = np.lexsort((activities.stream, activities.device, activities.start))
        work, launching = rank.work.op_row[activity], activities.op_row[activity]
        op_row[nodes[by_time]], inner[nodes[by_time]] = np.where(work >= 0, work, launching), launching
    function = Categorical.nulls(len(graph))
    if "python_function" in graph.attributes:
        function = graph.texts("python_function")
    elif ops.python_function is not None:
        function = named(ops.python_function, inner)
    return RankFacts(
        rank.rank, graph, in_loader, named(ops.name, op_row),
        named(rank.shapes if len(ops) else Categorical.nulls(0), op_row), function,
        np.unique(ops.start[are_step_marks(ops.name) & (ops.start != ABSENT) & (not uneven)]), linked.report.dropped,
        lacks_sync_records(linked), linked.report.host_ops, lost_work(linked) or lost_launches(linked),
    )  # fmt: skip


@dataclass(eq=False)
class Job:
    """The ranks of a run, its tables, as recorded, and the replay of all ranks, without a profiler where that is known.

    The nodes of `work` are those of all ranks, rank after rank, `rank_of_node` are positions in `ranks`. The run takes
    `length_us`, and took `recorded_us` while it was recorded. `launches` says which dependencies are launches.
    None of the activities of `unrecorded` devices was recorded; with `lost_work` nothing shows what would help.
    """

    ranks: list[RankFacts]
    tables: Mapping[str, Table]
    recorded: Replay
    replay: Replay
    recording: Recording | None = None

    def __post_init__(self) -> None:
        self.work = self.replay.work
        self.length_us, self.recorded_us = self.replay.makespan_ns / 1000, self.recorded.makespan_ns / 1000
        self.world_size = max(len(self.ranks), *(rank.graph.number("world_size", 0) for rank in self.ranks))
        self.absent = self.world_size - len(self.ranks)
        named = (rank.graph.metadata.items() for rank in self.ranks)
        devices = {str(name) for items in named for key, name in items if key.startswith(DEVICE_NAME)}
        is_recorded = bool(self.work.is_activity.any())
        is_cut_off = any(lost.reason is Reason.CUT_OFF_ROWS for rank in self.ranks for lost in rank.lost_work)
        self.is_on_device = is_recorded or bool(devices)
        self.unrecorded = [] if is_recorded or is_cut_off else sorted(devices)
        self.lost_work = Counts().add(*(rank.lost_work for rank in self.ranks)).text
        self.rank_of_node = self.work.ranks_of(np.arange(len(self.work)))
        self.in_loader = np.concatenate([rank.in_loader for rank in self.ranks])
        self.names = Categorical.joined(rank.graph.name for rank in self.ranks)
        self.ops, self.shapes = (Categorical.joined(getattr(rank, of) for rank in self.ranks) for of in ("op", "shape"))
        self.functions = Categorical.joined(rank.function for rank in self.ranks)
        self.launches = is_of_kind(self.work, DependencyKind.LAUNCH) & ~self.work.is_activity[self.work.source]
        self.path_us = {kind: time / 1000 for kind, time in replays.time_by_kind(self.replay).items()}
        self.unexplained_us = sum(time for kind, time in self.path_us.items() if kind in replays.UNEXPLAINED)

    @property
    def is_on_gpu(self) -> bool:
        """Whether the host calls a GPU's runtime or driver."""
        return any(name.startswith(GPU_CALLS) for name in self.names.table)

    @cached_property
    def with_causes(self) -> tuple[Workload, Rows]:
        """The run in which what starts at a fixed time waits for something, and what that is."""
        return replays.with_causes(self.work)

    @cached_property
    def ends_ns(self) -> list[Ns]:
        """When each node ends in the run, then by its other models."""
        return [self.replay.end_ns, *map(replays.ends_ns, self.work.others)]

    @cached_property
    def calls(self) -> Int64:
        """The number of the call that each node is part of, on its rank, -1 for none."""
        return np.concatenate([replays.calls_of(rank.graph).of_row for rank in self.ranks])

    def integers(self, name: str, missing: int = 0) -> Int64:
        """Returns an attribute of all nodes."""
        return np.concatenate([rank.graph.integers(name, missing) for rank in self.ranks])

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Returns the rows of a table, none if it was not made."""
        return self.tables.get(table, NO_TABLE).rows()

    def rank_named(self, position: int) -> int | None:
        """Returns a rank to be named; None if there is only one."""
        return self.ranks[position].rank if len(self.ranks) > 1 else None

    def gain_of(self, spec: str, factor: Floats, removed: Bool) -> Gain:
        """Returns how much sooner the run ends with a change of `--scale`, which is to `gain` this factor and these."""
        changed = replays.replay_job(self.work, [replays.parse_scale(spec)])
        between, run = changed.range, self.work.unprofiled
        saved_us, least, most = (changed.measured_ns - changed.makespan_ns) / 1000, None, None
        if between and (run or not between.is_clear):
            least, most = ((changed.measured_ns - ns) / 1000 for ns in (between.high_ns, between.low_ns))
        pct = 100 * saved_us / self.length_us
        return Gain(saved_us, pct, factor, removed, least, most, run.steps if run else 0)

    def gain(self, factor: Floats, removed: Bool | None = None, of_host_delays: float = 1.0) -> Gain:
        """Returns how much sooner the run ends with durations times factors, then without `removed` dependencies, which
        is not more than the time that the changes take away somewhere.
        """

        def share_of(run: Workload, end_ns: Ns) -> float:
            work = replays.scale_nodes(run, factor, of_host_delays)
            less_ns = np.maximum(run.duration_ns + run.wait_ns - work.duration_ns - work.wait_ns, 0)
            met_ns, still_ns = end_ns[run.source] + run.lag_ns, end_ns[run.source] + work.lag_ns
            is_kept = np.ones(len(run.source), np.bool_)
            if removed is not None:
                # dependencies that were added come last
                is_kept[: len(removed)] = ~removed
                work = work.without_dependencies(~is_kept)
            waited = np.zeros((2, len(run)), np.int64)
            np.maximum.at(waited[0], run.target, met_ns)
            np.maximum.at(waited[1], run.target[is_kept], still_ns[is_kept])
            less_ns += np.maximum(waited[0] - waited[1], 0)
            taken = np.flatnonzero(less_ns > 0)
            possible_ns = columns.union(columns.Intervals(end_ns[taken] - less_ns[taken], end_ns[taken])).length()
            before_ns = max(int(end_ns.max(initial=0)), 1)
            work = replays.with_waits(run, work, replays.ends_ns, np.zeros(len(run), np.bool_))
            after_ns = replays.makespan_ns(work)
            return min(before_ns - after_ns, possible_ns) / before_ns

        run, others = self.work.unprofiled, self.work.others
        shares = list(map(share_of, (self.work, *others), self.ends_ns))
        share, saved_us = shares[0], shares[0] * self.length_us
        free, fixed = self.with_causes
        freed = 100 * share_of(free, replays.ends_ns(free)) if len(fixed) else 100 * share
        noise_us = replays.noise_around(run.noise_pct if run else 0.0, self.length_us, self.length_us - saved_us)
        least = most = None
        if others or noise_us:
            least, most = min(shares) * self.length_us - noise_us, max(shares) * self.length_us + noise_us
        least_pct = max(replays.CLEAR_PCT, LEAST_OF_GAIN * max(freed, 100 * share))
        differs, steps = abs(freed - 100 * share) > least_pct, run.steps if run else 0
        return Gain(saved_us, 100 * share, factor, removed, least, most, steps, freed if differs else None)

    def device_shares(self, column: str) -> list[float]:
        """Returns the share of the run that each device spends so; streams may overlap more than they were recorded."""
        return [min(100 * row[column] / self.length_us, 100.0) for row in self.rows("temporal_breakdown")]

    @property
    def busy_pct(self) -> float:
        """The share of the run in which devices run anything, the mean over devices."""
        return float(np.mean(self.device_shares("busy") or [0.0]))


def job_of(ranks: Sequence[RankFacts | None], tables: Mapping[str, Table], *, as_recorded: bool = False) -> Job | None:
    """Returns the job of these ranks, None if nothing takes time; raises DataError if they cannot run together."""
    present = [rank for rank in ranks if rank is not None]
    if not present:
        return None
    run = replays.run_of([rank.graph for rank in present], as_recorded=as_recorded)
    if not run.recorded.makespan_ns:
        return None
    replay = replays.replay_job(run.job) if run.job.unprofiled else run.recorded
    return Job(present, tables, run.recorded, replay, run.job.recording)


def is_of_kind(work: Workload, kind: DependencyKind) -> Bool:
    """Returns which dependencies have this reason."""
    return np.asarray(work.kind & kind != 0)
