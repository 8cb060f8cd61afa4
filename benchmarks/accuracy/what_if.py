"""How far a simulated job's execution graphs answer what-if questions from the job's own changed runs.

The graphs come from the traces of the base run alone, linked and converted as any traces are.
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from execgraph.converter.convert import convert
from execgraph.linker.link import link
from execgraph.linker.readers import read_device_trace, read_host_trace
from execgraph.schema.columns import Bool, Int64
from execgraph.schema.graph import ExecutionGraph
from execgraph.schema.linked import LinkedTrace
from execgraph.tools.generate import Job, RankRun, Run, as_numpy, is_recorded, simulate, write_traces
from execgraph.tools.replay import MakespanRange, Replay, gather_job, node_classes, parse_scale, replay_job


class Allowed(NamedTuple):
    """How wrong answers may be: the share `share_pct` of them by `within_pct`, and none by more than `worst_pct`.

    Of the answers `in_range_pct` must hold the truth in their range, and of the waits that held something up in the
    measured run `found_pct` must be in the graphs.
    """

    share_pct: float
    within_pct: float
    worst_pct: float
    in_range_pct: float = 95
    found_pct: float = 100


class Variant(NamedTuple):
    """What the traces know of synchronisation, and how wrong answers may be then."""

    name: str
    sync_records: bool
    resolved_events: bool
    allowed: Allowed


RECORDED, RECORDED_CROWDED = Allowed(99, 1, 3), Allowed(95, 1, 3)
"""Where traces say what waits are for; on full devices ties within a µs decide the order."""
DERIVED, DERIVED_CROWDED = Allowed(95, 1.5, 30), Allowed(95, 3, 30, in_range_pct=90)
"""Where that has to be derived. The worst case is no better with every wait that ever held anything up put in from the
truth: what the others were for shows in no time of the trace.
"""
ON_FULL_DEVICES = {RECORDED: RECORDED_CROWDED, DERIVED: DERIVED_CROWDED}
VARIANTS = (
    Variant("sync records", True, True, RECORDED),
    Variant("sync records, events unresolved", True, False, DERIVED),
    Variant("no sync records", False, False, DERIVED),
)


class Change(NamedTuple):
    """What-if factors, and the kind of question that they are."""

    kind: str
    specs: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The factors as users write them, empty for none."""
        return " ".join(self.specs)


BASE = "base"
CHANGES = (
    Change(BASE),
    *(Change("computation", (f"class:computation={factor}",)) for factor in (0.2, 0.5, 2, 4)),
    *(Change("communication", (f"class:communication={factor}",)) for factor in (0.2, 0.5, 2, 4)),
    *(Change("host", (f"class:host={factor}",)) for factor in (0.5, 2)),
    *(Change("memory", (f"class:memory={factor}",)) for factor in (0.5, 4)),
    Change("pair", ("class:computation=0.3", "class:host=2")),
    Change("pair", ("class:computation=0.5", "class:communication=3")),
    Change("pair", ("class:memory=4", "class:computation=0.5")),
    Change("name", ("gemm=0.4",)),
    Change("name", ("reduce_kernel=8",)),
    Change("name", ("^aten::|autograd=3",)),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """A job's makespan, and when the activities in its traces started, by rank, stream and position there."""

    makespan_ns: int
    start_ns: Int64


@dataclass(frozen=True, slots=True)
class Answer:
    """How long the changed job takes in truth and by its graphs, and the largest error of an activity's start.

    `range` is the one that users are shown where waits that are not known for sure could change the answer.
    """

    change: Change
    true_ns: int
    replayed_ns: int
    start_off_ns: int
    range: MakespanRange | None = None

    @property
    def error_pct(self) -> float:
        """How much too long the replay takes."""
        return 100 * (self.replayed_ns - self.true_ns) / self.true_ns

    @property
    def start_error_pct(self) -> float:
        """In % of the makespan; shows what the makespan hides."""
        return 100 * self.start_off_ns / self.true_ns

    @property
    def is_range(self) -> bool:
        """Whether users are shown a range."""
        return self.range is not None and not self.range.is_clear

    @property
    def holds_truth(self) -> bool:
        """Whether the truth lies in the range, or by the single figure, within 1 %."""
        low, high = (self.replayed_ns,) * 2 if self.range is None else self.range[:2]
        return 0.99 * low <= self.true_ns <= 1.01 * high


def graphs_of(run: Run, variant: Variant) -> list[ExecutionGraph]:
    """Returns the graph of each rank, by way of trace files. Raises DataError as reading, linking and converting do."""
    return [convert(linked) for linked in linked_of(run, variant)]


def linked_of(run: Run, variant: Variant) -> list[LinkedTrace]:
    """Returns the linked trace of each rank, by way of trace files."""
    with tempfile.TemporaryDirectory() as folder:
        files = write_traces(run, folder, sync_records=variant.sync_records, resolved_events=variant.resolved_events)
        pairs = [(read_host_trace(str(pair.host)), read_device_trace(str(pair.device))) for pair in files]
    return [link(host, device) for host, device in pairs]


def true_outcomes(job: Job, changes: Sequence[Change] = CHANGES) -> dict[Change, Outcome]:
    """Returns how the job turns out under each of the changes, the first of which is none."""
    steps = [list(job.program(rank)) for rank in range(job.ranks)]  # the same whatever changes
    written = replace(job, program=lambda rank: iter(steps[rank]))
    runs = ((change, simulate(written, change.specs)) for change in changes)
    base, run = next(runs)
    kept = [is_recorded(rank)[_by_stream(rank)] for rank in run.ranks]
    return {base: _of_run(run, kept), **{change: _of_run(changed, kept) for change, changed in runs}}


def answers(graphs: list[ExecutionGraph], outcomes: Mapping[Change, Outcome]) -> Iterator[Answer]:
    """Yields one answer per change that names anything in the graphs, which hold all activities in the job's traces."""
    scales = {change: [parse_scale(spec) for spec in change.specs] for change in outcomes}
    asked = {
        change: scale
        for change, scale in scales.items()
        if all(any(one.matches(graph, node_classes(graph)).any() for graph in graphs) for one in scale)
    }
    job = gather_job(graphs)
    for change, scale in asked.items():
        replay = replay_job(job, scale)
        replayed, true = _of_replay(replay), outcomes[change]
        off = int(np.abs(replayed.start_ns - true.start_ns).max(initial=0))
        yield Answer(change, true.makespan_ns, replayed.makespan_ns, off, replay.range)


def _of_run(run: Run, kept: list[Bool]) -> Outcome:
    starts = [
        as_numpy(rank.activities.start)[_by_stream(rank)][of_rank]
        for rank, of_rank in zip(run.ranks, kept, strict=True)
    ]
    return Outcome(run.makespan_ns, np.concatenate(starts) - run.period()[0])


def _by_stream(rank: RankRun) -> Int64:
    """Returns the activities in the order of streams and time, which a change keeps."""
    return np.lexsort((as_numpy(rank.activities.start), as_numpy(rank.activities.stream)))


def _of_replay(replay: Replay) -> Outcome:
    starts = []
    for first, graph in zip(replay.work.first_row.tolist(), replay.work.graphs, strict=True):
        rows = np.flatnonzero(graph.is_activity)
        in_order = rows[np.lexsort((graph.id[rows], graph.start_ns[rows], graph.integers("stream")[rows]))]
        starts.append(replay.start_ns[first + in_order])
    return Outcome(replay.makespan_ns, np.concatenate(starts))
