"""Launches of CUDA and HIP graphs: tables of graphs, of their kernels by position over all launches, and of the ops
that these were captured from, if a trace of the capture was given.

Launches that ran activities of the same names in the same order are of one graph. The activities of a launch are sorted
by the node of the graph, if recorded, else by stream and start.
"""

import itertools
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ...schema.columns import Int64
from ...schema.errors import Remedy, Words
from ...schema.linked import Activities, LinkedTrace
from .attribution import BY_MARK, BY_ORDER, Attribution, attribution, by_mark
from .captures import Launched, captures_of, kinds_of
from .rank_trace import AnalysisOptions, RankTrace, per_rank
from .table import Column, Table, microseconds, percentage, rank_column, text_column

NONE = "no call launched a graph"
NO_CAPTURE = Words("no trace of the captures was given (", Remedy.CAPTURES, ")")


class _Launches(NamedTuple):
    """The activities of graph launches, launch after launch: the row of each, its launch, graph and position in it, all
    numbered from 0, and the row of the call.
    """

    row: Int64
    launch: Int64
    graph: Int64
    position: Int64
    call: Int64


def _table(rank: RankTrace, options: AnalysisOptions) -> Table:
    replays, activities, calls = _find_launches(rank.linked), rank.linked.activities, rank.linked.calls
    attributions = _attributions(rank.linked, replays, options, rank.recorded.marks if rank.recorded else {})
    count = int(replays.graph.max(initial=-1)) + 1
    first = np.unique(replays.launch, return_index=True)[1]
    of_launch, call = replays.graph[first], replays.call[first]
    launches = np.bincount(of_launch, minlength=count)
    spans = _launch_spans(replays, activities)
    time = np.bincount(replays.graph, (activities.end - activities.start)[replays.row], count)
    example = np.unique(of_launch, return_index=True)[1]
    has_ops = bool(options.captures) or any(graph_ops.known_by for graph_ops in attributions)
    note = NONE if not count else _note(attributions) if has_ops else ""
    columns = [
        rank_column(rank.rank, count),
        Column("graph", "", np.arange(count)),
        text_column("api", calls.name.take(call[example])),
        Column("launches", "", launches),
        Column("activities", "", np.bincount(replays.graph, minlength=count) // np.maximum(launches, 1)),
        microseconds("span", np.bincount(of_launch, spans, count)),
        microseconds("span_mean", np.bincount(of_launch, spans, count) / np.maximum(launches, 1)),
        microseconds("time", time),
        microseconds("host_time", np.bincount(of_launch, (calls.end - calls.start)[call], count)),
        Column("ops_known", "", [graph_ops.known_by for graph_ops in attributions]),
    ]
    return Table(
        NAME,
        "Graph launches",
        columns,
        note,
        (
            _position_table(rank, replays, attributions, note),
            _op_table(rank, replays, attributions, note if has_ops or note else str(NO_CAPTURE)),
        ),
    )


def _attributions(
    linked: LinkedTrace, replays: _Launches, options: AnalysisOptions, marks: Mapping[int, str]
) -> list[Attribution]:
    """Returns for each graph the ops of its positions, by its first launch: from captures, else from marks."""
    graphs, first = np.unique(replays.graph, return_index=True)
    captures = [*options.captures, *captures_of(linked)] if len(graphs) else []
    kinds, activities = kinds_of(linked.activities), linked.activities
    attributions = []
    ends = np.searchsorted(replays.launch, replays.launch[first], side="right").tolist()
    for begin, end in zip(first.tolist(), ends, strict=True):
        rows = replays.row[begin:end]
        launches = [
            Launched(kinds[row], activities.name[row], int(activities.graph_node[row]), "") for row in rows.tolist()
        ]
        best = attribution(launches, captures)
        by_start = np.argsort(activities.start[rows], kind="stable")
        if not best.known_by and (by_start[1:] < by_start[:-1]).any():
            # several streams without graph nodes: assume that launches started in the order of their capture
            again = attribution([launches[position] for position in by_start.tolist()], captures)
            ops = dict(zip(by_start.tolist(), again.ops, strict=True))
            again = again._replace(ops=[ops[position] for position in range(len(rows))])
            best = max(best, again, key=lambda candidate: candidate.agreeing)
        attributions.append(best if best.known_by else by_mark(launches, marks) or best)
    return attributions


def _note(attributions: list[Attribution]) -> str:
    """Returns which graphs' ops are unknown or uncertain."""
    notes = []
    for graph, graph_ops in enumerate(attributions):
        if not graph_ops.known_by:
            notes.append(
                f"graph {graph}: no capture has its {len(graph_ops.ops)} launches in their order, the nearest agrees in the "
                f"first {graph_ops.agreeing}"
            )
        elif graph_ops.known_by == BY_ORDER:
            notes.append(f"graph {graph}: by the order of launches alone, as the capture has no names of kernels")
        if graph_ops.known_by == BY_MARK and "" in graph_ops.ops:
            notes.append(f"graph {graph}: {graph_ops.ops.count('')} of its {len(graph_ops.ops)} nodes were not marked")
        if graph_ops.others:
            notes.append(
                f"graph {graph}: {graph_ops.others} other captures fit as well and name other ops; the first is taken"
            )
    return "; ".join(notes)


def _op_table(rank: RankTrace, replays: _Launches, attributions: list[Attribution], note: str) -> Table:
    """Returns the time of the kernels captured from each op, over all launches."""
    activities = rank.linked.activities
    duration = (activities.end - activities.start)[replays.row]
    names = [
        (graph, attributions[graph].ops[position])
        for graph, position in zip(replays.graph.tolist(), replays.position.tolist(), strict=True)
    ]
    op_ids: dict[tuple[int, str], int] = {}
    row = np.array(
        [op_ids.setdefault(name, len(op_ids)) if attributions[name[0]].known_by else -1 for name in names], np.int64
    )
    has_op, count = row >= 0, len(op_ids)
    graph, op_names = np.array([graph for graph, _ in op_ids], np.int64), [name for _, name in op_ids]
    time = np.bincount(row[has_op], duration[has_op], count)
    launches = np.bincount(replays.graph[np.unique(replays.launch, return_index=True)[1]], minlength=len(attributions))
    executed = np.bincount(row[has_op], minlength=count)
    graph_time = np.bincount(replays.graph, duration, len(attributions))
    order = np.lexsort((-time, graph))
    columns = [
        rank_column(rank.rank, count),
        Column("graph", "", graph[order]),
        Column("op", "", [op_names[row] for row in order.tolist()]),
        Column("kernels", "", executed[order] // np.maximum(launches[graph[order]], 1)),
        Column("count", "", executed[order]),
        microseconds("time", time[order]),
        percentage("pct", time[order], graph_time[graph[order]]),
    ]
    return Table(f"{NAME}_by_op", "Ops behind graphs", columns, note)


def _position_table(rank: RankTrace, replays: _Launches, attributions: list[Attribution], note: str) -> Table:
    activities = rank.linked.activities
    keys, example, number = np.unique(
        np.stack([replays.graph, replays.position], axis=1), axis=0, return_index=True, return_inverse=True
    )
    number, count = number.reshape(-1), len(keys)
    duration = (activities.end - activities.start)[replays.row]
    launches, time = np.bincount(number, minlength=count), np.bincount(number, duration, count)
    shortest, longest = np.full(count, np.iinfo(np.int64).max), np.zeros(count, np.int64)
    np.minimum.at(shortest, number, duration)
    np.maximum.at(longest, number, duration)
    graph_time = np.bincount(replays.graph, duration)[keys[:, 0]]
    example_row = replays.row[example]
    columns = [
        rank_column(rank.rank, count),
        Column("graph", "", keys[:, 0]),
        Column("position", "", keys[:, 1]),
        text_column("name", activities.name.take(example_row)),
        Column("device", "", activities.device[example_row]),
        Column("stream", "", activities.stream[example_row]),
        Column("count", "", launches),
        microseconds("time", time),
        percentage("pct", time, graph_time),
        microseconds("mean", time / np.maximum(launches, 1)),
        microseconds("min", shortest),
        microseconds("max", longest),
        Column("op", "", [attributions[graph].ops[position] for graph, position in keys.tolist()]),
    ]
    return Table(f"{NAME}_by_position", "Kernels of graphs by position", columns, note)


def _find_launches(linked: LinkedTrace) -> _Launches:
    """Finds the activities of graph launches; O(n log n) in activities.

    Where nodes of graphs are not recorded, a call launches a graph that launches several activities and says so by its
    name: a copy may be done in several pieces, too.
    """
    activities = linked.activities
    call, node = activities.call_row, activities.graph_node
    row = np.flatnonzero(call >= 0)
    several = np.bincount(call[row], minlength=len(linked.calls)) > 1
    several &= linked.calls.name.where(lambda name: "graph" in name.lower())
    row = row[several[call[row]] | (node[row] >= 0)]
    row = row[np.lexsort((activities.start[row], activities.stream[row], node[row], call[row]))]
    of_call, launch, size = np.unique(call[row], return_inverse=True, return_counts=True)
    names = activities.name.codes[row].astype(np.int32)
    graphs: dict[bytes, int] = {}
    bounds = np.concatenate(([0], np.cumsum(size))).tolist()
    graph = [graphs.setdefault(names[begin:end].tobytes(), len(graphs)) for begin, end in itertools.pairwise(bounds)]
    position = np.arange(len(row)) - np.repeat(np.array(bounds[:-1], np.int64), size)
    return _Launches(row, launch, np.repeat(np.array(graph, np.int64), size), position, of_call[launch])


def _launch_spans(replays: _Launches, activities: Activities) -> Int64:
    """Returns the time (ns) from the first start to the last end of each launch."""
    start, end = activities.start[replays.row], activities.end[replays.row]
    if not len(start):
        return start
    first = np.unique(replays.launch, return_index=True)[1]
    return np.asarray(np.maximum.reduceat(end, first) - np.minimum.reduceat(start, first))


NAME = "graph_replays"
graph_replays = per_rank(NAME, _table)
