"""Writes a graph or a part of it for viewing: its data flow or lanes over time as a picture, as DOT for Graphviz, or
with all attributes as GraphML, for networkx, yEd and Gephi.
"""

from collections import defaultdict
from typing import IO

from ...schema.columns import Categorical
from ...schema.errors import DataError, Spelled
from ...schema.graph import DependencyKind, ExecutionGraph, digraph_of
from ...schema.io import open_output
from ..options import FLOW, LANES, form_of
from ..replay import NodeClass, gather, replay
from .data_flow import data_flow, path_times
from .drawing import NOT_XML, lane_names
from .flow_picture import draw_flow
from .lane_picture import draw_lanes
from .selection import Selection, View, median_step, view

FILL = {
    NodeClass.HOST: "#c9d1da",
    NodeClass.COMPUTATION: "#9cc3e6",
    NodeClass.COMMUNICATION: "#f2bf8a",
    NodeClass.MEMORY: "#b5d3a0",
}
PICTURED = 3_000
"""Nodes that lanes show so that people can still read them; data flow is summed up, and programs read GraphML."""
NARROWER = Spelled(
    "--step N, --op NAME, --around NODE --hops N, --stream S or --time FROM:TO", "step, op, around, streams or time_us"
)


def write_graphml(graph: ExecutionGraph, stream: IO[bytes]) -> None:
    """Writes the graph with all attributes of its nodes; edges have `kind`, a bit mask, and `reason`.

    Characters that XML does not allow become ?.
    """
    import networkx as nx  # slow to load

    for column in (graph.name, *graph.attributes.values()):
        if isinstance(column, Categorical):
            column.table = [NOT_XML.sub("?", text) for text in column.table]
    digraph = digraph_of(graph)
    for *_, edge in digraph.edges(data=True):
        edge["reason"], edge["kind"] = edge["kind"], edge.pop("kind_bits")
    nx.write_graphml(digraph, stream)


def write_dot(graph: ExecutionGraph, stream: IO[bytes]) -> None:
    """Writes the graph with a cluster per host thread and device stream, nodes coloured by class."""
    work = gather([graph])
    names = lane_names(work)
    ids, lanes = graph.id.tolist(), defaultdict(list)
    for row, lane in enumerate(work.lane.tolist()):
        fill = FILL.get(NodeClass(work.node_class[row]), "#eeeeee")
        label = _quoted(f"{graph.name[row]}\n{graph.duration_ns[row] / 1000:,.1f} µs")
        lanes[lane].append(f'    {ids[row]} [label={label}, fillcolor="{fill}"];')
    lines = ["digraph execution {", '  node [shape=box, style="filled", color="#8894a0", fontname="sans-serif"];']
    for lane, nodes in lanes.items():
        lines += [f"  subgraph cluster_{lane} {{", f"    label={_quoted(names[lane])};", *nodes, "  }"]
    edges = zip(work.source.tolist(), work.target.tolist(), work.kind.tolist(), strict=True)
    lines += [
        f"  {ids[source]} -> {ids[target]} [tooltip={_quoted(DependencyKind(kind).label)}];"
        for source, target, kind in edges
    ]
    stream.write("\n".join([*lines, "}\n"]).encode("utf-8", "replace"))


def _quoted(text: str) -> str:
    # Graphviz reads entities as HTML has them
    escaped = text.replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{NOT_XML.sub("?", escaped)}"'


def select(graph: ExecutionGraph, selection: Selection, path: str, picture: str = "") -> View:
    """Returns the selected part of the graph for a file of that name; of data flow the median step by default.

    A note says what the picture shows if that was not asked. Raises DataError if it is too large for the picture.
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
        return seen._replace(picture=picture)
    if form_of(path) != ".svg" or asked:
        raise DataError(
            f"{len(seen.graph):,} nodes are too many for a picture, {PICTURED:,} can be read; narrow it with ",
            NARROWER,
            ", or write .graphml",
        )
    note = f"{len(seen.graph):,} nodes are too many for lanes: the picture is of their data flow"
    return seen._replace(picture=FLOW, note=note)


def write_view(graph: ExecutionGraph, seen: View, path: str) -> None:
    """Writes the selected part of the graph in the form that the name of the file tells, whole or not at all."""
    selection, picture = seen.selection, seen.picture
    with open_output(path) as stream:
        if picture == LANES:
            lanes = draw_lanes(seen.graph, seen.origin_ns, selection.centre, selection.time_us)
            stream.write(lanes.encode("utf-8", "replace"))
        elif picture == FLOW:
            rank, path_ns = graph.number("rank", -1), path_times(replay(graph))[graph.rows_of(seen.graph.id)]
            title = [f"rank {rank}" if rank >= 0 else "Execution graph"]
            title += [f"step {selection.step}"] if selection.step is not None else []
            title += [f"module {selection.module}"] if selection.module else []
            title += [selection.op] if selection.op else []
            flow = data_flow(seen.graph, ", ".join(title), path_ns, sought=seen.sought)
            stream.write(draw_flow(flow).encode("utf-8", "replace"))
        elif form_of(path) == ".dot":
            write_dot(seen.graph, stream)
        else:
            write_graphml(seen.graph, stream)
