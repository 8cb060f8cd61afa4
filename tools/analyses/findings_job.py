"""The record that every rule looks at, and what its run would gain by a change."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...schema.columns import Bool, Categorical, Int64
from ...schema.graph import DependencyKind
from ..replay import (
    UNEXPLAINED,
    GatheredJob,
    NodeClass,
    Recording,
    Replay,
    Workload,
    gather_job,
    makespan_ns,
    pieces_of,
    recording_of,
    replay_job,
    scale_nodes,
    time_by_kind,
)
from .finding import Change, Gain
from .rank_facts import RankFacts
from .table import Floats, Table

NO_TABLE = Table("", "", [])


@dataclass(slots=True)
class Job:
    """The ranks of a run, the tables of its analyses, and the replay of all ranks together as they were recorded.

    Where it is known how long a step takes without a profiler, `gathered` and `replay` are of the run without one; else
    they are as recorded, too. Where the devices limit that run, its host may be faster than in `gathered`, and
    `without_host` is the run in which it takes no time. Tables are as recorded.
    """

    ranks: list[RankFacts]
    tables: Mapping[str, Table]
    recorded: Replay
    gathered: GatheredJob
    replay: Replay
    recording: Recording | None = None
    without_host: GatheredJob | None = None

    @property
    def work(self) -> Workload:
        """The nodes of all ranks, rank after rank."""
        return self.gathered.work

    @property
    def length_us(self) -> float:
        """How long the run takes."""
        return self.replay.makespan_ns / 1000

    @property
    def recorded_us(self) -> float:
        """How long the run took while it was recorded."""
        return self.recorded.makespan_ns / 1000

    @property
    def world_size(self) -> int:
        """How many ranks the job had, as far as that was recorded."""
        return max(len(self.ranks), *(rank.graph.number("world_size", 0) for rank in self.ranks))

    @property
    def is_on_device(self) -> bool:
        """Whether anything ran on a device."""
        return bool(self.work.is_activity.any())

    @property
    def rank_of_node(self) -> Int64:
        """The position in `ranks` of each node."""
        return self.work.ranks_of(np.arange(len(self.work)))

    def flags(self, of_rank: Callable[[RankFacts], Bool]) -> Bool:
        """Returns a column of flags of all nodes."""
        return np.concatenate([of_rank(rank) for rank in self.ranks])

    def texts(self, of_rank: Callable[[RankFacts], Categorical]) -> Categorical:
        """Returns a column of texts of all nodes."""
        return Categorical.joined([of_rank(rank) for rank in self.ranks])

    def integers(self, name: str, missing: int = 0) -> Int64:
        """Returns an attribute of all nodes."""
        return np.concatenate([rank.graph.integers(name, missing) for rank in self.ranks])

    def rows(self, table: str) -> list[dict[str, object]]:
        """Returns the rows of a table, none if it was not made."""
        return self.tables.get(table, NO_TABLE).rows()

    def gain(self, change: Change) -> Gain:
        """Returns by how much sooner the run would end with a change."""

        def changed(work: Workload) -> Workload:
            scaled = scale_nodes(work, change.factor)
            return scaled if change.removed is None else scaled.without_dependencies(change.removed)

        return self._gain(changed)._replace(change=change)

    def _gain(self, changed: Callable[[Workload], Workload]) -> Gain:
        def saved_us(job: GatheredJob, before_ns: int) -> float:
            return (before_ns - makespan_ns(job._replace(work=changed(job.work)))) / 1000

        steps = self.recording.steps if self.recording and self.recording.is_known else 0
        saved = [saved_us(self.gathered, self.replay.makespan_ns)]
        if self.without_host:
            saved.append(saved_us(self.without_host, makespan_ns(self.without_host)))
        least_us = min(saved) if self.without_host else None
        return Gain(max(saved), 100 * max(saved) / max(self.length_us, 1e-3), None, least_us, steps)

    def gain_of_scaling(self, factor: Floats) -> Gain:
        """Returns by how much sooner the run would end with each node's duration multiplied by a factor."""
        return self.gain(Change(factor))

    def gain_together(self, changes: Sequence[Change]) -> Gain:
        """Returns by how much sooner the run would end with all changes; of a node's factors the least holds."""
        removed = np.zeros(len(self.work.source), np.bool_)
        for change in changes:
            removed |= removed if change.removed is None else change.removed
        return self.gain(Change(np.minimum.reduce([change.factor for change in changes]), removed))

    def gain_of_class(self, node_class: NodeClass, factor: float) -> Gain:
        """Returns by how much sooner the run would end with the durations of a class multiplied by a factor."""
        factors = np.where(self.work.node_class == node_class, factor, 1.0)
        of_delays = factor if node_class == NodeClass.HOST else 1.0
        return self._gain(lambda work: scale_nodes(work, factors, of_delays))

    def path_us(self) -> dict[str, float]:
        """Returns the time on the critical path by kind, the longest first."""
        return {kind: time / 1000 for kind, time in time_by_kind(pieces_of(self.replay)).items()}

    def unexplained_us(self) -> float:
        """Returns the time on the critical path that no dependency explains."""
        return sum(time for kind, time in self.path_us().items() if kind in UNEXPLAINED)

    def compute_busy_pct(self) -> float:
        """Returns the share of the run in which the busiest device computes."""
        return max(self._device_shares("compute"), default=0.0)

    def busy_pct(self) -> float:
        """Returns the share of the run in which devices run anything, the mean over devices."""
        shares = self._device_shares("busy")
        return float(np.mean(shares)) if shares else 0.0

    def _device_shares(self, column: str) -> list[float]:
        """Returns the share of the run that each device spends so; streams may overlap more than they were recorded."""
        times = [float(str(row[column])) for row in self.rows("temporal_breakdown")]
        return [min(100 * time / self.length_us, 100.0) for time in times]


def job_of(ranks: Sequence[RankFacts | None], tables: Mapping[str, Table]) -> Job | None:
    """Returns the job of these ranks; None if nothing in their graphs takes time.

    Raises DataError if they cannot be replayed together.
    """
    present = [rank for rank in ranks if rank is not None]
    if not present:
        return None
    gathered = gather_job([rank.graph for rank in present])
    recorded = replay_job(gathered)
    if not recorded.makespan_ns:
        return None
    recording = recording_of(gathered, recorded)
    if recording is None or not recording.is_known:
        return Job(present, tables, recorded, gathered, recorded, recording)
    without_host = recording.without_host(gathered)
    gathered = recording.without_profiler(gathered)
    return Job(present, tables, recorded, gathered, replay_job(gathered), recording, without_host)


def is_of_kind(work: Workload, kind: DependencyKind) -> Bool:
    """Returns which dependencies have this reason."""
    return np.asarray(work.kind & kind != 0)
