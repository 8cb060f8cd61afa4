"""Graph edits: the dependencies of a graph as edges between its rows, and the graph of some of its rows with other
edges.

An edited graph has ids 1 to n in topological order, every column in that order, no dependency twice and none on a
missing node.
"""

import dataclasses

import numpy as np

from ...schema.columns import ABSENT, Bool, Categorical, Int64, Ragged
from ...schema.errors import DataError
from ...schema.graph import Column, ExecutionGraph, TensorText
from ..context import Edges
from .order import check, deduplicated, topological_order

AT_ONCE = 1 << 13
NO_EDGES = Edges(*np.empty((3, 0), np.int64))


def data_edges(graph: ExecutionGraph) -> Edges:
    """Returns edges between rows, one per pair, their kinds united. O((n + e) log n). Raises DataError where one leads
    to no node.
    """
    return _sound(graph, graph.data_deps, recorded_edges(graph))


def control_edges(graph: ExecutionGraph) -> Edges:
    """Returns the same of the control dependencies, which have no kind."""
    ids = graph.ctrl_deps.values
    edges = Edges(graph.rows_of(ids), graph.ctrl_deps.rows(), np.zeros(len(ids), np.int64))
    return _sound(graph, graph.ctrl_deps, edges)


def recorded_edges(graph: ExecutionGraph) -> Edges:
    """Returns the data dependencies as they stand in the file, sorted by target; a source that the graph does not have
    is -1.
    """
    kinds, dependencies = graph.attributes.get("data_dep_kinds"), graph.data_deps
    parallel = isinstance(kinds, Ragged) and np.array_equal(kinds.starts, dependencies.starts)
    kind = kinds.values if isinstance(kinds, Ragged) and parallel else np.zeros(len(dependencies.values), np.int64)
    return Edges(graph.rows_of(dependencies.values), dependencies.rows(), kind)


def _sound(graph: ExecutionGraph, dependencies: Ragged, edges: Edges) -> Edges:
    if (missing := np.flatnonzero(edges.source < 0)).size:
        node, absent = graph.id[edges.target[missing[0]]], dependencies.values[missing[0]]
        raise DataError(f"node {node} depends on node {absent}, which the graph does not have; convert the trace again")
    return deduplicated(edges, len(graph))


def spliced(edges: Edges, removed: Bool) -> Edges:
    """Returns edges that leave the removed rows out: who followed one follows what that one did. The edges are acyclic,
    sorted by target.
    """
    into = Ragged.grouped(edges.target, np.arange(len(edges.target)), len(removed))
    done, open_ends = [], edges.where(~removed[edges.target])
    while len(open_ends.source):
        through = removed[open_ends.source]
        done.append(open_ends.where(~through))
        before, after = open_ends.where(through), into.lengths()[open_ends.source[through]]
        inner = take_rows(into, before.source).values
        outer = np.repeat(np.arange(len(before.source)), after)
        bypass = Edges(edges.source[inner], before.target[outer], edges.kind[inner] | before.kind[outer])
        open_ends = deduplicated(bypass, len(removed))
    return deduplicated(Edges.joined([NO_EDGES, *done]), len(removed))


def edited_graph(graph: ExecutionGraph, kept: Int64, data: Edges, control: Edges) -> ExecutionGraph:
    """Returns the graph of the `kept` rows, in that order, with these edges between rows of `graph`, which must join
    kept rows only.

    If an edge points backward in that order, nodes follow their measured starts. Raises DataError, naming the nodes,
    where the edges form a cycle.
    """
    place = np.full(len(graph), -1, np.int64)
    place[kept] = np.arange(len(kept))
    both = _moved(Edges.joined([data, control]), place)
    if not np.all(both.source < both.target):
        kept = kept[topological_order(graph.start_ns[kept], both, lambda: graph.name.take(kept))]
        place[kept] = np.arange(len(kept))
    data, control = _moved(data, place), _moved(control, place)
    check(data, control, len(kept))
    dependencies = Ragged.grouped(data.target, data.source + 1, len(kept))
    taken = rows_of_graph(graph, kept)
    taken.attributes["data_dep_kinds"] = Ragged(dependencies.starts, data.kind)
    return dataclasses.replace(
        taken, data_deps=dependencies, ctrl_deps=Ragged.grouped(control.target, control.source + 1, len(kept))
    )


def _moved(edges: Edges, place: Int64) -> Edges:
    """Returns the edges between new places, sorted by target, then source."""
    source, target = place[edges.source], place[edges.target]
    order = np.lexsort((source, target))
    return Edges(source[order], target[order], edges.kind[order])


def rows_of_graph(graph: ExecutionGraph, rows: Int64) -> ExecutionGraph:
    """Returns these rows with ids 1 to n and without dependencies; attributes that none of them has are left out."""
    none = Ragged(np.zeros(len(rows) + 1, np.int64), np.empty(0, np.int64))
    columns = {name: take(column, rows) for name, column in graph.attributes.items() if name != "data_dep_kinds"}
    return ExecutionGraph(
        id=np.arange(1, len(rows) + 1, dtype=np.int64),
        name=graph.name.take(rows),
        type=graph.type[rows],
        data_deps=none,
        ctrl_deps=none,
        start_time_micros=graph.start_time_micros[rows],
        duration_micros=graph.duration_micros[rows],
        attributes=used(columns),
        metadata=dict(graph.metadata),
        tensors=_tensors(graph.tensors, rows, len(graph)),
    )


def take(column: Column, rows: Int64) -> Column:
    """Returns the rows of an attribute column."""
    if isinstance(column, Ragged):
        return take_rows(column, rows)
    return column.take(rows) if isinstance(column, Categorical) else column[rows]


def take_rows(column: Ragged, rows: Int64) -> Ragged:
    """Returns the given rows of a column, in that order."""
    lengths = column.lengths()[rows]
    starts = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
    within = np.arange(starts[-1]) - np.repeat(starts[:-1], lengths)
    return Ragged(starts, column.values[np.repeat(column.starts[rows], lengths) + within])


def used(attributes: dict[str, Column]) -> dict[str, Column]:
    """Returns the columns of attributes that any node has."""
    return {name: column for name, column in attributes.items() if _is_used(column)}


def _is_used(column: Column) -> bool:
    if isinstance(column, Ragged):
        return len(column.values) > 0
    values, none = (column.codes, -1) if isinstance(column, Categorical) else (column, ABSENT)
    return any((values[place : place + AT_ONCE] != none).any() for place in range(0, len(values), AT_ONCE))


def _tensors(tensors: TensorText | None, rows: Int64, count: int) -> TensorText | None:
    if tensors is None:
        return None
    place = np.full(count, -1, np.int64)
    # of a row taken twice the first keeps the tensors
    place[rows[::-1]] = np.arange(len(rows))[::-1]
    moved = place[tensors.rows]
    order = np.argsort(moved, kind="stable")
    order = order[moved[order] >= 0]
    names = [name for name in TensorText.__slots__ if name != "rows"]
    return TensorText(moved[order], *(getattr(tensors, name).take(order) for name in names))
