"""Launches of CUDA and HIP graphs: tables of graphs, of their kernels, and of the ops that these were captured from.

Launches that ran activities of the same names in the same order are of one graph. During capture launches do not run:
the trace holds calls and ops, but only some profilers (ROCm) record kernels' names. Warm-ups run them one by one.
"""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from ...linker.link import link
from ...schema import columns
from ...schema.columns import Bool, Categorical, Groups, Int64, Interner, Rows, groupby
from ...schema.errors import Remedy, Words
from .rank import ActivityClass, AnalysisOptions, Capture, Launched, RankTrace, per_rank
from .reading import read_recorded
from .table import Columns, Table, ints, pct, tabulate, texts, us

NO_GRAPHS = "no call launched a graph"
NO_CAPTURE = Words("no trace of the captures was given (", Remedy.CAPTURES, ")")
KERNEL, COPY, SET = "kernel", "copy", "set"
STACK = " > "
BEGIN, END = re.compile("StreamBeginCapture"), re.compile("StreamEndCapture")
LAUNCH = re.compile(r"Launch(Cooperative)?Kernel|Mem(cpy|set)\w*Async|mem(cpy|set)\w*Async", re.IGNORECASE)
OF_SET = re.compile("memset|fill", re.IGNORECASE)
OF_COPY = re.compile("memcpy", re.IGNORECASE)
NODE_IN_GRAPH = (1 << 32) - 1
BY_NODE, BY_NAME, BY_ORDER, BY_MARK = "by node", "by name", "by order", "by mark"


class Attribution(NamedTuple):
    """The ops of a graph's launches in their order, and how they are known, "" if they are not.

    In the nearest capture the first `agreeing` launches agree. `others` counts captures that fit, with other ops.
    """

    ops: list[str]
    known_by: str
    agreeing: int = 0
    others: int = 0


@per_rank
def graph_replays(rank: RankTrace, options: AnalysisOptions) -> Table:
    """Returns a row for each graph, for each position in it, and for each op behind it.

    Without recorded nodes, a call launches a graph if it has several activities, as copies have, and its name says so.
    """
    activities, calls = rank.linked.activities, rank.linked.calls
    call, node = activities.call_row, activities.graph_node
    row = np.flatnonzero(call >= 0)
    several = np.bincount(call[row], minlength=len(calls)) > 1
    several &= calls.name.where(lambda name: "graph" in name.lower())
    row = row[several[call[row]] | (node[row] >= 0)]
    row = row[np.lexsort((activities.start[row], activities.stream[row], node[row], call[row]))]
    of_call, first, launch = np.unique(call[row], return_index=True, return_inverse=True)
    names, graphs = activities.name.codes[row].astype(np.int32), dict[bytes, int]()
    bounds = [*itertools.pairwise([*first.tolist(), len(row)])]
    of_launch = ints(graphs.setdefault(names[begin:end].tobytes(), len(graphs)) for begin, end in bounds)
    launched, example = Groups(launch, first), np.unique(of_launch, return_index=True)[1]
    count, launches = len(graphs), np.bincount(of_launch, minlength=len(graphs))
    captures = [*options.captures, *captures_of(rank)] if count else []
    known = [_attribution_of(rank, row[slice(*bounds[number])], captures) for number in example.tolist()]
    has_ops = bool(options.captures) or any(ops.known_by for ops in known)
    note = NO_GRAPHS if not count else "; ".join(_doubts(known)) if has_ops else ""
    span = launched.largest(activities.end[row]) - launched.smallest(activities.start[row])
    span = columns.group_sums(of_launch, span, count)
    graph, position = of_launch[launch], np.arange(len(row)) - first[launch]
    cells: Columns = {
        "graph": np.arange(count), "api": calls.name.take(of_call[example]), "launches": launches,
        "activities": np.bincount(graph, minlength=count) // np.maximum(launches, 1), "span": us(span),
        "span_mean": us(span / np.maximum(launches, 1)),
        "time": us(columns.group_sums(graph, rank.durations[row], count)),
        "host_time": us(columns.group_sums(of_launch, (calls.end - calls.start)[of_call], count)),
        "ops_known": [ops.known_by for ops in known],
    }  # fmt: skip
    by_position, by_op = _kernels(rank, row, graph, position, known)
    details = (
        tabulate("graph_replays_by_position", "Kernels of graphs by position", by_position, note),
        tabulate("graph_replays_by_op", "Ops behind graphs", by_op, note if has_ops or note else str(NO_CAPTURE)),
    )
    return tabulate("graph_replays", "Graph launches", cells, note, *details)


def _kernels(
    rank: RankTrace, row: Rows, graph: Int64, position: Int64, known: Sequence[Attribution]
) -> tuple[Columns, Columns]:
    """Returns the times of graphs' activities over all launches, by position, and where known by the op behind it."""
    activities, duration = rank.linked.activities, rank.durations[row]
    graph_time, groups = columns.group_sums(graph, duration, len(known)), groupby(graph, position)
    row, graph, position = row[groups.first], graph[groups.first], position[groups.first]
    count, time = groups.count(), groups.sum(duration)
    op = Categorical.of(known[number].ops[at] for number, at in zip(graph.tolist(), position.tolist(), strict=True))
    by_position: Columns = {
        "graph": graph, "position": position, "name": activities.name.take(row), "device": activities.device[row],
        "stream": activities.stream[row], "count": count, "time": us(time), "pct": pct(time, graph_time[graph]),
        "mean": us(groups.mean(duration)), "min": us(groups.smallest(duration)), "max": us(groups.largest(duration)),
        "op": op,
    }  # fmt: skip
    is_known = np.array([bool(ops.known_by) for ops in known], np.bool_)[graph]
    graph, op, count, time = graph[is_known], op.take(is_known), count[is_known], time[is_known]
    ops = groupby(graph, op.codes)
    ops = ops.in_order(np.lexsort((ops.first, -ops.sum(time), graph[ops.first])))
    graph, op_time = graph[ops.first], ops.sum(time)
    by_op: Columns = {
        "graph": graph, "op": op.take(ops.first), "kernels": ops.count(), "count": ops.sum(count), "time": us(op_time),
        "pct": pct(op_time, graph_time[graph]),
    }  # fmt: skip
    return by_position, by_op


def _attribution_of(rank: RankTrace, rows: Rows, captures: Sequence[Capture]) -> Attribution:
    """Returns the ops of the activities of a graph's first launch: from captures, else from marks."""
    activities, marks = rank.linked.activities, rank.recorded.marks
    names, nodes = activities.name[rows], activities.graph_node[rows].tolist()
    graph = [Launched(*launch, "") for launch in zip(_kinds_of(rank, rows), names, nodes, strict=True)]
    best = attribution(graph, captures)
    by_start = np.argsort(activities.start[rows], kind="stable")
    if not best.known_by and (by_start[1:] < by_start[:-1]).any():
        # several streams without graph nodes: assume that launches started in the order of their capture
        again = attribution([graph[position] for position in by_start.tolist()], captures)
        ops = [again.ops[position] for position in np.argsort(by_start).tolist()]
        best = max(best, again._replace(ops=ops), key=lambda candidate: candidate.agreeing)
    marked = [marks.get(launch.node, "") for launch in graph]
    return best if best.known_by or not any(marked) else Attribution(marked, BY_MARK)


def _doubts(attributions: list[Attribution]) -> Iterator[str]:
    """Yields which graphs' ops are unknown or uncertain."""
    for graph, attributed in enumerate(attributions):
        count = len(attributed.ops)
        if not attributed.known_by:
            nearest = f"the nearest agrees in the first {attributed.agreeing}"
            yield f"graph {graph}: no capture has its {count} launches in their order, {nearest}"
        elif attributed.known_by == BY_ORDER:
            yield f"graph {graph}: by the order of launches alone, as the capture has no names of kernels"
        if attributed.known_by == BY_MARK and "" in attributed.ops:
            yield f"graph {graph}: {attributed.ops.count('')} of its {count} nodes were not marked"
        if attributed.others:
            yield f"graph {graph}: {attributed.others} other captures fit as well and name other ops; the first is taken"


def attribution(graph: Sequence[Launched], captures: Sequence[Capture]) -> Attribution:
    """Finds the ops of a graph's launches in captures, in their order, in time linear in both.

    Recorded graph nodes are compared by their position, as each instance of a graph has its own number. Else captures
    must have as many launches of the same kinds, and names if recorded; outside of captures names are searched.
    """
    whole = [capture.launches for capture in captures if capture.whole]
    alike = [each for each in whole if len(each) == len(graph) and all(map(_alike, graph, each))]
    has_names = [all(launch.name for launch in each if launch.kind == KERNEL) for each in alike]
    for known_by, fitting in (
        (BY_NODE, _captures_of_nodes(graph, captures)), (BY_NAME, itertools.compress(alike, has_names)),
        (BY_NAME, _find_sequence(graph, captures)), (BY_ORDER, iter(alike)),
    ):  # fmt: skip
        ops = [[launch.op for launch in launches] for launches in fitting]
        if ops:
            return Attribution(ops[0], known_by, len(graph), sum(other_ops != ops[0] for other_ops in ops[1:]))
    agreeing = (sum(1 for _ in itertools.takewhile(bool, map(_alike, graph, launches))) for launches in whole)
    return Attribution([""] * len(graph), "", max(agreeing, default=0))


def _captures_of_nodes(graph: Sequence[Launched], captures: Sequence[Capture]) -> Iterator[list[Launched]]:
    if not graph or any(launch.node < 0 for launch in graph):
        return
    for capture in captures:
        by_node = {launch.node & NODE_IN_GRAPH: launch for launch in capture.launches if launch.node >= 0}
        launches = [by_node.get(launch.node & NODE_IN_GRAPH) for launch in graph]
        recorded = [launch for launch in launches if launch is not None]
        if len(recorded) == len(graph) and all(map(_alike, graph, recorded)):
            yield recorded


def _find_sequence(graph: Sequence[Launched], captures: Sequence[Capture]) -> Iterator[list[Launched]]:
    """Yields where a graph's sequence of names occurs outside of captures, by a search in texts of a letter a name."""
    letters = Interner[str]()

    def text_of(launches: Sequence[Launched]) -> str:
        return "".join(chr(letters[launch.name]) for launch in launches)

    sequence = text_of(graph)
    for launches in (capture.launches for capture in captures if graph and not capture.whole):
        text = text_of(launches)
        position = text.find(sequence)
        while position >= 0:
            yield launches[position : position + len(graph)]
            position = text.find(sequence, position + 1)


def _alike(a: Launched, b: Launched) -> bool:
    return a.kind == b.kind and (a.name == b.name or not b.name)


def read_captures(path: str) -> list[Capture]:
    """Returns the captures of a device trace, and the launches beside them. Raises DataError if it cannot be used."""
    device, recorded = read_recorded(path, memory=False, kernels=True)
    rank, names = RankTrace(0, link(None, device)), recorded.kernels or {}
    launch, count = np.unique(rank.linked.activities.call_row, return_counts=True)
    single = launch[(count == 1) & (launch >= 0)]
    single = single[np.argsort(rank.linked.calls.start[single], kind="stable")]
    return [*captures_of(rank, names), Capture(_launched(rank, single, names), False)]


def captures_of(rank: RankTrace, names: Mapping[int, str] | None = None) -> list[Capture]:
    """Returns the captures, each from a thread's begin call to its next end call; `names` are kernel names by id."""
    calls = rank.linked.calls
    begin_calls, end_calls, rows = (np.flatnonzero(_named(calls.name, pattern)) for pattern in (BEGIN, END, LAUNCH))
    if not len(begin_calls):
        return []
    # driver calls within runtime calls are the same launch
    spans = columns.ThreadIntervals(calls.thread[rows], calls.start[rows], calls.end[rows])
    rows = rows[columns.nest(spans).parent < 0]
    rows = rows[np.argsort(calls.start[rows], kind="stable")]
    capture = np.full(len(rows), -1, np.int64)
    for number, begin in enumerate(begin_calls[np.argsort(calls.start[begin_calls], kind="stable")].tolist()):
        ends = calls.start[end_calls[calls.thread[end_calls] == calls.thread[begin]]]
        until = ends[ends >= calls.end[begin]].min(initial=calls.end.max())
        capture[(calls.start[rows] >= calls.end[begin]) & (calls.start[rows] < until)] = number
    captured = columns.rows_by_number(np.flatnonzero(capture >= 0), capture)
    return [Capture(_launched(rank, rows[launches], names or {}), True) for launches in captured.values()]


def _launched(rank: RankTrace, rows: Rows, names: Mapping[int, str]) -> list[Launched]:
    """Returns the launches of these calls."""
    calls, activities, path = rank.linked.calls, rank.linked.activities, cache(lambda op: STACK.join(rank.op_path(op)))
    called = np.flatnonzero(activities.call_row >= 0)[::-1]
    first = np.full(len(calls), -1)
    first[activities.call_row[called]] = called
    kinds, launches = iter(_kinds_of(rank, first[rows][first[rows] >= 0])), []
    for call, row in zip(rows.tolist(), first[rows].tolist(), strict=True):
        op = path(int(calls.op_row[call]))
        if row >= 0:
            launch = Launched(next(kinds), activities.name[row], int(activities.graph_node[row]), op)
        else:
            api = calls.name[call]
            kind = SET if OF_SET.search(api) else COPY if OF_COPY.search(api) else KERNEL
            launch = Launched(kind, names.get(int(calls.correlation[call]), ""), -1, op)
        launches.append(launch)
    return launches


def _named(names: Categorical, pattern: "re.Pattern[str]") -> Bool:
    return names.where(lambda name: bool(pattern.search(name)))


def _kinds_of(rank: RankTrace, rows: Rows) -> list[str]:
    """Returns KERNEL, COPY or SET for each of these activities."""
    kinds = np.where(_named(rank.linked.activities.name.take(rows), OF_SET), 2, 1)
    return texts((KERNEL, COPY, SET), np.where(rank.classes[rows] == ActivityClass.MEMORY, kinds, 0))
