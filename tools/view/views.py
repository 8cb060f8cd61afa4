"""Selects a part of an execution graph, whose nodes keep their ids, and writes it as a picture, DOT or GraphML."""

import dataclasses
import difflib
import re
from collections import defaultdict
from typing import IO, NamedTuple

import numpy as np

from ...converter.rewiring import rows_of_graph
from ...schema.columns import Bool, Categorical, Int64, NodeIds, NodeNumbers, Ragged, Tree, nearest
from ...schema.errors import DataError, Remedy, RequestError, Spelled, require
from ...schema.graph import STEP_START, DependencyKind, ExecutionGraph, digraph_of
from ...schema.io import open_output
from ..options import FLOW, LANES, PICTURES, form_of
from ..replay import Calls, NodeClass, calls_of, gather, replay
from ..terminal import list_names
from .calls import flows_of, recorded_tensors
from .data_flow import data_flow, path_times
from .drawing import NOT_XML, lane_names
from .flow_picture import draw_flow
from .lane_picture import draw_lanes

LISTED = 8
RASTERS, PNG_SCALE = (".png", ".pdf"), 2
PART = re.compile(r"[./_]+")
"""What is between the parts of a module's path: `Net_0/Block_1` is also written `net.0.block.1`."""
FILL = {
    NodeClass.HOST: "#c9d1da", NodeClass.COMPUTATION: "#9cc3e6",
    NodeClass.COMMUNICATION: "#f2bf8a", NodeClass.MEMORY: "#b5d3a0",
}  # fmt: skip
PICTURED = 3_000
"""Nodes that lanes show so that people can still read them; data flow is summed up, and programs read GraphML."""
NARROWER = Spelled(
    "--step N, --op NAME, --around NODE --hops N, --stream S or --time FROM:TO", "step, op, around, streams or time_us"
)


def steps_of(graph: ExecutionGraph) -> dict[int, int]:
    """Returns the start (ns) of each step by its number, in order of time."""
    starts = {
        int(key.removeprefix(STEP_START)): value
        for key, value in graph.metadata.items()
        if key.startswith(STEP_START) and key.removeprefix(STEP_START).isdecimal() and isinstance(value, int)
    }
    return dict(sorted(starts.items(), key=lambda item: item[1]))


def median_step(graph: ExecutionGraph) -> int | None:
    """Returns the number of the step of median length, from each start to the next; None if no steps are marked."""
    steps = steps_of(graph)
    ends = [*[*steps.values()][1:], int((graph.host_clock_start_ns + graph.duration_ns).max(initial=0))]
    lengths = sorted((end - start, number) for (number, start), end in zip(steps.items(), ends, strict=False))
    return lengths[len(lengths) // 2][1] if lengths else None


class Selection(NamedTuple):
    """Conditions, which a selected node must all meet.

    `around` is the id of a node, with those at most `hops` dependencies away. `time_us` counts from the graph's first
    start. `module` is a path or a part of it. With `op`, its calls, what they launched, and calls `hops` flows away
    count.
    """

    around: int | None = None
    hops: int | None = None
    step: int | None = None
    module: str = ""
    op: str = ""
    streams: tuple[int, ...] = ()
    time_us: tuple[float, float] | None = None


class View(NamedTuple):
    """The selected nodes as a graph, the first start of all, how many dependencies are cut, and what is seen."""

    selection: Selection
    graph: ExecutionGraph
    origin_ns: int
    cut: int
    sought: tuple[int, ...]
    picture: str = ""
    note: str = ""


def view(graph: ExecutionGraph, selection: Selection) -> View:
    """Returns the selected part of the graph. O(n log n + hops · e). Raises RequestError if no node is selected."""
    if selection.hops is None:
        selection = selection._replace(hops=1 if selection.around is None else 2)
    work, is_selected = gather([graph]), np.ones(len(graph), bool)
    if (node := selection.around) is not None:
        row = int(graph.rows_of(NodeIds(np.array([node], np.int64)))[0])
        if row < 0:
            raise RequestError(f"there is no node {node}; ids are {graph.id.min()} to {graph.id.max()}")
        is_selected &= _near(np.arange(len(graph)) == row, work.source, work.target, selection.hops or 0)
    if selection.streams:
        is_selected &= graph.is_activity & np.isin(graph.integers("stream"), selection.streams)
    if selection.time_us:
        first, last = selection.time_us
        is_selected &= work.is_timed & (work.measured_start_ns <= last * 1000) & (work.measured_end_ns >= first * 1000)
    of_calls, sought = _of_calls(graph, selection)
    is_selected &= of_calls
    if not is_selected.any():
        streams = ", ".join(map(str, np.unique(graph.integers("stream")[graph.is_activity]).tolist())) or "none"
        length = work.measured_end_ns[work.is_timed].max(initial=0)
        there_are = f"streams are {streams}, the graph lasts {length / 1000:,.0f} µs"
        raise RequestError(f"none of the {len(graph):,} nodes is selected; {there_are}")
    origin = int(graph.start_ns[work.is_timed].min()) if work.is_timed.any() else 0
    cut = int((is_selected[work.source] != is_selected[work.target]).sum())
    ids = tuple(graph.id[sought & is_selected].tolist())
    return View(selection, _subgraph(graph, is_selected), origin, cut, ids)


def _near(chosen: Bool, source: Int64, target: Int64, hops: int) -> Bool:
    """Returns what is at most so many edges away from what is chosen, in either direction."""
    near = chosen.copy()
    for _ in range(hops):
        ends: Int64 = np.concatenate((target[near[source]], source[near[target]]))
        if near[ends].all():
            break
        near[ends] = True
    return near


def _subgraph(graph: ExecutionGraph, is_selected: Bool) -> ExecutionGraph:
    rows = NodeNumbers(np.flatnonzero(is_selected))
    subgraph = rows_of_graph(graph, rows)

    def kept(ids: Ragged, column: Ragged) -> Ragged:
        """Returns the values of the selected rows where the ids are those of selected nodes."""
        row = graph.rows_of(NodeIds(ids.values))
        inside = (row >= 0) & is_selected[row]
        return Ragged.grouped(column.rows()[inside], column.values[inside], len(column)).take(rows)

    kinds, data, control = graph.attributes.get("data_dep_kinds"), graph.data_deps, graph.ctrl_deps
    if isinstance(kinds, Ragged) and np.array_equal(kinds.starts, data.starts):
        subgraph.attributes["data_dep_kinds"] = kept(data, kinds)
    return dataclasses.replace(
        subgraph, id=NodeIds(graph.id[rows]), data_deps=kept(data, data), ctrl_deps=kept(control, control)
    )


def _of_calls(graph: ExecutionGraph, selection: Selection) -> tuple[Bool, Bool]:
    """Returns which nodes are of the step, module and op, and which are the op itself."""
    everything, nothing = np.ones(len(graph), bool), np.zeros(len(graph), bool)
    if selection.step is None and not selection.module and not selection.op:
        return everything, nothing
    calls = calls_of(graph)

    def rows(chosen: Bool) -> Bool:
        return np.append(chosen, False)[calls.of_row]

    is_selected = everything if selection.step is None else _rows_of_step(graph, calls, selection.step)
    if selection.module:
        is_selected &= rows(_with_inner(calls, _calls_of_module(graph, calls, selection.module)))
    if not selection.op:
        return is_selected, nothing
    sought = _calls_of_op(graph, calls, selection.op)
    sought &= np.isin(np.arange(len(calls)), calls.of_row[is_selected])
    # with what is so many flows away, either way, and what called all these
    flows = flows_of(graph, calls, recorded_tensors(graph))
    near = _near(_with_inner(calls, sought), flows.source, flows.target, selection.hops or 0)
    near = _with_inner(calls, near)
    with_callers = Tree.of(calls.parent, calls.first_row).subtrees(np.maximum, near.astype(np.int64)) > 0
    return is_selected & rows(with_callers), rows(sought)


def _rows_of_step(graph: ExecutionGraph, calls: Calls, step: int) -> Bool:
    """Returns which nodes belong to a step: those of calls whose outermost call began in it, and idle time in it.

    The end of the first slice tells when a call began, as a short slice before the step's mark may be folded into it.
    """
    steps = steps_of(graph)
    if step not in steps:
        there_are = f"there are {list_names([*map(str, steps)], LISTED)}" if steps else "its steps are not marked"
        raise RequestError(f"the graph has no step {step}; {there_are}")
    first_row = np.arange(len(graph))
    is_call = calls.of_row >= 0
    first_row[is_call] = calls.first_row[calls.roots()[calls.of_row[is_call]]]
    begun = (graph.host_clock_start_ns + graph.duration_ns)[first_row]
    end = min((other for other in steps.values() if other > steps[step]), default=np.iinfo(np.int64).max)
    return np.asarray((begun > steps[step]) & (begun <= end))


def _calls_of_module(graph: ExecutionGraph, calls: Calls, module: str) -> Bool:
    """Returns which calls were made for a module, or for one in it; it is named by its path or a part of it."""
    recorded = graph.texts("module")
    sought = _parts(module)

    def is_in_it(path: str) -> bool:
        parts = _parts(path)
        return any(parts[start : start + len(sought)] == sought for start in range(len(parts) - len(sought) + 1))

    chosen = recorded.where(is_in_it)[calls.first_row]
    if not chosen.any():
        paths = sorted({path for path in recorded.table if path})
        none = f"the graph holds no modules: build it with {Remedy.MODULES}"
        there_are = f"there are {list_names(paths, LISTED)}" if paths else none
        raise RequestError(f"no module is called {module}; {there_are}")
    return chosen


def _parts(path: str) -> list[str]:
    return [part for part in PART.split(path.lower()) if part]


def _calls_of_op(graph: ExecutionGraph, calls: Calls, op: str) -> Bool:
    """Returns which calls are of this op, call or kernel: `aten::mm`, or `mm`."""
    names = graph.name.take(calls.first_row)
    chosen = names.where(lambda name: op in (name, name.rpartition("::")[2]))
    if not chosen.any():
        alike = difflib.get_close_matches(op, names.table, LISTED) or [name for name in names.table if op in name]
        raise RequestError(f"no op is called {op}{f'; there are {list_names(alike, LISTED)}' if alike else ''}")
    return chosen


def _with_inner(calls: Calls, chosen: Bool) -> Bool:
    """Adds to the chosen calls all that these called or launched."""
    return nearest(chosen, calls.parent) >= 0


def write_graphml(graph: ExecutionGraph, stream: IO[bytes]) -> None:
    """Writes the graph with all attributes of its nodes; edges have `kind`, a bit mask, and `reason`."""
    import networkx as nx  # slow to load

    for column in (graph.name, *graph.attributes.values()):
        if isinstance(column, Categorical):
            column.table = [NOT_XML.sub("?", text) for text in column.table]
    digraph = digraph_of(graph)
    for *_, edge in digraph.edges(data=True):
        edge["reason"], edge["kind"] = edge["kind"], edge.pop("kind_bits")
    nx.write_graphml(digraph, stream)


def dot(graph: ExecutionGraph) -> str:
    """Returns the graph with a cluster per host thread and device stream, nodes coloured by class."""
    work = gather([graph])
    names, ids, lanes = lane_names(work), graph.id.tolist(), defaultdict(list)
    for row, lane in enumerate(work.lane.tolist()):
        fill = FILL.get(NodeClass(work.node_class[row]), "#eeeeee")
        label = _quoted(f"{graph.name[row]}\n{graph.duration_ns[row] / 1000:,.1f} µs")
        lanes[lane].append(f'    {ids[row]} [label={label}, fillcolor="{fill}"];')
    lines = ["digraph execution {", '  node [shape=box, style="filled", color="#8894a0", fontname="sans-serif"];']
    for lane, nodes in lanes.items():
        lines += [f"  subgraph cluster_{lane} {{", f"    label={_quoted(names[lane])};", *nodes, "  }"]
    edges = zip(work.source.tolist(), work.target.tolist(), work.kind.tolist(), strict=True)
    for source, target, kind in edges:
        lines.append(f"  {ids[source]} -> {ids[target]} [tooltip={_quoted(DependencyKind(kind).label)}];")
    return "\n".join([*lines, "}\n"])


def _quoted(text: str) -> str:
    # Graphviz reads entities as HTML has them
    escaped = text.replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{NOT_XML.sub("?", escaped)}"'


def select(graph: ExecutionGraph, selection: Selection, path: str, picture: str = "") -> View:
    """Returns the selected part of the graph for a file of that name; of data flow the median step by default.

    Raises DataError if it is too large for the picture.
    """
    asked = picture
    if form_of(path) not in PICTURES:
        picture = ""
    elif not picture:
        picture = LANES if selection.around is not None or selection.streams or selection.time_us else FLOW
    if picture == FLOW and selection.step is None and selection.around is None and not selection.time_us:
        selection = selection._replace(step=median_step(graph))
    seen = view(graph, selection)
    if picture == FLOW or form_of(path) == ".graphml" or len(seen.graph) <= PICTURED:
        return seen._replace(picture=picture)
    if form_of(path) not in PICTURES or asked:
        problem = f"{len(seen.graph):,} nodes are too many for a picture, {PICTURED:,} can be read"
        raise DataError(f"{problem}; narrow it with ", NARROWER, ", or write .graphml")
    note = f"{len(seen.graph):,} nodes are too many for lanes: the picture is of their data flow"
    return seen._replace(picture=FLOW, note=note)


def write_view(graph: ExecutionGraph, seen: View, path: str) -> None:
    """Writes the selected part of the graph in the form that the name of the file tells, whole or not at all."""
    selection, rank, form = seen.selection, graph.number("rank", -1), form_of(path)
    if form in RASTERS:
        require("picture", path)
    with open_output(path) as stream:
        if form == ".graphml":
            write_graphml(seen.graph, stream)
            return
        if seen.picture == LANES:
            text = draw_lanes(seen.graph, seen.origin_ns, selection.around, selection.time_us)
        elif seen.picture == FLOW:
            title = [
                f"rank {rank}" if rank >= 0 else "Execution graph",
                f"step {selection.step}" if selection.step is not None else "",
                f"module {selection.module}" if selection.module else "",
                selection.op,
            ]
            path_ns = path_times(replay(graph))[graph.rows_of(seen.graph.id)]
            text = draw_flow(data_flow(seen.graph, ", ".join(filter(None, title)), path_ns, sought=seen.sought))
        else:
            text = dot(seen.graph)
        if form not in RASTERS:
            stream.write(text.encode("utf-8", "replace"))
            return
        import vl_convert  # slow to load

        stream.write(vl_convert.svg_to_png(text, scale=PNG_SCALE) if form == ".png" else vl_convert.svg_to_pdf(text))
