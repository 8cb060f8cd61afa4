"""The command trace-replay: how long the run of one or several ranks takes by the dependencies of their graphs."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ...schema.arguments import ASTRA_SIM
from ...schema.errors import DataError, WrongUsage
from ...schema.graph import ExecutionGraph
from ...schema.io import STANDARD_STREAM
from ...schema.linked import integer
from .. import replay as replays
from ..command import log, log_notes, naming, print_json, progress, step
from ..command_parser import Inputs, command
from ..terminal import print_text

if TYPE_CHECKING:
    from ..job import BuildReport


@command(
    "trace-replay",
    "Replays execution graphs and compares the replay with the measured run. With --scale it predicts a changed run.",
    "graphs --scale 'gemm=0.5' --timeline replay.json.gz",
    Inputs(
        "GRAPHS",
        "execution graphs, or folders that trace-build wrote; graphs of several ranks are replayed as one job (- is "
        "stdin)",
        ("--input", "--input_filename"),
    ),
)
def main(options: argparse.Namespace) -> None:
    """Replays graphs as one job, or plays them by the rules of a simulator."""
    from ..job import REPORT, read_report, why_no_job

    if options.simulator and (options.output or options.changes):
        raise WrongUsage("--simulator plays the run as it was; leave --timeline and --scale out")
    paths = replays.graph_paths(options.inputs)
    graphs = [replays.read_graph_file(path, tensors=False) for path in progress(paths, "reading", unit="graph")]
    log_notes(options.prog, (note for graph in graphs for note in graph.notes))
    builds = [*filter(None, (read_report(Path(source) / REPORT) for source in options.inputs))]
    comms = ({rank.rank: rank.comms for rank in build.ranks if rank.comms} for build in builds)
    log_notes(options.prog, (note for of_ranks in comms for note in why_no_job(of_ranks)))
    log_notes(options.prog, known := [f"ranks disagree: {line}" for build in builds for line in build.disagreements])
    # the order in which they are given makes no difference
    graphs.sort(key=lambda graph: integer(graph.metadata.get("rank"), -1))
    reason = replays.why_not_one_job(graphs)
    if reason and not options.allow_mismatch:
        remedy = "give the graphs of one job (or --allow-mismatch)"
        raise DataError(f"{paths[0]} and {len(paths) - 1} more: {reason}; {remedy}")
    with naming(paths[0] if len(paths) == 1 else f"{len(paths)} graphs"):
        if options.simulator:
            _simulate(paths, graphs, builds, options)
        else:
            _replay(graphs, options, known)


def _replay(graphs: Sequence[ExecutionGraph], options: argparse.Namespace, known: Sequence[str]) -> None:
    """Prints how the replay agrees with the measured run, or what the changes do."""
    scale = [replace(change, peaks=dict(options.peaks)) for change in options.changes]
    with step("replay"):
        run = replays.run_of(graphs, as_recorded=options.as_recorded)
        members = replace(run.job.members, disagreements=(*known, *run.job.members.disagreements))
        replayed = replays.replay_job(replace(run.job, members=members), scale)
    disagreements = [] if known else [f"ranks disagree: {line}" for line in run.job.members.disagreements]
    log_notes(options.prog, [*disagreements, *run.job.members.decisions])
    if not scale and (reason := replays.off_by_target(run.recorded)):
        log_notes(options.prog, [f"{reason}; --simulator {ASTRA_SIM} says when that simulator finishes each rank"])
    if options.output:
        from ..view import write_timeline

        write_timeline(replayed, options.output)
        log.info(f"{options.output}: open it in https://ui.perfetto.dev")
    summary = replays.summarise(replayed)
    if options.json:
        print_json(msgspec.to_builtins(summary))
    elif options.output != STANDARD_STREAM:
        print_text(replays.describe(replayed, summary, scale))


def _simulate(
    paths: Sequence[str], graphs: Sequence[ExecutionGraph], builds: "Sequence[BuildReport]", options: argparse.Namespace
) -> None:
    """Prints when the simulator finishes each rank, by the configuration that it would read."""
    from ..job import AstraSimOptions, poor_fit
    from ..replay import configuration_of, describe_simulated, simulate_ranks

    configuration, unknown = configuration_of(paths)
    if unknown:
        log_notes(options.prog, [f"{unknown}: each rank is played alone, as in replay mode"])
    result = simulate_ranks(graphs, configuration)
    fitted = [build for build in builds if build.network and result.network == build.network.used(len(graphs))[0]]
    for build in fitted:
        run = AstraSimOptions(replay=build.options.replay)
        if why := poor_fit(build.network, run, lacks_members=build.lacks_members):
            log_notes(options.prog, [f"{why}; ranks end near the measured run only as their graphs keep what it lacks"])
    is_other = bool(result.network and not fitted and any(build.network for build in builds))
    print_json(msgspec.to_builtins(result)) if options.json else print_text(describe_simulated(result, is_other))
