"""The command trace-view: an execution graph, or a part of it, as GraphML, DOT or an SVG picture."""

import argparse
import logging
import math
from collections.abc import Sequence
from typing import NoReturn

from ...schema.errors import Audience, DataError, said_to
from ..command import run_command, step
from ..command_parser import CommandParser
from ..view_forms import FLOW, FORMS, LANES, form_of

NAME = "trace-view"
log = logging.getLogger("execgraph")


@said_to(Audience.TERMINAL)
def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Runs trace-view and ends the process: 0 done, 1 unusable data, 2 wrong usage."""
    parser = CommandParser(
        NAME,
        "Draws an execution graph or a part of it. An .svg shows the data flow of a step by module and op, or lanes over\n"
        "time. A .dot is for Graphviz, and a .graphml has all attributes.",
        f"{NAME} graph.0.et -o graph.svg --step 2 --module Block_0",
    )
    parser.add_inputs(
        "GRAPH.et", "an execution graph (gzip accepted, - is stdin)", "--input", "--input_filename", max_count=1
    )
    parser.add_output("X.svg|.dot|.graphml", "the picture or graph; add .gz to compress it", "--output_filename")
    part = parser.add_argument_group("a part of the graph: nodes that meet all conditions")
    part.add_argument(
        "--step", type=int, metavar="N",
        help="the profiler's step with this number (default for data flow: the step of median length)",
    )  # fmt: skip
    part.add_argument(
        "--module", default="", metavar="NAME",
        help="a module, by its path or a part of it, such as Block_0; for graphs built with --modules",
    )  # fmt: skip
    part.add_argument("--op", default="", metavar="NAME", help="an op, with what it reads and what reads its results")
    part.add_argument("--around", type=int, metavar="NODE", help="the node with this id, and those near it")
    part.add_argument(
        "--hops", type=_hops, metavar="N",
        help="how many tensors away from --op (1), or dependencies from --around (2), in both directions",
    )  # fmt: skip
    part.add_argument(
        "--stream", dest="streams", action="append", type=int, default=[], metavar="S",
        help="activities of this stream; repeatable",
    )  # fmt: skip
    part.add_argument(
        "--time", type=_window, metavar="FROM:TO", help="nodes that run between these times, in µs from the first start"
    )
    parser.add_argument(
        "--picture", choices=(FLOW, LANES),
        help="what an .svg shows: data flow, or threads and streams as lanes over time (lanes for --around, --stream"
        " and --time, else flow)",
    )  # fmt: skip
    arguments = parser.parse_args(argv)
    if arguments.hops is not None and arguments.around is None and not arguments.op:
        parser.error("--hops counts from the op that --op names, or the node that --around names")
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
    from ..recognise import InputKind
    from ..view import Selection, select, write_view
    from ..wrong_kind import reading

    path = arguments.inputs[0]
    with step("read graph"), reading(path, InputKind.GRAPH):
        graph = ExecutionGraph.read(path)
    for note in graph.notes:
        log.warning(f"{NAME}: note: {note}")
    selection = Selection(
        centre=arguments.around,
        hops=arguments.hops,
        step=arguments.step,
        module=arguments.module,
        op=arguments.op,
        streams=tuple(arguments.streams),
        time_us=arguments.time,
    )
    try:
        viewed = select(graph, selection, arguments.output, arguments.picture or "")
    except DataError as error:
        raise type(error)(f"{path}: {error}") from error
    if viewed.note:
        log.warning(f"{NAME}: note: {viewed.note}")
    with step("write"):
        write_view(graph, viewed, arguments.output)
    seen = viewed.seen
    edges = len(seen.graph.data_deps.values)
    log.info(f"nodes {len(seen.graph):,} of {len(graph):,}, dependencies {edges:,}, to nodes outside {seen.cut:,}")
