"""Events to add to a rank's device trace in Perfetto: counters, the critical path as arrows, marks of kernel patterns.

Events are JSON objects in Chrome's trace format; times are on the device trace's own clock.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import orjson

from ...schema.columns import ABSENT, Bool, Int64, Intervals, rows_by_number, rows_of_each, union
from ...schema.graph import ExecutionGraph
from ...schema.linked import HOST, LinkedTrace, exact_microseconds
from ..replay import KINDS, pieces_of
from .frequent_kernel_patterns import Patterns, occurrences, pattern_times, patterns_of
from .memory_curves import curves_of
from .over_time import ALL_STREAMS, counters_of
from .rank_trace import AnalysisOptions, RankTrace

CRITICAL_PATH = "critical path"
FIRST_FLOW = 1 << 40
"""The first flow id of the critical path, above any correlation id."""
SHORTEST_PATTERN, RAREST_PATTERN = 2, 2
"""The least kernels and occurrences of a pattern that is marked."""


def overlay_events(rank: RankTrace, options: AnalysisOptions) -> Iterator[bytes]:
    """Returns all events to add to the rank's device trace."""
    return itertools.chain(
        counter_events(rank, options), memory_events(rank), critical_path_events(rank), pattern_events(rank, options)
    )


def counter_events(rank: RankTrace, options: AnalysisOptions) -> Iterator[bytes]:
    """Yields a counter track for each stream's queue and each kind of copy, on the process of its device."""
    for counter in counters_of(rank, options.queue_limit):
        name = counter.name + (f" stream {counter.stream}" if counter.stream != ALL_STREAMS else " (GB/s)")
        head = f'{{"ph":"C","name":{orjson.dumps(name).decode()},"pid":{counter.device},"ts":'
        for time, value in zip(counter.series.time.tolist(), counter.series.value.tolist(), strict=True):
            yield f'{head}{exact_microseconds(time)},"args":{{"value":{value:g}}}}}'.encode()


def memory_events(rank: RankTrace) -> Iterator[bytes]:
    """Yields a counter track of the bytes in use: of each device on its process, of the host on the rank's process."""
    for curve in curves_of(rank):
        pid = rank.linked.info.pid if curve.device == HOST else curve.device
        head = f'{{"ph":"C","name":"memory in use","pid":{pid},"ts":'
        for time, value in zip(curve.time.tolist(), curve.allocated.tolist(), strict=True):
            yield f'{head}{exact_microseconds(time)},"args":{{"bytes":{value}}}}}'.encode()


def critical_path_events(rank: RankTrace) -> Iterator[bytes]:
    """Yields an arrow from the measured end of each node of the critical path to the measured start of the next.

    There are none without a graph. Nodes that have no event in the device trace, such as host idle time, are skipped.
    """
    replay, graph = rank.replayed(), rank.graph
    if replay is None or graph is None:
        return
    pieces = pieces_of(replay)
    kind_of = dict(zip(pieces.row.tolist(), pieces.kind.tolist(), strict=True))
    tid, device, stream = (graph.integers(name, -1).tolist() for name in ("tid", "device", "stream"))
    activity, start, duration = graph.is_activity.tolist(), graph.start_ns.tolist(), graph.duration_ns.tolist()
    has_event = graph.is_activity | _within_rows(graph, rank.linked)
    rows = [row for row in kind_of if has_event[row]]
    for number, (source, target) in enumerate(itertools.pairwise(rows), FIRST_FLOW):
        ends = (("s", source, start[source] + max(duration[source] - 1, 0)), ("f", target, start[target]))
        for phase, row, time in ends:
            track = (device[row], stream[row]) if activity[row] else (rank.linked.info.pid, tid[row])
            event: dict[str, Any] = {"ph": phase, "id": number, "cat": CRITICAL_PATH, "name": CRITICAL_PATH}
            event |= {"pid": track[0], "tid": track[1], "ts": orjson.Fragment(exact_microseconds(time))}
            extra = {"bp": "e", "args": {"kind": KINDS[kind_of[row]]}} if phase == "f" else {}
            yield orjson.dumps(event | extra)


def _within_rows(graph: ExecutionGraph, linked: LinkedTrace) -> Bool:
    """Returns which host nodes lie within an op or a call of their thread, as Perfetto attaches arrows to these."""
    thread, start = graph.integers("tid"), graph.start_ns
    end = start + np.maximum(graph.duration_ns - 1, 0)
    within = np.zeros(len(graph), np.bool_)
    covered_on, nothing = _covered(linked), Intervals(start[:0], end[:0])
    for number, rows in rows_by_number(np.flatnonzero(thread != ABSENT), thread).items():
        covered = covered_on.get(number, nothing)
        position = np.searchsorted(covered.start, start[rows], side="right") - 1
        within[rows] = (position >= 0) & (end[rows] < np.append(covered.end, ABSENT)[position])
    return within


def _covered(linked: LinkedTrace) -> dict[int, Intervals]:
    """Returns the time in which each thread runs an op or a call."""
    ops, calls = linked.ops, linked.calls
    timed = ops.start != ABSENT
    thread, start, end = (
        np.concatenate((of_ops[timed], of_calls))
        for of_ops, of_calls in ((ops.thread, calls.thread), (ops.start, calls.start), (ops.end, calls.end))
    )
    return {number: union(Intervals(start[rows], end[rows])) for number, rows in rows_of_each(thread).items()}


def pattern_events(rank: RankTrace, options: AnalysisOptions) -> Iterator[bytes]:
    """Yields a mark over each operator that launched one of the `top` patterns of recurring kernels, by device time.

    Marks are named by the pattern's number, 1 for the longest total time, on a track of their own for each thread.
    """
    linked = rank.linked
    pattern_occurrences = occurrences(linked, options.operator, options.longest_pattern)
    patterns = patterns_of(pattern_occurrences, linked)
    number = _numbers(patterns, pattern_times(pattern_occurrences, patterns, linked), options.top)
    count = np.bincount(patterns.of_occurrence).tolist()
    for row, pattern in zip(pattern_occurrences.op_row.tolist(), patterns.of_occurrence.tolist(), strict=True):
        if pattern not in number:
            continue
        start, end = int(linked.ops.start[row]), int(linked.ops.end[row])
        times = {
            "ts": orjson.Fragment(exact_microseconds(start)),
            "dur": orjson.Fragment(exact_microseconds(end - start)),
        }
        kernels = [linked.activities.name.table[code] for code in patterns.kernels[pattern]]
        head = {"ph": "X", "cat": "kernel pattern", "name": f"pattern {number[pattern]}: {linked.ops.name[row]}"}
        track = {"pid": f"kernel patterns {linked.info.pid}", "tid": int(linked.ops.thread[row])}
        yield orjson.dumps(head | track | times | {"args": {"kernels": kernels, "count": count[pattern]}})


def _numbers(patterns: Patterns, time: Int64, top: int) -> dict[int, int]:
    """Returns the number of each pattern that is marked."""
    count = np.bincount(patterns.of_occurrence, minlength=len(patterns.kernels))
    length = np.array([len(kernels) for kernels in patterns.kernels], np.int64)
    order = np.argsort(-time, kind="stable")
    worth = order[(count[order] >= RAREST_PATTERN) & (length[order] >= SHORTEST_PATTERN)]
    return {pattern: position for position, pattern in enumerate(worth[:top].tolist(), 1)}
