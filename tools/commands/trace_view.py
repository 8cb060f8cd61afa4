"""The command trace-view: an execution graph, or a part of it, as GraphML, DOT or an SVG picture."""

import argparse
import logging
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from ...schema.errors import DataError
from ...schema.io import open_output
from ..command import run_command, step
from ..command_parser import CommandParser

if TYPE_CHECKING:
    from ...schema.graph import ExecutionGraph
    from ..view import Selection, View

NAME = "trace-view"
FORMS = (".svg", ".dot", ".graphml")
FLOW, LANES = "flow", "lanes"
PICTURED = 3_000
"""Nodes that lanes show so that people can still read them; data flow is summed up, and programs read GraphML."""

log = logging.getLogger("execgraph")


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Runs trace-view and ends the process: 0 done, 1 unusable data, 2 wrong usage."""
    parser = CommandParser(
        NAME,
        "Writes an execution graph or a part of it for viewing. As .svg: the data flow of a step by module and op, or\n"
        "lanes over time; for Graphviz as .dot; with all attributes as .graphml. A node must meet all conditions that\n"
        "are given.",
        f"{NAME} graph.0.et -o graph.svg --step 2 --module Block_0",
    )
    parser.add_inputs(
        "GRAPH.et", "an execution graph (gzip accepted, - is stdin)", "--input", "--input_filename", max_count=1
    )
    parser.add_output("X.svg|.dot|.graphml", "the picture or graph; it may end in .gz besides", "--output_filename")
    part = parser.add_argument_group("a part of the graph: what meets all that are given")
    part.add_argument(
        "--step", type=int, metavar="N",
        help="the profiler's step of this number; data flow is of the median step by default",
    )  # fmt: skip
    part.add_argument(
        "--module", default="", metavar="NAME",
        help="a module, by its path or a part of it, as Block_0; of graphs built with --modules",
    )  # fmt: skip
    part.add_argument("--op", default="", metavar="NAME", help="an op, and what it reads from and hands on to")
    part.add_argument("--around", type=int, metavar="NODE", help="nodes near the one with this id")
    part.add_argument(
        "--hops", type=_hops, metavar="N",
        help="how many flows away from --op (1), or dependencies from --around (2), either way",
    )  # fmt: skip
    part.add_argument(
        "--stream", dest="streams", action="append", type=int, default=[], metavar="S",
        help="activities of this device stream; repeatable",
    )  # fmt: skip
    part.add_argument("--time", type=_window, metavar="FROM:TO", help="what runs between these µs from the first start")
    parser.add_argument(
        "--picture", choices=(FLOW, LANES),
        help="what an .svg shows: data flow, or threads and streams as lanes over time (lanes for --around, --stream"
        " and --time, else flow)",
    )  # fmt: skip
    arguments = parser.parse_args(argv)
    if arguments.hops is not None and arguments.around is None and not arguments.op:
        parser.error("--hops counts from the op that --op names, or the node that --around names")
    if _form(arguments.output) not in FORMS:
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


def _form(path: str) -> str:
    """Returns the suffix that tells the form, without .gz."""
    return "." + path.removesuffix(".gz").rpartition(".")[2]


def _run(arguments: argparse.Namespace) -> None:
    from ...schema.graph import ExecutionGraph
    from ..inputs import InputKind, reading
    from ..view import view

    path = arguments.inputs[0]
    with step("read graph"), reading(path, InputKind.GRAPH):
        graph = ExecutionGraph.read(path)
    for note in graph.notes:
        log.warning(f"{NAME}: note: {note}")
    picture = _picture(arguments)
    selection = _selection(arguments, graph, picture)
    try:
        seen = view(graph, selection)
    except DataError as error:
        raise type(error)(f"{path}: {error}") from error
    if picture != FLOW and _form(arguments.output) != ".graphml" and len(seen.graph) > PICTURED:
        if _form(arguments.output) != ".svg" or arguments.picture:
            raise DataError(
                f"{path}: {len(seen.graph):,} nodes are too many for a picture, {PICTURED:,} can be read; narrow it "
                "with --step N, --op NAME, --around NODE --hops N, --stream S or --time FROM:TO, or write .graphml"
            )
        log.warning(
            f"{NAME}: note: {len(seen.graph):,} nodes are too many for lanes: the picture is of their data flow"
        )
        picture = FLOW
    with step("write"), open_output(arguments.output) as stream:
        stream.write(_written(arguments, graph, selection, seen, picture))
    edges = len(seen.graph.data_deps.values)
    log.info(f"nodes {len(seen.graph):,} of {len(graph):,}, dependencies {edges:,}, to nodes outside {seen.cut:,}")


def _picture(arguments: argparse.Namespace) -> str:
    """Returns what a picture shows, "" for other forms."""
    if _form(arguments.output) != ".svg":
        return ""
    has_place = arguments.around is not None or arguments.streams or arguments.time
    return arguments.picture or (LANES if has_place else FLOW)


def _selection(arguments: argparse.Namespace, graph: "ExecutionGraph", picture: str) -> "Selection":
    from ..view import Selection, median_step

    hops = arguments.hops if arguments.hops is not None else 2 if arguments.around is not None else 1
    chosen = arguments.step
    if chosen is None and picture == FLOW and arguments.around is None and not arguments.time:
        chosen = median_step(graph)
    return Selection(
        centre=arguments.around,
        hops=hops,
        step=chosen,
        module=arguments.module,
        op=arguments.op,
        streams=tuple(arguments.streams),
        time_us=arguments.time,
    )


def _written(
    arguments: argparse.Namespace, graph: "ExecutionGraph", selection: "Selection", seen: "View", picture: str
) -> bytes:
    """Returns the bytes of the picture or graph."""
    import io

    from ..replay import replay
    from ..view import data_flow, draw_flow, draw_lanes, path_times, write_dot, write_graphml

    if picture == LANES:
        return draw_lanes(seen.graph, seen.origin_ns, arguments.around, seen.time_us).encode("utf-8", "replace")
    if picture == FLOW:
        path_ns = path_times(replay(graph))[graph.rows_of(seen.graph.id)]
        flow = data_flow(seen.graph, _title(graph, selection), path_ns, sought=seen.sought)
        return draw_flow(flow).encode("utf-8", "replace")
    stream = io.BytesIO()
    (write_dot if _form(arguments.output) == ".dot" else write_graphml)(seen.graph, stream)
    return stream.getvalue()


def _title(graph: "ExecutionGraph", selection: "Selection") -> str:
    """Returns what the picture shows, in words."""
    rank = graph.number("rank", -1)
    parts = [f"rank {rank}"] if rank >= 0 else ["Execution graph"]
    parts += [f"step {selection.step}"] if selection.step is not None else []
    parts += [f"module {selection.module}"] if selection.module else []
    parts += [selection.op] if selection.op else []
    return ", ".join(parts)
