"""The command trace-build: builds a graph per rank and a report from a folder with the traces of all ranks."""

import argparse
import logging
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from ...schema.arguments import ASTRA_SIM, GOAL
from ...schema.counts import to_builtins
from ...schema.errors import Audience, Remedy, require, said_to
from ..command import print_json, progress, run_command
from ..command_parser import CommandParser, Inputs, Output
from ..options import chosen_for, options_of
from ..terminal import format_counts, ranges, summary_line
from ..workers import in_processes, on_cluster

if TYPE_CHECKING:
    from ...converter.targets import GoalReport
    from ..job import BuildReport, BuiltJob, RankSummary, Runner

NAME = "trace-build"
log = logging.getLogger("execgraph")


@said_to(Audience.TERMINAL)
def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs trace-build and ends the process: 0 done, 1 a rank failed, 2 wrong usage."""
    parser = CommandParser(
        NAME,
        "Builds the execution graphs of a whole job: finds the host and device trace of every rank in a folder, links "
        "and\nconverts each, and writes graph.N.et for every rank N and report.json. Run again, it builds only what "
        "changed.",
        f"{NAME} traces -o graphs --jobs 8",
        Inputs(
            "DIR_OR_FILE",
            "the folder with the traces of all ranks, in it or below; or the traces themselves",
            ("--input-dir",),
        ),
        Output("OUT", "the folder for the graphs", ("--output-dir",), Path),
    )
    options = parser.parse_args(arguments)
    if wrong := _wrong_usage(options):
        parser.error(wrong)
    run_command(_run, options, NAME)


def _wrong_usage(options: argparse.Namespace) -> str:
    """Returns in what options contradict each other, or the target; "" where they do not."""
    if options.jobs and options.scheduler:
        return "argument --scheduler: not allowed with argument --jobs"
    if options.target != ASTRA_SIM:
        if options.incomplete_groups == "keep":
            return f"--incomplete-groups keep is for --target {ASTRA_SIM}; other graphs keep all groups whole"
        if options.bandwidth_gib_s or options.latency_ns or options.replay or options.roofline:
            return (
                f"--bandwidth, --latency, --replay and --roofline are for --target {ASTRA_SIM}, whose configuration "
                "they set"
            )
    if options.roofline and (options.replay or options.host):
        return "--roofline needs --no-host, as the mode takes host nodes for kernels, and has no use for --replay"
    for name in ("start_offsets", "excess_time"):
        if not getattr(options, name) and options.target not in (ASTRA_SIM, GOAL):
            return (
                f"--no-{name.replace('_', '-')} is for --target {ASTRA_SIM} and {GOAL}, whose graphs have these times"
            )
    spellings = options_of("GoalOptions")
    for name, value in chosen_for("GoalOptions", options).items():
        if options.target != GOAL:
            return f"{spellings[name].spellings} is for --target {GOAL}"
        if isinstance(value, int) and value < 1:
            return f"{spellings[name].spellings} is {value}, not 1 or more"
    return ""


def _run(options: argparse.Namespace) -> int:
    from ...schema.comm_groups import check_simulators_read
    from ..job import BUILT, REPORT

    if options.target == ASTRA_SIM:
        check_simulators_read(options.output)
    begun = time.monotonic()
    job = _build(options)
    _print_report(job, options.json)
    if options.output.resolve() in (Path(path).resolve() for path in options.inputs):
        log.warning(f"{NAME}: note: {options.output}: holds the traces, too; give the graphs a folder of their own")
    report = job.report
    built = sum(rank.status == BUILT for rank in report.ranks)
    ranks = f"{built} of {len(report.ranks)} ranks" if report.ranks else "no rank was built"
    where = f"; see {options.output / REPORT}" if job.is_written else ""
    log.info(f"{ranks}, {time.monotonic() - begun:.1f} s{where}")
    if built == len(report.ranks) > 0 and options.target == ASTRA_SIM:
        _write_simulation(options, report)
    return int(bool(report.all_failures or (options.strict and (report.all_notes or report.disagreements))))


def _build(options: argparse.Namespace) -> "BuiltJob":
    from ...converter.targets import GoalOptions
    from ...linker.windows import Window
    from ..job import BuildOptions, build

    conversion = BuildOptions(
        **chosen_for("Options", options),
        whole_groups=options.incomplete_groups == "keep",
        goal=GoalOptions(**chosen_for("GoalOptions", options)),
        roofline=options.roofline,
        modules=options.modules,
        start_offsets=options.start_offsets,
        replay=options.replay,
        excess_time=options.excess_time,
    )
    return build(
        [Path(path) for path in options.inputs],
        options.output,
        conversion,
        _runner(options),
        anew=options.force,
        window=Window(**chosen_for("Window", options)),
        progress=progress,
        allow_mismatch=options.allow_mismatch,
    )


def _runner(options: argparse.Namespace) -> "Runner":
    """Returns what runs tasks: a Dask cluster, or processes of this machine."""
    if options.scheduler:
        require("dask", str(Remedy.SCHEDULER))
        return lambda build_one, tasks, _: on_cluster(build_one, tasks, options.scheduler)
    jobs = options.jobs or os.cpu_count() or 1
    return lambda build_one, tasks, on_progress: in_processes(build_one, tasks, jobs, on_progress)


def _print_report(job: "BuiltJob", as_json: bool) -> None:
    """Prints a line for each rank and everything that the report says of all ranks."""

    from ...schema.graph import Change
    from ..job import poor_goal_fit, table, time_lines
    from ..sync_records_advice import UNRECORDED_WAITS

    report = job.report
    for rank in report.ranks:
        read = " and ".join(file.file for file in (rank.host, rank.device) if file)
        log.debug(f"rank {rank.rank}: {rank.status} from {read}")
    if as_json:
        print_json(to_builtins(report))
    if report.ranks:
        log.info(table(report.ranks, job.unchanged))
    for change, nodes in _changes(report.ranks).items():
        if change not in (Change.COLLECTIVES, Change.EXCESS, Change.START_OFFSET):
            log.info(summary_line("target", f"{change}: {nodes:g}"))
    for line in time_lines(report):
        log.info(line)
    for line in _goal_lines(report.goal) if report.goal else ():
        log.info(line)
    if report.goal and (warning := poor_goal_fit(report.goal)):
        log.warning(f"{NAME}: warning: {warning}")
    for line in format_counts("skipped", report.skipped):
        log.info(line)
    for sentence in job.stale:
        log.info(summary_line("stale", sentence))
    for note in report.all_notes:
        log.warning(f"{NAME}: note: {note}")
    unrecorded = sorted(rank.rank for rank in report.ranks if rank.lacks_sync_records)
    if unrecorded:
        log.warning(f"{NAME}: note: rank {ranges(unrecorded)}: {UNRECORDED_WAITS}")
    for disagreement in report.disagreements:
        log.warning(f"{NAME}: ranks disagree: {disagreement}")
    for failure in report.all_failures:
        log.error(f"{NAME}: error: {failure}")


def _write_simulation(options: argparse.Namespace, report: "BuildReport") -> None:
    """Writes the configuration of ASTRA-sim, and prints the network in it and the command that simulates the job."""
    from ..job import Simulation, lacks_members, network_text, poor_fit, simulator_command, write_astra_sim_files

    simulation = Simulation(options.bandwidth_gib_s, options.latency_ns, options.replay, options.roofline)
    rank_count = len(report.ranks)
    write_astra_sim_files(options.output, rank_count, report.network, simulation)
    log.info(summary_line("network", network_text(report.network, simulation, rank_count)))
    if warning := poor_fit(report.network, simulation, lacks_members=lacks_members(report)):
        log.warning(
            f"{NAME}: warning: {warning}; --replay or --target goal --measured-communication keeps measured lengths"
        )
    log.info(summary_line("simulate", simulator_command(options.output, rank_count)))


def _changes(ranks: Sequence["RankSummary"]) -> Counter[str]:
    """Returns what the target made different on all ranks together; of nodes ready at once, the most on any rank."""
    from ...schema.graph import Change

    changes = Counter[str]()
    for rank in ranks:
        changes.update(Counter(rank.target))
    if changes[Change.MOST_READY]:
        changes[Change.MOST_READY] = max(int(rank.target.get(Change.MOST_READY, 0)) for rank in ranks)
    return +changes


def _goal_lines(report: "GoalReport") -> Iterator[str]:
    """Yields what the file of a job in GOAL holds, a line each."""
    from ..job import fit_error_text

    operations = Counter[str]()
    for rank in report.ranks:
        operations.update(rank.operations)
    counts = ", ".join(f"{count} {verb}" for verb, count in sorted(operations.items()))
    yield summary_line("goal", f"{len(report.ranks)} ranks: {counts}; {report.bytes_sent} bytes to other ranks")
    for what, count in report.communication.items():
        yield summary_line("goal", f"{what}: {count}")
    if fit := report.network:
        yield summary_line(
            "network",
            f"{fit.latency_ns:,} ns a message, {fit.ns_per_byte:g} ns a byte, fitted to {fit.transfers} collectives "
            f"and messages, {fit_error_text(fit.fit_error_pct)}",
        )
        yield summary_line(
            "simulate",
            f"LogGOPSim of ATLAHS: -f JOB.bin -L {fit.latency_ns} -o 0 -g 0 -G {fit.ns_per_byte:g} -O 0 -S 1",
        )
