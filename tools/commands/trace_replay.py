"""The command trace-replay: how long the run of one or several ranks takes by the dependencies of their graphs."""

import argparse
import logging
from collections.abc import Sequence
from typing import NoReturn

import msgspec

from ...schema.errors import DataError
from ...schema.graph import ExecutionGraph
from ...schema.io import STANDARD_STREAM
from ..command import command_parser, print_json, progress, run_command, usage_error
from ..replay import SCALABLE, Replay, Scale, describe, parse_scale, replay_ranks, summarise, write_timeline

NAME = "trace-replay"
log = logging.getLogger("execgraph")


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Runs trace-replay with these arguments, by default those of the process, and ends it: 0 done, 1 unusable data, 2 wrong usage."""
    parser = command_parser(
        NAME,
        "Replays execution graphs along their data dependencies and compares with the measured run.",
        f"{NAME} --input graph.0.et --input graph.1.et --scale 'gemm=0.5' --timeline replay.json.gz",
    )
    parser.add_argument(
        "--input", "--input_filename", dest="inputs", action="append", required=True, metavar="GRAPH.et",
        help="an execution graph; repeat it for several ranks, whose collectives then wait for each other",
    )  # fmt: skip
    parser.add_argument("--timeline", metavar="T.json[.gz]", help="write both runs as a trace for Perfetto")
    parser.add_argument(
        "--scale", dest="scale", action="append", default=[], type=_scale, metavar="SPEC",
        help="REGEX=F: multiply the durations of the nodes whose name matches by F, or class:CLASS=F: those of a class "
        f"({', '.join(SCALABLE)}); repeatable, factors multiply",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object on stdout")
    arguments = parser.parse_args(argv)
    if arguments.json and arguments.timeline == STANDARD_STREAM:
        usage_error(parser, "--json and --timeline - both write to stdout")
    run_command(_run, arguments, NAME)


def _scale(spec: str) -> Scale:
    try:
        return parse_scale(spec)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _run(arguments: argparse.Namespace) -> None:
    replayed = _replay(arguments.inputs, arguments.scale)
    if arguments.timeline:
        write_timeline(replayed, arguments.timeline)
    summary = summarise(replayed)
    if arguments.json:
        print_json(msgspec.to_builtins(summary))
    else:
        log.info("%s", describe(replayed, summary))


def _replay(paths: list[str], scale: list[Scale]) -> Replay:
    graphs = [ExecutionGraph.read(path, tensors=False) for path in progress(paths, "reading", unit="graph")]
    try:
        return replay_ranks(graphs, scale)
    except DataError as error:
        where = paths[0] if len(paths) == 1 else f"{len(paths)} graphs"
        raise DataError(f"{where}: {error}") from error
