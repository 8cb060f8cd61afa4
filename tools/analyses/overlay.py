"""A device trace in, the same trace with more tracks out, for Perfetto: counters, the critical path as arrows, marks of kernel patterns.

The original's text is copied as it streams through, and the new events stand before its own; times are on its own clock.
"""

import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from ...schema.errors import DataError
from ...schema.files import open_input, open_output
from ...schema.times import microseconds
from .counters import ALL_STREAMS, counters_of
from .critical_path import KINDS, pieces_of
from .frequent_kernel_patterns import occurrences, patterns_of
from .rank_trace import Options, RankTrace

PIECE = 1 << 20
EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[|^\s*\[')
CRITICAL_PATH = "critical path"
FIRST_FLOW = 1 << 40
"""Flow ids of the critical path begin here, beyond any correlation."""


def write_overlay(original: str, output: str, events: Iterable[bytes]) -> None:
    """Copies the trace and puts `events` (JSON objects) into it, in constant memory; the output is whole or not at all.

    Raises DataError where the original has no array of events.
    """
    with open_input(original) as source, open_output(output) as target:
        text, opening = b"", None
        while opening is None:
            piece = source.read(PIECE)
            if not piece:
                raise DataError(f"{original}: holds no traceEvents; expected a Kineto device trace")
            text += piece
            opening = EVENTS.search(text)
        target.write(text[: opening.end()])
        rest = text[opening.end() :].lstrip()
        while not rest and (piece := source.read(PIECE)):
            rest = piece.lstrip()
        written = b"\n"
        for event in events:
            target.write(written + event)
            written = b",\n"
        if written != b"\n" and not rest.startswith(b"]"):
            target.write(b",\n")
        target.write(rest)
        while piece := source.read(PIECE):
            target.write(piece)


def counter_events(rank: RankTrace, options: Options | None = None) -> Iterator[bytes]:
    """A counter track for each stream's queue and each kind of copy, on the process of its device."""
    for counter in counters_of(rank, (options or Options()).queue_limit):
        name = counter.name + (f" stream {counter.stream}" if counter.stream != ALL_STREAMS else " (GB/s)")
        head = f'{{"ph":"C","name":{orjson.dumps(name).decode()},"pid":{counter.device},"ts":'
        for time, value in zip(counter.series.time.tolist(), counter.series.value.tolist(), strict=True):
            yield f'{head}{microseconds(time)},"args":{{"value":{value:g}}}}}'.encode()


def critical_path_events(rank: RankTrace) -> Iterator[bytes]:
    """An arrow from each node of the critical path to the next one, from where the one ended to where the other began, as measured.

    Nothing without a graph. Nodes that stand for what was not recorded have no slice to hang on and are passed over.
    """
    replay, graph = rank.replayed(), rank.graph
    if replay is None or graph is None:
        return
    found = pieces_of(replay)
    kind_of = dict(zip(found.row.tolist(), found.kind.tolist(), strict=True))
    tid, device, stream = (graph.integers(name, -1).tolist() for name in ("tid", "device", "stream"))
    activity, start, duration = graph.is_activity.tolist(), graph.start_ns.tolist(), graph.duration_ns.tolist()
    rows = [row for row in kind_of if activity[row] or tid[row] >= 0]
    for number, (source, target) in enumerate(itertools.pairwise(rows), FIRST_FLOW):
        ends = (("s", source, start[source] + max(duration[source] - 1, 0)), ("f", target, start[target]))
        for phase, row, time in ends:
            place = (device[row], stream[row]) if activity[row] else (rank.linked.info.pid, tid[row])
            event: dict[str, Any] = {"ph": phase, "id": number, "cat": CRITICAL_PATH, "name": CRITICAL_PATH}
            event |= {"pid": place[0], "tid": place[1], "ts": orjson.Fragment(microseconds(time))}
            extra = {"bp": "e", "args": {"kind": KINDS[kind_of[row]]}} if phase == "f" else {}
            yield orjson.dumps(event | extra)


def pattern_events(rank: RankTrace, options: Options | None = None, least: int = 2) -> Iterator[bytes]:
    """A mark over each operator whose kernels form a pattern that occurs at least `least` times, named by the pattern's number.

    Numbers count patterns from the most frequent on. The marks have a track of their own below the thread's.
    """
    options, linked = options or Options(), rank.linked
    found = occurrences(linked, options.operator, options.longest_pattern)
    patterns = patterns_of(found, linked)
    often = [0] * len(patterns.kernels)
    for one in patterns.of_occurrence.tolist():
        often[one] += 1
    by_count = sorted(range(len(often)), key=lambda one: -often[one])
    number = {one: place for place, one in enumerate(by_count, 1) if often[one] >= least}
    for row, one in zip(found.op_row.tolist(), patterns.of_occurrence.tolist(), strict=True):
        if one not in number:
            continue
        start, end = int(linked.ops.start[row]), int(linked.ops.end[row])
        times = {"ts": orjson.Fragment(microseconds(start)), "dur": orjson.Fragment(microseconds(end - start))}
        kernels = [linked.activities.name.table[code] for code in patterns.kernels[one]]
        head = {"ph": "X", "cat": "kernel pattern", "name": f"pattern {number[one]}: {linked.ops.name[row]}"}
        place = {"pid": f"kernel patterns {linked.info.pid}", "tid": int(linked.ops.thread[row])}
        yield orjson.dumps(head | place | times | {"args": {"kernels": kernels, "count": often[one]}})
