"""Selects a part of an execution graph to look at, as a graph whose nodes keep their ids."""

import dataclasses
from typing import NamedTuple

import numpy as np

from ...converter.rewiring import rows_of_graph, take_rows
from ...schema.columns import Bool, Int64, NodeIds, NodeNumbers, Ragged
from ...schema.errors import RequestError
from ...schema.graph import ExecutionGraph
from ..replay import Workload, gather
from .calls import Calls, calls_of
from .chosen_calls import calls_of_module, calls_of_op, rows_of_step, with_neighbours


class Selection(NamedTuple):
    """Conditions, which a selected node must all meet.

    `centre` is the id of a node: selected are nodes at most `hops` dependencies away, in either direction. `streams`
    are numbers of device streams. `time_us` is a window, from the graph's first start, that a node must overlap.
    `module` is the path of a module or a part of it. With `op`, selected are the calls of that op, what they launched,
    and calls at most `hops` flows away. By default `hops` is 2 dependencies, or 1 flow.
    """

    centre: int | None = None
    hops: int | None = None
    step: int | None = None
    module: str = ""
    op: str = ""
    streams: tuple[int, ...] = ()
    time_us: tuple[float, float] | None = None


class View(NamedTuple):
    """The selected nodes as a graph, the first start of the whole graph, how many dependencies were cut, the window of
    the selection, if any, and the ids of the nodes of the sought op.
    """

    graph: ExecutionGraph
    origin_ns: int
    cut: int
    time_us: tuple[float, float] | None = None
    sought: tuple[int, ...] = ()


def view(graph: ExecutionGraph, selection: Selection) -> View:
    """Returns the selected part of the graph. O(n log n + hops · e). Raises RequestError if no node is selected."""
    if selection.hops is None:
        selection = selection._replace(hops=1 if selection.centre is None else 2)
    work = gather([graph])
    is_selected = np.ones(len(graph), bool)
    if selection.centre is not None:
        is_selected &= _near(_row_of(graph, selection.centre), selection.hops, work)
    if selection.streams:
        is_selected &= graph.is_activity & np.isin(graph.integers("stream"), selection.streams)
    origin = int(graph.start_ns[work.is_timed].min()) if work.is_timed.any() else 0
    if selection.time_us:
        first, last = selection.time_us
        is_selected &= work.is_timed & (work.measured_start_ns <= last * 1000) & (work.measured_end_ns >= first * 1000)
    sought = np.zeros(len(graph), bool)
    if selection.step is not None or selection.module or selection.op:
        of_calls, sought = _of_calls(graph, selection)
        is_selected &= of_calls
    rows = np.flatnonzero(is_selected)
    if not len(rows):
        raise RequestError(f"none of the {len(graph):,} nodes is selected; {_extent(graph, work)}")
    cut = int((is_selected[work.source] != is_selected[work.target]).sum())
    ids = tuple(graph.id[sought & is_selected].tolist())
    return View(_subgraph(graph, rows, is_selected), origin, cut, selection.time_us, ids)


def _of_calls(graph: ExecutionGraph, selection: Selection) -> tuple[Bool, Bool]:
    """Returns which nodes are of the step, module and op, and which are the op itself."""
    calls = calls_of(graph)
    is_selected = np.ones(len(graph), bool)
    if selection.step is not None:
        is_selected &= rows_of_step(graph, calls, selection.step)
    if selection.module:
        is_selected &= _rows(calls, calls_of_module(graph, calls, selection.module))
    if not selection.op:
        return is_selected, np.zeros(len(graph), bool)
    sought = calls_of_op(graph, calls, selection.op)
    sought &= np.isin(np.arange(len(calls)), calls.of_row[is_selected])
    is_selected &= _rows(calls, with_neighbours(graph, calls, sought, selection.hops or 0))
    return is_selected, _rows(calls, sought)


def _rows(calls: Calls, chosen: Bool) -> Bool:
    """Returns which nodes are of the chosen calls."""
    return np.append(chosen, False)[calls.of_row]


def _row_of(graph: ExecutionGraph, node: int) -> int:
    row = int(graph.rows_of(NodeIds(np.array([node], np.int64)))[0])
    if row < 0:
        raise RequestError(f"there is no node {node}; ids are {graph.id.min()} to {graph.id.max()}")
    return row


def _near(row: int, hops: int | None, work: Workload) -> Bool:
    """Returns which nodes are at most `hops` dependencies away from a row, in either direction."""
    is_near = np.zeros(len(work), bool)
    is_near[row] = True
    for _ in range(hops or 0):
        neighbours = np.concatenate((work.target[is_near[work.source]], work.source[is_near[work.target]]))
        if is_near[neighbours].all():
            break
        is_near[neighbours] = True
    return is_near


def _extent(graph: ExecutionGraph, work: Workload) -> str:
    streams = np.unique(graph.integers("stream")[graph.is_activity]).tolist()
    length = work.measured_end_ns[work.is_timed].max(initial=0)
    return f"streams are {', '.join(map(str, streams)) or 'none'}, the graph lasts {length / 1000:,.0f} µs"


def _subgraph(graph: ExecutionGraph, rows: Int64, is_selected: Bool) -> ExecutionGraph:
    subgraph = rows_of_graph(graph, NodeNumbers(rows))
    kinds = graph.attributes.get("data_dep_kinds")
    inside = _are_selected(graph, graph.data_deps.values, is_selected)
    if isinstance(kinds, Ragged) and np.array_equal(kinds.starts, graph.data_deps.starts):
        subgraph.attributes["data_dep_kinds"] = _filtered(kinds, inside, rows)
    return dataclasses.replace(
        subgraph,
        id=NodeIds(graph.id[rows]),
        data_deps=_filtered(graph.data_deps, inside, rows),
        ctrl_deps=_filtered(graph.ctrl_deps, _are_selected(graph, graph.ctrl_deps.values, is_selected), rows),
    )


def _are_selected(graph: ExecutionGraph, ids: Int64, is_selected: Bool) -> Bool:
    row = graph.rows_of(NodeIds(ids))
    return (row >= 0) & is_selected[row]


def _filtered(column: Ragged, is_kept: Bool, rows: Int64) -> Ragged:
    """Returns the values of these rows that `is_kept` marks."""
    return take_rows(Ragged.grouped(column.rows()[is_kept], column.values[is_kept], len(column)), rows)
