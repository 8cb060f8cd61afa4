"""The execution graph as users hold it: nodes and dependencies are views of its columns, so nothing is copied."""

import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, cast, overload

import numpy as np

from .converter.edges import Edges
from .converter.rewiring import recorded_edges
from .pictures import lanes_chart
from .run import Replay, WhatIf, added_to_record, replay
from .schema.arguments import FilePath, InputFile, whole_number
from .schema.columns import ABSENT, Categorical, Frame, Int64, NodeIds, Ragged, time_text
from .schema.graph import DependencyKind, ExecutionGraph as GraphRecord, NodeType, digraph_of
from .tools.options import checked, form_of
from .tools.replay import Changes, edge_weights, gather, read_graph_file
from .tools.view import Selection, select, write_view

if TYPE_CHECKING:
    import altair as alt
    import networkx as nx
LINKS = ("data_deps", "ctrl_deps", "data_dep_kinds")
"""Columns of lists, which `edges` has row by row."""


class Node:
    """A node of a graph: a slice of host work, a wait, an activity of a device or a delay.

    >>> import execgraph as eg
    >>> graph = eg.link("tests/data/training", rank=0).to_graph()
    >>> node = graph.node(5)
    >>> node.name, node.duration_ns, [source.name for _, source, _ in node.dependencies]
    ('aten::addmm', 12573, ['aten::t'])
    """

    __slots__ = ("_graph", "row")

    def __init__(self, graph: "ExecutionGraph", row: int) -> None:
        self._graph, self.row = graph, row

    @property
    def id(self) -> int:
        """Its id in the graph's file, by which dependencies and simulators know it."""
        return int(self._graph.id[self.row])

    @property
    def name(self) -> str:
        """The name of its op, call or kernel."""
        return self._graph.name[self.row]

    @property
    def type(self) -> NodeType:
        """What it is to a simulator."""
        return NodeType(int(self._graph.type[self.row]))

    @property
    def start_ns(self) -> int:
        """When it started, on the device trace's own clock."""
        return self._time("start_time_ns", self._graph.start_time_micros)

    @property
    def duration_ns(self) -> int:
        """How long it took as measured, without its gap."""
        return self._time("duration_ns", self._graph.duration_micros)

    def _time(self, name: str, micros: Int64) -> int:
        ns = self._attribute(name)
        return ns if isinstance(ns, int) else 1000 * int(micros[self.row])

    @property
    def attributes(self) -> dict[str, int | str | list[int]]:
        """The attributes that the node has, by name, such as its `stream` or its `op_id`."""
        values = ((name, self._attribute(name)) for name in self._graph.attributes)
        return {name: value for name, value in values if value is not None}

    def _attribute(self, name: str) -> int | str | list[int] | None:
        column = self._graph.attributes.get(name)
        if isinstance(column, Ragged):
            return column[self.row].tolist() or None
        if isinstance(column, Categorical):
            return column[self.row] if column.codes[self.row] >= 0 else None
        return None if column is None or column[self.row] == ABSENT else int(column[self.row])

    @property
    def dependencies(self) -> "list[Dependency]":
        """What has to end before it starts."""
        return [*self._views(range(*self._graph.data_deps.starts[self.row : self.row + 2].tolist()))]

    @property
    def dependents(self) -> "list[Dependency]":
        """What starts after it ended."""
        return [*self._views(self._graph._links()[1][self.row].tolist())]

    def _views(self, positions: "range | list[int]") -> "Iterator[Dependency]":
        edges, _ = self._graph._links()
        for position in positions:
            if edges.source[position] >= 0:
                source, target = (Node(self._graph, int(row[position])) for row in (edges.source, edges.target))
                yield Dependency(DependencyKind(int(edges.kind[position])), source, target)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Node) and (self._graph is other._graph and self.row == other.row)

    def __hash__(self) -> int:
        return hash((id(self._graph), self.row))

    def __repr__(self) -> str:
        return f"Node {self.id}: {self.name}, {self.type.name}, {time_text(self.duration_ns / 1000)}"


class Dependency(NamedTuple):
    """A dependency between two nodes of a graph: `target` starts after `source` ended; `kind` is why.

    `kind.label` is the reason in words, such as "launch" or "stream order".

    >>> import execgraph as eg
    >>> [dependency, *_] = eg.link("tests/data/training", rank=0).to_graph()[4].dependencies
    >>> dependency.source.name, dependency.kind.label, dependency.target.name
    ('aten::t', 'program order', 'aten::addmm')
    """

    kind: DependencyKind
    source: Node
    target: Node


@added_to_record
class ExecutionGraph(GraphRecord):
    """The execution graph of one rank: a sequence of nodes, with columns of all.

    A newly made graph has a `report` on the conversion, and the `changes` made for its target.

    >>> import execgraph as eg
    >>> graph = eg.link("tests/data/training", rank=0).to_graph()
    >>> len(graph), graph[4].name, graph[-1].type.name
    (420, 'aten::addmm', 'COMP')
    >>> graph.replay().error_pct
    0.0
    """

    __slots__ = ()

    @staticmethod
    def read(path: InputFile, tensors: bool = True) -> "ExecutionGraph":
        """Reads a graph from a .et file, or its JSON form, see `read_graph`."""
        return cast("ExecutionGraph", read_graph_file(path, tensors))

    @overload
    def __getitem__(self, position: int) -> Node: ...
    @overload
    def __getitem__(self, position: slice) -> list[Node]: ...
    def __getitem__(self, position: int | slice) -> Node | list[Node]:
        """Returns the node at a position, from 0 on, as in a list; `node` finds one by its id."""
        if not isinstance(position, slice):
            position = whole_number(position, "graph[position]")
        try:
            rows = range(len(self))[position]
        except IndexError:
            raise IndexError(f"there is no node at {position}: the graph has {len(self):,}") from None
        return [Node(self, row) for row in rows] if isinstance(rows, range) else Node(self, rows)

    def __iter__(self) -> Iterator[Node]:
        return (Node(self, row) for row in range(len(self)))

    def node(self, id: int) -> Node:
        """Returns the node with an id; KeyError where there is none."""
        identity = whole_number(id, "graph.node(id)")
        row = identity - 1
        # graphs of this project have the ids 1, 2, …
        if not 0 <= row < len(self) or self.id[row] != identity:
            row = int(self.rows_of(NodeIds(np.array([identity], np.int64)))[0])
        if row < 0:
            raise KeyError(f"no node has the id {id}")
        return Node(self, row)

    def _links(self) -> tuple[Edges, Ragged]:
        """Returns the dependencies, sorted by target, and the positions among them of those of each source."""
        if self.links is None:
            edges = recorded_edges(self)
            by_source = np.argsort(edges.source, kind="stable")
            self.links = edges, Ragged.grouped(edges.source[by_source], by_source, len(self))
        return cast("tuple[Edges, Ragged]", self.links)

    @property
    def nodes(self) -> Frame:
        """The nodes as a table: id, name, type, start_ns, duration_ns, and every attribute that any of them has."""
        return Frame("nodes", {name: values for name, values in self._frame().items() if name not in LINKS})

    @property
    def edges(self) -> Frame:
        """The dependencies as a table: source and target are ids of nodes, kind is the reason in words."""
        edges, _ = self._links()
        source, target, kind = edges.where(edges.source >= 0)
        bits, code = np.unique(kind, return_inverse=True)
        labels = [DependencyKind(number).label for number in bits.tolist()]
        words = Categorical(code.reshape(-1).astype(np.int32), labels)
        return Frame("edges", {"source": self.id[source], "target": self.id[target], "kind": words})

    def replay(self, changes: Changes = ()) -> Replay:
        """Replays the graph, with `changes` as of `execgraph.what_if`; see `execgraph.replay`."""
        return replay(self, changes)

    def changed(self, changes: Changes) -> "ExecutionGraph":
        """Returns a graph of the changed run, which replays as the changes of `execgraph.what_if` say.

        Of a job, `execgraph.replay(job, changes).changed_graphs()` has one for each rank.
        """
        return cast("ExecutionGraph", self.replay(changes).changed_graphs()[0])

    def what_if(self, changes: Changes) -> WhatIf:
        """Predicts how long the run would take if durations were multiplied by factors; see `execgraph.what_if`."""
        return self.replay().what_if(changes)

    def draw(
        self,
        path: FilePath,
        *,
        step: int | None = None,
        module: str = "",
        op: str = "",
        around: int | None = None,
        hops: int | None = None,
        streams: Sequence[int] = (),
        time_us: tuple[float, float] | None = None,
        picture: Literal["", "flow", "lanes"] = "",
    ) -> None:
        """Draws the graph or a part of it to a file, as `trace-view`: .svg, or .dot for Graphviz, or .graphml.

        Args:
            path: The file to write.
            step: Only the profiler's step of this number; of data flow the median step by default.
            module: Only this module, by its path or a part of it.
            op: Only the calls of this op, and what they read from and hand on to.
            around: The id of a node: only nodes near it.
            hops: How many flows away from `op` (1), or dependencies from `around` (2), either way.
            streams: Only activities of these streams.
            time_us: Only what runs between these two times, in µs from the first start.
            picture: What an .svg shows: data flow, or threads and streams as lanes over time. By default lanes with
                `around`, `streams` or `time_us`, else data flow.

        Raises:
            DataError: No node is in this part, or too many for a picture.
            ValueError: The name of the file does not say what to write.
            TypeError: An argument is of the wrong kind.
        """
        form_of(str(path))  # refuses a name before anything is drawn
        numbers = {"around": around, "hops": hops, "step": step}
        part = checked("draw", "graph.", streams=streams, time_us=time_us, **numbers)
        seen = select(self, Selection(module=module, op=op, **part), str(path), picture)
        if seen.note:
            warnings.warn(seen.note, stacklevel=2)
        write_view(self, seen, str(path))

    def plot(
        self, stream: int | None = None, *, time_us: tuple[float, float] | None = None, max_nodes: int = 2_000
    ) -> "alt.Chart":
        """Returns an Altair chart of the measured run: a lane for each thread and stream, a bar for each node.

        Args:
            stream: Only this stream.
            time_us: Only what runs between these two times, in µs from the start.
            max_nodes: How many nodes to draw at the most; the longest ones are.

        Raises:
            ImportError: Altair is not installed.
            ValueError: There is no node in this part.
        """
        work = gather([self])
        return lanes_chart(work, work.measured_start_ns, work.measured_end_ns, stream, time_us, max_nodes)

    def to_networkx(self) -> "nx.DiGraph[int]":
        """Returns a networkx DiGraph of the nodes, by id, and their dependencies.

        Nodes have name, type and attributes. Edges have `kind`, their reasons in words, `kind_bits`, a DependencyKind,
        and `weight`: by how many ns the target ends after the source at the earliest. The first edge of a path counts
        its source as well, so `networkx.dag_longest_path(graph, weight="weight")` is the critical path of the replay
        and `networkx.dag_longest_path_length` its makespan.
        """
        digraph = digraph_of(self)
        for source, target, weight in edge_weights(self):
            digraph.edges[source, target]["weight"] = weight
        return digraph


def read_graph(path: InputFile) -> ExecutionGraph:
    """Reads a graph from a .et file, with the tensors of its ops, or from its JSON form. Either may be compressed.

    >>> import execgraph as eg
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     eg.link("tests/data/training", rank=0).to_graph().write(f"{folder}/graph.0.et")
    ...     len(eg.read_graph(f"{folder}/graph.0.et"))
    420

    Args:
        path: The file to read, JSON if its name ends in .json or .json.gz; or an open file.

    Raises:
        DataError: The file is not a graph; the text says what it is, or from which byte on.
    """
    return ExecutionGraph.read(path)
