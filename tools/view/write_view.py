"""Writes a graph or a part of it for viewing: its data flow, lanes over time, for Graphviz, or with all attributes."""

from typing import NamedTuple

from ...schema.errors import DataError
from ...schema.graph import ExecutionGraph
from ...schema.io import open_output
from ..replay import replay
from ..view_forms import FLOW, LANES, form_of
from .chosen_calls import median_step
from .data_flow import data_flow, path_times
from .flow_picture import draw_flow
from .graph_formats import write_dot, write_graphml
from .graph_view import Selection, View, view
from .lane_picture import draw_lanes

PICTURED = 3_000
"""Nodes that lanes show so that people can still read them; data flow is summed up, and programs read GraphML."""


class Viewed(NamedTuple):
    """A selected part of a graph, what a picture shows of it, "" for other forms, and a note if that was not asked."""

    selection: Selection
    seen: View
    picture: str
    note: str


def select(graph: ExecutionGraph, selection: Selection, path: str, picture: str = "") -> Viewed:
    """Returns the selected part of the graph for a file of that name; of data flow the median step by default.

    Raises DataError if it is too large for the picture.
    """
    asked = picture
    if form_of(path) != ".svg":
        picture = ""
    elif not picture:
        picture = LANES if selection.centre is not None or selection.streams or selection.time_us else FLOW
    if picture == FLOW and selection.step is None and selection.centre is None and not selection.time_us:
        selection = selection._replace(step=median_step(graph))
    seen = view(graph, selection)
    if picture == FLOW or form_of(path) == ".graphml" or len(seen.graph) <= PICTURED:
        return Viewed(selection, seen, picture, "")
    if form_of(path) != ".svg" or asked:
        raise DataError(
            f"{len(seen.graph):,} nodes are too many for a picture, {PICTURED:,} can be read; narrow it "
            "with --step N, --op NAME, --around NODE --hops N, --stream S or --time FROM:TO, or write .graphml"
        )
    note = f"{len(seen.graph):,} nodes are too many for lanes: the picture is of their data flow"
    return Viewed(selection, seen, FLOW, note)


def write_view(graph: ExecutionGraph, viewed: Viewed, path: str) -> None:
    """Writes the selected part of the graph in the form that the name of the file tells, whole or not at all."""
    selection, seen, picture, _ = viewed
    with open_output(path) as stream:
        if picture == LANES:
            lanes = draw_lanes(seen.graph, seen.origin_ns, selection.centre, seen.time_us)
            stream.write(lanes.encode("utf-8", "replace"))
        elif picture == FLOW:
            path_ns = path_times(replay(graph))[graph.rows_of(seen.graph.id)]
            flow = data_flow(seen.graph, _title(graph, selection), path_ns, sought=seen.sought)
            stream.write(draw_flow(flow).encode("utf-8", "replace"))
        elif form_of(path) == ".dot":
            write_dot(seen.graph, stream)
        else:
            write_graphml(seen.graph, stream)


def _title(graph: ExecutionGraph, selection: Selection) -> str:
    """Returns what the picture shows, in words."""
    rank = graph.number("rank", -1)
    parts = [f"rank {rank}"] if rank >= 0 else ["Execution graph"]
    parts += [f"step {selection.step}"] if selection.step is not None else []
    parts += [f"module {selection.module}"] if selection.module else []
    parts += [selection.op] if selection.op else []
    return ", ".join(parts)
