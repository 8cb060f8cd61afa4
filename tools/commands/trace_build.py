"""The command trace-build: builds a graph per rank and a report from a folder with the traces of all ranks."""

import argparse
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ...schema.arguments import ASTRA_SIM, GOAL, MOST_MESSAGES
from ...schema.errors import WrongUsage
from ...schema.reasons import to_builtins
from ..command import log, log_notes, print_json, progress, refuse_contradictions
from ..command_parser import Inputs, Output, command
from ..options import chosen_for, options_of
from ..terminal import format_counts, summary_line
from ..workers import runner

if TYPE_CHECKING:
    from ...converter.targets import GoalReport
    from ..job import AstraSimOptions, BuildOptions, BuildReport, BuildTarget, BuiltJob

NOTES_SHOWN = 3
OF_JOB = ("modules", "start_offsets", "excess_time", "without_profiler", "as_recorded")


@command(
    "trace-build",
    "Builds the execution graphs of a whole job: finds the host and device trace of every rank in a folder, links and\n"
    "converts each, and writes graph.N.et for every rank N and report.json. Run again, it builds only what changed.",
    "traces -o graphs --jobs 8",
    Inputs(
        "TRACES",
        "the folder with the traces of all ranks, in it or below; or the traces themselves",
        ("--input-dir",),
    ),
    Output("OUT", "the folder for the graphs", ("--output-dir",), Path),
)
def main(options: argparse.Namespace) -> int:
    """Builds a job; returns 1 where a rank failed."""
    from ...linker.windows import Window
    from ...schema.comm_groups import check_simulators_read
    from ..job import BUILT, REPORT, build

    if options.output.resolve() in (Path(path).resolve() for path in options.inputs):
        raise WrongUsage(f"argument -o/--output: {options.output} holds the traces: give graphs a folder of their own")
    conversion, simulation = _chosen(options)
    if options.target == ASTRA_SIM:
        check_simulators_read(options.output)
    begun = time.monotonic()
    job = build(
        [Path(path) for path in options.inputs], options.output, conversion,
        runner(options.jobs or os.cpu_count() or 1, options.scheduler, options.scheduler_timeout_s),
        anew=options.force,
        window=Window(**chosen_for("Window", options)), progress=progress, allow_mismatch=options.allow_mismatch,
        max_messages=options.max_messages,
    )  # fmt: skip
    _print_report(job, options)
    report = job.report
    built = sum(rank.status == BUILT for rank in report.ranks)
    count = len(report.ranks)
    ranks = f"{built} of {count} rank{'s' * (count > 1)} built" if report.ranks else "no rank was built"
    ranks += f", errors above: {len(report.failures)}" * bool(report.ranks and report.failures)
    where = f"; see {options.output / REPORT}" if job.is_written else ""
    log.info(f"{ranks}, {time.monotonic() - begun:.1f} s{where}")
    if built == len(report.ranks) > 0 and options.target == ASTRA_SIM:
        _write_simulation(options, report, simulation)
    return int(bool(report.all_failures or (options.strict and (report.all_notes or report.disagreements))))


def _chosen(options: argparse.Namespace) -> "tuple[BuildOptions, AstraSimOptions]":
    """Returns how to convert, and what ASTRA-sim is to do. Raises WrongUsage for options that contradict each other."""
    from ...converter.options import Options
    from ...converter.targets import GoalOptions
    from ..job import AstraSimOptions, build_options

    of_astra_sim, of_goal = chosen_for("AstraSimOptions", options), chosen_for("GoalOptions", options)
    goal_options = [options_of("GoalOptions")[name].spellings for name in of_goal]
    of_network = "--bandwidth, --latency, --replay and --roofline"
    for_astra_sim = f"{of_network} are for --target {ASTRA_SIM}, whose configuration they set"
    refuse_contradictions(
        (options.max_messages != MOST_MESSAGES and options.target != GOAL, f"--max-messages is for --target {GOAL}"),
        (options.jobs and options.scheduler, "argument --scheduler: not allowed with argument --jobs"),
        (options.target != ASTRA_SIM and any(of_astra_sim.values()), for_astra_sim),
        *((options.target != GOAL, f"{option} is for --target {GOAL}") for option in goal_options),
    )
    simulation = AstraSimOptions(**of_astra_sim)
    targets: dict[str, BuildTarget] = {ASTRA_SIM: simulation, GOAL: GoalOptions(**of_goal)}
    changes = [change.spec for change in options.changes]
    of_job = {name: getattr(options, name) for name in OF_JOB}
    of_ranks = Options(**chosen_for("Options", options))
    return build_options(of_ranks, targets.get(options.target), changes=changes, **of_job), simulation


def _print_report(job: "BuiltJob", options: argparse.Namespace) -> None:
    """Prints a line for each rank and everything that the report says of all ranks."""
    from ...schema.graph import Change
    from ..job import REPORT, poor_goal_fit, ranks_in_words, table, time_lines
    from ..sync_records_advice import UNRECORDED_WAITS

    report = job.report
    for rank in report.ranks:
        read = " and ".join(file.file for file in (rank.host, rank.device, rank.detail) if file)
        log.debug(f"rank {rank.rank}: {rank.status} from {read}")
    if options.json:
        print_json(to_builtins(report))
    if report.ranks:
        log.info(table(report.ranks, job.unchanged))
    changes = sum((Counter[str](rank.target) for rank in report.ranks), Counter[str]())
    most_ready = str(Change.MOST_READY)
    if changes[most_ready]:  # at once, so on any rank
        changes[most_ready] = max(int(rank.target.get(most_ready, 0)) for rank in report.ranks)
    for change, nodes in changes.items():
        if nodes and change not in map(str, (Change.COLLECTIVES, Change.EXCESS, Change.START_OFFSET)):
            log.info(summary_line("target", f"{change}: {nodes:g}"))
    for line in (*time_lines(report), *(_goal_lines(report.goal) if report.goal else ())):
        log.info(line)
    if report.goal and (warning := poor_goal_fit(report.goal)):
        log.warning(f"{options.prog}: warning: {warning}")
    for line in (*format_counts("skipped", report.skipped), *(summary_line("stale", line) for line in job.stale)):
        log.info(line)
    unrecorded = sorted(rank.rank for rank in report.ranks if rank.lacks_sync_records)
    lacking = [f"{ranks_in_words(unrecorded)}: {UNRECORDED_WAITS}"] if unrecorded else []
    notes = [*lacking, *report.all_notes]
    shown = NOTES_SHOWN if len(notes) > NOTES_SHOWN + 1 and not options.verbose else len(notes)
    log_notes(options.prog, notes[:shown])
    if more := notes[shown:]:
        log_notes(options.prog, [f"{len(more)} more notes: -v shows them, {REPORT} has them"])
    for disagreement in report.disagreements:
        log.warning(f"{options.prog}: ranks disagree: {disagreement}")
    for failure in report.all_failures:
        log.error(f"{options.prog}: error: {failure}")


def _write_simulation(options: argparse.Namespace, report: "BuildReport", simulation: "AstraSimOptions") -> None:
    """Writes the configuration of ASTRA-sim, and prints the network in it and the command that simulates the job."""
    from ..job import network_text, poor_fit, simulator_command, write_astra_sim_files

    rank_count = len(report.ranks)
    write_astra_sim_files(options.output, rank_count, report.network, simulation)
    log.info(summary_line("network", network_text(report.network, simulation, rank_count)))
    if warning := poor_fit(report.network, simulation, lacks_members=report.lacks_members):
        remedy = "--replay or --target goal --measured-communication keeps measured lengths"
        log.warning(f"{options.prog}: warning: {warning}; {remedy}")
    log.info(summary_line("simulate", simulator_command(options.output, rank_count)))


def _goal_lines(report: "GoalReport") -> Iterator[str]:
    """Yields what the file of a job in GOAL holds, a line each."""
    from ..job import fit_error_text

    operations = sum((Counter[str](rank.operations) for rank in report.ranks), Counter[str]())
    counts = ", ".join(f"{count} {verb}" for verb, count in sorted(operations.items()))
    yield summary_line("goal", f"{len(report.ranks)} ranks: {counts}; {report.bytes_sent} bytes to other ranks")
    for what, count in report.communication.items():
        yield summary_line("goal", f"{what}: {count}")
    if fit := report.network:
        network = f"{fit.latency_ns:,} ns a message, {fit.ns_per_byte:g} ns a byte"
        fitted = f"fitted to {fit.transfers} collectives and messages, {fit_error_text(fit.fit_error_pct)}"
        yield summary_line("network", f"{network}, {fitted}")
        run = f"-f JOB.bin -L {fit.latency_ns} -o 0 -g 0 -G {fit.ns_per_byte:g} -O 0 -S 1"
        yield summary_line("simulate", f"LogGOPSim of ATLAHS: {run}")
