"""The command trace-view: an execution graph, or a part of it, as GraphML, DOT or an SVG picture."""

import argparse
import logging
from collections.abc import Sequence
from typing import NoReturn

from ...schema.errors import Audience, DataError, said_to
from ..command import run_command, step
from ..command_parser import CommandParser, Inputs, Output
from ..options import FORMS, form_of

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
        Inputs(
            "GRAPH.et", "an execution graph (gzip accepted, - is stdin)", ("--input", "--input_filename"), max_count=1
        ),
        Output("X.svg|.dot|.graphml", "the picture or graph; add .gz to compress it", ("--output_filename",)),
    )
    arguments = parser.parse_args(argv)
    if arguments.hops is not None and arguments.around is None and not arguments.op:
        parser.error("--hops counts from the op that --op names, or the node that --around names")
    if form_of(arguments.output) not in FORMS:
        parser.error(f"--output {arguments.output}: the name must end in {', '.join(FORMS)}")
    run_command(_run, arguments, NAME)


def _run(arguments: argparse.Namespace) -> None:
    from ...schema.graph import read_et
    from ..recognise import InputKind
    from ..view import Selection, select, write_view
    from ..wrong_kind import reading

    path = arguments.inputs[0]
    with step("read graph"), reading(path, InputKind.GRAPH):
        graph = read_et(path)
    for note in graph.notes:
        log.warning(f"{NAME}: note: {note}")
    selection = Selection(
        centre=arguments.around,
        hops=arguments.hops,
        step=arguments.step,
        module=arguments.module,
        op=arguments.op,
        streams=tuple(arguments.streams),
        time_us=arguments.time_us,
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
