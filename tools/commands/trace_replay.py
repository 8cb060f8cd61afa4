"""The command trace-replay: how long the run of one or several ranks takes by the dependencies of their graphs."""

import argparse
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import msgspec

from ...schema.arguments import ASTRA_SIM
from ...schema.errors import Audience, DataError, said_to
from ...schema.graph import ExecutionGraph, read_et
from ...schema.io import STANDARD_STREAM
from ...schema.linked import integer
from ..command import print_json, progress, run_command, step
from ..command_parser import CommandParser, Inputs
from ..recognise import InputKind
from ..replay import (
    describe,
    gather_job,
    graph_files,
    off_by_target,
    recording_of,
    replay_job,
    summarise,
    why_not_one_job,
    without_profiler,
)
from ..terminal import print_text
from ..wrong_kind import reading

NAME = "trace-replay"
log = logging.getLogger("execgraph")


@said_to(Audience.TERMINAL)
def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Runs trace-replay and ends the process: 0 done, 1 unusable data, 2 wrong usage."""
    parser = CommandParser(
        NAME,
        "Replays execution graphs and compares the replay with the measured run. With --scale it predicts a changed run.",
        f"{NAME} graphs --scale 'gemm=0.5' --timeline replay.json.gz",
        Inputs(
            "GRAPH.et",
            "execution graphs, or folders that trace-build wrote; graphs of several ranks are replayed as one job (- is "
            "stdin)",
            ("--input", "--input_filename"),
        ),
    )
    arguments = parser.parse_args(argv)
    if arguments.simulator and (arguments.output or arguments.changes):
        parser.error("--simulator plays the run as it was; leave --timeline and --scale out")
    run_command(_replay, arguments, NAME)


def _replay(arguments: argparse.Namespace) -> None:
    paths = [path for source in arguments.inputs for path in _graphs(source)]
    graphs = [_read(path) for path in progress(paths, "reading", unit="graph")]
    for note in (note for graph in graphs for note in graph.notes):
        log.warning(f"{NAME}: note: {note}")
    # the order in which they are given makes no difference
    graphs.sort(key=lambda graph: integer(graph.metadata.get("rank"), -1))
    reason = why_not_one_job(graphs)
    if reason and not arguments.allow_mismatch:
        raise DataError(
            f"{paths[0]} and {len(paths) - 1} more: {reason}; give the graphs of one job (or --allow-mismatch)"
        )
    with _naming(paths):
        if arguments.simulator:
            _simulate(paths, graphs, arguments.json)
            return
        scale = [replace(change, peaks=dict(arguments.peaks)) for change in arguments.changes]
        with step("replay"):
            job = gather_job(graphs)
            replayed = replay_job(job, scale)
            recording = recording_of(job, replay_job(job) if scale else replayed)
            without = without_profiler(job, recording, scale) if scale else ""
    if not scale and (reason := off_by_target(replayed)):
        log.warning(f"{NAME}: note: {reason}; --simulator {ASTRA_SIM} says when that simulator finishes each rank")
    if arguments.output:
        from ..view import write_timeline

        write_timeline(replayed, arguments.output)
        log.info(f"{arguments.output}: open it in https://ui.perfetto.dev")
    summary = summarise(replayed, recording, scale)
    if arguments.json:
        print_json(msgspec.to_builtins(summary))
    elif arguments.output != STANDARD_STREAM:
        print_text(describe(replayed, summary, scale, without))


def _simulate(paths: Sequence[str], graphs: Sequence[ExecutionGraph], as_json: bool) -> None:
    """Prints when the simulator finishes each rank, by the configuration that it would read."""
    from ..replay import configuration_of, describe_simulated, simulate_ranks

    configuration, unknown = configuration_of(paths)
    if unknown:
        log.warning(f"{NAME}: note: {unknown}: each rank is played alone, as in replay mode")
    result = simulate_ranks(graphs, configuration)
    print_json(msgspec.to_builtins(result)) if as_json else print_text(describe_simulated(result))


def _read(path: str) -> ExecutionGraph:
    with reading(path, InputKind.GRAPH):
        return read_et(path, tensors=False)


def _graphs(source: str) -> list[str]:
    """Returns the file itself, or the graphs in a folder in the order of their ranks."""
    return graph_files(Path(source)) if Path(source).is_dir() else [source]


@contextmanager
def _naming(paths: list[str]) -> Iterator[None]:
    """Says in errors which files it is about."""
    try:
        yield
    except DataError as error:
        where = paths[0] if len(paths) == 1 else f"{len(paths)} graphs"
        raise type(error)(f"{where}: {error}") from error
