"""The command trace-view: an execution graph, or a part of it, as GraphML, DOT or an SVG picture."""

import argparse
import logging
import math
from collections.abc import Sequence
from typing import NoReturn

from ...schema.errors import DataError
from ..command import run_command, step
from ..command_parser import CommandParser
from ..view_forms import FORMS, form_of

NAME = "trace-view"
log = logging.getLogger("execgraph")


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Runs trace-view and ends the process: 0 done, 1 unusable data, 2 wrong usage."""
    parser = CommandParser(
        NAME,
        "Writes an execution graph or a part of it for viewing: lanes over time as .svg, for Graphviz as .dot, or "
        "with all\n"
        "attributes as .graphml. Conditions narrow the part: a node must meet all that are given.",
        f"{NAME} graph.0.et -o around.svg --around 1234 --hops 3",
    )
    parser.add_inputs(
        "GRAPH.et", "an execution graph (gzip accepted, - is stdin)", "--input", "--input_filename", max_count=1
    )
    parser.add_output("X.svg|.dot|.graphml", "the picture or graph; it may end in .gz besides", "--output_filename")
    parser.add_argument("--around", type=int, metavar="NODE", help="nodes near the one with this id")
    parser.add_argument("--hops", type=_hops, metavar="N", help="how many dependencies away, either way (2)")
    parser.add_argument(
        "--stream", dest="streams", action="append", type=int, default=[], metavar="S",
        help="activities of this device stream; repeatable",
    )  # fmt: skip
    parser.add_argument(
        "--time", type=_window, metavar="FROM:TO", help="what runs between these µs from the first start"
    )
    arguments = parser.parse_args(argv)
    if arguments.hops is not None and arguments.around is None:
        parser.error("--hops counts from the node that --around names")
    if form_of(arguments.output) not in FORMS:
        parser.error(f"--output {arguments.output}: the name must end in {', '.join(FORMS)}")
    run_command(_run, arguments, NAME)


def _hops(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of dependencies, 0 or more")
    return int(text)


def _window(text: str) -> tuple[float, float]:
    try:
        first, last = (
            float(time) if time else default for time, default in zip(text.split(":"), (0, math.inf), strict=True)
        )
    except ValueError:
        first, last = 1, 0
    if not first <= last:
        raise argparse.ArgumentTypeError(f"{text!r} is not FROM:TO in µs")
    return first, last


def _run(arguments: argparse.Namespace) -> None:
    from ...schema.graph import ExecutionGraph
    from ..inputs import InputKind, reading
    from ..view import Selection, select, write_view

    hops = 2 if arguments.hops is None else arguments.hops
    selection = Selection(arguments.around, hops, tuple(arguments.streams), arguments.time)
    with step("read graph"), reading(arguments.inputs[0], InputKind.GRAPH):
        graph = ExecutionGraph.read(arguments.inputs[0])
    for note in graph.notes:
        log.warning(f"{NAME}: note: {note}")
    try:
        seen = select(graph, selection, arguments.output)
    except DataError as error:
        raise type(error)(f"{arguments.inputs[0]}: {error}") from error
    with step("write"):
        write_view(seen, selection, arguments.output)
    edges = len(seen.graph.data_deps.values)
    log.info(f"nodes {len(seen.graph):,} of {len(graph):,}, dependencies {edges:,}, to nodes outside {seen.cut:,}")
