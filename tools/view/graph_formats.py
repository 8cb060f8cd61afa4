"""Writes execution graphs as GraphML, for networkx, yEd and Gephi, and as DOT, for Graphviz."""

from collections import defaultdict
from typing import IO

from ...schema.columns import Categorical
from ...schema.graph import DependencyKind, ExecutionGraph
from ..replay import NodeClass, gather
from .lane_names import lane_names
from .xml_text import NOT_XML

FILL = {
    NodeClass.HOST: "#c9d1da",
    NodeClass.COMPUTATION: "#9cc3e6",
    NodeClass.COMMUNICATION: "#f2bf8a",
    NodeClass.MEMORY: "#b5d3a0",
}


def write_graphml(graph: ExecutionGraph, stream: IO[bytes]) -> None:
    """Writes the graph with all attributes of its nodes; edges have `kind`, a bit mask, and `reason`.

    Characters that XML does not allow become ?.
    """
    import networkx as nx  # slow to load

    for column in (graph.name, *graph.attributes.values()):
        if isinstance(column, Categorical):
            column.table = [NOT_XML.sub("?", text) for text in column.table]
    digraph = graph.to_networkx()
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
