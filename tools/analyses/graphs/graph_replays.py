"""Launches of CUDA and HIP graphs: tables of graphs, of their kernels by position over all launches, and of the ops
that these were captured from, if a trace of the capture was given.

Launches that ran activities of the same names in the same order are of one graph. The activities of a launch are sorted
by the node of the graph, if recorded, else by stream and start.
"""

import itertools
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ....schema.columns import Int64
from ....schema.linked import LinkedTrace
from ..rank import (
    Column,
    Launched,
    Options,
    RankTrace,
    Table,
    captures_of,
    kinds_of,
    microseconds,
    per_rank,
    percentage,
    rank_column,
    text_column,
)
from .attribution import BY_MARK, BY_ORDER, Attribution, attribution, by_mark

NONE = "no call launched several activities"
NO_CAPTURE = "no trace of the captures was given (--capture-trace)"


class _Launches(NamedTuple):
    """The activities of graph launches, launch after launch: the row of each, its launch, graph and position in it, all
    numbered from 0, and the row of the call.
    """

    row: Int64
    launch: Int64
    graph: Int64
    position: Int64
    call: Int64


def _table(rank: RankTrace, options: Options) -> Table:
    replays, activities, calls = _launches(rank.linked), rank.linked.activities, rank.linked.calls
    ops = _attributed(rank.linked, replays, options, rank.recorded.marks if rank.recorded else {})
    count = int(replays.graph.max(initial=-1)) + 1
    first = np.unique(replays.launch, return_index=True)[1]
    of_launch, call = replays.graph[first], replays.call[first]
    launches = np.bincount(of_launch, minlength=count)
    spans = _span(activities.start[replays.row], activities.end[replays.row], replays.launch)
    time = np.bincount(replays.graph, (activities.end - activities.start)[replays.row], count)
    example = np.unique(of_launch, return_index=True)[1]
    known = bool(options.captures) or any(one.known_by for one in ops)
    note = NONE if not count else _note(ops) if known else ""
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
        Column("ops_known", "", [one.known_by for one in ops]),
    ]
    return Table(
        NAME,
        "Graph launches",
        columns,
        note,
        (_by_position(rank, replays, ops, note), _by_op(rank, replays, ops, note if known or note else NO_CAPTURE)),
    )


def _attributed(
    linked: LinkedTrace, replays: _Launches, options: Options, marks: Mapping[int, str]
) -> list[Attribution]:
    """Returns for each graph the ops of its positions, by its first launch: from captures, else from marks."""
    graphs, first = np.unique(replays.graph, return_index=True)
    captures = [*options.captures, *captures_of(linked)] if len(graphs) else []
    kinds, activities = kinds_of(linked.activities), linked.activities
    attributed = []
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
            again = attribution([launches[one] for one in by_start.tolist()], captures)
            ops = dict(zip(by_start.tolist(), again.ops, strict=True))
            best = max(best, again._replace(ops=[ops[one] for one in range(len(rows))]), key=lambda one: one.agreeing)
        attributed.append(best if best.known_by else by_mark(launches, marks) or best)
    return attributed


def _note(ops: list[Attribution]) -> str:
    """Returns which graphs' ops are unknown or uncertain."""
    notes = []
    for graph, one in enumerate(ops):
        if not one.known_by:
            notes.append(
                f"graph {graph}: no capture has its {len(one.ops)} launches in their order, the nearest agrees in the "
                f"first {one.agreeing}"
            )
        elif one.known_by == BY_ORDER:
            notes.append(f"graph {graph}: by the order of launches alone, as the capture has no names of kernels")
        if one.known_by == BY_MARK and "" in one.ops:
            notes.append(f"graph {graph}: {one.ops.count('')} of its {len(one.ops)} nodes were not marked")
        if one.others:
            notes.append(
                f"graph {graph}: {one.others} other captures fit as well and tell other ops; the first is taken"
            )
    return "; ".join(notes)


def _by_op(rank: RankTrace, replays: _Launches, ops: list[Attribution], note: str) -> Table:
    """Returns the time of the kernels captured from each op, over all launches."""
    activities = rank.linked.activities
    lasted = (activities.end - activities.start)[replays.row]
    names = [
        (graph, ops[graph].ops[position])
        for graph, position in zip(replays.graph.tolist(), replays.position.tolist(), strict=True)
    ]
    number: dict[tuple[int, str], int] = {}
    row = np.array([number.setdefault(one, len(number)) if ops[one[0]].known_by else -1 for one in names], np.int64)
    known = row >= 0
    count = len(number)
    graph = np.array([one[0] for one in number], np.int64)
    time = np.bincount(row[known], lasted[known], count)
    launches = np.bincount(replays.graph[np.unique(replays.launch, return_index=True)[1]], minlength=len(ops))
    executed = np.bincount(row[known], minlength=count)
    whole = np.bincount(replays.graph, lasted, len(ops))
    order = np.lexsort((-time, graph))
    columns = [
        rank_column(rank.rank, count),
        Column("graph", "", graph[order]),
        Column("op", "", [[*number][one][1] for one in order.tolist()]),
        Column("kernels", "", executed[order] // np.maximum(launches[graph[order]], 1)),
        Column("count", "", executed[order]),
        microseconds("time", time[order]),
        percentage("pct", time[order], whole[graph[order]]),
    ]
    return Table(f"{NAME}_by_op", "Ops behind graphs", columns, note)


def _by_position(rank: RankTrace, replays: _Launches, ops: list[Attribution], note: str) -> Table:
    activities = rank.linked.activities
    keys, example, number = np.unique(
        np.stack([replays.graph, replays.position], axis=1), axis=0, return_index=True, return_inverse=True
    )
    number, count = number.reshape(-1), len(keys)
    lasted = (activities.end - activities.start)[replays.row]
    often, time = np.bincount(number, minlength=count), np.bincount(number, lasted, count)
    shortest, longest = np.full(count, np.iinfo(np.int64).max), np.zeros(count, np.int64)
    np.minimum.at(shortest, number, lasted)
    np.maximum.at(longest, number, lasted)
    whole = np.bincount(replays.graph, lasted)[keys[:, 0]]
    shown = replays.row[example]
    columns = [
        rank_column(rank.rank, count),
        Column("graph", "", keys[:, 0]),
        Column("position", "", keys[:, 1]),
        text_column("name", activities.name.take(shown)),
        Column("device", "", activities.device[shown]),
        Column("stream", "", activities.stream[shown]),
        Column("count", "", often),
        microseconds("time", time),
        percentage("pct", time, whole),
        microseconds("mean", time / np.maximum(often, 1)),
        microseconds("min", shortest),
        microseconds("max", longest),
        Column("op", "", [ops[graph].ops[position] for graph, position in keys.tolist()]),
    ]
    return Table(f"{NAME}_by_position", "Kernels of graphs by position", columns, note)


def _launches(linked: LinkedTrace) -> _Launches:
    """Finds the activities of graph launches; O(n log n) in activities."""
    activities = linked.activities
    call, node = activities.call_row, activities.graph_node
    row = np.flatnonzero(call >= 0)
    several = np.bincount(call[row], minlength=len(linked.calls)) > 1
    row = row[several[call[row]] | (node[row] >= 0)]
    row = row[np.lexsort((activities.start[row], activities.stream[row], node[row], call[row]))]
    of_call, launch, size = np.unique(call[row], return_inverse=True, return_counts=True)
    names = activities.name.codes[row].astype(np.int32)
    graphs: dict[bytes, int] = {}
    bounds = np.concatenate(([0], np.cumsum(size))).tolist()
    graph = [graphs.setdefault(names[begin:end].tobytes(), len(graphs)) for begin, end in itertools.pairwise(bounds)]
    position = np.arange(len(row)) - np.repeat(np.array(bounds[:-1], np.int64), size)
    return _Launches(row, launch, np.repeat(np.array(graph, np.int64), size), position, of_call[launch])


def _span(start: Int64, end: Int64, launch: Int64) -> Int64:
    """Returns the time (ns) from the first start to the last end of each launch."""
    if not len(launch):
        return start
    first = np.unique(launch, return_index=True)[1]
    return np.asarray(np.maximum.reduceat(end, first) - np.minimum.reduceat(start, first))


NAME = "graph_replays"
graph_replays = per_rank(NAME, _table)
