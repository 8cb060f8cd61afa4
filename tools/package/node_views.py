"""Nodes of a graph and the dependencies between them, as views of its columns: nothing is copied."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from .converter.rewiring import recorded_edges
from .schema.columns import ABSENT, Bool, Categorical, Int64, NodeNumbers, Ragged, time_text
from .schema.graph import DependencyKind, ExecutionGraph as GraphRecord, NodeType


class Dependencies(NamedTuple):
    """The dependencies of a graph, sorted by target: rows of nodes, and why each exists.

    Those of row r as the target are from `first[r]` up to `first[r + 1]`. `of_source` has their positions by source.
    """

    first: Int64
    source: NodeNumbers
    target: NodeNumbers
    kind: Int64
    of_source: Ragged

    @staticmethod
    def of(graph: GraphRecord) -> "Dependencies":
        """Returns the dependencies of a graph, in O(n + e log e)."""
        source, target, kind = recorded_edges(graph)
        by_source = np.argsort(source, kind="stable")
        of_source = Ragged.grouped(source[by_source], by_source, len(graph))
        return Dependencies(graph.data_deps.starts, source, target, kind, of_source)

    @property
    def is_known(self) -> Bool:
        """Which have a source that is in the graph."""
        return np.asarray(self.source >= 0)


class Node:
    """A node of a graph: a slice of host work, a wait, an activity of a device or a delay.

    >>> import execgraph as eg
    >>> graph = eg.link("tests/data/training", rank=0).to_graph()
    >>> node = graph.node(5)
    >>> node.name, node.duration_ns, [source.name for _, source, _ in node.dependencies]
    ('aten::addmm', 12573, ['aten::t'])
    """

    __slots__ = ("_dependencies", "_graph", "row")

    def __init__(self, graph: GraphRecord, dependencies: Dependencies, row: int) -> None:
        self._graph, self._dependencies = graph, dependencies
        self.row = row

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
        first = self._dependencies.first
        return [*self._views(range(int(first[self.row]), int(first[self.row + 1])))]

    @property
    def dependents(self) -> "list[Dependency]":
        """What starts after it ended."""
        return [*self._views(self._dependencies.of_source[self.row].tolist())]

    def _views(self, positions: "range | list[int]") -> "Iterator[Dependency]":
        edges = self._dependencies
        for position in positions:
            if edges.source[position] >= 0:
                source, target = (Node(self._graph, edges, int(row[position])) for row in (edges.source, edges.target))
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
