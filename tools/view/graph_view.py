"""Selects a part of an execution graph to look at, by nodes, streams and times or by step, module and op, as a graph
whose nodes keep their ids.
"""

import dataclasses
import difflib
import re
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ...converter.rewiring import rows_of_graph, take_rows
from ...schema.columns import Bool, Categorical, Int64, NodeIds, NodeNumbers, Ragged, Tree, nearest
from ...schema.errors import Remedy, RequestError
from ...schema.graph import STEP_START, ExecutionGraph
from ..replay import Workload, gather
from .calls import Calls, calls_of, flows_of, recorded_tensors

LISTED = 8
PART = re.compile(r"[./_]+")
"""What is between the parts of a module's path: `Net_0/Block_1` is also written `net.0.block.1`."""


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


def rows_of_step(graph: ExecutionGraph, calls: Calls, step: int) -> Bool:
    """Returns which nodes belong to a step: those of calls whose outermost call began in it, and idle time in it.

    The end of the first slice tells when a call began, as its start may be that of a short slice before the step's mark
    that was folded into it.
    """
    steps = steps_of(graph)
    if step not in steps:
        there_are = f"there are {_list(map(str, steps))}" if steps else "its steps are not marked"
        raise RequestError(f"the graph has no step {step}; {there_are}")
    first_row = np.arange(len(graph))
    is_call = calls.of_row >= 0
    first_row[is_call] = calls.first_row[calls.roots()[calls.of_row[is_call]]]
    begun = (graph.host_clock_start_ns + graph.duration_ns)[first_row]
    end = min((other for other in steps.values() if other > steps[step]), default=np.iinfo(np.int64).max)
    return np.asarray((begun > steps[step]) & (begun <= end))


def calls_of_module(graph: ExecutionGraph, calls: Calls, module: str) -> Bool:
    """Returns which calls were made for a module, or for one in it; it is named by its path or a part of it."""
    recorded = graph.texts("module")
    sought = _parts(module)
    is_of_module = recorded.where(lambda path: _contains(_parts(path), sought))[calls.first_row]
    if not is_of_module.any():
        paths = sorted({path for path in recorded.table if path})
        there_are = (
            f"there are {_list(paths)}" if paths else f"the graph holds no modules: build it with {Remedy.MODULES}"
        )
        raise RequestError(f"no module is called {module}; {there_are}")
    return _with_inner(calls, is_of_module)


def _parts(path: str) -> list[str]:
    return [part for part in PART.split(path.lower()) if part]


def _contains(parts: list[str], sought: list[str]) -> bool:
    return any(parts[start : start + len(sought)] == sought for start in range(len(parts) - len(sought) + 1))


def calls_of_op(graph: ExecutionGraph, calls: Calls, op: str) -> Bool:
    """Returns which calls are of this op, call or kernel: `aten::mm`, or `mm`."""
    names: Categorical = graph.name.take(calls.first_row)
    chosen = names.where(lambda name: op in (name, name.rpartition("::")[2]))
    if not chosen.any():
        alike = difflib.get_close_matches(op, names.table, LISTED) or [name for name in names.table if op in name]
        raise RequestError(f"no op is called {op}{f'; there are {_list(alike)}' if alike else ''}")
    return chosen


def _with_neighbours(graph: ExecutionGraph, calls: Calls, chosen: Bool, hops: int) -> Bool:
    """Adds to the chosen calls those that are at most so many flows away, either way, and what called all these."""
    flows = flows_of(graph, calls, recorded_tensors(graph))
    near = _with_inner(calls, _near(_with_inner(calls, chosen), flows.source, flows.target, hops))
    return Tree.of(calls.parent, calls.first_row).subtree_largest(near.astype(np.int64)) > 0


def _with_inner(calls: Calls, chosen: Bool) -> Bool:
    """Adds to the chosen calls all that these called or launched."""
    return nearest(chosen, calls.parent) >= 0


def _near(chosen: Bool, source: Int64, target: Int64, hops: int) -> Bool:
    """Returns what is at most so many edges away from what is chosen, in either direction."""
    near = chosen.copy()
    for _ in range(hops):
        ends: Int64 = np.concatenate((target[near[source]], source[near[target]]))
        if near[ends].all():
            break
        near[ends] = True
    return near


def _list(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:LISTED]) + (f" and {len(listed) - LISTED} more" if len(listed) > LISTED else "")


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
        is_centre = np.arange(len(graph)) == _row_of(graph, selection.centre)
        is_selected &= _near(is_centre, work.source, work.target, selection.hops or 0)
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
    is_selected &= _rows(calls, _with_neighbours(graph, calls, sought, selection.hops or 0))
    return is_selected, _rows(calls, sought)


def _rows(calls: Calls, chosen: Bool) -> Bool:
    """Returns which nodes are of the chosen calls."""
    return np.append(chosen, False)[calls.of_row]


def _row_of(graph: ExecutionGraph, node: int) -> int:
    row = int(graph.rows_of(NodeIds(np.array([node], np.int64)))[0])
    if row < 0:
        raise RequestError(f"there is no node {node}; ids are {graph.id.min()} to {graph.id.max()}")
    return row


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
