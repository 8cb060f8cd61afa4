"""Writes a graph or a part of it for viewing: as lanes over time, for Graphviz, or with all attributes."""

from ...schema.errors import DataError
from ...schema.graph import ExecutionGraph
from ...schema.io import open_output
from ..view_forms import form_of
from .graph_formats import write_dot, write_graphml
from .graph_view import Selection, View, view
from .lane_picture import draw_lanes

PICTURED = 3_000
"""Nodes that a picture shows so that people can still read it; GraphML, which programs read, has no limit."""


def select(graph: ExecutionGraph, selection: Selection, path: str) -> View:
    """Returns the selected part of the graph. Raises DataError if it is too large for a picture of this name."""
    seen = view(graph, selection)
    if form_of(path) != ".graphml" and len(seen.graph) > PICTURED:
        raise DataError(
            f"{len(seen.graph):,} nodes are too many for a picture, {PICTURED:,} can be read; narrow it with "
            "--around NODE --hops N, --stream S or --time FROM:TO, or write .graphml"
        )
    return seen


def write_view(seen: View, selection: Selection, path: str) -> None:
    """Writes the selected part in the form that the name of the file tells, whole or not at all."""
    with open_output(path) as stream:
        if form_of(path) == ".svg":
            picture = draw_lanes(seen.graph, seen.origin_ns, selection.centre, seen.time_us)
            stream.write(picture.encode("utf-8", "replace"))
        elif form_of(path) == ".dot":
            write_dot(seen.graph, stream)
        else:
            write_graphml(seen.graph, stream)
