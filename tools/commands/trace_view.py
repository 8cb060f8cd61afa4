"""The command trace-view: an execution graph, or a part of it, as GraphML, DOT or an SVG picture."""

import argparse

from ...schema.errors import WrongUsage
from ..command import log, log_notes, naming, step
from ..command_parser import Inputs, Output, command
from ..options import chosen_for, form_of


@command(
    "trace-view",
    "Draws an execution graph or a part of it. An .svg shows the data flow of a step by module and op, or lanes over\n"
    "time. A .dot is for Graphviz, and a .graphml has all attributes.",
    "graph.0.et -o graph.svg --step 2 --module Block_0",
    Inputs("GRAPH.et", "an execution graph (gzip accepted, - is stdin)", ("--input", "--input_filename"), max_count=1),
    Output("X.svg|.dot|.graphml", "the picture or graph; add .gz to compress it", ("--output_filename",)),
)
def main(options: argparse.Namespace) -> None:
    """Draws the part of a graph that the options choose."""
    from ...schema.graph import read_et
    from ..recognise import InputKind, reading
    from ..view import Selection, select, write_view

    if options.hops is not None and options.around is None and not options.op:
        raise WrongUsage("--hops counts from the op that --op names, or the node that --around names")
    form_of(options.output)  # refuses a name before the graph is read
    path = options.inputs[0]
    with step("read graph"), reading(path, InputKind.GRAPH):
        graph = read_et(path)
    log_notes(options.prog, graph.notes)
    part = chosen_for("draw", options)
    picture = part.pop("picture", "")
    with naming(path):
        seen = select(graph, Selection(**part), options.output, picture)
    log_notes(options.prog, filter(None, [seen.note]))
    with step("write"):
        write_view(graph, seen, options.output)
    edges = len(seen.graph.data_deps.values)
    log.info(f"nodes {len(seen.graph):,} of {len(graph):,}, dependencies {edges:,}, to nodes outside {seen.cut:,}")
