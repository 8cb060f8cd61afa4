"""Replayed runs as users hold them: how well they agree with the measured run, and what a change would do."""

from typing import TYPE_CHECKING, NamedTuple, cast

from .pictures import Part, lanes_chart
from .records import added_to_record
from .schema.arguments import FilePath, check_ending
from .schema.columns import Frame, Summary, summary_html, summary_text, time_text
from .schema.graph import STEP_WITHOUT_PROFILER_NS, STEPS
from .tools.analyses import path_frame, path_rows
from .tools.replay import (
    Changes,
    Replay as ReplayRecord,
    ReplaySummary,
    describe,
    gather_job,
    given_changes,
    graphs_of_one_job,
    matched,
    recording,
    replay_job,
    replay_ranks,
    summarise,
)
from .tools.replay.workload import Graphs
from .tools.view import write_timeline

if TYPE_CHECKING:
    import altair as alt

AS_FAST = 0.95
"""A run in which a step without a profiler takes at least this share of a step is one without a profiler."""


@added_to_record
class Replay(ReplayRecord):
    """When each node of one or several ranks starts and ends, beside the measured run.

    Results are in µs, as floats; columns and tables are in ns, as whole numbers. Of a changed run, `range` says how far
    waits that nothing confirms could change the makespan, and `start_offset` the largest start offset, which no change
    scales; it is None where it is small.

    >>> import execgraph as eg
    >>> run = eg.link("tests/data/training", rank=0).to_graph().replay()
    >>> run.makespan_us, run.error_pct
    (4494.59, 0.0)
    """

    __slots__ = ()

    @property
    def makespan_us(self) -> float:
        """How long the replayed run takes."""
        return self.makespan_ns / 1000

    @property
    def measured_us(self) -> float:
        """How long the measured run took."""
        return self.measured_ns / 1000

    @property
    def nodes(self) -> Frame:
        """The nodes as a table, rank after rank.

        Columns: rank (the position of the graph if ranks were not recorded), id, name, class, and in ns from the run's
        start start_ns, end_ns, measured_start_ns and measured_end_ns, the latter two null where they were not recorded.
        """
        return Frame("replayed nodes", self._frame())

    @property
    def critical_path(self) -> Frame:
        """The chain of nodes and waits that determines the makespan, piece by piece, as a table.

        Columns: rank, id and name of the node, kind of time, start_ns and duration_ns, device, stream and tid.
        """
        return path_frame(self)

    @property
    def results(self) -> ReplaySummary:
        """The numbers that `trace-replay --json` prints, in µs where the name says so."""
        return summarise(self, scale=self.changes)

    def describe(self) -> str:
        """Returns what `trace-replay` prints."""
        return describe(self, self.results, self.changes)

    def what_if(self, changes: Changes) -> "WhatIf":
        """Predicts how long this run would take if durations were multiplied by factors; see `execgraph.what_if`."""
        scales = [*self.changes, *given_changes(changes, "what_if(changes)")]
        return WhatIf(self, cast("Replay", replay_ranks(self.work.graphs, scales)))

    def plot(
        self, stream: int | None = None, *, time_us: tuple[float, float] | None = None, max_nodes: int = 2_000
    ) -> "alt.Chart":
        """Returns an Altair chart of the replayed run, faded beside the critical path; see `ExecutionGraph.plot`."""
        critical = path_rows(self)
        return lanes_chart(self.work, self.start_ns, self.end_ns, Part(stream, time_us, max_nodes), critical)

    def write_timeline(self, path: FilePath) -> None:
        """Writes the measured and the replayed run as a trace for https://ui.perfetto.dev; .json or .json.gz.

        Raises ValueError for a name that ends like another kind of file.
        """
        check_ending(str(path), ".json")
        write_timeline(self, str(path))


class WhatIf(NamedTuple):
    """The replays of the run without and with changes; their rows are those of the graphs, one after the other.

    `after.range` says between what the makespan of the changed run lies. Both are as recorded; where `capture` measured
    how long a step takes without a profiler, `without_profiler` has the answer for that run.

    >>> import execgraph as eg
    >>> answer = eg.link("tests/data/training", rank=0).to_graph().what_if({"class:computation": 0.5})
    >>> round(answer.speedup, 2), answer.saved_us > 0
    (1.64, True)
    """

    before: Replay
    after: Replay

    @property
    def saved_us(self) -> float:
        """How much sooner (µs) the changed run ends; negative for later."""
        return (self.before.makespan_ns - self.after.makespan_ns) / 1000

    @property
    def speedup(self) -> float:
        """How many times as fast the changed run is; inf for one that takes no time."""
        return self.before.makespan_ns / self.after.makespan_ns if self.after.makespan_ns else float("inf")

    @property
    def without_profiler(self) -> "WhatIf | None":
        """The same changes to the run without a profiler; None where that is not known or took as long.

        Replays up to a dozen times to find it.
        """
        graphs, recording_of_run = self.before.work.graphs, recording(self.before.work.graphs)
        if recording_of_run is None or not recording_of_run.is_known:
            return None
        job = recording_of_run.without_profiler(gather_job(graphs))
        return WhatIf(*(cast(Replay, replay_job(job, run.changes)) for run in self))

    def summary(self) -> Summary:
        """Returns how many times as fast the changed run is, how long the run takes without and with changes, and what
        these apply to; of the run without a profiler, too, where it is another one.

        Finds that as `without_profiler` does.
        """
        changes = [change for change in self.after.changes if change not in self.before.changes]
        lines = {
            "before": time_text(self.before.makespan_ns / 1000),
            "after": time_text(self.after.makespan_ns / 1000),
            "saved": time_text(self.saved_us),
        }
        matches = [matched(self.before.work.graphs, change) for change in changes]
        lines |= {"changed": "; ".join(change.text for change in matches)} if matches else {}
        waits = self.after.range
        if waits is not None and not waits.is_clear:
            lines["between"] = f"{time_text(waits.low_ns / 1000)} and {time_text(waits.high_ns / 1000)}"
        title = f"WhatIf: {self.speedup:.2f} times as fast"
        if step_us := self._faster_step_us():
            title += " with the profiler"
            lines["no profiler"] = f"a step takes {time_text(step_us)}; what the changes do to it is not known"
            if answer := self.without_profiler:
                title += f", {answer.speedup:.2f} times without"
                before, after = (time_text(run.makespan_us) for run in answer)
                lines["no profiler"] = f"{before} before, {after} after; see without_profiler"
        return Summary(title, lines)

    def _faster_step_us(self) -> float:
        """Returns how long a step takes without a profiler, 0 where that is not known or this run is as fast."""
        graphs = self.before.work.graphs
        steps = min(graph.number(STEPS, 0) for graph in graphs)
        step_ns = max(graph.number(STEP_WITHOUT_PROFILER_NS, 0) for graph in graphs)
        return step_ns / 1000 if 0 < steps * step_ns < AS_FAST * self.before.makespan_ns else 0.0

    def __repr__(self) -> str:
        return summary_text(self.summary())

    def _repr_html_(self) -> str:
        return summary_html(self.summary())


def replay(graphs: Graphs, changes: Changes = (), *, allow_mismatch: bool = False) -> Replay:
    """Replays the graph of one rank, or those of a job together. O(n + e) in time and memory.

    >>> import execgraph as eg
    >>> eg.replay(eg.build("tests/data/training")).error_pct
    0.0

    Args:
        graphs: The graph of one rank, a list with one for each rank, a job or a folder; graphs or .et files.
        changes: Factors for the durations of nodes, as of `what_if`.
        allow_mismatch: Whether to replay graphs together that do not seem to be of one job.

    Returns:
        The replay, whose rows are those of the graphs, one graph after the other.

    Raises:
        DataError: Some nodes never become ready, or the graphs are not of one job.
        ValueError: A change cannot be made, or there is no graph.
        TypeError: `graphs` or `changes` are of another kind.
    """
    scales = given_changes(changes, "replay(graphs, changes)")
    ranks = graphs_of_one_job(graphs, "replay(graphs)", allow_mismatch=allow_mismatch)
    return cast(Replay, replay_ranks(ranks, scales))


def what_if(graphs: Graphs, changes: Changes) -> WhatIf:
    """Predicts how long the run of these ranks would take if durations were multiplied by factors.

    Replays twice, O(n + e) each, and once more if there are waits that nothing confirms.

    >>> import execgraph as eg
    >>> graph = eg.link("tests/data/training", rank=0).to_graph()
    >>> eg.what_if(graph, {"class:computation": 0.5, "gemm": 0.9})
    WhatIf: 1.73 times as fast
      before   4.49 ms
      after    2.60 ms
      saved    1.89 ms
      changed  58 nodes by class:computation=0.5, which took 3.52 ms; 18 nodes by gemm=0.9, which took 2.58 ms

    Args:
        graphs: The graph of one rank, a list with one for each rank, a job or a folder; graphs or .et files.
        changes: The factor (0 or more) by what it applies to, spelled as before the `=` of `--scale`: a regular
            expression that is searched in the names of nodes, `class:` with host, computation, communication, memory
            or delay, or `bound:` with compute or memory. The factors of one node multiply.

    Raises:
        DataError: Some nodes never become ready, or the graphs are not of one job.
        ValueError: A change cannot be made, or there is no graph.
        TypeError: `graphs` or `changes` are of another kind.
    """
    scales = given_changes(changes, "what_if(graphs, changes)")
    return replay(graphs_of_one_job(graphs, "what_if(graphs)"), allow_mismatch=True).what_if(scales)
