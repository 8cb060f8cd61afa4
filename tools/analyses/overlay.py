"""Events to add to a rank's device trace in Perfetto, JSON objects on the trace's own clock; and how to add them."""

import itertools
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import msgspec
import numpy as np
import orjson

from ...linker.readers import open_trace
from ...schema.columns import ABSENT, Bool, Intervals, rows_by_number, rows_of_each, union
from ...schema.errors import Damage, DataError
from ...schema.graph import ExecutionGraph
from ...schema.io import open_output
from ...schema.json_stream import ArrayReader
from ...schema.linked import HOST, LinkedTrace, exact_microseconds
from ...schema.progress import unseen
from ..replay import KINDS, pieces_of
from .device_time import patterns_of
from .over_time import ALL_STREAMS, counters_of, curves_of
from .rank import AnalysisOptions, RankTrace

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
    replay, graph = rank.replay, rank.graph
    if replay is None or graph is None:
        return
    pieces = pieces_of(replay)
    kind_of = dict(zip(pieces.row.tolist(), pieces.kind.tolist(), strict=True))
    tid, device, stream = (graph.integers(name, -1).tolist() for name in ("tid", "device", "stream"))
    start, end = graph.start_ns, graph.start_ns + np.maximum(graph.duration_ns - 1, 0)
    has_event = graph.is_activity | _within_rows(graph, rank.linked)
    rows, name = [row for row in kind_of if has_event[row]], {"cat": CRITICAL_PATH, "name": CRITICAL_PATH}
    for number, (source, target) in enumerate(itertools.pairwise(rows), FIRST_FLOW):
        extra = {"bp": "e", "args": {"kind": KINDS[kind_of[target]]}}
        for phase, row, time, more in (("s", source, int(end[source]), {}), ("f", target, int(start[target]), extra)):
            pid, thread = (device[row], stream[row]) if graph.is_activity[row] else (rank.linked.info.pid, tid[row])
            track = {"pid": pid, "tid": thread, "ts": orjson.Fragment(exact_microseconds(time))}
            yield orjson.dumps({"ph": phase, "id": number, **name, **track, **more})


def _within_rows(graph: ExecutionGraph, linked: LinkedTrace) -> Bool:
    """Returns which host nodes lie within an op or a call of their thread, as Perfetto attaches arrows to these."""
    ops, calls = linked.ops, linked.calls
    timed = ops.start != ABSENT
    pairs = (ops.thread, calls.thread), (ops.start, calls.start), (ops.end, calls.end)
    of_thread, begin, until = (np.concatenate((of_ops[timed], of_calls)) for of_ops, of_calls in pairs)
    rows_of = rows_of_each(of_thread)
    covered_on = {thread: union(Intervals(begin[rows], until[rows])) for thread, rows in rows_of.items()}
    thread, start = graph.integers("tid"), graph.start_ns
    end = start + np.maximum(graph.duration_ns - 1, 0)
    within, nothing = np.zeros(len(graph), np.bool_), Intervals(start[:0], end[:0])
    for number, rows in rows_by_number(np.flatnonzero(thread != ABSENT), thread).items():
        covered = covered_on.get(number, nothing)
        position = np.searchsorted(covered.start, start[rows], side="right") - 1
        within[rows] = (position >= 0) & (end[rows] < np.append(covered.end, ABSENT)[position])
    return within


def pattern_events(rank: RankTrace, options: AnalysisOptions) -> Iterator[bytes]:
    """Yields a mark over each operator that launched one of the `top` patterns of recurring kernels, by device time.

    Marks are named by the pattern's number, 1 for the longest total time, on a track of their own for each thread.
    """
    linked, patterns = rank.linked, patterns_of(rank, options)
    count, length = patterns.groups.count(), np.array([*map(len, patterns.kernels)], np.int64)
    order = np.argsort(-patterns.device_time, kind="stable")
    is_worth_it = (count >= RAREST_PATTERN) & (length >= SHORTEST_PATTERN)
    number = {pattern: place for place, pattern in enumerate(order[is_worth_it[order]][: options.top].tolist(), 1)}
    for row, pattern in zip(patterns.op_row.tolist(), patterns.groups.number.tolist(), strict=True):
        if pattern not in number:
            continue
        start, end = int(linked.ops.start[row]), int(linked.ops.end[row])
        kernels = [linked.activities.name.table[code] for code in patterns.kernels[pattern]]
        event = {
            "ph": "X", "cat": "kernel pattern", "name": f"pattern {number[pattern]}: {linked.ops.name[row]}",
            "pid": f"kernel patterns {linked.info.pid}", "tid": int(linked.ops.thread[row]),
            "ts": orjson.Fragment(exact_microseconds(start)), "dur": orjson.Fragment(exact_microseconds(end - start)),
            "args": {"kernels": kernels, "count": int(count[pattern])},
        }  # fmt: skip
        yield orjson.dumps(event)


def write_overlay(original: str, output: str, events: Iterable[bytes]) -> None:
    """Copies the trace with `events` added, in constant memory, all or nothing; raises DataError without an array."""
    with open_trace(original, protected=True) as source, open_output(output) as target:
        damage = Damage(original, "device events")
        reader: ArrayReader[Any] = ArrayReader(source, original, "traceEvents", Any, unseen, damage=damage)
        pieces = iter(reader)
        first = next(pieces, (b"[]", []))[0]
        if not reader.has_array:
            raise DataError(f"{original}: holds no traceEvents; expected a Kineto device trace")
        is_list = reader.head.lstrip() == b"["
        end = b"]" if is_list else b"]}"
        target.write(reader.head if _is_json(reader.head + end) else b'{"traceEvents": [')
        separator = b"\n"
        for event in events:
            target.write(separator + event)
            separator = b",\n"
        separator = separator.removeprefix(b"\n")
        for piece in itertools.chain([b"[" + first[1:].lstrip()], (text for text, _ in pieces)):
            if elements := piece[1:-1]:
                target.write(separator + elements)
                separator = b","
        target.write(reader.document[len(reader.head) :] if _is_json(reader.document) else end)


def _is_json(text: bytes) -> bool:
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        msgspec.json.decode(text)
        return True
    return False
