"""The command trace-view: an execution graph, or a part of it, as a picture, DOT or GraphML."""

import argparse

from ...schema.errors import DataError, WrongUsage
from ..command import log, log_notes, naming, progress, step
from ..command_parser import Inputs, Output, command
from ..options import chosen_for, form_of, path_of_rank


@command(
    "trace-view",
    "Draws execution graphs or parts of them. Pictures (.svg, .png, .pdf) show the data flow of a step by module and op,\n"
    "or lanes over time. A .dot is for Graphviz, and a .graphml has all attributes.",
    "graph.0.et -o graph.svg --step 2 --module Block_0",
    Inputs(
        "GRAPHS", "execution graphs, or folders of them (gzip accepted, - is stdin)", ("--input", "--input_filename")
    ),
    Output(
        "X.svg|.png|.pdf|.dot|.graphml",
        "the picture or graph; of several graphs X.rankN.svg and so on; add .gz to compress it",
        ("--output_filename",),
    ),
)
def main(options: argparse.Namespace) -> None:
    """Draws the parts of graphs that the options choose."""
    from .. import replay as replays
    from ..view import Selection, select, write_view

    if options.hops is not None and options.around is None and not options.op:
        raise WrongUsage("--hops counts from the op that --op names, or the node that --around names")
    form_of(options.output)  # refuses a name before the graph is read
    part = chosen_for("draw", options)
    picture = part.pop("picture", "")
    paths = replays.graph_paths(options.inputs)
    drawn = dict[str, str]()
    for number, path in enumerate(progress(paths, "drawing", unit="graph")):
        graph = replays.read_graph_file(path)
        log_notes(options.prog, graph.notes)
        output = path_of_rank(options.output, int(graph.number("rank", number)), len(paths) > 1)
        if (earlier := drawn.setdefault(output, path)) != path:
            raise DataError(f"{earlier} and {path} are graphs of one rank: draw them one after the other")
        with naming(path):
            seen = select(graph, Selection(**part), output, picture)
        log_notes(options.prog, filter(None, [seen.note]))
        with step("write"):
            write_view(graph, seen, output)
        edges = len(seen.graph.data_deps.values)
        where = f"{output}: " if len(paths) > 1 else ""
        nodes = f"nodes {len(seen.graph):,} of {len(graph):,}"
        log.info(f"{where}{nodes}, dependencies {edges:,}, to nodes outside {seen.cut:,}")
