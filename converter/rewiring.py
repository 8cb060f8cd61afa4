"""Graph edits: the dependencies of a graph as edges between rows, its lanes, and a graph of chosen rows and new edges.

An edited graph has ids 1 to n in topological order, every column in that order, no dependency twice and none on a
missing node. It may have nodes more than the recorded ones, for time in which none of these ran.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np

from ..schema.columns import ABSENT, Bool, Categorical, Int64, NodeIds, NodeNumbers, Ragged, group_ids
from ..schema.errors import DataError
from ..schema.graph import Column, ExecutionGraph, NodeType, TensorText
from .edges import Edges, check, deduplicated, topological_order

AT_ONCE = 1 << 13
NO_EDGES = Edges(NodeNumbers(np.empty(0, np.int64)), NodeNumbers(np.empty(0, np.int64)), np.empty(0, np.int64))
LANE = ("device", "stream", "tid")


def data_edges(graph: ExecutionGraph) -> Edges:
    """Returns the data dependencies as edges between rows, one per pair, with all its kinds. O((n + e) log n).

    Raises DataError where one leads to no node.
    """
    return _sound(graph, graph.data_deps, recorded_edges(graph))


def control_edges(graph: ExecutionGraph) -> Edges:
    """Returns the control dependencies as edges between rows; their kind is 0. Raises as `data_edges`."""
    ids = graph.ctrl_deps.values
    target = NodeNumbers(graph.ctrl_deps.rows())
    edges = Edges(graph.rows_of(NodeIds(ids)), target, np.zeros(len(ids), np.int64))
    return _sound(graph, graph.ctrl_deps, edges)


def recorded_edges(graph: ExecutionGraph) -> Edges:
    """Returns the data dependencies as the file has them, sorted by target; the source is -1 where the
    graph lacks it.
    """
    kinds, dependencies = graph.attributes.get("data_dep_kinds"), graph.data_deps
    parallel = isinstance(kinds, Ragged) and np.array_equal(kinds.starts, dependencies.starts)
    kind = kinds.values if isinstance(kinds, Ragged) and parallel else np.zeros(len(dependencies.values), np.int64)
    return Edges(graph.rows_of(NodeIds(dependencies.values)), NodeNumbers(dependencies.rows()), kind)


def _sound(graph: ExecutionGraph, dependencies: Ragged, edges: Edges) -> Edges:
    if (missing := np.flatnonzero(edges.source < 0)).size:
        node, absent = graph.id[edges.target[missing[0]]], dependencies.values[missing[0]]
        raise DataError(f"node {node} depends on node {absent}, which the graph does not have; convert the trace again")
    return deduplicated(edges, len(graph))


def spliced(edges: Edges, removed: Bool) -> Edges:
    """Returns the edges without the removed rows: a target of a removed row follows that row's sources.

    The edges must be acyclic and sorted by target.
    """
    into = Ragged.grouped(edges.target, np.arange(len(edges.target)), len(removed))
    done, open_ends = [], edges.where(~removed[edges.target])
    while len(open_ends.source):
        is_removed = removed[open_ends.source]
        done.append(open_ends.where(~is_removed))
        before, after = open_ends.where(is_removed), into.lengths()[open_ends.source[is_removed]]
        bypass_rows = take_rows(into, before.source).values
        bypassed = np.repeat(np.arange(len(before.source)), after)
        bypass = edges.where(bypass_rows)
        bypass = bypass._replace(target=NodeNumbers(before.target[bypassed]), kind=bypass.kind | before.kind[bypassed])
        open_ends = deduplicated(bypass, len(removed))
    return deduplicated(Edges.joined([NO_EDGES, *done]), len(removed))


def edited_graph(graph: ExecutionGraph, kept_rows: NodeNumbers, data: Edges, control: Edges) -> ExecutionGraph:
    """Returns the graph of the rows `kept_rows`, in that order, with edges between them.

    If an edge points backward in that order, nodes are ordered by their measured starts. Raises DataError, naming the
    nodes, where the edges form a cycle.
    """
    new_row = NodeNumbers(np.full(len(graph), -1, np.int64))
    new_row[kept_rows] = np.arange(len(kept_rows))
    all_edges = _moved(Edges.joined([data, control]), new_row)
    if not np.all(all_edges.source < all_edges.target):
        order = topological_order(graph.start_ns[kept_rows], all_edges, lambda: graph.name.take(kept_rows))
        kept_rows = NodeNumbers(kept_rows[order])
        new_row[kept_rows] = np.arange(len(kept_rows))
    data, control = _moved(data, new_row), _moved(control, new_row)
    check(data, control, len(kept_rows))
    dependencies = Ragged.grouped(data.target, data.source + 1, len(kept_rows))
    edited = rows_of_graph(graph, kept_rows)
    edited.attributes["data_dep_kinds"] = Ragged(dependencies.starts, data.kind)
    return dataclasses.replace(
        edited, data_deps=dependencies, ctrl_deps=Ragged.grouped(control.target, control.source + 1, len(kept_rows))
    )


def _moved(edges: Edges, new_row: NodeNumbers) -> Edges:
    """Returns the edges between new rows, sorted by target, then source."""
    moved = edges.renumbered(new_row)
    return moved.where(np.lexsort((moved.source, moved.target)))


def rows_of_graph(graph: ExecutionGraph, rows: NodeNumbers) -> ExecutionGraph:
    """Returns the graph of these rows with ids 1 to n, without dependencies and without attributes that none of them
    has.
    """
    none = Ragged(np.zeros(len(rows) + 1, np.int64), np.empty(0, np.int64))
    columns = {name: take(column, rows) for name, column in graph.attributes.items() if name != "data_dep_kinds"}
    return ExecutionGraph(
        id=NodeIds(np.arange(1, len(rows) + 1, dtype=np.int64)),
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
    """Returns rows of a column, in the order given."""
    lengths = column.lengths()[rows]
    starts = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
    within = np.arange(starts[-1]) - np.repeat(starts[:-1], lengths)
    return Ragged(starts, column.values[np.repeat(column.starts[rows], lengths) + within])


def used(attributes: dict[str, Column]) -> dict[str, Column]:
    """Returns the columns of attributes that at least one node has."""
    return {name: column for name, column in attributes.items() if _is_used(column)}


def _is_used(column: Column) -> bool:
    if isinstance(column, Ragged):
        return len(column.values) > 0
    values, none = (column.codes, -1) if isinstance(column, Categorical) else (column, ABSENT)
    return any((values[start : start + AT_ONCE] != none).any() for start in range(0, len(values), AT_ONCE))


def _tensors(tensors: TensorText | None, rows: Int64, count: int) -> TensorText | None:
    if tensors is None:
        return None
    new_row = np.full(count, -1, np.int64)
    # if a row is taken twice, only the first copy keeps the tensors
    new_row[rows[::-1]] = np.arange(len(rows))[::-1]
    moved = new_row[tensors.rows]
    order = np.argsort(moved, kind="stable")
    order = order[moved[order] >= 0]
    names = [name for name in TensorText.__slots__ if name != "rows"]
    return TensorText(moved[order], *(getattr(tensors, name).take(order) for name in names))


def with_added_nodes(
    graph: ExecutionGraph, like: NodeNumbers, name: str, values: Mapping[str, Int64]
) -> ExecutionGraph:
    """Returns the graph's rows and, after them, a computation of no length for each of the rows `like`, without
    dependencies.

    Args:
        graph: The graph, which stays as it is.
        like: Rows whose device and stream, or thread, the new nodes share.
        name: The name of the new nodes.
        values: The other attributes of the new nodes, with `start_time_ns`.
    """
    wider = rows_of_graph(graph, NodeNumbers(np.concatenate((np.arange(len(graph)), like))))
    added = np.arange(len(graph), len(wider))
    values = {**values, "duration_ns": np.zeros(len(like), np.int64)}
    for attribute in dict.fromkeys([*wider.attributes, *values]):
        if attribute not in LANE:
            column = wider.attributes.get(attribute, wider.integers(attribute))
            wider.attributes[attribute] = set_rows(column, added, values.get(attribute, ABSENT))
    wider.type[added] = NodeType.COMP
    wider.name.codes[added] = len(wider.name.table)
    wider.duration_micros[added] = 0
    wider.start_time_micros[added] = values["start_time_ns"] // 1000
    return dataclasses.replace(wider, name=Categorical(wider.name.codes, [*wider.name.table, name]))


def set_rows(column: Column, rows: Int64, value: Int64 | int) -> Column:
    """Returns the column with this value in the rows if it holds integers, and without values in the rows otherwise."""
    if isinstance(column, Ragged):
        left = np.isin(column.rows(), rows, invert=True)
        return Ragged.grouped(column.rows()[left], column.values[left], len(column))
    if isinstance(column, Categorical):
        column.codes[rows] = -1
    else:
        column[rows] = value
    return column


def lanes_of(graph: ExecutionGraph) -> Int64:
    """Returns the lane of each node, numbered from 0: one per host thread and one per (device, stream)."""
    on_device = graph.is_activity
    device_or_thread = np.where(on_device, graph.integers("device"), graph.integers("tid"))
    stream = np.where(on_device, graph.integers("stream"), 0)
    return group_ids(on_device.astype(np.int64), device_or_thread, stream)


def whole_microseconds(duration_ns: Int64, lane: Int64) -> Int64:
    """Returns durations in whole µs whose running total on each lane stays within 1 µs of the exact one.

    The total runs in the order of rows.

    >>> whole_microseconds(np.array([1400, 1400, 1400]), np.array([0, 0, 0])).tolist()
    [1, 2, 1]
    """
    order = np.argsort(lane, kind="stable")
    rounded = (np.cumsum(duration_ns[order]) + 500) // 1000
    whole = np.empty(len(duration_ns), np.int64)
    whole[order] = np.diff(rounded, prepend=0)
    return whole
