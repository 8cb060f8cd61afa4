"""Replayed runs and reports as users hold them: how well a run is explained, what limits it, what a change would do."""

import dataclasses
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

from .linker.windows import EVERYTHING, Window, given_window
from .pictures import lanes_chart
from .schema.arguments import FilePath, Paths, check_ending, given, given_path, given_paths, texts
from .schema.columns import Frame, Summary, summary_html, summary_text as repr_text, time_text
from .schema.errors import nearest
from .schema.graph import ExecutionGraph
from .schema.io import open_output
from .tools import replay as replays, report as reports
from .tools.analyses import AnalysisOptions, Table, path_frame, path_rows, read_captures
from .tools.options import checked
from .tools.replay import Changes, Graphs, ReplaySummary
from .tools.view import write_timeline

if TYPE_CHECKING:
    import altair as alt

T = TypeVar("T")
OF_ANY_CLASS = (
    "__module__", "__qualname__", "__slots__", "__annotations__", "__firstlineno__", "__static_attributes__",
)  # fmt: skip


def added_to_record(methods: type[T]) -> type[T]:
    """Adds what the class defines to the record that it derives from, which gets the methods of a layer above it."""
    record = methods.__bases__[0]
    for name, value in vars(methods).items():
        if name not in OF_ANY_CLASS:
            setattr(record, name, value)
    return record


@added_to_record
class Replay(replays.Replay):
    """When each node of one or several ranks starts and ends, beside the measured run.

    Results are in µs, as floats; columns and tables are in ns, as whole numbers. Of a changed run, `range` says how far
    waits that nothing confirms could change the makespan, and `start_offset` the largest start offset, which no change
    scales; it is None where it is small. Of a run without a profiler `measured_us` is how long that took, or with
    changes how long it takes without them.

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
        return replays.summarise(self)

    def describe(self) -> str:
        """Returns what `trace-replay` prints."""
        return replays.describe(self, self.results, self.changes)

    def what_if(self, changes: Changes) -> "WhatIf":
        """Predicts how long this run would take if durations were multiplied by factors; see `execgraph.what_if`."""
        scales = [*self.changes, *replays.given_changes(changes, "what_if(changes)")]
        unchanged = self.unchanged if self.changes and self.unchanged else self.work
        return WhatIf(self, cast("Replay", replays.replay_job(unchanged, scales)))

    def changed_graphs(self) -> list[ExecutionGraph]:
        """Returns a graph for each rank with the times of this run in place of those measured, to write or to replay.

        Raises DataError for graphs made for ASTRA-sim.
        """
        return replays.changed_graphs(self)

    def plot(
        self, stream: int | None = None, *, time_us: tuple[float, float] | None = None, max_nodes: int = 2_000
    ) -> "alt.Chart":
        """Returns an Altair chart of the replayed run, faded beside the critical path; see `ExecutionGraph.plot`."""
        critical = path_rows(self)
        return lanes_chart(self.work, self.start_ns, self.end_ns, stream, time_us, max_nodes, critical)

    def write_timeline(self, path: FilePath) -> None:
        """Writes the measured and the replayed run as a trace for https://ui.perfetto.dev; .json or .json.gz.

        Raises ValueError for a name that ends like another kind of file.
        """
        check_ending(str(path), ".json")
        write_timeline(self, str(path))


class WhatIf(NamedTuple):
    """The replays of the run without and with changes; their rows are those of the graphs, one after the other.

    `after.range` says between what the makespan of the changed run lies. Where `capture` measured how long a step takes
    without a profiler, both are of the run without one.

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

    def summary(self) -> Summary:
        """Returns how many times as fast the changed run is, how long the run takes without and with changes, and what
        these apply to.
        """
        new = [change for change in self.after.changes if change not in self.before.changes]
        runs = {"before": self.before, "after": self.after}
        run = self.before.work.unprofiled
        steps, of_step = (run.steps, " a step") if run else (1, "")
        lines = {name: f"{time_text(of.makespan_ns / 1000 / steps)}{of_step}" for name, of in runs.items()}
        lines["saved"] = f"{time_text(self.saved_us / steps)}{of_step}"
        if new:
            changes = (replays.matched(self.before.work, change) for change in new)
            lines["changed"] = "; ".join(
                f"{change.nodes:,} {change.of_spec(run.steps if run else 0)}" for change in changes
            )
        between = self.after.range
        if between is not None and not between.is_clear:
            low, high = (time_text(ns / 1000 / steps) for ns in (between.low_ns, between.high_ns))
            lines["between"] = f"{low} and {high}{of_step}"
        unprofiled = ", unprofiled" if run else ""
        return Summary(f"WhatIf: {self.speedup:.2f} times as fast{unprofiled}", lines)

    def __repr__(self) -> str:
        return repr_text(self.summary())

    def _repr_html_(self) -> str:
        return summary_html(self.summary())


def replay(graphs: Graphs, changes: Changes = (), *, allow_mismatch: bool = False, as_recorded: bool = False) -> Replay:
    """Replays the graph of one rank, or those of a job together. O(n + e) in time and memory.

    Where it is known how long a step takes without a profiler, the run is the one without, which takes some 50 replays
    to find.

    >>> import execgraph as eg
    >>> eg.replay(eg.build("tests/data/training")).error_pct
    0.0

    Args:
        graphs: The graph of one rank, a list with one for each rank, a job or a folder; graphs or .et files.
        changes: Factors for the durations of nodes, as of `what_if`.
        allow_mismatch: Whether to replay graphs together that do not seem to be of one job.
        as_recorded: Whether to take the run as it was recorded.

    Returns:
        The replay, whose rows are those of the graphs, one graph after the other.

    Raises:
        DataError: Some nodes never become ready, or the graphs are not of one job.
        ValueError: A change cannot be made, or there is no graph.
        TypeError: `graphs` or `changes` are of another kind.
    """
    scales = replays.given_changes(changes, "replay(graphs, changes)")
    ranks = replays.given_graphs(graphs, "replay(graphs)", allow_mismatch=allow_mismatch)
    return cast(Replay, replays.replay_job(replays.run_of(ranks, as_recorded=as_recorded).job, scales))


def what_if(graphs: Graphs, changes: Changes, *, as_recorded: bool = False) -> WhatIf:
    """Predicts how long the run of these ranks would take if durations were multiplied by factors.

    Replays twice, O(n + e) each, and once more if there are waits that nothing confirms. Where it is known how long a
    step takes without a profiler, the answer is about the run without; see `replay`.

    >>> import execgraph as eg
    >>> graph = eg.link("tests/data/training", rank=0).to_graph()
    >>> eg.what_if(graph, {"class:computation": 0.5})
    WhatIf: 1.64 times as fast
      before   4.49 ms
      after    2.73 ms
      saved    1.76 ms
      changed  58 nodes by class:computation=0.5 (3.52 ms of work in all)

    Args:
        graphs: The graph of one rank, a list with one for each rank, a job or a folder; graphs or .et files.
        changes: The factor (0 or more), or a time such as "20ms" that each occurrence takes, by what it applies to,
            spelled as before the `=` of `--scale`; or a list of such specs. It is a regular expression that is searched
            in the names of nodes, `class:` with host, computation, communication, memory or delay, `bound:` with
            compute or memory, `phase:` with backward, optimizer, data_loading or forward_and_other, or a regular
            expression behind `under:` or `module:`; `rank:N/` before it is for one rank. The factors of one node
            multiply.
        as_recorded: Whether to take the run as it was recorded.

    Raises:
        DataError: Some nodes never become ready, or the graphs are not of one job.
        ValueError: A change cannot be made, or there is no graph.
        TypeError: `graphs` or `changes` are of another kind.
    """
    scales = replays.given_changes(changes, "what_if(graphs, changes)")
    ranks = replays.given_graphs(graphs, "what_if(graphs)")
    return replay(ranks, allow_mismatch=True, as_recorded=as_recorded).what_if(scales)


class TablesByName(dict[str, Table]):
    """The tables of a report, by name. A KeyError names the nearest one, or all."""

    def __missing__(self, name: str) -> Table:
        raise KeyError(f"the report has no table {name!r}{nearest(str(name), self)}")


@added_to_record
class Report(reports.Report):
    """What limits a run and what to do, or in what two runs differ: the `verdict`, the `findings`, and the `tables` by
    name.

    >>> import execgraph as eg
    >>> report = eg.report("tests/data/training")
    >>> print(str(report).splitlines()[2][:27])
    Computation limits the run:
    >>> report.findings[0].gain.pct > 10, len(report.tables) > 20
    (True, True)
    """

    __slots__ = ()

    def write_csv(self, folder: FilePath) -> None:
        """Writes NAME.csv for every table to a folder; if one fails, none is written."""
        reports.write_csv(self.tables.values(), given_path(folder, "write_csv(folder)"), self.clock_of_tables)

    def __repr__(self) -> str:
        text = reports.tables_text(self) if self.is_of_some else reports.summary_text(self)
        return f"Report of {self.title}\n\n{text}"

    def _repr_html_(self) -> str:
        return f'<pre style="white-space: pre-wrap">{escape(repr(self))}</pre>'


def report(
    inputs: Paths,
    path: FilePath | None = None,
    *,
    only: str | Sequence[str] | None = None,
    ranks: Sequence[int] | None = None,
    window: Window = EVERYTHING,
    allow_mismatch: bool = False,
    modules: bool = False,
    options: AnalysisOptions | None = None,
    captures: Paths = (),
    perfetto: FilePath | None = None,
    as_recorded: bool = False,
) -> Report:
    """Says what limits a run over all its ranks, by how much, and what to do, as `trace-report` does.

    >>> import execgraph as eg
    >>> report = eg.report("tests/data/training", only=["critical_path"])
    >>> report.tables["critical_path_replay"].rows()[0]["ranks"]
    2

    Args:
        inputs: Folders or files with traces, linked traces or graphs of the run.
        path: The .html file to write the page to; without it none is drawn.
        only: The names of the analyses to make; by default all.
        ranks: Only these ranks of those that are there.
        window: The part of each rank's traces to look at.
        allow_mismatch: Whether traces that do not seem to be of one job are those of one.
        modules: Whether to read Python's calls, for tables by module.
        options: Thresholds of the analyses, and how much they show.
        captures: Device traces in which CUDA graphs were captured, or ran op by op: they name the ops behind the
            kernels of launched graphs.
        perfetto: The file to write the device trace to with counters, the critical path and kernel patterns, for
            https://ui.perfetto.dev; several ranks give NAME.rankN.json.
        as_recorded: Whether the verdict and findings are about the recorded run, even where it is known how long
            it takes without a profiler.

    Returns:
        The verdict, the findings, and the tables by name.

    Raises:
        DataError: A file cannot be used, or no rank is there.
        ImportError: What draws the page is not installed.
        ValueError: There is no analysis of a name in `only`, or `path` does not end in .html.
        TypeError: `inputs` are not paths, or another argument is of the wrong kind.
    """
    _check_name(path, "report(inputs, path)")
    given_window(window, "report(window=…)")
    options_of_call = {"allow_mismatch": allow_mismatch, "modules": modules, "as_recorded": as_recorded}
    chosen = checked("report", ranks=ranks, **options_of_call)["ranks"]
    sources = reports.find_sources(given_paths(inputs, "report(inputs)"), chosen=chosen, allow_mismatch=allow_mismatch)
    names = [only] if isinstance(only, str) else None if only is None else [*texts(only, "report(only=…)")]
    of_graphs = given_paths(captures, "report(captures=…)")
    captured = [capture for trace in of_graphs for capture in read_captures(str(trace))]
    options = given(options or AnalysisOptions(), AnalysisOptions, "report(options=…)", "AnalysisOptions")
    options = dataclasses.replace(options, captures=[*options.captures, *captured])
    overlay = str(perfetto or "")
    request = reports.ReportRequest(names, path is not None, overlay, options, window, modules, as_recorded)
    return _finished(reports.report_on(sources, request), path)


def compare(
    before: Paths, after: Paths, path: FilePath | None = None, *, window: Window = EVERYTHING, modules: bool = False
) -> Report:
    """Says which of two runs is faster, by how much, and what the difference was spent on, as `trace-report --diff`.

    >>> import execgraph as eg
    >>> folder = "tests/data/training"
    >>> report = eg.compare(f"{folder}/device_rank0.json.gz", f"{folder}/device_rank1.json.gz")
    >>> report.tables["trace_diff_runs"]["part"][:2]
    ['step', 'run']

    Args:
        before: Folders or files with traces or linked traces of the first run.
        after: The same of the second.
        path: The .html file to write the page to; without it none is drawn.
        window: The part of both runs to compare.
        modules: Whether to read Python's calls, for tables by module.

    Returns:
        The verdict and the tables by name.

    Raises:
        DataError: A file cannot be used, or no rank is there.
        ImportError: What draws the page is not installed.
        ValueError: `path` does not end in .html.
        TypeError: `before` or `after` are not paths, or `window` is not a Window.
    """
    _check_name(path, "compare(before, after, path)")
    given_window(window, "compare(window=…)")
    checked("compare", modules=modules)
    first, second = (reports.find_sources(given_paths(run, "compare(before, after)")) for run in (before, after))
    return _finished(reports.report_on_diff(first, second, window=window, modules=modules), path)


def _check_name(path: FilePath | None, argument: str) -> None:
    if path is not None:
        reports.check_page_name(given_path(path, argument))


def _finished(report: reports.Report, path: FilePath | None) -> Report:
    report.tables = TablesByName(report.tables)
    if path is not None:
        with open_output(str(path)) as stream:
            stream.write(reports.render(report).encode("utf-8", "replace"))
    return cast(Report, report)
