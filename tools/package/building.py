"""From the traces of all ranks to the graphs of a job, and how it is built for a simulator."""

import dataclasses
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from .converter.options import Options
from .converter.targets import GoalOptions, Roofline, roofline_of
from .job import Job, job_in, run_with
from .linker.windows import EVERYTHING, Window, given_window
from .schema.arguments import (
    ASTRA_SIM,
    GENERIC,
    GOAL,
    FilePath,
    Paths,
    Target,
    flags,
    given_paths,
    number,
    wrong_argument,
)
from .schema.comm_groups import check_simulators_read
from .schema.errors import DataError
from .tools.job import (
    BuildOptions,
    BuildReport,
    Simulation,
    build as build_folder,
    lacks_members,
    poor_fit,
    poor_goal_fit,
    write_astra_sim_files,
)
from .tools.options import checked
from .tools.workers import on_cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class AstraSimOptions:
    """How to build a job for ASTRA-sim, as the options of `trace-build --target astra-sim`.

    >>> import execgraph as eg
    >>> job = eg.build("tests/data/training", target=eg.AstraSimOptions(bandwidth_gib_s=100, latency_ns=500))
    >>> job.simulate().network[0].bandwidth_gib_s
    100.0

    Args:
        bandwidth_gib_s: The bandwidth of a link in 2**30 bytes/s; fitted to the measured collectives by default.
        latency_ns: The latency of a link; fitted by default.
        replay: Whether every node takes its recorded time, collectives included.
        roofline: A device and format, such as "V100:fp32", or "TFLOPS:GB/S": kernels of known work take its time at
            these peaks. It needs graphs without host nodes, `Options(host=False)`.
        incomplete_groups: What to do with groups of which the job lacks ranks: "restrict" them to the ranks that are
            there, or "keep" them whole with measured times.

    Raises:
        ValueError: A number is not above 0, the device is not known, or `roofline` and `replay` are both given.
    """

    bandwidth_gib_s: float | None = None
    latency_ns: float | None = None
    replay: bool = False
    roofline: str | None = None
    incomplete_groups: Literal["restrict", "keep"] = "restrict"

    def __post_init__(self) -> None:
        for name in ("bandwidth_gib_s", "latency_ns"):
            value = getattr(self, name)
            if value is not None and not number(value, f"AstraSimOptions({name}=…)") > 0:
                raise ValueError(f"AstraSimOptions({name}={value!r}): give a number above 0")
        flags("AstraSimOptions", replay=self.replay)
        if self.incomplete_groups not in ("restrict", "keep"):
            raise ValueError(
                f'AstraSimOptions: incomplete_groups is "restrict" or "keep", not {self.incomplete_groups!r}'
            )
        if self.peaks and self.replay:
            raise ValueError("AstraSimOptions: replay has no use for roofline, as every node takes its recorded time")

    @property
    def peaks(self) -> Roofline | None:
        """What `roofline` stands for, per second."""
        return None if self.roofline is None else roofline_of(self.roofline)

    @property
    def simulation(self) -> Simulation:
        """What the simulator's configuration says."""
        return Simulation(self.bandwidth_gib_s, self.latency_ns, self.replay, self.peaks)


BuildTarget = Target | AstraSimOptions | GoalOptions
"""Who runs the graphs of a job: by name, or with what that simulator is to do."""


def target_name(target: BuildTarget) -> Target:
    """Returns the name of a target.

    >>> target_name(GoalOptions()), target_name("generic")
    ('goal', 'generic')
    """
    if isinstance(target, AstraSimOptions):
        return ASTRA_SIM
    return GOAL if isinstance(target, GoalOptions) else target


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
    allow_mismatch: bool = False,
    force: bool = False,
    jobs: int = 1,
    scheduler: str | None = None,
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
        allow_mismatch: Whether traces that record no rank and do not seem to be of one job are ranks of one.
        force: Whether to build ranks that are up to date, too.
        jobs: How many ranks to build at a time. More than 1 run in processes of their own: a script then needs
            `if __name__ == "__main__":` around what it does.
        scheduler: The address of a Dask scheduler, whose cluster builds in place of processes here.

    Raises:
        DataError: No rank can be built. A rank that cannot be built beside others is a warning, and in
            `Job.failures`. So is a fitted network that does not describe the job, in the warning alone.
        ValueError: The options contradict each other.
        TypeError: `traces` are not paths, `options` are not Options, or another argument is of the wrong kind.
    """
    given_window(window, "build(window=…)")
    of_job = {"modules": modules, "start_offsets": start_offsets, "excess_time": excess_time}
    checked("build", **of_job, allow_mismatch=allow_mismatch, force=force, jobs=jobs, scheduler=scheduler)
    inputs = given_paths(traces, "build(traces)")
    if not isinstance(options, Options | None):
        raise wrong_argument("build(traces, output, options)", 'Options, such as Options(target="astra-sim")', options)
    build_options = _combined(options or Options(), target, of_job)
    simulator = target if isinstance(target, AstraSimOptions) else AstraSimOptions()
    run = run_with(jobs) if scheduler is None else lambda work, tasks, _: on_cluster(work, tasks, scheduler)

    def built(folder: Path) -> Job:
        if build_options.target == ASTRA_SIM:
            check_simulators_read(folder)
        report = build_folder(
            inputs[0] if len(inputs) == 1 else inputs,
            folder,
            build_options,
            run,
            anew=force,
            window=window,
            allow_mismatch=allow_mismatch,
        ).report
        if not any(rank.graph for rank in report.ranks):
            raise DataError("; ".join(report.all_failures))
        if report.options.target == ASTRA_SIM and not report.all_failures:
            write_astra_sim_files(folder, len(report.ranks), report.network, simulator.simulation)
        return Job(folder, report, inputs, window)

    job = job_in(output, "build(traces, output)", built)
    if job.build_report:
        for warning in (*job.build_report.all_failures, *_poor_fits(job.build_report, simulator)):
            warnings.warn(warning, stacklevel=3)
    return job


def _combined(options: Options, target: BuildTarget | None, of_job: dict[str, bool]) -> BuildOptions:
    chosen = {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}
    if target is not None:
        chosen["target"] = target_name(target)
    for name in ("start_offsets", "excess_time"):
        if not of_job[name] and chosen["target"] == GENERIC:
            raise ValueError(f"build({name}=False) is for astra-sim and goal, whose graphs have these times")
    if isinstance(target, GoalOptions):
        chosen["goal"] = target
    if isinstance(target, AstraSimOptions):
        if target.roofline and options.host:
            raise ValueError("build: roofline needs Options(host=False), as the mode takes host nodes for kernels")
        chosen |= {
            "whole_groups": target.incomplete_groups == "keep",
            "roofline": target.peaks,
            "replay": target.replay,
        }
    return BuildOptions(**chosen | of_job)


def _poor_fits(built: BuildReport, simulator: AstraSimOptions) -> Iterator[str]:
    """Yields why communication in the simulator will take other times than measured, and what keeps these."""
    if built.options.target == ASTRA_SIM:
        why = poor_fit(built.network, simulator.simulation, lacks_members=lacks_members(built))
        if why:
            yield f"{why}; AstraSimOptions(replay=True) keeps measured lengths"
    if built.goal and (why := poor_goal_fit(built.goal)):
        yield why
