"""A job as users hold it: from the traces of all ranks to their graphs in a folder, and what to ask of these."""

import shutil
import tempfile
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .converter.options import Options
from .converter.scaling import Growth
from .execution_graph import ExecutionGraph
from .linker.windows import EVERYTHING, Window, given_window
from .pictures import ranks_chart
from .run import Replay, Report, WhatIf, replay, report
from .schema import arguments
from .schema.arguments import ASTRA_SIM, MOST_MESSAGES, FilePath, Paths, given_path, wrong_argument
from .schema.columns import Summary, SummaryRepr, format_counts
from .schema.comm_groups import check_simulators_read
from .schema.errors import DataError
from .schema.io import path_is
from .tools import job as building, replay as replaying
from .tools.job import AstraSimOptions, BuildTarget
from .tools.options import checked
from .tools.replay import BUILT, Changes, Simulated, simulate_ranks
from .tools.workers import runner

if TYPE_CHECKING:
    import altair as alt

TEMPORARY = "execgraph-"
"""How the names of temporary folders begin."""


class Job(SummaryRepr):
    """The graphs of a job: a sequence with one for each rank, which is read from its file when it is asked for.

    `folder` has the files, `build_report` what became of the traces; it is None for graphs that were built before.

    >>> import execgraph as eg
    >>> job = eg.build("tests/data/training")
    >>> len(job), job.ranks, job[1].metadata["rank"]
    (2, [0, 1], 1)
    >>> job.what_if({"class:communication": 0.5}).saved_us > 0
    True
    """

    __slots__ = ("__weakref__", "_files", "_traces", "_window", "build_report", "folder")

    def __init__(
        self,
        folder: Path,
        build_report: building.BuildReport | None = None,
        traces: Sequence[Path] = (),
        window: Window = EVERYTHING,
    ) -> None:
        self.folder, self.build_report = folder, build_report
        self._files, self._traces, self._window = replaying.graph_files(folder), [*traces], window

    @property
    def ranks(self) -> list[int]:
        """The ranks that have a graph, in their order."""
        return [int(name[1]) for file in self._files if (name := BUILT.fullmatch(Path(file).name))]

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, position: int) -> ExecutionGraph:
        """Returns the graph at a position, which in a job without missing ranks is the rank; `graph` finds a rank."""
        try:
            file = self._files[arguments.whole_number(position, "job[position]")]
        except IndexError:
            raise IndexError(f"there is no graph at {position}: the job has {len(self)}") from None
        return ExecutionGraph.read(file)

    def __iter__(self) -> Iterator[ExecutionGraph]:
        # a generator holds the job, and so its folder
        for position in range(len(self)):
            yield self[position]

    def graph(self, rank: int) -> ExecutionGraph:
        """Returns the graph of a rank; KeyError where there is none."""
        if arguments.whole_number(rank, "job.graph(rank)") not in self.ranks:
            raise KeyError(f"the job has no graph of rank {rank}")
        return self[self.ranks.index(rank)]

    @property
    def failures(self) -> list[str]:
        """A line for each rank that could not be built, or several that failed alike."""
        return self.build_report.all_failures if self.build_report else []

    @property
    def notes(self) -> list[str]:
        """A line for everything that is odd about the traces, and what ranks contradict each other in."""
        report = self.build_report
        return [*report.all_notes, *report.disagreements] if report else []

    def summary(self) -> Summary:
        """Returns how many ranks there are and where their graphs are."""
        counts = {"failures": len(self.failures), "notes": len(self.notes)}
        lines = {"folder": "a temporary one; write(folder) keeps the files" if self._is_temporary else str(self.folder)}
        if self.build_report:
            lines["built"] = format_counts(counts) or "without failures and notes"
        return Summary(f"Job: {len(self)} rank{'s' if len(self) != 1 else ''}", lines)

    @property
    def _is_temporary(self) -> bool:
        return self.folder.parent == Path(tempfile.gettempdir()) and self.folder.name.startswith(TEMPORARY)

    def replay(self, changes: Changes = ()) -> Replay:
        """Replays all ranks together, with `changes` as of `execgraph.what_if`; see `execgraph.replay`."""
        return replay([replaying.read_graph_file(file, tensors=False) for file in self._files], changes)

    def what_if(self, changes: Changes) -> WhatIf:
        """Predicts how long the job would take if durations were multiplied by factors; see `execgraph.what_if`."""
        return self.replay().what_if(changes)

    def simulate(self) -> Simulated:
        """Returns when each rank finishes in ASTRA-sim, by that simulator's rules.

        The mode and network are those of the folder's configuration, `astra-sim`; without one it is replay mode.

        Raises:
            DataError: The graphs are of another target than "astra-sim", or never become ready; or the configuration
                has a network or algorithm whose times are not known.
        """
        return simulate_ranks([*self], replaying.configuration_of(self._files)[0])

    def plot(self) -> "alt.Chart":
        """Returns an Altair chart of how long the streams of each rank work, by class; ImportError without Altair."""
        run = self.replay()
        return ranks_chart(run.work, run.start_ns, run.end_ns)

    def report(
        self, path: FilePath | None = None, *, only: str | Sequence[str] | None = None, modules: bool = False
    ) -> Report:
        """Says what limits the job and what to do, from its traces or else its graphs; see `execgraph.report`."""
        inputs = self._traces or [self.folder]
        return report(inputs, path, only=only, window=self._window, modules=modules)

    def scale(
        self,
        data_parallel: int = 1,
        output: FilePath | None = None,
        *,
        remove_ranks: Sequence[int] = (),
        groups: Sequence[str] = (),
        bandwidth_gib_s: float | None = None,
        latency_ns: float | None = None,
        jobs: int = 1,
    ) -> "Job":
        """Returns the job of the same program on other ranks.

        Args:
            data_parallel: The number of copies of the job.
            output: The folder for the graphs, which is new or empty; by default they are in a temporary one until
                `write` copies them.
            remove_ranks: Ranks to leave out first.
            groups: The data-parallel groups by their recorded name, description or ranks ("0,1"); by default those
                described as such, or that reduce gradients.
            bandwidth_gib_s: The bandwidth of the grown groups' network in 2**30 bytes/s; fitted by default.
            latency_ns: The latency of a link there; fitted by default.
            jobs: How many processes work at a time; 1 is this one alone.

        Raises:
            DataError: The graphs are not a whole job, or the change would make it another program.
            ValueError: `data_parallel` is below 1, or the bandwidth or the latency not above 0.
            TypeError: An argument is of the wrong kind.
        """
        checked("scale", jobs=jobs)
        network = {"bandwidth_gib_s": bandwidth_gib_s, "latency_ns": latency_ns}
        change = checked("scale", data_parallel=data_parallel, remove_ranks=remove_ranks, groups=groups, **network)

        def scaled(folder: Path) -> Job:
            building.scale(self.folder, folder, Growth(*change.values()), runner(jobs if jobs > 1 else 0))
            return Job(folder)

        return _job_in(output, "scale(output=…)", scaled)

    def write(self, folder: FilePath) -> "Job":
        """Copies the job's files to a folder, which is new or empty, and returns the job there."""
        target = given_path(folder, "write(folder)")
        if path_is(target, Path.exists) and (not target.is_dir() or any(target.iterdir())):
            what = "is there and not empty" if target.is_dir() else "is a file"
            raise DataError(f"{target}: {what}; name a new folder")
        shutil.copytree(self.folder, target, dirs_exist_ok=True)
        return Job(target, self.build_report, self._traces, self._window)


def read_job(folder: FilePath) -> Job:
    """Returns the job whose graphs are in a folder, as `build`, `trace-build` and `trace-scale` write them.

    >>> import execgraph as eg
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = eg.build("tests/data/training", f"{folder}/graphs")
    ...     eg.read_job(f"{folder}/graphs").ranks
    [0, 1]

    Args:
        folder: The folder with a graph.N.et for each rank N.

    Raises:
        DataError: There is no such folder, or no graph in it.
    """
    return Job(given_path(folder, "read_job(folder)"))


def build(
    traces: Paths,
    output: FilePath | None = None,
    options: Options | None = None,
    *,
    target: BuildTarget | None = None,
    window: Window = EVERYTHING,
    modules: bool = False,
    start_offsets: bool = True,
    excess_time: bool = True,
    without_profiler: bool = False,
    as_recorded: bool = False,
    changes: Changes = (),
    allow_mismatch: bool = False,
    force: bool = False,
    jobs: int = 1,
    scheduler: str | None = None,
    scheduler_timeout_s: float = 60.0,
    max_messages: int = MOST_MESSAGES,
) -> Job:
    """Builds the execution graphs of all ranks whose traces are in a folder, as `trace-build` does.

    >>> import execgraph as eg
    >>> job = eg.build("tests/data/training", target="astra-sim")
    >>> sorted(path.name for path in job.folder.iterdir())
    ['astra-sim', 'comm_groups.json', 'graph.0.et', 'graph.1.et', 'report.json']

    Args:
        traces: The folder with the traces of all ranks, in it or below; or the traces themselves.
        output: The folder for the graphs, in which only what changed is built again; by default they are in a temporary
            one, as long as the job is in use, and `Job.write` copies them.
        options: How to convert; by default everything that is known is kept.
        target: Who runs the graphs, in place of the target of `options`: a name, or what the simulator is to do, as
            `AstraSimOptions` or `GoalOptions`.
        window: The part of each rank's traces to build.
        modules: Whether to read Python's calls, so that nodes tell their module.
        start_offsets: Whether ranks of a job for a simulator begin when they began to record, else all at once.
        excess_time: Whether the graphs of a simulator keep the time that collectives took beyond the fitted network.
        without_profiler: Whether generic graphs hold the run without a profiler, where it is known how long a step
            takes; those of simulators do.
        as_recorded: Whether those of simulators hold the run as it was recorded, too.
        changes: Changes to the run that the graphs hold, as of `what_if`.
        allow_mismatch: Whether traces that do not seem to be of one job are ranks of one.
        force: Whether to build ranks that are up to date, too.
        jobs: How many ranks to build at a time. More than 1 run in processes of their own: a script then needs
            `if __name__ == "__main__":` around what it does.
        scheduler: The address of a Dask scheduler, whose cluster builds in place of processes here.
        scheduler_timeout_s: How long to wait for an answer of the scheduler, and for a worker where there is none.
        max_messages: How many messages a rank may send at most in a job for GOAL.

    Raises:
        DataError: No rank can be built. A rank that cannot be built beside others is a warning, and in
            `Job.failures`. So is a fitted network that does not describe the job, in the warning alone.
        ValueError: The options contradict each other.
        TypeError: `traces` are not paths, `options` are not Options, or another argument is of the wrong kind.
    """
    given_window(window, "build(window=…)")
    of_job = {
        "modules": modules, "start_offsets": start_offsets, "excess_time": excess_time,
        "without_profiler": without_profiler, "as_recorded": as_recorded,
    }  # fmt: skip
    specs = [change.spec for change in replaying.given_changes(changes, "build(traces, changes=…)")]
    more = {"scheduler": scheduler, "scheduler_timeout_s": scheduler_timeout_s, "max_messages": max_messages}
    checked("build", **of_job, allow_mismatch=allow_mismatch, force=force, jobs=jobs, **more)
    inputs = arguments.given_paths(traces, "build(traces)")
    if not isinstance(options, Options | None):
        raise wrong_argument("build(traces, output, options)", 'Options, such as Options(target="astra-sim")', options)
    conversion = building.build_options(options or Options(), target, changes=specs, **of_job)
    simulation = target if isinstance(target, AstraSimOptions) else AstraSimOptions()

    def built(folder: Path) -> Job:
        if conversion.target == ASTRA_SIM:
            check_simulators_read(folder)
        report = building.build(
            inputs[0] if len(inputs) == 1 else inputs, folder, conversion,
            runner(jobs if jobs > 1 else 0, scheduler, scheduler_timeout_s),
            anew=force, window=window, allow_mismatch=allow_mismatch, max_messages=max_messages,
        ).report  # fmt: skip
        if not any(rank.graph for rank in report.ranks):
            raise DataError("; ".join(report.all_failures))
        if report.options.target == ASTRA_SIM and not report.all_failures:
            building.write_astra_sim_files(folder, len(report.ranks), report.network, simulation)
        return Job(folder, report, inputs, window)

    job = _job_in(output, "build(traces, output)", built)
    for problem in (*job.failures, *_poor_fits(job.build_report, simulation)):
        warnings.warn(problem, stacklevel=2)
    return job


def _poor_fits(built: building.BuildReport | None, simulation: AstraSimOptions) -> Iterator[str]:
    """Yields why communication in the simulator will take other times than measured, and what keeps these."""
    if built is None:
        return
    why = building.poor_fit(built.network, simulation, lacks_members=built.lacks_members)
    if why and built.options.target == ASTRA_SIM:
        yield f"{why}; AstraSimOptions(replay=True) keeps measured lengths"
    if built.goal and (why := building.poor_goal_fit(built.goal)):
        yield why


def _job_in(output: FilePath | None, argument: str, make: Callable[[Path], Job]) -> Job:
    """Returns the job that `make` writes into `output`, or into a temporary folder that is removed with the job."""
    if output is not None:
        return make(given_path(output, argument, "a folder as output"))
    folder = Path(tempfile.mkdtemp(prefix=TEMPORARY))
    try:
        job = make(folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(job, shutil.rmtree, folder, ignore_errors=True)
    return job
