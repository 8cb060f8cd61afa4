"""Graph edits: the dependencies of a graph as edges between rows, its lanes, and a graph of chosen rows and new edges.
A graph without its host has only activities in the order that the host imposed: "the host awaited an activity and then
launched another one" becomes a dependency, and host time for which the device really waited `host_delay_ns`.
"""

import dataclasses
from collections.abc import Iterable, Mapping

import numpy as np

from ..schema.columns import ABSENT, Bool, Categorical, Int64, NodeIds, NodeNumbers, Ragged, group_ids, isin, positions
from ..schema.errors import DataError, Remedy
from ..schema.graph import Column, DependencyKind, ExecutionGraph, NodeType, TensorText
from ..schema.linked import NEVER
from .edges import NO_EDGES, Edges, check, deduplicated, known_after, not_implied, topological_order

AT_ONCE = 1 << 13
LANE = ("device", "stream", "tid")
COMMUNICATION = (NodeType.COMM_SEND, NodeType.COMM_RECV, NodeType.COMM_COLL)
SILENT = (NodeType.INVALID, NodeType.METADATA)
HOST_TIME_AFTER = "host time after the last activity"
"""The name of the node that ends when the host did."""


def data_edges(graph: ExecutionGraph) -> Edges:
    """Returns data dependencies as edges of rows, one per pair; DataError if one leads to none. O((n + e) log n)."""
    return _sound(graph, graph.data_deps, recorded_edges(graph))


def control_edges(graph: ExecutionGraph) -> Edges:
    """Returns the control dependencies as edges between rows; their kind is 0. Raises as `data_edges`."""
    return _sound(graph, graph.ctrl_deps, _between_rows(graph, graph.ctrl_deps))


def recorded_edges(graph: ExecutionGraph) -> Edges:
    """Returns the data dependencies as the file has them, by target; the source is -1 where the graph lacks it."""
    kinds, edges = graph.attributes.get("data_dep_kinds"), _between_rows(graph, graph.data_deps)
    parallel = isinstance(kinds, Ragged) and np.array_equal(kinds.starts, graph.data_deps.starts)
    return edges._replace(kind=kinds.values) if isinstance(kinds, Ragged) and parallel else edges


def _between_rows(graph: ExecutionGraph, ids: Ragged) -> Edges:
    return Edges(graph.rows_of(NodeIds(ids.values)), NodeNumbers(ids.rows()), np.zeros(len(ids.values), np.int64))


def _sound(graph: ExecutionGraph, ids: Ragged, edges: Edges) -> Edges:
    if (missing := np.flatnonzero(edges.source < 0)).size:
        node, absent = graph.id[edges.target[missing[0]]], ids.values[missing[0]]
        raise DataError(f"node {node} depends on node {absent}, which the graph does not have; convert the trace again")
    return deduplicated(edges, len(graph))


def spliced(edges: Edges, removed: Bool) -> Edges:
    """Returns the edges, acyclic and by target, without removed rows: those after one follow that one's sources."""
    into = Ragged.grouped(edges.target, np.arange(len(edges.target)), len(removed))
    done, open_ends = [], edges.where(~removed[edges.target])
    while len(open_ends.source):
        is_removed = removed[open_ends.source]
        done.append(open_ends.where(~is_removed))
        before, after = open_ends.where(is_removed), into.lengths()[open_ends.source[is_removed]]
        bypass = edges.where(into.take(before.source).values)
        bypassed = before.where(np.repeat(np.arange(len(before.source)), after))
        bypass = bypass._replace(target=bypassed.target, kind=bypass.kind | bypassed.kind)
        open_ends = deduplicated(bypass, len(removed))
    return deduplicated(Edges.joined([NO_EDGES, *done]), len(removed))


def edited_graph(
    graph: ExecutionGraph, data: Edges, control: Edges = NO_EDGES, kept_rows: Int64 | None = None
) -> ExecutionGraph:
    """Returns the graph of the rows `kept_rows`, by start where edges point backward; DataError for a cycle."""
    rows = NodeNumbers(np.arange(len(graph)) if kept_rows is None else kept_rows)
    new_row = positions(rows, len(graph))
    all_edges = Edges.joined([data, control]).renumbered(new_row, new_row).in_order()
    if not np.all(all_edges.source < all_edges.target):
        order = topological_order(graph.start_ns[rows], all_edges, lambda: graph.name.take(rows))
        rows = NodeNumbers(rows[order])
        new_row = positions(rows, len(graph))
    data, control = data.renumbered(new_row, new_row).in_order(), control.renumbered(new_row, new_row).in_order()
    check(data, control, len(rows))
    edited = rows_of_graph(graph, rows)
    dependencies, called = (Ragged.grouped(edges.target, edges.source + 1, len(rows)) for edges in (data, control))
    edited.attributes["data_dep_kinds"] = Ragged(dependencies.starts, data.kind)
    return dataclasses.replace(edited, data_deps=dependencies, ctrl_deps=called)


def rows_of_graph(graph: ExecutionGraph, rows: Int64) -> ExecutionGraph:
    """Returns the graph of these rows with ids 1 to n, without dependencies and attributes that none of them has."""
    none = Ragged(np.zeros(len(rows) + 1, np.int64), np.empty(0, np.int64))
    columns: dict[str, Column] = {
        name: column[rows] if isinstance(column, np.ndarray) else column.take(rows)
        for name, column in graph.attributes.items()
        if name != "data_dep_kinds"
    }
    of_row = enumerate(rows.tolist() if graph.storage else [])
    return ExecutionGraph(
        id=NodeIds(np.arange(1, len(rows) + 1, dtype=np.int64)), name=graph.name.take(rows), type=graph.type[rows],
        data_deps=none, ctrl_deps=none, start_time_micros=graph.start_time_micros[rows],
        duration_micros=graph.duration_micros[rows], attributes=used(columns.items()), metadata=dict(graph.metadata),
        tensors=_tensors(graph.tensors, rows, len(graph)),
        storage={new: graph.storage[row] for new, row in of_row if row in graph.storage},
    )  # fmt: skip


def used(attributes: Iterable[tuple[str, Column]]) -> dict[str, Column]:
    """Returns the columns of attributes that at least one node has. Others are let go as they come."""

    def is_used(column: Column) -> bool:
        if isinstance(column, Ragged):
            return len(column.values) > 0
        values, none = (column.codes, -1) if isinstance(column, Categorical) else (column, ABSENT)
        # the first rows nearly always tell
        return bool((values[:AT_ONCE] != none).any() or (values[AT_ONCE:] != none).any())

    return {name: column for name, column in attributes if is_used(column)}


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


def with_added_nodes(graph: ExecutionGraph, like: Int64, name: str, values: Mapping[str, Int64]) -> ExecutionGraph:
    """Returns the graph with computations of no length and `values` after its rows, on the lanes of the rows `like`."""
    wider = rows_of_graph(graph, np.concatenate((np.arange(len(graph)), like)))
    added = np.arange(len(graph), len(wider))
    none = np.zeros(len(like), np.int64)
    values = {"is_cpu_op": none, **values, "duration_ns": none}
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
        left = ~isin(column.rows(), rows)
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

    >>> whole_microseconds(np.array([1400, 1400, 1400]), np.array([0, 0, 0])).tolist()
    [1, 2, 1]
    """
    order = np.argsort(lane, kind="stable")
    rounded = (np.cumsum(duration_ns[order]) + 500) // 1000
    whole = np.empty(len(duration_ns), np.int64)
    whole[order] = np.diff(rounded, prepend=0)
    return whole


def without_host(graph: ExecutionGraph) -> ExecutionGraph:
    """Returns the graph of the activities, and of communication that only the host recorded. The graph must be in
    topological order and its streams chained. Raises DataError without any of these nodes.
    """
    is_kept = (graph.is_activity & ~isin(graph.type, SILENT)) | isin(graph.type, COMMUNICATION)
    if not is_kept.any():
        raise DataError(
            "the graph has no device activity, so nothing is left without the host; leave out ", Remedy.NO_HOST
        )
    edges = data_edges(graph)
    direct = edges.where(is_kept[edges.source] & is_kept[edges.target])
    # edges between kept nodes that are ordered only by paths through removed nodes: these know what has ended
    stream = np.full(len(graph), -1, np.int64)
    stream[is_kept] = group_ids(lanes_of(graph)[is_kept])
    clocks, into = known_after(edges, stream, int(stream.max()) + 1), edges.where(is_kept[edges.target])
    through = not_implied(into, is_kept[into.source], clocks, stream, clocks.__getitem__)
    edges = deduplicated(Edges.joined([direct, Edges.of(*through, DependencyKind.HOST_SYNC)]), len(graph))
    device = edited_graph(graph, edges, kept_rows=np.flatnonzero(is_kept))
    device.tensors = None
    runs = graph.type != NodeType.METADATA
    device = _with_host_time_after(device, int((graph.host_clock_start_ns + graph.duration_ns)[runs].max()))
    for name in ("latency_ns", "chain_gap_ns"):
        # without launches there is only one gap, that after dependencies
        device.attributes.pop(name, None)
    # the host delay is the time from the end of an activity's dependencies, or the trace's start, less its gap
    start, gap, edges = device.host_clock_start_ns, device.integers("gap_ns", 0), data_edges(device)
    released = np.full(len(device), NEVER)
    np.maximum.at(released, edges.target, (start + device.duration_ns)[edges.source])
    released[np.setdiff1d(np.arange(len(device)), edges.target)] = int(graph.host_clock_start_ns[runs].min())
    delay = np.maximum(start - gap - released, 0)
    if delay.any():
        device.attributes["host_delay_ns"] = np.where(delay > 0, delay, ABSENT)
    device.duration_micros = whole_microseconds(delay + gap + device.duration_ns, lanes_of(device))
    return device


def _with_host_time_after(device: ExecutionGraph, end_of_run: int) -> ExecutionGraph:
    """Returns the graph with a node at the end of the run, after all activities, if the run ended later than these."""
    end = device.host_clock_start_ns + device.duration_ns
    last = end.argmax(axis=0, keepdims=True)
    if end_of_run <= end[last[0]]:
        return device
    start = np.array([end_of_run - device.number("clock_offset_ns", 0)])
    ended = with_added_nodes(device, last, HOST_TIME_AFTER, {"start_time_ns": start})
    edges = data_edges(device)
    lasts = np.setdiff1d(np.arange(len(device)), edges.source)
    awaited = Edges.of(lasts, np.full(len(lasts), len(device)), DependencyKind.HOST_SYNC)
    return edited_graph(ended, Edges.joined([edges, awaited]))
