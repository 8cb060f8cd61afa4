"""The execution graph as users hold it: its nodes one by one or as a table, and what to ask of it next."""

import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal, cast, overload

import numpy as np

from .lane_strips import lane_strips
from .node_views import Dependencies, Node
from .plots import Part, lanes_chart
from .records import added_to_record
from .run import Replay, WhatIf, replay
from .schema.arguments import FilePath, InputFile, whole_number
from .schema.columns import Categorical, Frame, NodeIds, summary_html
from .schema.graph import DependencyKind, ExecutionGraph as GraphRecord
from .tools.given_graphs import read_graph_file
from .tools.options import FORMS, checked, form_of
from .tools.replay import Changes, edge_weights, gather
from .tools.view import Selection, select, write_view

if TYPE_CHECKING:
    import altair as alt
    import networkx as nx

to_networkx = GraphRecord.to_networkx
LINKS = ("data_deps", "ctrl_deps", "data_dep_kinds")
"""Columns of lists, which `edges` has row by row."""


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

    @overload
    def __getitem__(self, position: int) -> Node: ...
    @overload
    def __getitem__(self, position: slice) -> list[Node]: ...
    def __getitem__(self, position: int | slice) -> Node | list[Node]:
        """Returns the node at a position, from 0 on, as in a list; `node` finds one by its id."""
        if not isinstance(position, slice):
            position = whole_number(position, "graph[position]")
        try:
            links, rows = self._links(), range(len(self))[position]
        except IndexError:
            raise IndexError(f"there is no node at {position}: the graph has {len(self):,}") from None
        return [Node(self, links, row) for row in rows] if isinstance(rows, range) else Node(self, links, rows)

    def __iter__(self) -> Iterator[Node]:
        links = self._links()
        return (Node(self, links, row) for row in range(len(self)))

    def node(self, id: int) -> Node:
        """Returns the node with an id; KeyError where there is none."""
        row = self._row_of(whole_number(id, "graph.node(id)"))
        if row < 0:
            raise KeyError(f"no node has the id {id}")
        return Node(self, self._links(), row)

    def _row_of(self, identity: int) -> int:
        # graphs of this project have the ids 1, 2, …
        if 0 < identity <= len(self) and self.id[identity - 1] == identity:
            return identity - 1
        return int(self.rows_of(NodeIds(np.array([identity], np.int64)))[0])

    def _links(self) -> Dependencies:
        if self.links is None:
            self.links = Dependencies.of(self)
        return cast(Dependencies, self.links)

    @property
    def nodes(self) -> Frame:
        """The nodes as a table: id, name, type, start_ns, duration_ns, and every attribute that any of them has."""
        return Frame("nodes", {name: values for name, values in self._frame().items() if name not in LINKS})

    @property
    def edges(self) -> Frame:
        """The dependencies as a table: source and target are ids of nodes, kind is the reason in words."""
        links = self._links()
        known_rows = np.flatnonzero(links.is_known)
        bits, code = np.unique(links.kind[known_rows], return_inverse=True)
        kind = Categorical(
            code.reshape(-1).astype(np.int32), [DependencyKind(number).label for number in bits.tolist()]
        )
        source, target = (self.id[rows[known_rows]] for rows in (links.source, links.target))
        return Frame("edges", {"source": source, "target": target, "kind": kind})

    def replay(self, changes: Changes = ()) -> Replay:
        """Replays the graph, with `changes` as of `execgraph.what_if`; see `execgraph.replay`."""
        return replay(self, changes)

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
        if form_of(str(path)) not in FORMS:
            raise ValueError(f"{path}: the name must end in {', '.join(FORMS)}")
        numbers = {"around": around, "hops": hops, "step": step}
        chosen = checked("draw", "graph.", streams=streams, time_us=time_us, **numbers)["streams"]
        selection = Selection(around, hops, step, module, op, chosen, time_us)
        viewed = select(self, selection, str(path), picture)
        if viewed.note:
            warnings.warn(viewed.note, stacklevel=2)
        write_view(self, viewed, str(path))

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
        return lanes_chart(work, work.measured_start_ns, work.measured_end_ns, Part(stream, time_us, max_nodes))

    def _repr_html_(self) -> str:
        return f"{summary_html(self.summary())}{lane_strips(self)}"

    def to_networkx(self) -> "nx.DiGraph[int]":
        """Returns a networkx DiGraph of the nodes, by id, and their dependencies.

        Nodes have name, type and attributes. Edges have `kind`, their reasons in words, `kind_bits`, a DependencyKind,
        and `weight`: by how many ns the target ends after the source at the earliest. The first edge of a path counts
        its source as well, so `networkx.dag_longest_path(graph, weight="weight")` is the critical path of the replay
        and `networkx.dag_longest_path_length` its makespan.
        """
        digraph = to_networkx(self)
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
    return cast(ExecutionGraph, read_graph_file(path))
